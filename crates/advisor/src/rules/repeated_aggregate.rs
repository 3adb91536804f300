//! The same aggregate is computed again and again.

use std::collections::BTreeMap;

use quire_profile::ShapeProfile;
use quire_value::{Object, Value};

use crate::apply::{Apply, capital, expression};
use crate::array::{figure, quantiles};
use crate::case::Case;
use crate::finding::Candidate;
use crate::price;

const EXECUTIONS_MIN: u64 = 100;
const ROWS_MIN: f64 = 100.0;
const CHARGE_MIN: f64 = 20.0;
const PER_WRITE_MIN: f64 = 10.0;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    let mut by_path: BTreeMap<String, Vec<&ShapeProfile>> = BTreeMap::new();
    for found in case.shapes().filter(|found| fires(case, found)) {
        let path = found
            .shape
            .equality
            .iter()
            .find(|path| **path != case.key().path)
            .or(found.shape.equality.first());
        by_path.entry(path.cloned().unwrap_or_default()).or_default().push(found);
    }
    by_path.into_iter().map(|(path, shapes)| found(case, path, &shapes)).collect()
}

fn fires(case: &Case<'_>, found: &ShapeProfile) -> bool {
    let totals = &found.totals;
    !found.shape.aggregates.is_empty()
        && case.holds("repeated-aggregate/executions", totals.count >= EXECUTIONS_MIN)
        && case.holds(
            "repeated-aggregate/rows",
            totals.rows_read.p50 >= ROWS_MIN || totals.charge.p50 >= CHARGE_MIN,
        )
        && case.holds("repeated-aggregate/writes", totals.count as f64 >= PER_WRITE_MIN * writes(case))
}

fn writes(case: &Case<'_>) -> f64 {
    case.writes_per_day() * case.days
}

fn found(case: &Case<'_>, path: String, shapes: &[&ShapeProfile]) -> Candidate {
    let reference = case.references_to(&path);
    let executions: u64 = shapes.iter().map(|found| found.totals.count).sum();
    let charge: f64 = shapes.iter().map(|found| found.totals.charge_sum).sum();
    let target = reference.map_or(1_024.0, |reference| reference.target_bytes);
    let values = reference.map_or(2.0, |reference| reference.target_values);
    let then = executions as f64 * price::read(target) + writes(case) * price::replace(target, values);
    let first = shapes[0];
    let apply = match reference {
        Some(reference) => {
            let (op, of) = first.shape.aggregates.first().cloned().unwrap_or_default();
            let into = format!("/{}Of{}", op.to_lowercase(), capital(case.name()));
            let mut declaration = Object::from_iter([
                (
                    "name",
                    Value::from(crate::apply::name_of(&format!("{}-of-{}", op.to_lowercase(), case.name()))),
                ),
                ("op", Value::from(op.to_lowercase())),
                ("into", Value::from(into)),
            ]);
            if op != "COUNT" {
                declaration.set("value", expression("r", &of));
            }
            case.model_with(reference, "rollups", declaration)
        }
        None => Apply::steps([
            "Keep the result in an item of its own, changed with each write (patch incr) or from the change feed.",
            "Read that item instead of the aggregate.",
        ]),
    };
    Candidate {
        path,
        with: reference.map(|reference| reference.to.clone()),
        title: format!("the same aggregate over {} is computed again and again", case.name()),
        text:
            "It reads many items to give one figure, and the items seldom change in between. Keep the figure."
                .to_owned(),
        evidence: vec![
            ("executions", figure(executions as f64)),
            ("rowsRead", quantiles(&first.totals.rows_read, &["p50", "p95"])),
            ("writes", figure(writes(case))),
        ],
        examples: case.any_examples(),
        effect: case.effect(case.per_day(charge), case.per_day(charge - then)),
        apply,
        shapes: shapes.iter().map(|found| found.shape.id).collect(),
        ..Candidate::default()
    }
}
