//! A large array that does not grow, but is changed element by element or indexed.

use quire_profile::{ArrayProfile, TypeProfile};

use crate::apply::Apply;
use crate::array::{figure, last_name, quantiles};
use crate::case::Case;
use crate::finding::Candidate;
use crate::price;

const LENGTH_MIN: f64 = 1_000.0;
const BYTES_SHARE_MIN: f64 = 0.5;
const SIZE_MIN: f64 = 100.0 * 1_024.0;
const CHANGES_MIN: f64 = 0.1;
const INDEXED_MIN: f64 = 1_000.0;
const WRITES_MIN: u64 = 100;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    let arrays = case.types().flat_map(|kind| kind.arrays.iter().map(move |array| (kind, array)));
    arrays
        .filter(|(kind, array)| fires(case, kind, array))
        .map(|(kind, array)| found(case, kind, array))
        .collect()
}

fn fires(case: &Case<'_>, kind: &TypeProfile, array: &ArrayProfile) -> bool {
    let is_most = array.bytes >= BYTES_SHARE_MIN * kind.size.mean && kind.size.p95 >= SIZE_MIN;
    case.holds("large-array/large", array.length.p95 >= LENGTH_MIN || is_most)
        && case.holds("large-array/growing", !array.growth.is_some_and(|_| case.is_growing(array)))
        && case.holds("large-array/used", is_changed(case, array) || is_indexed(case, array))
}

fn is_changed(case: &Case<'_>, array: &ArrayProfile) -> bool {
    let changes = &case.workload().writes.changes;
    let inside = changes.inside_elements(&array.path) as f64;
    changes.writes() > 0 && inside >= CHANGES_MIN * changes.writes() as f64
}

fn is_indexed(case: &Case<'_>, array: &ArrayProfile) -> bool {
    array.length.p95 * array.indexed_values > INDEXED_MIN && case.workload().changes() >= WRITES_MIN
}

fn found(case: &Case<'_>, kind: &TypeProfile, array: &ArrayProfile) -> Candidate {
    let name = last_name(&array.path);
    let writes = &case.workload().writes.changes;
    let indexed = array.length.mean * array.indexed_values;
    let by_element = is_changed(case, array);
    let (size, values) = (case.changed_size(), case.values());
    let per_day = case.changes_per_day();
    let saved = if by_element {
        let element = price::replace(array.element_bytes, array.indexed_values);
        let rest = price::replace((size - array.bytes).max(0.0), (values - indexed).max(0.0));
        case.per_day(writes.inside_elements(&array.path) as f64)
            * (price::replace(size, values) - rest.min(element) - element)
    } else {
        per_day * 2.0 * price::WRITE_PER_VALUE * indexed
    };
    let paths = [array.path.clone()];
    Candidate {
        path: array.path.clone(),
        title: format!("{name} is a large array inside {}", case.name()),
        text: format!(
            "Every write of an item writes all of its {name} again{}. {}",
            if array.length.p95 * array.indexed_values > INDEXED_MIN {
                ", with an index entry for each value"
            } else {
                ""
            },
            if by_element {
                "Give the elements items of their own."
            } else {
                "Exclude the array from the index."
            }
        ),
        evidence: vec![
            ("length", quantiles(&array.length, &["p50", "p95", "max"])),
            ("elementChanges", figure(writes.inside_elements(&array.path) as f64)),
            ("indexedValues", figure((array.length.p95 * array.indexed_values).round())),
        ],
        examples: case.examples(array.longest.iter().chain(&kind.examples)),
        effect: case.effect(per_day * price::replace(size, values), saved),
        // `extract` moves a part that has a name. The whole array as an item would be written again by each change of an element.
        apply: if by_element {
            Apply::steps([
                format!(
                    "Give each element of {name} an item of its own, with the id of the item that had it."
                ),
                format!("Read them by that id, and remove {name} from the items."),
            ])
        } else {
            case.indexing(case.policy_without(&paths))
        },
        items: Some(kind.count),
        ..Candidate::default()
    }
}
