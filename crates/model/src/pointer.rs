//! Paths of a model: JSON pointers with `*` for every element of an array.
//!
//! A name of digits is an index where it meets an array, as in every JSON pointer, and a property anywhere else.

use std::fmt;

use quire_value::{Kind, Node, Path, Segment as PathSegment, Value};

/// `*` in one path.
const EACH_MAX: usize = 2;
/// Names and `*` of one path: items are not deeper.
const SEGMENTS_MAX: usize = 100;

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pointer(pub Vec<Segment>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Segment {
    Name(String),
    /// `*`
    Each,
}

impl Pointer {
    /// The error says what is wrong with the text.
    pub fn parse(text: &str) -> Result<Pointer, &'static str> {
        match text.strip_prefix('/') {
            Some(rest) => Pointer::parse_relative(rest),
            None if text.is_empty() => Err("it is empty"),
            None => Err("it does not begin with '/'"),
        }
    }

    /// Without the leading `/`, as fields of copies are written.
    pub fn parse_relative(text: &str) -> Result<Pointer, &'static str> {
        let segments = text.split('/').map(parse_segment).collect::<Result<Vec<_>, _>>()?;
        let pointer = Pointer(segments);
        match () {
            () if pointer.0.len() > SEGMENTS_MAX => Err("it has more than 100 names"),
            () if pointer.each_count() > EACH_MAX => Err("it has more than two '*'"),
            () => Ok(pointer),
        }
    }

    /// Of a path that is made of names, as partition keys are.
    pub fn of_path(path: &Path) -> Pointer {
        Pointer(path.0.iter().map(of_segment).collect())
    }

    /// One top-level property.
    pub fn of_name(name: &str) -> Pointer {
        Pointer(vec![Segment::Name(name.to_owned())])
    }

    pub fn each_count(&self) -> usize {
        self.0.iter().filter(|segment| **segment == Segment::Each).count()
    }

    pub fn ends_in_elements(&self) -> bool {
        self.0.last() == Some(&Segment::Each)
    }

    /// Up to and with the last `*`; empty without one.
    pub fn elements(&self) -> &[Segment] {
        let end = self.0.iter().rposition(|segment| *segment == Segment::Each).map_or(0, |place| place + 1);
        &self.0[..end]
    }

    /// Without the last segment.
    pub fn parent(&self) -> Pointer {
        Pointer(self.0[..self.0.len().saturating_sub(1)].to_vec())
    }

    pub fn join(&self, rest: &Pointer) -> Pointer {
        Pointer(self.0.iter().chain(&rest.0).cloned().collect())
    }

    /// Whether both can be one place, or one can be inside the other.
    pub fn touches(&self, other: &Pointer) -> bool {
        self.0.iter().zip(&other.0).all(|(one, other)| one.meets(other))
    }

    /// The first name.
    pub fn top(&self) -> Option<&str> {
        match self.0.first() {
            Some(Segment::Name(name)) => Some(name),
            _ => None,
        }
    }

    /// Every place in the item, with the positions that stand for its `*`, in order.
    pub fn places<'a>(&self, root: Node<'a>) -> Vec<(Vec<usize>, Node<'a>)> {
        let mut places = vec![(Vec::new(), root)];
        for segment in &self.0 {
            places = places.into_iter().flat_map(|place| below(place, segment)).collect();
        }
        places
    }

    /// Positions that stand for the `*` of every place in a value, in order.
    pub fn places_in(&self, root: &Value) -> Vec<Vec<usize>> {
        let mut places = vec![(Vec::new(), root)];
        for segment in &self.0 {
            places = places.into_iter().flat_map(|place| below_value(place, segment)).collect();
        }
        places.into_iter().map(|(positions, _)| positions).collect()
    }

    /// The place where `*` stands for these positions.
    pub fn find_in<'a>(&self, root: Node<'a>, positions: &[usize]) -> Option<Node<'a>> {
        let mut positions = positions.iter();
        self.0.iter().try_fold(root, |node, segment| match segment {
            Segment::Name(name) => step_in(node, name),
            Segment::Each if node.kind() == Kind::Array => node.at(*positions.next()?),
            Segment::Each => None,
        })
    }

    /// The same in a value.
    pub fn find<'a>(&self, root: &'a Value, positions: &[usize]) -> Option<&'a Value> {
        let mut positions = positions.iter();
        self.0.iter().try_fold(root, |value, segment| match segment {
            Segment::Name(name) => step(value, name),
            Segment::Each => value.at(*positions.next()?),
        })
    }

    pub fn find_mut<'a>(&self, root: &'a mut Value, positions: &[usize]) -> Option<&'a mut Value> {
        let mut positions = positions.iter();
        self.0.iter().try_fold(root, |value, segment| {
            let index = match segment {
                Segment::Name(name) => return step_mut(value, name),
                Segment::Each => *positions.next()?,
            };
            match value {
                Value::Array(elements) => elements.get_mut(index),
                _ => None,
            }
        })
    }

    /// The text of the place where `*` stands for these positions.
    pub fn at(&self, positions: &[usize]) -> String {
        let mut positions = positions.iter();
        let mut text = String::new();
        for segment in &self.0 {
            text.push('/');
            match (segment, segment == &Segment::Each) {
                (Segment::Each, _) => match positions.next() {
                    Some(position) => text.push_str(&position.to_string()),
                    None => text.push('*'),
                },
                (Segment::Name(name), _) => text.push_str(&escape(name)),
            }
        }
        text
    }
}

impl Segment {
    fn meets(&self, other: &Segment) -> bool {
        match (self, other) {
            (Segment::Name(name), Segment::Each) | (Segment::Each, Segment::Name(name)) => {
                as_index(name).is_some()
            }
            _ => self == other,
        }
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.at(&[]))
    }
}

/// A name as it stands in a pointer.
pub fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

fn parse_segment(text: &str) -> Result<Segment, &'static str> {
    if text == "*" {
        return Ok(Segment::Each);
    }
    if text.is_empty() {
        return Err("a name is empty");
    }
    let mut name = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(character) = rest.next() {
        match (character, character == '~') {
            (_, false) => name.push(character),
            _ => match rest.next() {
                Some('0') => name.push('~'),
                Some('1') => name.push('/'),
                _ => return Err("'~' is not followed by 0 or 1"),
            },
        }
    }
    Ok(Segment::Name(name))
}

fn below_value<'a>(
    (positions, value): (Vec<usize>, &'a Value),
    segment: &Segment,
) -> Vec<(Vec<usize>, &'a Value)> {
    match segment {
        Segment::Name(name) => step(value, name).map(|below| (positions, below)).into_iter().collect(),
        Segment::Each => {
            let elements = value.as_array().unwrap_or_default().iter().enumerate();
            elements.map(|(at, element)| ([&positions[..], &[at]].concat(), element)).collect()
        }
    }
}

fn of_segment(segment: &PathSegment) -> Segment {
    match segment {
        PathSegment::Name(name) => Segment::Name(name.clone()),
        PathSegment::Elements | PathSegment::Scalar | PathSegment::Wildcard => Segment::Each,
    }
}

fn below<'a>((positions, node): (Vec<usize>, Node<'a>), segment: &Segment) -> Vec<(Vec<usize>, Node<'a>)> {
    match segment {
        Segment::Name(name) => step_in(node, name).map(|node| (positions, node)).into_iter().collect(),
        Segment::Each if node.kind() == Kind::Array => {
            let at = |(index, node)| ([positions.as_slice(), &[index]].concat(), node);
            node.elements().enumerate().map(at).collect()
        }
        Segment::Each => Vec::new(),
    }
}

fn step_in<'a>(node: Node<'a>, name: &str) -> Option<Node<'a>> {
    match node.kind() {
        Kind::Object => node.get(name),
        Kind::Array => node.at(as_index(name)?),
        _ => None,
    }
}

fn step<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    match value {
        Value::Object(object) => object.get(name),
        Value::Array(elements) => elements.get(as_index(name)?),
        _ => None,
    }
}

fn step_mut<'a>(value: &'a mut Value, name: &str) -> Option<&'a mut Value> {
    match value {
        Value::Object(object) => object.get_mut(name),
        Value::Array(elements) => elements.get_mut(as_index(name)?),
        _ => None,
    }
}

/// The index that a name is in an array.
pub(crate) fn as_index(name: &str) -> Option<usize> {
    let is_plain = name.bytes().all(|byte| byte.is_ascii_digit()) && (name == "0" || !name.starts_with('0'));
    if is_plain { name.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use quire_value::{Item, Limits};

    use super::*;

    fn pointer(text: &str) -> Pointer {
        Pointer::parse(text).unwrap_or_else(|why| panic!("{text}: {why}"))
    }

    #[test]
    fn texts() {
        for good in ["/a", "/a/*/b", "/a~0~1b/*", "/a b/é", "/0"] {
            assert_eq!(pointer(good).to_string(), good);
        }
        for (bad, why) in [
            ("", "it is empty"),
            ("a", "it does not begin with '/'"),
            ("/", "a name is empty"),
            ("/a/", "a name is empty"),
            ("/a~", "'~' is not followed by 0 or 1"),
            ("/a~2", "'~' is not followed by 0 or 1"),
            ("/a/*/b/*/c/*", "it has more than two '*'"),
            (&"/a".repeat(101), "it has more than 100 names"),
        ] {
            assert_eq!(Pointer::parse(bad), Err(why), "{bad}");
        }
    }

    #[test]
    fn places_have_positions() {
        let json = br#"{"a":[{"b":["x","y"]},7,{"b":"z"},{"b":[1]}],"o":{"*":1}}"#;
        let item = Item::from_json(json, Limits::default()).unwrap();
        let places = |text: &str| {
            let shown = |(positions, node): (Vec<usize>, Node<'_>)| {
                assert_eq!(pointer(text).find_in(item.root(), &positions).unwrap().to_json(), node.to_json());
                format!("{positions:?} {}", node.to_json())
            };
            pointer(text).places(item.root()).into_iter().map(shown).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(places("/a/*/b/*"), r#"[0, 0] "x", [0, 1] "y", [3, 0] 1"#);
        assert_eq!(places("/a/*/b"), r#"[0] ["x","y"], [2] "z", [3] [1]"#);
        assert_eq!(places("/a/2/b"), r#"[] "z""#);
        assert_eq!(places("/o/*"), "");
        assert_eq!(places("/a/00/b"), "");
        assert_eq!(pointer("/a/*/b/*").at(&[3, 0]), "/a/3/b/0");
    }

    #[test]
    fn overlapping_paths_are_found() {
        let touches = |one: &str, other: &str| {
            assert_eq!(pointer(one).touches(&pointer(other)), pointer(other).touches(&pointer(one)));
            pointer(one).touches(&pointer(other))
        };
        assert!(touches("/a", "/a") && touches("/a/b", "/a") && touches("/a/*/b", "/a"));
        assert!(touches("/a/0/b", "/a/*/b"));
        assert!(!touches("/a", "/b") && !touches("/a/*/b", "/a/*/c") && !touches("/a/x", "/a/*"));
    }
}
