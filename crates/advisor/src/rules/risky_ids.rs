//! Ids with characters that URLs and tools trip over.

use crate::apply::Apply;
use crate::array::figure;
use crate::case::Case;
use crate::finding::Candidate;

const SHARE_MIN: f64 = 0.01;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    let fires = case.holds("risky-ids/share", case.profile.risky_ids >= SHARE_MIN);
    let title = format!("ids of {} have characters that URLs cannot carry", case.name());
    let text = "Ids are part of addresses. With a slash, a backslash, a question mark, a number sign or a control character some \
                clients cannot read the item.";
    fires
        .then(|| Candidate {
            path: "/id".to_owned(),
            evidence: vec![("share", figure(case.profile.risky_ids))],
            examples: case.examples(&case.profile.risky_id_examples),
            apply: Apply::steps(["Encode ids, for example by base64url, in new items first."]),
            ..case.about_container(title, text.to_owned())
        })
        .into_iter()
        .collect()
}
