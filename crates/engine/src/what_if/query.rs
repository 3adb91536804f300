//! Queries of a replay: the recorded shape, with values of the items that it returned.

use quire_profile::{ParameterQuery, Placeholder, Role, any_value};
use quire_sql::Parameters;
use quire_value::{Number, Value};

use super::values::values_at;

/// Values of a list.
const LIST_MAX: usize = 100;

/// A query as it can be sent.
#[derive(Clone, Debug)]
pub(super) struct ReplayedQuery {
    pub text: String,
    pub parameters: Parameters,
}

/// Values for all placeholders, from items that the query returned; `None` where no item gives one.
pub(super) fn with_values(query: &ParameterQuery, items: &[Value]) -> Option<ReplayedQuery> {
    let mut text = query.text.clone();
    let mut parameters = Vec::new();
    for placeholder in &query.parameters {
        if placeholder.role == Role::In {
            let values = distinct(items, &placeholder.path);
            let listed: Vec<String> =
                (0..values.len()).map(|number| format!("{}{number}", placeholder.name)).collect();
            text = text.replace(&placeholder.name, &listed.join(", "));
            parameters.extend(listed.into_iter().zip(values));
        } else {
            parameters.push((placeholder.name.clone(), value_of(placeholder, items)?));
        }
    }
    let is_whole = !text.contains("IN ()");
    is_whole.then_some(ReplayedQuery { text, parameters: Parameters(parameters) })
}

fn distinct(items: &[Value], path: &str) -> Vec<Value> {
    let mut found: Vec<Value> = Vec::new();
    for value in items.iter().flat_map(|item| values_at(item, path)) {
        if found.len() < LIST_MAX && !found.contains(value) {
            found.push(value.clone());
        }
    }
    found
}

fn value_of(placeholder: &Placeholder, items: &[Value]) -> Option<Value> {
    let first = || values_at(items.first()?, &placeholder.path).first().map(|value| (*value).clone());
    let all = || items.iter().flat_map(|item| values_at(item, &placeholder.path));
    match &placeholder.role {
        Role::Any => Some(any_value()),
        Role::Equal | Role::Part => first(),
        Role::Element => first()?.into_array()?.into_iter().next(),
        Role::Low(is_outside) => {
            let least = all().min_by(|one, other| one.cmp(other))?;
            Some(if *is_outside { below(least) } else { least.clone() })
        }
        Role::High(is_outside) => {
            let most = all().max_by(|one, other| one.cmp(other))?;
            Some(if *is_outside { above(most) } else { most.clone() })
        }
        Role::Prefix => Some(Value::from(prefix(&all().filter_map(Value::as_str).collect::<Vec<_>>())?)),
        Role::Function(name) => function(name, first()?),
        Role::In | Role::Unknown => None,
    }
}

/// A value that is less, and as near as is simple.
fn below(value: &Value) -> Value {
    match value {
        Value::Number(number) => Value::Number(shifted(*number, -1)),
        Value::String(text) => {
            let end = text.char_indices().next_back().map_or(0, |(at, _)| at);
            Value::from(&text[..end])
        }
        value => value.clone(),
    }
}

fn above(value: &Value) -> Value {
    match value {
        Value::Number(number) => Value::Number(shifted(*number, 1)),
        Value::String(text) => Value::from(format!("{text}\u{1}")),
        value => value.clone(),
    }
}

fn shifted(number: Number, by: i64) -> Number {
    match number.as_i64().and_then(|integer| integer.checked_add(by)) {
        Some(integer) => Number::Int(integer),
        None => Number::Double(number.as_f64() + by as f64 * 1e-6),
    }
}

/// What all texts begin with; half of a single one.
fn prefix(texts: &[&str]) -> Option<String> {
    let (first, rest) = texts.split_first()?;
    let letters: Vec<char> = first.chars().collect();
    let common = rest.iter().fold(letters.len(), |length, text| {
        letters.iter().zip(text.chars()).take(length).take_while(|(one, other)| **one == *other).count()
    });
    let length = if rest.is_empty() { letters.len().div_ceil(2) } else { common };
    Some(letters[..length].iter().collect())
}

/// Of the functions that hide an index most often.
fn function(name: &str, value: Value) -> Option<Value> {
    match (name, value) {
        ("LOWER", Value::String(text)) => Some(Value::from(text.to_lowercase())),
        ("UPPER", Value::String(text)) => Some(Value::from(text.to_uppercase())),
        ("TRIM", Value::String(text)) => Some(Value::from(text.trim())),
        ("LENGTH", Value::String(text)) => Some(Value::from(text.chars().count() as u64)),
        ("ABS", Value::Number(number)) => Some(Value::from(number.as_f64().abs())),
        ("ARRAY_LENGTH", Value::Array(elements)) => Some(Value::from(elements.len() as u64)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use quire_profile::{parameter_query, shape_of};
    use quire_value::{Limits, text};

    use super::*;

    fn replayed(text: &str, items: &[&str]) -> Option<String> {
        let shape = shape_of("c", text, &Parameters(Vec::new()), &[], false).unwrap();
        let items: Vec<Value> =
            items.iter().map(|item| text::parse(item.as_bytes(), Limits::default()).unwrap()).collect();
        let query = with_values(&parameter_query(&shape.text).unwrap(), &items)?;
        let mut shown = query.text;
        for (name, value) in query.parameters.0.iter().rev() {
            shown = shown.replace(name, &value.to_json());
        }
        Some(shown)
    }

    #[test]
    fn values_come_from_the_items_that_were_returned() {
        let items = [
            r#"{"id":"b","city":"Wien","age":30,"tags":["x","y"],"name":"Berta","l":[{"k":1}]}"#,
            r#"{"id":"a","city":"Graz","age":20,"tags":[],"name":"Bernd","l":[]}"#,
        ];
        let check =
            |text: &str, expected: &str| assert_eq!(replayed(text, &items).as_deref(), Some(expected));
        check(
            "SELECT * FROM c WHERE c.city = 'x' AND c.age > 5 AND c.age <= 90",
            r#"SELECT * FROM c WHERE ((c.city = "Wien") AND (c.age > 19) AND (c.age <= 30))"#,
        );
        check(
            "SELECT * FROM c WHERE c.id IN ('q', 'r', 's')",
            r#"SELECT * FROM c WHERE (c.id IN ("b", "a"))"#,
        );
        check(
            "SELECT * FROM c JOIN e IN c.l WHERE e.k = 7 AND ARRAY_CONTAINS(c.tags, 'q') AND STARTSWITH(c.name, 'z')",
            r#"SELECT * FROM c JOIN e IN c.l WHERE ((e.k = 1) AND ARRAY_CONTAINS(c.tags, "x") AND STARTSWITH(c.name, "Ber"))"#,
        );
        check(
            "SELECT * FROM c WHERE LOWER(c.city) = 'x'",
            r#"SELECT * FROM c WHERE (LOWER(c.city) = "wien")"#,
        );
        check(
            "SELECT * FROM c WHERE c.city BETWEEN 'a' AND 'b'",
            r#"SELECT * FROM c WHERE (c.city BETWEEN "Graz" AND "Wien")"#,
        );
    }

    #[test]
    fn no_item_gives_what_is_not_compared_with_a_path() {
        assert_eq!(replayed("SELECT * FROM c WHERE c.a + 1 = 2", &[r#"{"a":1}"#]), None);
        assert_eq!(replayed("SELECT * FROM c WHERE c.a = 2", &[]), None);
        assert_eq!(replayed("SELECT * FROM c WHERE c.a = 2", &["{}"]), None);
        assert_eq!(replayed("SELECT * FROM c WHERE c.a IN (2)", &["{}"]), None);
        assert!(replayed("SELECT TOP 3 c.a FROM c ORDER BY c.a", &[]).is_some());
    }
}
