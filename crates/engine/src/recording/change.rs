//! What a write changed: names of paths and lengths of arrays, no values.

use quire_profile::{ArrayLength, ItemChange, escaped};
use quire_value::{Kind, Node};

use super::hash::KeyedHash;

const PATHS_MAX: usize = 64;
/// Of one path. What is below a longer one counts as a change of the nearest object above it that has a shorter path.
const PATH_BYTES_MAX: usize = 1_024;
/// Of all paths of a change.
const ALL_PATHS_BYTES_MAX: usize = 8 << 10;
/// Names by which items say of which type they are.
const TYPE_NAMES: [&str; 5] = ["type", "kind", "entityType", "docType", "_type"];

pub(super) fn of(
    hash: &KeyedHash,
    before: Option<(Node<'_>, u64)>,
    after: Option<(Node<'_>, u64)>,
) -> ItemChange {
    let mut walk = ChangeWalk { hash, change: ItemChange::default(), path: Vec::new(), numbers: 0, bytes: 0 };
    if let (Some((before, _)), Some((after, _))) = (before, after) {
        walk.compare(before, after);
    }
    let ChangeWalk { mut change, numbers, .. } = walk;
    change.one_number = change.paths.len() == 1 && numbers == 1;
    change.size_before = before.map(|(_, bytes)| bytes);
    change.size_after = after.map(|(_, bytes)| bytes);
    change.item_type = after.or(before).and_then(|(item, _)| item_type(hash, item));
    change
}

fn item_type(hash: &KeyedHash, item: Node<'_>) -> Option<u64> {
    TYPE_NAMES.iter().find_map(|name| item.get(name)?.as_str()).map(|name| hash.of(name))
}

struct ChangeWalk<'a> {
    hash: &'a KeyedHash,
    change: ItemChange,
    /// Segments down to where the walk is.
    path: Vec<&'a str>,
    /// Changed paths that are numbers before and after.
    numbers: usize,
    /// Of the paths that are noted.
    bytes: usize,
}

impl<'a> ChangeWalk<'a> {
    fn compare(&mut self, before: Node<'a>, after: Node<'a>) {
        if self.is_full() {
            return;
        }
        match (before.kind(), after.kind()) {
            (Kind::Object, Kind::Object) => self.compare_objects(before, after),
            (Kind::Array, Kind::Array) => self.compare_arrays(before, after),
            (Kind::Number, Kind::Number) if before.as_number() != after.as_number() => {
                self.numbers += usize::from(self.pointer().1);
                self.changed();
            }
            (Kind::String, Kind::String) if before.as_text() != after.as_text() => self.changed(),
            (Kind::Bool, Kind::Bool) if before.as_bool() != after.as_bool() => self.changed(),
            (one, other) if one != other => self.changed(),
            _ => {}
        }
    }

    fn compare_objects(&mut self, before: Node<'a>, after: Node<'a>) {
        let known = self.change.paths.len();
        for (name, old) in before.members() {
            self.path.push(name);
            match after.get(name) {
                Some(new) => self.compare(old, new),
                None => self.changed(),
            }
            self.path.pop();
        }
        for (name, _) in after.members().filter(|(name, _)| before.get(name).is_none()) {
            if self.is_full() {
                break;
            }
            self.path.push(name);
            self.changed();
            self.path.pop();
        }
        if self.change.paths.len() > known && self.path.contains(&"*") {
            self.record_element(after);
        }
    }

    fn compare_arrays(&mut self, before: Node<'a>, after: Node<'a>) {
        if before.len() != after.len() {
            self.record_length(before.len() as u64, after.len() as u64);
            self.changed();
            return;
        }
        self.path.push("*");
        for (old, new) in before.elements().zip(after.elements()) {
            self.compare(old, new);
        }
        self.path.pop();
    }

    /// Nothing more is noted, so there is no need to look on.
    fn is_full(&self) -> bool {
        self.change.paths.len() >= PATHS_MAX || self.bytes >= ALL_PATHS_BYTES_MAX
    }

    fn changed(&mut self) {
        if self.is_full() {
            return;
        }
        let (path, _) = self.pointer();
        if !self.change.paths.contains(&path) {
            self.bytes += path.len();
            self.change.paths.push(path);
        }
    }

    fn record_length(&mut self, before: u64, after: u64) {
        if self.change.lengths.len() >= PATHS_MAX || self.is_full() {
            return;
        }
        if let (path, true) = self.pointer() {
            self.bytes += path.len();
            self.change.lengths.push(ArrayLength { path, before, after });
        }
    }

    /// The key of a changed object inside an array: its id, or its first text.
    fn record_element(&mut self, element: Node<'a>) {
        let text = |node: Node<'a>| node.as_text();
        let key =
            element.get("id").and_then(text).or_else(|| element.members().find_map(|(_, own)| text(own)));
        let key = key.map(|key| self.hash.of(key));
        if let Some(key) = key
            && self.change.element_keys.len() < PATHS_MAX
            && !self.change.element_keys.contains(&key)
        {
            self.change.element_keys.push(key);
        }
    }

    /// The path to where the walk is, or the part of it that is not too long; and whether it is all of it.
    fn pointer(&self) -> (String, bool) {
        let mut path = String::new();
        for name in &self.path {
            if path.len() + name.len() >= PATH_BYTES_MAX {
                return (path, false);
            }
            path.push('/');
            path.push_str(&escaped(name));
        }
        (path, true)
    }
}

#[cfg(test)]
mod tests {
    use quire_value::{Item, Limits};

    use super::*;

    fn change(before: &str, after: &str) -> ItemChange {
        let item = |text: &str| Item::from_json(text.as_bytes(), Limits::default()).expect("JSON");
        let (before, after) = (item(before), item(after));
        of(&KeyedHash::new(&[7; 32]), Some((before.root(), 1)), Some((after.root(), 2)))
    }

    #[test]
    fn paths_of_what_changed() {
        let found =
            change(r#"{"a":1,"b":{"c":"x","d":[1,2]},"e":null}"#, r#"{"a":1,"b":{"c":"y","d":[1,2]},"f":1}"#);
        assert_eq!(found.paths, ["/b/c", "/e", "/f"]);
        assert!(!found.one_number && found.lengths.is_empty());
        assert_eq!((found.size_before, found.size_after), (Some(1), Some(2)));
    }

    #[test]
    fn one_number_and_nothing_else() {
        assert!(change(r#"{"n":1,"s":"x"}"#, r#"{"n":2,"s":"x"}"#).one_number);
        assert!(!change(r#"{"n":1,"s":"x"}"#, r#"{"n":2,"s":"y"}"#).one_number);
        assert!(!change(r#"{"n":1}"#, r#"{"n":"1"}"#).one_number);
        assert_eq!(change(r#"{"n":1}"#, r#"{"n":1}"#).paths, [""; 0]);
    }

    #[test]
    fn arrays() {
        let found = change(r#"{"a":[1]}"#, r#"{"a":[1,2,3]}"#);
        assert_eq!(found.paths, ["/a"]);
        assert_eq!(found.lengths, [ArrayLength { path: "/a".to_owned(), before: 1, after: 3 }]);
        let found = change(
            r#"{"h":[{"s":{"symbol":"A","high":1}},{"s":{"symbol":"B","high":1}}]}"#,
            r#"{"h":[{"s":{"symbol":"A","high":2}},{"s":{"symbol":"B","high":3}}]}"#,
        );
        assert_eq!(found.paths, ["/h/*/s/high"]);
    }

    #[test]
    fn no_more_than_a_bounded_number_of_paths_and_lengths() {
        let object = |value: &str| {
            let members: Vec<String> = (0..5_000).map(|name| format!(r#""n{name}":{value}"#)).collect();
            format!("{{{}}}", members.join(","))
        };
        let found = change(&object("1"), &object("2"));
        assert_eq!((found.paths.len(), found.paths.capacity()), (PATHS_MAX, PATHS_MAX));
        // Every element has an array that grew: one path, and not one length for each of them.
        let array = |value: &str| format!(r#"{{"a":[{}]}}"#, vec![value; 5_000].join(","));
        let found = change(&array(r#"{"b":[]}"#), &array(r#"{"b":[1]}"#));
        assert_eq!((found.paths.len(), found.lengths.len()), (1, PATHS_MAX));
        let found = change("{}", &object("1"));
        assert_eq!(found.paths.len(), PATHS_MAX);
    }

    #[test]
    fn what_is_below_a_long_name_counts_as_a_change_above_it() {
        let long = "n".repeat(100_000);
        let item = |value: u64| format!(r#"{{"a":{{"{long}":{value}}}}}"#);
        let found = change(&item(1), &item(2));
        assert_eq!(found.paths, ["/a"]);
        assert!(!found.one_number);
        let names = |value: u64| {
            let name = |number: u64| format!(r#""{number}{}":{value}"#, "n".repeat(900));
            format!("{{{}}}", (0..1_000).map(name).collect::<Vec<_>>().join(","))
        };
        let found = change(&names(1), &names(2));
        assert!(found.paths.iter().map(String::len).sum::<usize>() < 2 * ALL_PATHS_BYTES_MAX);
    }

    #[test]
    fn no_value_is_in_it() {
        let found = change(r#"{"secret":"alpha"}"#, r#"{"secret":"beta","type":"gamma"}"#);
        let text = format!("{found:?}");
        assert!(!["alpha", "beta", "gamma"].iter().any(|value| text.contains(value)), "{text}");
    }
}
