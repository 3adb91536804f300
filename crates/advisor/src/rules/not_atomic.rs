//! What belongs together is written by requests of its own.

use crate::apply::Apply;
use crate::array::figure;
use crate::case::Case;
use crate::finding::Candidate;

const ACTIONS_MIN: u64 = 100;
const SHARE_MIN: f64 = 0.5;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    let workload = case.workload();
    let fires = case.holds("not-atomic/actions", workload.not_atomic >= ACTIONS_MIN)
        && case.holds(
            "not-atomic/share",
            workload.not_atomic as f64 >= SHARE_MIN * workload.writing_actions as f64,
        );
    let title = format!("actions write several items of one key of {} one by one", case.name());
    let text = "A failure in between leaves half of it. Items of one partition key can be written by one transactional batch.";
    fires
        .then(|| Candidate {
            path: case.key().path.clone(),
            evidence: vec![
                ("actions", figure(workload.not_atomic as f64)),
                ("writes", figure(workload.not_atomic_writes as f64)),
            ],
            example_items: workload.examples[2].into_iter().collect(),
            apply: Apply::steps([
                "Send the writes of one action as one transactional batch (100 operations at most).",
            ]),
            ..case.about_container(title, text.to_owned())
        })
        .into_iter()
        .collect()
}
