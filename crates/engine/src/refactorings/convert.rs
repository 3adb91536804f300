//! What a refactoring makes of one item, and how that is taken back. Pure functions.

use quire_model::Pointer;
use quire_value::{Kind, Node, Object, Value};

use super::elements::{current_positions, identity};
use super::forms::{RetypeOutcome, converted};
use super::order::Rule;

const LOSSY: &str = "it cannot be converted without loss";
const BOTH_NAMES: &str = "the other name is there with another value";

/// An item that a refactoring was applied to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Conversion {
    pub item: Value,
    /// Nothing: it has the new form already.
    pub changes: Vec<PathChange>,
    /// Places that stay as they are, and why.
    pub unconverted: Vec<(String, &'static str)>,
}

/// What was changed at one place: `at` are the positions in arrays that `*` stands for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PathChange {
    pub at: Vec<usize>,
    /// By what the element of the innermost array is found again; null without arrays.
    pub element: Value,
    pub what: PathChangeKind,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PathChangeKind {
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
pub(crate) enum UndoOutcome {
    Done,
    /// It is as it was before.
    Already,
    /// Someone has changed the place since.
    Conflict,
}

enum RenameOutcome {
    Nothing,
    Changed(PathChangeKind),
    /// Both names are there, and it is unknown which value counts.
    Differs,
}

/// Whether [`convert`] changes the item, or leaves something of it: most items that are looked at have the new form.
pub(crate) fn concerns(rule: &Rule, item: Node<'_>) -> bool {
    match rule {
        Rule::Rename { parent, from, .. } => {
            let has_name = |node: Node<'_>| node.kind() == Kind::Object && node.get(from).is_some();
            parent.places(item).into_iter().any(|(_, node)| has_name(node))
        }
        Rule::Retype { path, form } => {
            let is_same = |node: Node<'_>| matches!(converted(&node.to_value(), *form), RetypeOutcome::Same);
            path.places(item).into_iter().any(|(_, node)| !is_same(node))
        }
        Rule::Structure(_) | Rule::Rekey(_) => false,
    }
}

pub(crate) fn convert(rule: &Rule, mut item: Value) -> Conversion {
    let (mut changes, mut unconverted) = (Vec::new(), Vec::new());
    match rule {
        Rule::Rename { parent, from, to } => {
            for at in parent.places_in(&item) {
                let object = parent.find_mut(&mut item, &at).and_then(Value::as_object_mut);
                match object.map_or(RenameOutcome::Nothing, |object| rename(object, from, to)) {
                    RenameOutcome::Nothing => {}
                    RenameOutcome::Changed(what) => {
                        let element = identity(parent, &item, &at);
                        changes.push(PathChange { at, element, what });
                    }
                    RenameOutcome::Differs => {
                        unconverted.push((parent.join(&Pointer::of_name(from)).at(&at), BOTH_NAMES));
                    }
                }
            }
        }
        Rule::Retype { path, form } => {
            for at in path.places_in(&item) {
                let Some(value) = path.find_mut(&mut item, &at) else { continue };
                match converted(value, *form) {
                    RetypeOutcome::Same => {}
                    RetypeOutcome::To(after) => {
                        let before = std::mem::replace(value, after.clone());
                        let element = identity(path, &item, &at);
                        changes.push(PathChange {
                            at,
                            element,
                            what: PathChangeKind::Replaced { before, after },
                        });
                    }
                    RetypeOutcome::Lossy => unconverted.push((path.at(&at), LOSSY)),
                }
            }
        }
        Rule::Structure(_) | Rule::Rekey(_) => {}
    }
    Conversion { item, changes, unconverted }
}

/// Puts all places of an item back that are as their changes left them.
pub(crate) fn undo_all(rule: &Rule, changes: &[PathChange], item: &mut Value) -> Vec<UndoOutcome> {
    let places = current_positions(rule, changes, item);
    let undone = |(change, at): (&PathChange, Option<Vec<usize>>)| match at {
        Some(at) => undo(rule, &PathChange { at, ..change.clone() }, item),
        // Nothing is left of its element.
        None => UndoOutcome::Already,
    };
    changes.iter().zip(places).map(undone).collect()
}

/// Puts a place back as it was before the change, if it is as the change left it.
fn undo(rule: &Rule, change: &PathChange, item: &mut Value) -> UndoOutcome {
    match (rule, &change.what) {
        (Rule::Rename { parent, from, to }, what) => {
            let object = parent.find_mut(item, &change.at).and_then(Value::as_object_mut);
            object.map_or(UndoOutcome::Conflict, |object| undo_rename(object, (from, to), what))
        }
        (Rule::Retype { path, .. }, PathChangeKind::Replaced { before, after }) => {
            match path.find_mut(item, &change.at) {
                Some(value) if *value == *after => {
                    *value = before.clone();
                    UndoOutcome::Done
                }
                Some(value) if *value == *before => UndoOutcome::Already,
                _ => UndoOutcome::Conflict,
            }
        }
        (Rule::Retype { .. }, PathChangeKind::Moved { .. } | PathChangeKind::Removed { .. })
        | (Rule::Structure(_) | Rule::Rekey(_), _) => UndoOutcome::Conflict,
    }
}

/// The place of a change, as clients write it.
pub(crate) fn place(rule: &Rule, change: &PathChange) -> String {
    match rule {
        Rule::Rename { parent, from, .. } => parent.join(&Pointer::of_name(from)).at(&change.at),
        Rule::Retype { path, .. } => path.at(&change.at),
        Rule::Structure(_) | Rule::Rekey(_) => String::new(),
    }
}

/// Later changes count in the place of earlier ones of the same place. Earlier ones go with their elements: `item` is what the
/// later ones made of it.
pub(crate) fn merged(
    rule: &Rule,
    earlier: &[PathChange],
    later: &[PathChange],
    item: &Value,
) -> Vec<PathChange> {
    let places = current_positions(rule, earlier, item);
    let is_changed_again = |at: &Vec<usize>| later.iter().any(|own| own.at == *at);
    let kept = earlier.iter().zip(places).filter_map(|(change, at)| {
        let at = at.filter(|at| !is_changed_again(at))?;
        Some(PathChange { at, ..change.clone() })
    });
    kept.chain(later.iter().cloned()).collect()
}

fn rename(object: &mut Object, from: &str, to: &str) -> RenameOutcome {
    let Some(value) = object.get(from).cloned() else { return RenameOutcome::Nothing };
    match object.get(to) {
        None => {
            rename_in_place(object, from, to);
            RenameOutcome::Changed(PathChangeKind::Moved { value })
        }
        Some(other) if *other == value => {
            object.remove(from);
            RenameOutcome::Changed(PathChangeKind::Removed { before: value })
        }
        Some(_) => RenameOutcome::Differs,
    }
}

fn undo_rename(object: &mut Object, (from, to): (&str, &str), what: &PathChangeKind) -> UndoOutcome {
    let (old, new) = (object.get(from), object.get(to));
    match what {
        PathChangeKind::Moved { value } if old.is_none() && new == Some(value) => {
            rename_in_place(object, to, from);
            UndoOutcome::Done
        }
        PathChangeKind::Moved { value } if new.is_none() && old == Some(value) => UndoOutcome::Already,
        // The other name had the same value: one that a client changed since is not the old value.
        PathChangeKind::Removed { before } if old.is_none() && new == Some(before) => {
            object.set(from, before.clone());
            UndoOutcome::Done
        }
        PathChangeKind::Removed { before } if old == Some(before) => UndoOutcome::Already,
        PathChangeKind::Moved { .. } | PathChangeKind::Removed { .. } | PathChangeKind::Replaced { .. } => {
            UndoOutcome::Conflict
        }
    }
}

fn rename_in_place(object: &mut Object, from: &str, to: &str) {
    let renamed = |(name, value): (String, Value)| (if name == from { to.to_owned() } else { name }, value);
    *object = std::mem::take(object).into_iter().map(renamed).collect();
}

impl PathChange {
    pub fn to_json(&self) -> Value {
        let mut json = Object::new();
        json.set("at", self.at.iter().map(|position| Value::from(*position as u64)).collect::<Value>());
        if !self.element.is_null() {
            json.set("element", self.element.clone());
        }
        match &self.what {
            PathChangeKind::Moved { value } => json.set("moved", value.clone()),
            PathChangeKind::Removed { before } => json.set("before", before.clone()),
            PathChangeKind::Replaced { before, after } => {
                json.set("before", before.clone());
                json.set("after", after.clone());
            }
        }
        Value::Object(json)
    }

    pub fn from_json(json: &Value) -> Option<PathChange> {
        let position = |value: &Value| usize::try_from(value.as_u64()?).ok();
        let at = json.get("at")?.as_array()?.iter().map(position).collect::<Option<_>>()?;
        let what = match (json.get("moved"), json.get("before"), json.get("after")) {
            (Some(value), None, None) => PathChangeKind::Moved { value: value.clone() },
            (None, Some(before), None) => PathChangeKind::Removed { before: before.clone() },
            (None, Some(before), Some(after)) => {
                PathChangeKind::Replaced { before: before.clone(), after: after.clone() }
            }
            _ => return None,
        };
        let element = json.get("element").cloned().unwrap_or(Value::Null);
        Some(PathChange { at, element, what })
    }
}

#[cfg(test)]
mod tests {
    use quire_value::{Item, Limits, text};

    use super::super::forms::TargetType;
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
        let stored = Item::from_value(&json(before));
        let is_concerned = !conversion.changes.is_empty() || !conversion.unconverted.is_empty();
        assert_eq!(concerns(rule, stored.root()), is_concerned, "{before}");
        let again = convert(rule, conversion.item.clone());
        assert_eq!(again.changes, [], "a second time changes nothing");
        let mut back = conversion.item.clone();
        for change in &conversion.changes {
            let stored = PathChange::from_json(&json(&change.to_json().to_json())).expect("a change");
            assert_eq!(stored, *change);
            assert_eq!(undo(rule, change, &mut back), UndoOutcome::Done);
            assert_eq!(undo(rule, change, &mut back), UndoOutcome::Already);
        }
        assert_eq!(back, json(before));
        conversion
    }

    #[test]
    fn renames() {
        check(&rename_rule(""), r#"{"id":"1","a":{"x":[1]},"c":2}"#, r#"{"id":"1","b":{"x":[1]},"c":2}"#);
        check(&rename_rule(""), r#"{"id":"1","a":2,"b":2}"#, r#"{"id":"1","b":2}"#);
        let both = check(&rename_rule(""), r#"{"a":1,"b":2}"#, r#"{"a":1,"b":2}"#);
        assert_eq!(both.unconverted, [("/a".to_owned(), BOTH_NAMES)]);
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
        let rule = Rule::Retype { path: Pointer::parse("/l/*/p").expect("a path"), form: TargetType::Number };
        let found = check(
            &rule,
            r#"{"l":[{"p":"12"},{"p":3},{"p":"x"},{}]}"#,
            r#"{"l":[{"p":12},{"p":3},{"p":"x"},{}]}"#,
        );
        assert_eq!(found.unconverted, [("/l/2/p".to_owned(), LOSSY)]);
    }

    #[test]
    fn what_a_client_changed_since_is_a_conflict() {
        let rule = rename_rule("");
        let found = convert(&rule, json(r#"{"a":1}"#));
        for since in [r#"{"b":2}"#, r#"{"a":5,"b":1}"#, r#"{}"#, "7"] {
            let mut item = json(since);
            assert_eq!(undo(&rule, &found.changes[0], &mut item), UndoOutcome::Conflict, "{since}");
            assert_eq!(item, json(since));
        }
        let both = convert(&rule, json(r#"{"a":1,"b":1}"#));
        for since in [r#"{"b":2}"#, r#"{"a":5,"b":1}"#, r#"{}"#] {
            let mut item = json(since);
            assert_eq!(undo(&rule, &both.changes[0], &mut item), UndoOutcome::Conflict, "{since}");
            assert_eq!(item, json(since));
        }
    }

    #[test]
    fn later_changes_of_a_place_count() {
        let rule = rename_rule("/l/*");
        let first = convert(&rule, json(r#"{"l":[{"a":1},{"a":2}]}"#));
        // A client has put an element of the old form between them.
        let second = convert(&rule, json(r#"{"l":[{"b":1},{"a":3},{"b":2}]}"#));
        let found = merged(&rule, &first.changes, &second.changes, &second.item);
        let places: Vec<(usize, String)> = found
            .iter()
            .map(|own| (own.at[0], own.to_json().get("moved").expect("a value").to_json()))
            .collect();
        assert_eq!(places, [(0, "1".to_owned()), (2, "2".to_owned()), (1, "3".to_owned())]);
        // The journal entry of a removed element is removed.
        let third = convert(&rule, json(r#"{"l":[{"a":9}]}"#));
        assert_eq!(merged(&rule, &found, &third.changes, &third.item), third.changes);
    }

    /// What a client made of an array in the new form, and what an undo makes of that.
    #[track_caller]
    fn check_moved(rule: &Rule, before: &str, since: &str, expected: &str, conflicts: usize) {
        let mut item = json(since);
        let undone = undo_all(rule, &convert(rule, json(before)).changes, &mut item);
        assert_eq!(item.to_json(), expected);
        assert_eq!(
            undone.iter().filter(|own| **own == UndoOutcome::Conflict).count(),
            conflicts,
            "{undone:?}"
        );
    }

    #[test]
    fn elements_are_found_where_they_are_now() {
        let rule = rename_rule("/l/*");
        let before = r#"{"l":[{"a":1},{"a":2},{"a":2}]}"#;
        // Nothing changed, reversed, one deleted, one added in the new form.
        check_moved(&rule, before, r#"{"l":[{"b":1},{"b":2},{"b":2}]}"#, before, 0);
        check_moved(
            &rule,
            before,
            r#"{"l":[{"b":2},{"b":2},{"b":1}]}"#,
            r#"{"l":[{"a":2},{"a":2},{"a":1}]}"#,
            0,
        );
        check_moved(&rule, before, r#"{"l":[{"b":2},{"b":2}]}"#, r#"{"l":[{"a":2},{"a":2}]}"#, 0);
        check_moved(
            &rule,
            before,
            r#"{"l":[{"b":7},{"b":1},{"b":2}]}"#,
            r#"{"l":[{"b":7},{"a":1},{"a":2}]}"#,
            0,
        );
        // Changed by the client: another member, and the value.
        check_moved(
            &rule,
            before,
            r#"{"l":[{"b":1,"x":5},{"b":2},{"b":8}]}"#,
            r#"{"l":[{"a":1,"x":5},{"a":2},{"b":8}]}"#,
            1,
        );
        check_moved(&rule, before, r#"{"l":7}"#, r#"{"l":7}"#, 0);
        let named = r#"{"l":[{"id":"x","a":1},{"id":"y","a":2}]}"#;
        check_moved(
            &rule,
            named,
            r#"{"l":[{"id":"z","b":1},{"id":"y","b":2,"n":1},{"id":"x","b":4}]}"#,
            r#"{"l":[{"id":"z","b":1},{"id":"y","a":2,"n":1},{"id":"x","b":4}]}"#,
            1,
        );
        let rule = Rule::Retype { path: Pointer::parse("/l/*").expect("a path"), form: TargetType::Number };
        check_moved(&rule, r#"{"l":["1","2",3]}"#, r#"{"l":[2,3,1,4]}"#, r#"{"l":["2",3,"1",4]}"#, 0);
        // The journal was written, the item was not.
        check_moved(&rule, r#"{"l":["1","2"]}"#, r#"{"l":["1","2"]}"#, r#"{"l":["1","2"]}"#, 0);
    }
}
