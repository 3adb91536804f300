//! Items of several kinds share a container, and no property distinguishes them.

use quire_value::Value;

use crate::apply::Apply;
use crate::case::Case;
use crate::finding::Candidate;

const SHARE_MIN: f64 = 0.1;
const ITEMS_MIN: u64 = 50;
const QUERIES_MIN: u64 = 10;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    let items: u64 = case.profile.items.scanned;
    let shapes = case.profile.clusters.iter().filter(|cluster| {
        case.holds("missing-discriminator/share", cluster.count as f64 >= SHARE_MIN * items as f64)
            && case.holds("missing-discriminator/items", cluster.count >= ITEMS_MIN)
    });
    let shapes: Vec<Value> = shapes.map(|cluster| Value::from(cluster.count)).collect();
    let fires = case.holds("missing-discriminator/shapes", shapes.len() >= 2)
        && case.holds("missing-discriminator/separated", !case.profile.separated)
        && case.holds("missing-discriminator/queries", case.queries() >= QUERIES_MIN);
    let title = format!("{} holds items of several kinds without a type", case.name());
    let text = "Items have different properties, and no property says which kind they are. Queries have to guess from what is \
                defined, and every change of one kind risks the others. Add a property such as type.";
    fires
        .then(|| Candidate {
            evidence: vec![("types", Value::from(shapes))],
            apply: Apply::steps(["Add a property type to every item, in new writes first.", "Filter by it."]),
            ..case.about_container(title, text.to_owned())
        })
        .into_iter()
        .collect()
}
