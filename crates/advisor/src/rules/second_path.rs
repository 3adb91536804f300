//! One more way to find items than the partition key serves.

use std::collections::BTreeMap;

use quire_profile::{Scope, ShapeProfile};
use quire_value::Value;

use crate::apply::{list, object};
use crate::array::figure;
use crate::case::Case;
use crate::finding::Candidate;
use crate::price;

const PARTITIONS_MIN: f64 = 3.0;
const SHARE_MIN: f64 = 0.2;
const PER_DAY_MIN: f64 = 1_000.0;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    let mut by_path: BTreeMap<&str, Vec<&ShapeProfile>> = BTreeMap::new();
    for found in case.shapes().filter(|found| fires(case, found)) {
        by_path.entry(&found.shape.equality[0]).or_default().push(found);
    }
    by_path.into_iter().map(|(path, shapes)| found(case, path, &shapes)).collect()
}

fn fires(case: &Case<'_>, found: &ShapeProfile) -> bool {
    let share = found.totals.charge_sum / case.query_charge().max(1e-9);
    let per_day = case.per_day(found.totals.count as f64);
    found.shape.scope == Scope::None
        && !found.shape.equality.is_empty()
        && case.holds("second-path/partitions", case.partitions() >= PARTITIONS_MIN)
        && case.holds("second-path/items", case.profile.items.count as f64 >= case.thresholds.view_min_items)
        && case.holds("second-path/share", share >= SHARE_MIN || per_day >= PER_DAY_MIN)
}

fn found(case: &Case<'_>, path: &str, shapes: &[&ShapeProfile]) -> Candidate {
    let executions: u64 = shapes.iter().map(|found| found.totals.count).sum();
    let charge: f64 = shapes.iter().map(|found| found.totals.charge_sum).sum();
    let fewer = case.per_day(executions as f64) * price::PAGE_PER_PARTITION * (case.partitions() - 1.0);
    let writes = case.writes_per_day() * price::insert(case.profile.mean_size(), case.values());
    let name = format!("{}-by-{}", case.name(), path.trim_start_matches('/').replace('/', "-"));
    let view = object([
        ("id", Value::from(name)),
        (
            "partitionKey",
            object([
                ("paths", list([Value::from(path)])),
                ("kind", Value::from("Hash")),
                ("version", Value::from(2)),
            ]),
        ),
        (
            "materializedViewDefinition",
            object([
                ("sourceCollectionId", Value::from(case.name())),
                ("definition", Value::from("SELECT * FROM c")),
            ]),
        ),
    ]);
    let title = format!("{} is also looked up by {path}", case.name());
    let text = "Such a query asks every partition. A view with this path as its key answers it from one.";
    Candidate {
        path: path.to_owned(),
        evidence: vec![
            ("executions", figure(executions as f64)),
            ("unscoped", figure(charge / case.query_charge().max(1e-9))),
        ],
        effect: case.effect(case.per_day(charge), fewer - writes),
        apply: case.create_container(view),
        shapes: shapes.iter().map(|found| found.shape.id).collect(),
        ..case.about_container(title, text.to_owned())
    }
}
