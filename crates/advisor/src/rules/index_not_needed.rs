//! A container is used by id only, and indexes everything.

use quire_profile::Operation;
use quire_resource::IndexingMode;

use crate::apply::object;
use crate::array::figure;
use crate::case::Case;
use crate::finding::Candidate;
use crate::price;

use super::index_unused::saved;

const POINT_MIN: f64 = 0.99;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    let operations = case.workload().total_operations();
    let queries = case.workload().count(Operation::Query);
    let point: u64 = operations - queries - case.workload().count(Operation::Feed);
    let is_indexed = case.definition.indexing.mode != IndexingMode::None && case.values() > 0.0;
    let fires = case.holds("index-not-needed/days", case.days >= case.thresholds.index_min_days)
        && case.holds("index-not-needed/queries", queries == 0)
        && case.holds("index-not-needed/point", point as f64 >= POINT_MIN * operations as f64)
        && is_indexed;
    let title = format!("{} is used by id only, and indexed", case.name());
    let text = "No query was made. Without an index, writes cost less; it can be built again while the container serves.";
    fires
        .then(|| Candidate {
            evidence: vec![("operations", figure(operations as f64))],
            effect: case.effect(
                case.writes_per_day() * price::insert(case.profile.mean_size(), case.values()),
                saved(case, case.values()),
            ),
            apply: case.indexing(object([("indexingMode", "none".into()), ("automatic", false.into())])),
            ..case.about_container(title, text.to_owned())
        })
        .into_iter()
        .collect()
}
