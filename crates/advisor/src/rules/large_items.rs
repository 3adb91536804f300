//! Items are large, and reading and writing them is a good part of the charge.

use crate::apply::Apply;
use crate::array::quantiles;
use crate::case::Case;
use crate::finding::Candidate;
use crate::price;

use quire_profile::Operation;

const SIZE_MIN: f64 = 100.0 * 1_024.0;
const SMALL: f64 = 16.0 * 1_024.0;
const CHARGE_SHARE_MIN: f64 = 0.1;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    let kinds = case.types().filter(|kind| {
        let charge = case.workload().charge(Operation::Read) + written(case);
        let share = charge / case.workload().total_charge().max(1e-9) * kind.bytes as f64
            / case.profile.items.bytes.max(1) as f64;
        case.holds("large-items/size", kind.size.p95 >= SIZE_MIN)
            && case.holds("large-items/charge", share >= CHARGE_SHARE_MIN)
    });
    let largest = kinds.max_by_key(|kind| kind.bytes);
    largest.into_iter().map(|kind| {
        let reads = case.reads_per_day();
        let saved = reads * (price::read(kind.size.mean) - price::read(SMALL));
        Candidate {
            title: format!("items of {} are large", case.name()),
            text: "A read costs by the size of the whole item, and so does every write. Split off what is seldom needed.".to_owned(),
            evidence: vec![("size", quantiles(&kind.size, &["p50", "p95", "max"]))],
            examples: case.examples(kind.largest.iter().chain(&kind.examples)),
            effect: case.effect(reads * price::read(kind.size.mean), saved),
            apply: Apply::steps([
                "Find the properties with most of the bytes (profile, paths).",
                "Move what is seldom read to a second item with the same partition key.",
            ]),
            items: Some(kind.count),
            ..Candidate::default()
        }
    }).collect()
}

fn written(case: &Case<'_>) -> f64 {
    Operation::ALL
        .iter()
        .filter(|(operation, _)| operation.is_write())
        .map(|(operation, _)| case.workload().charge(*operation))
        .sum()
}
