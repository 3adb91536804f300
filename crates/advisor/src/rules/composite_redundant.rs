//! A composite index that another one already serves.

use quire_resource::{CompositePath, SortOrder};
use quire_value::Value;

use crate::case::Case;
use crate::finding::Candidate;
use crate::price;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    let all = &case.definition.indexing.composite;
    let mut found = Vec::new();
    for (number, index) in all.iter().enumerate() {
        let repeats = all[..number].iter().any(|other| is_same(other, index) || is_reversed(other, index));
        if case.holds("composite-redundant/repeats", repeats) && number > 0 {
            found.push(about(case, number, index));
        }
    }
    found
}

fn is_same(one: &[CompositePath], other: &[CompositePath]) -> bool {
    one.len() == other.len()
        && one.iter().zip(other).all(|(one, other)| one.path == other.path && one.order == other.order)
}

/// Every path in the other direction: an index is read both ways.
fn is_reversed(one: &[CompositePath], other: &[CompositePath]) -> bool {
    one.len() == other.len()
        && one.iter().zip(other).all(|(one, other)| one.path == other.path && one.order != other.order)
}

fn about(case: &Case<'_>, number: usize, index: &[CompositePath]) -> Candidate {
    let name = |part: &CompositePath| {
        format!(
            "{} {}",
            part.path,
            if part.order == SortOrder::Descending { "descending" } else { "ascending" }
        )
    };
    let path = index.iter().map(|part| part.path.to_string()).collect::<Vec<_>>().join(", ");
    let mut policy = case.definition.indexing.to_json().into_object().unwrap_or_default();
    let mut composites =
        policy.get("compositeIndexes").and_then(Value::as_array).unwrap_or_default().to_vec();
    if number < composites.len() {
        composites.remove(number);
    }
    policy.set("compositeIndexes", Value::from(composites));
    let title = format!("{} has a composite index twice", case.name());
    let text = "The same paths in the same or in the fully reversed order are served by one index.";
    let saved = case.writes_per_day() * price::WRITE_PER_VALUE * 2.0;
    Candidate {
        path,
        evidence: vec![("index", Value::from(index.iter().map(name).collect::<Vec<_>>().join(", ")))],
        effect: case.effect(saved, saved),
        apply: case.indexing(Value::from(policy)),
        ..case.about_container(title, text.to_owned())
    }
}
