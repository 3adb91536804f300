//! Integers that other programs read as other integers.

use quire_value::Value;

use crate::apply::object;
use crate::array::{figure, last_name};
use crate::case::Case;
use crate::finding::Candidate;

const SHARE_MIN: f64 = 0.01;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    let paths = case.types().flat_map(|kind| kind.paths.iter().map(move |path| (kind, path)));
    let found = paths.filter(|(_, path)| {
        let share = path.beyond_exact as f64 / path.values.max(1) as f64;
        path.beyond_exact > 0 && case.holds("number-fidelity/share", share >= SHARE_MIN)
    });
    found
        .map(|(kind, path)| Candidate {
            path: path.path.clone(),
            title: format!("{} of {} has integers beyond 2^53", last_name(&path.path), case.name()),
            text: "Programs that read numbers as doubles, such as JavaScript, see another integer. Store them as text.".to_owned(),
            evidence: vec![
                ("share", figure(path.beyond_exact as f64 / path.values.max(1) as f64)),
                ("max", Value::from(format!("1e{:.0}", path.max_integer.log10().floor()))),
            ],
            examples: case.examples(path.odd_example.iter()),
            effect: case.no_effect(),
            apply: case.refactoring(object([
                ("kind", Value::from("retype")),
                ("container", Value::from(case.name())),
                ("path", Value::from(path.path.as_str())),
                ("as", Value::from("string")),
            ])),
            items: Some(kind.count),
            ..Candidate::default()
        })
        .collect()
}
