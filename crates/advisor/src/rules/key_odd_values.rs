//! Some items have no partition key, or one of another type.

use quire_value::{Object, Value};

use crate::apply::Apply;
use crate::array::figure;
use crate::case::Case;
use crate::finding::Candidate;

const SHARE_MIN: f64 = 0.01;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    let key = case.key();
    let shares = key.kinds.shares();
    let most = shares.iter().map(|(_, share)| *share).fold(0.0, f64::max) * (1.0 - key.absent);
    let title = format!("some items of {} have no usual partition key", case.name());
    let text = "Items without a key, or with null, share one partition; 1 and \"1\" are two keys. Queries by the usual form miss them.";
    case.holds("key-odd-values/share", 1.0 - most > SHARE_MIN)
        .then(|| Candidate {
            path: key.path.clone(),
            evidence: vec![
                ("absent", figure(key.absent)),
                (
                    "types",
                    Value::from(Object::from_iter(
                        shares.iter().map(|(name, share)| (*name, figure(*share))),
                    )),
                ),
            ],
            apply: Apply::steps([
                "Make every item with a key of one type.",
                "Move the odd items: delete and create.",
            ]),
            examples: case.examples(key.odd_example.iter()),
            ..case.about_container(title, text.to_owned())
        })
        .into_iter()
        .collect()
}
