//! Two actions replace one item, and the second does not know of the first.

use crate::apply::Apply;
use crate::array::figure;
use crate::case::Case;
use crate::finding::Candidate;

const PAIRS_MIN: u64 = 10;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    let workload = case.workload();
    let fires = case.holds("lost-updates/pairs", workload.lost_updates >= PAIRS_MIN);
    let title = format!("updates of {} overwrite each other", case.name());
    let text = "Two actions read the same version and both replaced it: the first change is lost. Send If-Match with the ETag that was \
                read, or change by patch.";
    fires
        .then(|| Candidate {
            evidence: vec![("pairs", figure(workload.lost_updates as f64))],
            example_items: workload.examples[0].into_iter().collect(),
            apply: Apply::steps([
                "Send If-Match with every replace, and read again on 412.",
                "Or change single properties by patch.",
            ]),
            ..case.about_container(title, text.to_owned())
        })
        .into_iter()
        .collect()
}
