//! Arrays, sets, and objects as arrays.

use std::cmp::Ordering;

use super::aggregates;
use super::json::{Json, JsonOrUndefined, compare_numbers};

/// `None`: no function of this family.
pub fn call(name: &str, values: &[Json]) -> Option<JsonOrUndefined> {
    let array = |index: usize| values.get(index).and_then(Json::as_array);
    Some(match name {
        "ARRAYLENGTH" => array(0).map(|array| Json::Integer(array.len() as i128)),
        "ARRAYCONCAT" => {
            let arrays: Option<Vec<&[Json]>> = values.iter().map(Json::as_array).collect();
            arrays.map(|arrays| Json::Array(arrays.concat()))
        }
        "ARRAYSLICE" => slice(values),
        "ARRAYSUM" => array(0).and_then(sum).map(Json::number),
        "ARRAYAVG" => array(0)
            .filter(|array| !array.is_empty())
            .and_then(|array| sum(array).map(|sum| Json::number(sum / array.len() as f64))),
        "ARRAYMEDIAN" => array(0).and_then(median),
        "ARRAYMIN" => array(0).and_then(|array| aggregates::extreme(array, Ordering::Less)),
        "ARRAYMAX" => array(0).and_then(|array| aggregates::extreme(array, Ordering::Greater)),
        "SETUNION" => array(0).zip(array(1)).map(|(left, right)| set([left, right].concat(), |_| true)),
        "SETINTERSECT" => {
            array(0).zip(array(1)).map(|(left, right)| set(right.to_vec(), |value| has(left, value)))
        }
        "SETDIFFERENCE" => {
            array(0).zip(array(1)).map(|(left, right)| set(left.to_vec(), |value| !has(right, value)))
        }
        "SETEQUAL" => array(0).zip(array(1)).map(|(left, right)| {
            let within = |left: &[Json], right: &[Json]| left.iter().all(|value| has(right, value));
            Json::Bool(within(left, right) && within(right, left))
        }),
        "OBJECTTOARRAY" => object_to_array(values),
        "OBJECTWITHOUT" => object_without(values),
        "CHOOSE" => {
            let index = values[0].as_i64().and_then(|index| usize::try_from(index).ok());
            index.filter(|index| *index > 0).and_then(|index| values.get(index).cloned())
        }
        _ => return None,
    })
}

fn has(array: &[Json], value: &Json) -> bool {
    array.iter().any(|element| element.equals(value))
}

fn set(values: Vec<Json>, keep: impl Fn(&Json) -> bool) -> Json {
    let mut set: Vec<Json> = Vec::new();
    for value in values {
        if keep(&value) && !has(&set, &value) {
            set.push(value);
        }
    }
    Json::Array(set)
}

fn sum(array: &[Json]) -> Option<f64> {
    array.iter().try_fold(0.0, |sum, value| Some(sum + value.as_f64()?))
}

fn median(array: &[Json]) -> JsonOrUndefined {
    if array.is_empty() || !array.iter().all(Json::is_number) {
        return None;
    }
    let mut sorted = array.to_vec();
    sorted.sort_by(|left, right| compare_numbers(left, right).unwrap_or(Ordering::Equal));
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        return Some(sorted[middle].clone());
    }
    Some(Json::number((sorted[middle - 1].as_f64()? + sorted[middle].as_f64()?) / 2.0))
}

fn slice(values: &[Json]) -> JsonOrUndefined {
    let array = values[0].as_array()?;
    let length = array.len() as i128;
    let start = i128::from(values[1].as_i64()?);
    let start = if start < 0 { (start + length).max(0) } else { start.min(length) };
    let count = match values.get(2) {
        Some(count) => i128::from(count.as_i64()?).max(0),
        None => length,
    };
    let end = (start + count).min(length);
    Some(Json::Array(array[start as usize..end as usize].to_vec()))
}

/// One name is that of the key.
fn object_to_array(values: &[Json]) -> JsonOrUndefined {
    let name = |index: usize, default: &str| match values.get(index) {
        Some(name) => name.as_str().map(str::to_owned),
        None => Some(default.to_owned()),
    };
    let (key, value) = (name(1, "k")?, name(2, "v")?);
    let members = values[0].as_object()?.iter().map(|(name, member)| {
        if key == value {
            return Json::Object(vec![(value.clone(), member.clone())]);
        }
        Json::Object(vec![(key.clone(), Json::text(name)), (value.clone(), member.clone())])
    });
    Some(Json::Array(members.collect()))
}

fn object_without(values: &[Json]) -> JsonOrUndefined {
    let names: Vec<&str> = values[1..].iter().map(Json::as_str).collect::<Option<_>>()?;
    let members = values[0].as_object()?.iter().filter(|(name, _)| !names.contains(&name.as_str()));
    Some(Json::Object(members.cloned().collect()))
}

/// Partial: an object is found when an element has all its members.
pub fn contains(values: &[JsonOrUndefined]) -> JsonOrUndefined {
    let array = values[0].as_ref()?.as_array()?;
    let wanted = values[1].as_ref()?;
    let partial = match values.get(2) {
        Some(Some(partial)) => partial.as_bool()?,
        _ => false,
    };
    let is_found = |element: &Json| match (wanted.as_object(), element.as_object()) {
        (Some(members), Some(_)) if partial => {
            members.iter().all(|(name, value)| element.get(name).is_some_and(|other| other.equals(value)))
        }
        _ => element.equals(wanted),
    };
    Some(Json::Bool(array.iter().any(is_found)))
}

/// Three-valued OR or AND over the values.
pub fn contains_several(name: &str, values: &[JsonOrUndefined]) -> JsonOrUndefined {
    let array = values[0].as_ref()?.as_array()?;
    let found: Vec<Option<bool>> =
        values[1..].iter().map(|value| value.as_ref().map(|value| has(array, value))).collect();
    let decisive = name == "ARRAYCONTAINSANY";
    if found.contains(&Some(decisive)) {
        return Some(Json::Bool(decisive));
    }
    if found.contains(&None) { None } else { Some(Json::Bool(!decisive)) }
}
