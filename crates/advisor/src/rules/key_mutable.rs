//! Items move to another partition key.

use crate::apply::Apply;
use crate::array::figure;
use crate::case::Case;
use crate::finding::Candidate;

const MOVES_MIN: u64 = 10;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    let moves = case.workload().keys.moves;
    let title = format!("items of {} change their partition key", case.name());
    let text = "An item is deleted and made again under another key, or a replace is refused for it. A reader in between sees none or \
                two. A key should not change during an item's life.";
    case.holds("key-mutable/moves", moves >= MOVES_MIN)
        .then(|| Candidate {
            path: case.key().path.clone(),
            evidence: vec![("moves", figure(moves as f64))],
            apply: Apply::steps([
                "Choose a property that is known when an item is made and stays.",
                "Rekey the container to it.",
            ]),
            ..case.about_container(title, text.to_owned())
        })
        .into_iter()
        .collect()
}
