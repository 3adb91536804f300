//! Aggregates over the defined values of a group.

use std::cmp::Ordering;

use quire_sql::ast::{Expr, ExprKind};

use super::json::{Json, JsonOrUndefined, total_order};

/// The name and the argument of an aggregate.
pub fn call(expr: &Expr) -> Option<(&'static str, &Expr)> {
    let ExprKind::Call { name, arguments } = &*expr.kind else { return None };
    let plain = name.name.to_ascii_uppercase().replace('_', "");
    let known = ["COUNT", "SUM", "AVG", "MIN", "MAX", "COUNTIF", "MAKELIST", "MAKESET"];
    let name = known.into_iter().find(|known| *known == plain)?;
    Some((name, arguments.first()?))
}

pub fn aggregate(name: &str, values: Vec<Json>) -> JsonOrUndefined {
    let count = |count: usize| Some(Json::Integer(count as i128));
    match name {
        "COUNT" => count(values.len()),
        "COUNTIF" => count(values.iter().filter(|value| value.as_bool() == Some(true)).count()),
        "SUM" => sum(&values).map(Json::number),
        "AVG" if values.is_empty() => None,
        "AVG" => sum(&values).map(|sum| Json::number(sum / values.len() as f64)),
        "MIN" => extreme(&values, Ordering::Less),
        "MAX" => extreme(&values, Ordering::Greater),
        "MAKESET" => {
            let mut set: Vec<Json> = Vec::new();
            for value in values {
                if !set.iter().any(|known| known.equals(&value)) {
                    set.push(value);
                }
            }
            Some(Json::Array(set))
        }
        _ => Some(Json::Array(values)),
    }
}

fn sum(values: &[Json]) -> Option<f64> {
    values.iter().try_fold(0.0, |sum, value| Some(sum + value.as_f64()?))
}

/// Undefined as soon as an array or object is among the values.
pub fn extreme(values: &[Json], wanted: Ordering) -> JsonOrUndefined {
    if !values.iter().all(Json::is_primitive) {
        return None;
    }
    let mut best: JsonOrUndefined = None;
    for value in values {
        let value = Some(value.clone());
        if best.is_none() || total_order(&value, &best) == wanted {
            best = value;
        }
    }
    best
}
