//! A change of a JSON value, made in another version of it. Pure functions.

use quire_value::{Object, Value};

/// What is different between `base` and `wanted`, changed in `current`. Elements of arrays have no order.
pub(crate) fn merged(base: &Value, wanted: &Value, current: &Value) -> Value {
    match (base, wanted, current) {
        _ if base == wanted => current.clone(),
        (Value::Object(base), Value::Object(wanted), Value::Object(current)) => {
            Value::Object(merged_objects(base, wanted, current))
        }
        (Value::Array(base), Value::Array(wanted), Value::Array(current)) => {
            let mut kept = current.clone();
            let mut is_left_out = |gone: &Value| {
                let last = kept.iter().rposition(|own| own == gone);
                last.map(|last| kept.remove(last));
            };
            without(base, wanted).iter().for_each(&mut is_left_out);
            // What another client has added meanwhile is not added twice.
            let added = without(&without(wanted, base), &without(current, base));
            Value::Array(kept.iter().cloned().chain(added).collect())
        }
        _ => wanted.clone(),
    }
}

/// The elements of the one that are not in the other, each as often as it is missing there.
fn without(one: &[Value], other: &[Value]) -> Vec<Value> {
    let mut other = other.to_vec();
    let is_missing = |own: &&Value| match other.iter().position(|known| known == *own) {
        Some(known) => {
            other.remove(known);
            false
        }
        None => true,
    };
    one.iter().filter(is_missing).cloned().collect()
}

fn merged_objects(base: &Object, wanted: &Object, current: &Object) -> Object {
    let mut result = current.clone();
    let added = wanted.names().filter(|name| !base.contains(name));
    for name in base.names().chain(added) {
        let (old, new) = (base.get(name), wanted.get(name));
        match (new, current.get(name)) {
            _ if old == new => {}
            (None, _) => drop(result.remove(name)),
            (Some(new), None) => result.set(name, new.clone()),
            (Some(new), Some(current)) => {
                result.set(name, merged(old.unwrap_or(&Value::Null), new, current));
            }
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use quire_value::{Limits, text};

    use super::*;

    fn sorted(value: Value) -> Value {
        match value {
            Value::Array(mut elements) => {
                elements.sort_by_key(Value::to_json);
                Value::Array(elements)
            }
            Value::Object(object) => {
                let mut members: Vec<(String, Value)> =
                    object.iter().map(|(name, value)| (name.to_owned(), sorted(value.clone()))).collect();
                members.sort_by(|one, other| one.0.cmp(&other.0));
                Value::Object(members.into_iter().collect())
            }
            scalar => scalar,
        }
    }

    fn check(base: &str, wanted: &str, current: &str, expected: &str) {
        let json = |text: &str| text::parse(text.as_bytes(), Limits::default()).expect("JSON");
        let (base, wanted, current) = (json(base), json(wanted), json(current));
        let found = merged(&base, &wanted, &current);
        assert_eq!(found.to_json(), expected);
        // And back.
        let back = merged(&found, &current, &found);
        assert_eq!(sorted(back), sorted(current));
    }

    #[test]
    fn only_the_difference_is_changed() {
        check(r#"{"m":[1],"n":2}"#, r#"{"m":[1,5],"n":2}"#, r#"{"m":[1],"n":2}"#, r#"{"m":[1,5],"n":2}"#);
        check(r#"{"m":[1],"n":2}"#, r#"{"m":[1,5],"n":2}"#, r#"{"m":[7],"n":3}"#, r#"{"m":[7,5],"n":3}"#);
        check(r#"{"m":[1,2]}"#, r#"{"m":[2]}"#, r#"{"m":[1,2,3]}"#, r#"{"m":[2,3]}"#);
        check(
            r#"{"mode":"a","l":[1]}"#,
            r#"{"mode":"none"}"#,
            r#"{"mode":"a","l":[1],"x":1}"#,
            r#"{"mode":"none","x":1}"#,
        );
        check(r#"{"m":[1,2,1]}"#, r#"{"m":[1,2]}"#, r#"{"m":[1,2,1,9]}"#, r#"{"m":[1,2,9]}"#);
        check("null", r#"[{"name":"u"}]"#, r#"[{"name":"v"}]"#, r#"[{"name":"u"}]"#);
        check("[]", r#"[{"name":"u"}]"#, r#"[{"name":"v"}]"#, r#"[{"name":"v"},{"name":"u"}]"#);
    }
}
