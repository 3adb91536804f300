//! Values of a replay: taken from items, or made up with the type and length of those that are there.

use quire_profile::{ArrayLength, ItemChange, names};
use quire_value::{Number, Object, Value, random};

const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
/// Elements that one write adds to an array at most.
const ADDED_MAX: u64 = 1_000;
/// Of a property that the item does not have any more.
const UNKNOWN_LENGTH: usize = 8;

/// Numbers that follow from a seed.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    /// Of one operation: the same for both forms.
    pub fn new(seed: u64, operation: u64) -> Random {
        let mut random = Random(seed ^ operation.wrapping_mul(0xd1b5_4a32_d192_ed03));
        random.next();
        random
    }

    pub fn next(&mut self) -> u64 {
        random::next(&mut self.0)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    pub fn text(&mut self, length: usize) -> String {
        (0..length).map(|_| char::from(LETTERS[self.below(LETTERS.len())])).collect()
    }
}

/// What must not change in an item, and what only takes values that other items have.
pub(super) struct PathRules<'a> {
    /// The id and the partition key.
    pub fixed: &'a [String],
    /// References: the value of another item.
    pub borrowed: &'a dyn Fn(&str) -> Option<Value>,
}

/// The item after a write that changed these paths.
pub(super) fn changed(
    item: &Value,
    change: &ItemChange,
    rules: &PathRules<'_>,
    random: &mut Random,
) -> Value {
    let mut item = item.clone();
    let elements = change.element_keys.len().max(1);
    for path in &change.paths {
        // Every path has numbers of its own: one that this form does not have takes none of another's.
        let mut random = Random::new(random.clone().next(), hash(path));
        if rules.fixed.contains(path) {
            continue;
        }
        let length = change.lengths.iter().find(|length| length.path == *path);
        let place = ChangedPath { path, length, elements, rules };
        place.visit(&mut item, &names(path), &mut random);
    }
    item
}

fn hash(text: &str) -> u64 {
    quire_value::murmur::murmur128(text.as_bytes()).0
}

struct ChangedPath<'a> {
    path: &'a str,
    length: Option<&'a ArrayLength>,
    /// Elements of an array that a write changes.
    elements: usize,
    rules: &'a PathRules<'a>,
}

impl ChangedPath<'_> {
    fn visit(&self, value: &mut Value, names: &[String], random: &mut Random) {
        let Some((name, rest)) = names.split_first() else { return self.change(value, random) };
        match value {
            Value::Array(elements) if name == "*" => {
                let first = random.below(elements.len());
                let count = self.elements.min(elements.len());
                for number in 0..count {
                    let at = (first + number) % elements.len();
                    self.visit(&mut elements[at], rest, random);
                }
            }
            Value::Object(object) => match object.get_mut(name) {
                Some(value) => self.visit(value, rest, random),
                // It was there once: it comes back.
                None if rest.is_empty() => object.set(name.as_str(), random.text(UNKNOWN_LENGTH)),
                None => {}
            },
            _ => {}
        }
    }

    fn change(&self, value: &mut Value, random: &mut Random) {
        match (&mut *value, self.length) {
            (Value::Array(elements), Some(length)) => resize(elements, length, random),
            _ => match (self.rules.borrowed)(self.path) {
                Some(other) => *value = other,
                None => *value = varied(value, random),
            },
        }
    }
}

/// By as many elements as were recorded.
fn resize(elements: &mut Vec<Value>, length: &ArrayLength, random: &mut Random) {
    if length.after < length.before {
        let gone = usize::try_from(length.before - length.after).unwrap_or(usize::MAX);
        elements.truncate(elements.len().saturating_sub(gone));
        return;
    }
    let like = elements.last().cloned().unwrap_or_else(|| Value::from(random.text(UNKNOWN_LENGTH)));
    for _ in 0..(length.after - length.before).min(ADDED_MAX) {
        elements.push(varied(&like, random));
    }
}

/// Another value of the same type and length.
pub(super) fn varied(value: &Value, random: &mut Random) -> Value {
    match value {
        Value::Undefined | Value::Null => value.clone(),
        Value::Bool(value) => Value::from(!value),
        Value::Number(number) => Value::Number(varied_number(*number, random)),
        Value::String(text) => Value::from(random.text(text.len())),
        Value::Array(elements) => elements.iter().map(|element| varied(element, random)).collect(),
        Value::Object(object) => {
            let members = object.iter().map(|(name, value)| (name, varied(value, random)));
            Value::Object(Object::from_iter(members))
        }
    }
}

/// With as many digits.
fn varied_number(number: Number, random: &mut Random) -> Number {
    let Some(integer) = number.as_i64() else {
        let share = random.below(1_000) as f64 / 1_000.0;
        return Number::Double((number.as_f64() * (0.5 + share / 2.0) * 100.0).round() / 100.0);
    };
    let digits = integer.unsigned_abs().checked_ilog10().unwrap_or(0);
    let least = 10_u64.pow(digits.min(17));
    let other = i64::try_from(least + random.next() % (9 * least)).unwrap_or(1);
    let other = if integer.unsigned_abs() < 10 { other % 10 } else { other };
    Number::Int(if integer < 0 { -other } else { other })
}

/// The values that a path names in an item.
pub(super) fn values_at<'v>(item: &'v Value, path: &str) -> Vec<&'v Value> {
    names(path).iter().fold(vec![item], |values, name| {
        let below = values.into_iter().flat_map(|value| match value {
            Value::Array(elements) if name == "*" => elements.iter().collect(),
            value => value.get(name).into_iter().collect::<Vec<_>>(),
        });
        below.collect()
    })
}

/// Sets the value at a path of names; parents that are missing are not made.
pub(super) fn set_at(item: &mut Value, path: &str, value: Value) {
    let names = names(path);
    let Some((last, above)) = names.split_last() else { return };
    let parent = above.iter().try_fold(item, |value, name| value.as_object_mut()?.get_mut(name));
    if let Some(object) = parent.and_then(Value::as_object_mut) {
        object.set(last.as_str(), value);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use quire_value::{Limits, text};

    use super::*;

    fn json(text: &str) -> Value {
        text::parse(text.as_bytes(), Limits::default()).unwrap()
    }

    fn apply(item: &str, paths: &[&str], lengths: &[(&str, u64, u64)], seed: u64) -> Value {
        let lengths = lengths.iter();
        let lengths = lengths.map(|(path, before, after)| ArrayLength {
            path: (*path).to_owned(),
            before: *before,
            after: *after,
        });
        let change = ItemChange {
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
            lengths: lengths.collect(),
            ..ItemChange::default()
        };
        let rules = PathRules { fixed: &["/id".to_owned()], borrowed: &|_| None };
        changed(&json(item), &change, &rules, &mut Random::new(seed, 1))
    }

    #[test]
    fn changed_paths_get_other_values_of_the_same_type_and_length() {
        let item = r#"{"id":"a","n":7250,"t":"hello","b":true,"l":[{"x":1.25,"id":"e"}],"z":null}"#;
        for seed in 0..50 {
            let new = apply(item, &["/id", "/n", "/t", "/b", "/l", "/gone"], &[("/l", 3, 5)], seed);
            assert_eq!(new.get("id"), Some(&Value::from("a")));
            assert_ne!(new.get("t"), Some(&Value::from("hello")));
            assert_eq!(new.get("t").unwrap().as_str().unwrap().len(), 5);
            let number = new.get("n").unwrap().as_i64().unwrap();
            assert!((1_000..10_000).contains(&number), "{number}");
            assert_eq!(new.get("b"), Some(&Value::from(false)));
            let elements = new.get("l").unwrap().as_array().unwrap();
            assert_eq!(elements.len(), 3);
            assert_ne!(elements[1], elements[2]);
            assert!(new.get("gone").unwrap().as_str().is_some());
            assert_eq!(new, apply(item, &["/id", "/n", "/t", "/b", "/l", "/gone"], &[("/l", 3, 5)], seed));
        }
        let shorter = apply(item, &["/l"], &[("/l", 9, 2)], 1);
        assert_eq!(shorter.get("l"), Some(&json("[]")));
        // A form without one of the paths gets the same values at the others.
        let (one, other) = (apply(item, &["/t", "/n"], &[], 1), apply(item, &["/n"], &[], 1));
        assert_eq!(one.get("n"), other.get("n"));
    }

    #[test]
    fn as_many_elements_change_as_were_recorded() {
        let item = json(r#"{"h":[{"p":10},{"p":20},{"p":30},{"p":40}]}"#);
        let change = ItemChange {
            paths: vec!["/h/*/p".to_owned()],
            element_keys: vec![1, 2],
            ..ItemChange::default()
        };
        let rules = PathRules { fixed: &[], borrowed: &|_| Some(Value::from(99)) };
        let new = changed(&item, &change, &rules, &mut Random::new(3, 1));
        assert_eq!(values_at(&new, "/h/*/p").iter().filter(|price| price.as_i64() == Some(99)).count(), 2);
    }

    #[test]
    fn numbers_keep_their_digits() {
        for seed in 0..200 {
            let mut random = Random::new(seed, 2);
            assert!((0..10).contains(&varied(&Value::from(5), &mut random).as_i64().unwrap()));
            assert!((-99..-9).contains(&varied(&Value::from(-42), &mut random).as_i64().unwrap()));
            varied(&Value::from(i64::MIN), &mut random);
            varied(&Value::from(f64::MAX), &mut random);
        }
    }
}
