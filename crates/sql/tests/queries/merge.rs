//! What a client does with the rows of several partitions, by the query plan alone.

use std::cmp::Ordering;

use quire_sql::ast::Direction;
use quire_sql::functions::Aggregate;
use quire_sql::{Distinct, QueryInfo};
use quire_value::{Object, Value, key};

pub fn merge(info: &QueryInfo, mut rows: Vec<Value>) -> Vec<Value> {
    if !info.order_by.is_empty() {
        rows.sort_by(|left, right| compare(info, left, right));
        rows = rows.iter().filter_map(|row| row.get("payload").cloned()).collect();
    }
    if !info.group_by_expressions.is_empty() || !info.group_by_aliases.is_empty() {
        rows = groups(info, &rows);
    } else if let [aggregate] = info.aggregates.as_slice() {
        let partials: Vec<&Value> = rows.iter().filter_map(|row| row.at(0)).collect();
        rows = vec![combine(*aggregate, &partials)];
    }
    rows.retain(|row| !row.is_undefined());
    match info.distinct {
        Distinct::None => {}
        Distinct::Ordered => rows.dedup(),
        Distinct::Unordered => {
            rows = rows
                .iter()
                .enumerate()
                .filter(|(at, row)| !rows[..*at].contains(row))
                .map(|(_, row)| row.clone())
                .collect()
        }
    }
    let take = info.top.or(info.limit).map_or(usize::MAX, |count| count as usize);
    let mut rows: Vec<Value> = rows.into_iter().skip(info.offset.unwrap_or(0) as usize).take(take).collect();
    if let Some(count) = &info.distinct_count {
        let total = Value::from(rows.len() as i64);
        rows = vec![if count.alias.is_empty() {
            total
        } else {
            [(count.alias.clone(), total)].into_iter().collect::<Object>().into()
        }];
    }
    rows
}

fn compare(info: &QueryInfo, left: &Value, right: &Value) -> Ordering {
    // Of arrays and objects a client compares the hashes.
    let key = |row: &Value, index: usize| {
        let item = row.get("orderByItems").and_then(|items| items.at(index)?.get("item"));
        let mut key = Vec::new();
        key::encode_sort(item.unwrap_or(&Value::Undefined), &mut key);
        key
    };
    for (index, direction) in info.order_by.iter().enumerate() {
        let ordering = key(left, index).cmp(&key(right, index));
        if ordering.is_ne() {
            return if *direction == Direction::Descending { ordering.reverse() } else { ordering };
        }
    }
    Ordering::Equal
}

fn groups(info: &QueryInfo, rows: &[Value]) -> Vec<Value> {
    let mut groups: Vec<(Option<&Value>, Vec<&Value>)> = Vec::new();
    for row in rows {
        let keys = row.get("groupByItems");
        let payload = row.get("payload").unwrap_or(&Value::Undefined);
        match groups.iter_mut().find(|(known, _)| *known == keys) {
            Some((_, payloads)) => payloads.push(payload),
            None => groups.push((keys, vec![payload])),
        }
    }
    groups.into_iter().map(|(_, payloads)| group(info, &payloads)).collect()
}

fn group(info: &QueryInfo, payloads: &[&Value]) -> Value {
    if info.has_select_value {
        return match info.aggregates.as_slice() {
            [aggregate] => {
                combine(*aggregate, &payloads.iter().filter_map(|payload| payload.at(0)).collect::<Vec<_>>())
            }
            _ => payloads[0].clone(),
        };
    }
    let mut object = Object::new();
    for (alias, aggregate) in &info.group_by_alias_to_aggregate {
        let parts: Vec<&Value> = payloads.iter().filter_map(|payload| payload.get(alias)).collect();
        let value = match aggregate {
            Some(aggregate) => combine(*aggregate, &parts),
            None => parts.first().map_or(Value::Undefined, |value| (*value).clone()),
        };
        if !value.is_undefined() {
            object.set(alias.as_str(), value);
        }
    }
    Value::Object(object)
}

fn combine(aggregate: Aggregate, partials: &[&Value]) -> Value {
    let items: Vec<Option<&Value>> = partials.iter().map(|partial| partial.get("item")).collect();
    match aggregate {
        Aggregate::Count | Aggregate::CountIf | Aggregate::Sum => sum(items.into_iter()),
        Aggregate::Average => {
            let counted: Vec<&Value> = items
                .into_iter()
                .flatten()
                .filter(|item| item.get("count") != Some(&Value::from(0)))
                .collect();
            let total = sum(counted.iter().map(|item| item.get("sum")));
            let count = sum(counted.iter().map(|item| item.get("count")));
            match (total.as_number(), count.as_number()) {
                (Some(total), Some(count)) if count.as_f64() > 0.0 => {
                    Value::from(total.as_f64() / count.as_f64())
                }
                _ => Value::Undefined,
            }
        }
        Aggregate::Min => extreme(partials, "min", Ordering::Less),
        Aggregate::Max => extreme(partials, "max", Ordering::Greater),
        Aggregate::MakeList => items
            .into_iter()
            .flatten()
            .flat_map(|item| item.as_array().unwrap_or_default())
            .cloned()
            .collect(),
        Aggregate::MakeSet => {
            let mut set: Vec<Value> = Vec::new();
            for value in items.into_iter().flatten().flat_map(|item| item.as_array().unwrap_or_default()) {
                if !set.contains(value) {
                    set.push(value.clone());
                }
            }
            Value::Array(set)
        }
    }
}

/// A missing part makes the sum undefined.
fn sum<'v>(parts: impl Iterator<Item = Option<&'v Value>>) -> Value {
    let total: Option<f64> = parts.map(|part| part?.as_number().map(|number| number.as_f64())).sum();
    total.map_or(Value::Undefined, Value::from)
}

fn extreme(partials: &[&Value], name: &str, keep: Ordering) -> Value {
    let mut best = Value::Undefined;
    for partial in partials.iter().filter_map(|partial| partial.get("item2")) {
        if partial.get("count") == Some(&Value::from(0)) {
            continue;
        }
        let Some(value) = partial.get(name) else { return Value::Undefined };
        if best.is_undefined() || value.total_cmp(&best) == keep {
            best = value.clone();
        }
    }
    best
}
