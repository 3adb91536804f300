//! What a refactoring makes of one item, and how that is taken back. Pure functions.

use quire_model::Pointer;
use quire_value::{Object, Value};

use super::forms::{Converted, converted};
use super::order::Rule;

const LOSSY: &str = "it cannot be converted without loss";
const BOTH_NAMES: &str = "the other name is there with another value";

/// An item that a refactoring was applied to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Conversion {
    pub item: Value,
    /// Nothing: it has the new form already.
    pub changes: Vec<Change>,
    /// Places that stay as they are, and why.
    pub left: Vec<(String, &'static str)>,
}

/// What was changed at one place: `at` are the positions in arrays that `*` stands for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Change {
    pub at: Vec<usize>,
    pub what: Changed,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Changed {
    /// A member got another name.
    Moved {
        value: Value,
    },
    /// A member went, because the other name was there already with the same value.
    Removed {
        before: Value,
    },
    Replaced {
        before: Value,
        after: Value,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Undone {
    Done,
    /// It is as it was before.
    Already,
    /// Someone has changed the place since.
    Conflict,
}

enum Renamed {
    Nothing,
    Changed(Changed),
    /// Both names are there, and nobody knows which value counts.
    Differs,
}

pub(crate) fn convert(rule: &Rule, mut item: Value) -> Conversion {
    let (mut changes, mut left) = (Vec::new(), Vec::new());
    match rule {
        Rule::Rename { parent, from, to } => {
            for at in parent.places_in(&item) {
                let object = parent.find_mut(&mut item, &at).and_then(Value::as_object_mut);
                match object.map_or(Renamed::Nothing, |object| rename(object, from, to)) {
                    Renamed::Nothing => {}
                    Renamed::Changed(what) => changes.push(Change { at, what }),
                    Renamed::Differs => {
                        left.push((parent.join(&Pointer::of_name(from)).at(&at), BOTH_NAMES));
                    }
                }
            }
        }
        Rule::Retype { path, form } => {
            for at in path.places_in(&item) {
                let Some(value) = path.find_mut(&mut item, &at) else { continue };
                match converted(value, *form) {
                    Converted::Same => {}
                    Converted::To(after) => {
                        let before = std::mem::replace(value, after.clone());
                        changes.push(Change { at, what: Changed::Replaced { before, after } });
                    }
                    Converted::Lossy => left.push((path.at(&at), LOSSY)),
                }
            }
        }
        Rule::Structure(_) | Rule::Rekey(_) => {}
    }
    Conversion { item, changes, left }
}

/// Puts a place back as it was before the change, if it is as the change left it.
pub(crate) fn undo(rule: &Rule, change: &Change, item: &mut Value) -> Undone {
    match (rule, &change.what) {
        (Rule::Rename { parent, from, to }, what) => {
            let object = parent.find_mut(item, &change.at).and_then(Value::as_object_mut);
            object.map_or(Undone::Conflict, |object| undo_rename(object, (from, to), what))
        }
        (Rule::Retype { path, .. }, Changed::Replaced { before, after }) => {
            match path.find_mut(item, &change.at) {
                Some(value) if *value == *after => {
                    *value = before.clone();
                    Undone::Done
                }
                Some(value) if *value == *before => Undone::Already,
                _ => Undone::Conflict,
            }
        }
        (Rule::Retype { .. }, Changed::Moved { .. } | Changed::Removed { .. })
        | (Rule::Structure(_) | Rule::Rekey(_), _) => Undone::Conflict,
    }
}

/// The place of a change, as clients write it.
pub(crate) fn place(rule: &Rule, change: &Change) -> String {
    match rule {
        Rule::Rename { parent, from, .. } => parent.join(&Pointer::of_name(from)).at(&change.at),
        Rule::Retype { path, .. } => path.at(&change.at),
        Rule::Structure(_) | Rule::Rekey(_) => String::new(),
    }
}

/// Later changes count in the place of earlier ones of the same place.
pub(crate) fn merged(earlier: Vec<Change>, later: &[Change]) -> Vec<Change> {
    let is_changed_again = |change: &Change| later.iter().any(|own| own.at == change.at);
    let kept = earlier.into_iter().filter(|change| !is_changed_again(change));
    kept.chain(later.iter().cloned()).collect()
}

fn rename(object: &mut Object, from: &str, to: &str) -> Renamed {
    let Some(value) = object.get(from).cloned() else { return Renamed::Nothing };
    match object.get(to) {
        None => {
            rename_in_place(object, from, to);
            Renamed::Changed(Changed::Moved { value })
        }
        Some(other) if *other == value => {
            object.remove(from);
            Renamed::Changed(Changed::Removed { before: value })
        }
        Some(_) => Renamed::Differs,
    }
}

fn undo_rename(object: &mut Object, (from, to): (&str, &str), what: &Changed) -> Undone {
    let (old, new) = (object.get(from), object.get(to));
    match what {
        Changed::Moved { value } if old.is_none() && new == Some(value) => {
            rename_in_place(object, to, from);
            Undone::Done
        }
        Changed::Moved { value } if new.is_none() && old == Some(value) => Undone::Already,
        // The other name had the same value: one that a client changed since is not the old value.
        Changed::Removed { before } if old.is_none() && new == Some(before) => {
            object.set(from, before.clone());
            Undone::Done
        }
        Changed::Removed { before } if old == Some(before) => Undone::Already,
        Changed::Moved { .. } | Changed::Removed { .. } | Changed::Replaced { .. } => Undone::Conflict,
    }
}

fn rename_in_place(object: &mut Object, from: &str, to: &str) {
    let renamed = |(name, value): (&str, &Value)| {
        (if name == from { to.to_owned() } else { name.to_owned() }, value.clone())
    };
    *object = object.iter().map(renamed).collect();
}

impl Change {
    pub fn to_json(&self) -> Value {
        let mut json = Object::new();
        json.set("at", self.at.iter().map(|position| Value::from(*position as u64)).collect::<Value>());
        match &self.what {
            Changed::Moved { value } => json.set("moved", value.clone()),
            Changed::Removed { before } => json.set("before", before.clone()),
            Changed::Replaced { before, after } => {
                json.set("before", before.clone());
                json.set("after", after.clone());
            }
        }
        Value::Object(json)
    }

    pub fn from_json(json: &Value) -> Option<Change> {
        let position = |value: &Value| usize::try_from(value.as_u64()?).ok();
        let at = json.get("at")?.as_array()?.iter().map(position).collect::<Option<_>>()?;
        let what = match (json.get("moved"), json.get("before"), json.get("after")) {
            (Some(value), None, None) => Changed::Moved { value: value.clone() },
            (None, Some(before), None) => Changed::Removed { before: before.clone() },
            (None, Some(before), Some(after)) => {
                Changed::Replaced { before: before.clone(), after: after.clone() }
            }
            _ => return None,
        };
        Some(Change { at, what })
    }
}

#[cfg(test)]
mod tests {
    use quire_value::{Limits, text};

    use super::super::forms::Form;
    use super::*;

    fn json(text: &str) -> Value {
        text::parse(text.as_bytes(), Limits::default()).expect("JSON")
    }

    fn rename_rule(parent: &str) -> Rule {
        let parent =
            if parent.is_empty() { Pointer::default() } else { Pointer::parse(parent).expect("a path") };
        Rule::Rename { parent, from: "a".to_owned(), to: "b".to_owned() }
    }

    fn check(rule: &Rule, before: &str, after: &str) -> Conversion {
        let conversion = convert(rule, json(before));
        assert_eq!(conversion.item.to_json(), after);
        let again = convert(rule, conversion.item.clone());
        assert_eq!(again.changes, [], "a second time changes nothing");
        let mut back = conversion.item.clone();
        for change in &conversion.changes {
            let stored = Change::from_json(&json(&change.to_json().to_json())).expect("a change");
            assert_eq!(stored, *change);
            assert_eq!(undo(rule, change, &mut back), Undone::Done);
            assert_eq!(undo(rule, change, &mut back), Undone::Already);
        }
        assert_eq!(back, json(before));
        conversion
    }

    #[test]
    fn renames() {
        check(&rename_rule(""), r#"{"id":"1","a":{"x":[1]},"c":2}"#, r#"{"id":"1","b":{"x":[1]},"c":2}"#);
        check(&rename_rule(""), r#"{"id":"1","a":2,"b":2}"#, r#"{"id":"1","b":2}"#);
        let both = check(&rename_rule(""), r#"{"a":1,"b":2}"#, r#"{"a":1,"b":2}"#);
        assert_eq!(both.left, [("/a".to_owned(), BOTH_NAMES)]);
        check(&rename_rule(""), r#"{"id":"1","c":1}"#, r#"{"id":"1","c":1}"#);
        check(
            &rename_rule("/l/*"),
            r#"{"l":[{"a":1},{"b":2},7,{"a":4,"b":4}]}"#,
            r#"{"l":[{"b":1},{"b":2},7,{"b":4}]}"#,
        );
        check(&rename_rule("/o"), r#"{"o":3,"a":1}"#, r#"{"o":3,"a":1}"#);
    }

    #[test]
    fn retypes() {
        let rule = Rule::Retype { path: Pointer::parse("/l/*/p").expect("a path"), form: Form::Number };
        let found = check(
            &rule,
            r#"{"l":[{"p":"12"},{"p":3},{"p":"x"},{}]}"#,
            r#"{"l":[{"p":12},{"p":3},{"p":"x"},{}]}"#,
        );
        assert_eq!(found.left, [("/l/2/p".to_owned(), LOSSY)]);
    }

    #[test]
    fn what_a_client_changed_since_is_a_conflict() {
        let rule = rename_rule("");
        let found = convert(&rule, json(r#"{"a":1}"#));
        for since in [r#"{"b":2}"#, r#"{"a":5,"b":1}"#, r#"{}"#, "7"] {
            let mut item = json(since);
            assert_eq!(undo(&rule, &found.changes[0], &mut item), Undone::Conflict, "{since}");
            assert_eq!(item, json(since));
        }
        let both = convert(&rule, json(r#"{"a":1,"b":1}"#));
        for since in [r#"{"b":2}"#, r#"{"a":5,"b":1}"#, r#"{}"#] {
            let mut item = json(since);
            assert_eq!(undo(&rule, &both.changes[0], &mut item), Undone::Conflict, "{since}");
            assert_eq!(item, json(since));
        }
    }

    #[test]
    fn later_changes_of_a_place_count() {
        let change =
            |at: usize, value: i64| Change { at: vec![at], what: Changed::Moved { value: value.into() } };
        let found = merged(vec![change(0, 1), change(1, 2)], &[change(1, 3)]);
        assert_eq!(found, [change(0, 1), change(1, 3)]);
    }
}
