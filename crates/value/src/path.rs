//! Property paths as in policies and partition keys: `/a/b`, `/"odd name"/c`, `/list/[]/x`, `/a/*`, `/a/?`.
//!
//! A name of letters, digits and underscores is written without quotes; any other is a JSON string literal. Invariant
//! (a property test): the text of a path parses to the same path.

use std::fmt;

use crate::{Node, Value, text};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Path(pub Vec<Segment>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Segment {
    Name(String),
    /// `[]`: every element of an array
    Elements,
    /// `?` (scalar here) and `*` (everything below) end a policy path
    Scalar,
    Wildcard,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("path {path:?}: {reason}")]
pub struct PathError {
    pub path: String,
    pub reason: &'static str,
}

impl Path {
    pub fn parse(text: &str) -> Result<Path, PathError> {
        parse_segments(text).map(Path).map_err(|reason| PathError { path: text.to_owned(), reason })
    }

    /// Follows names through objects; `undefined` when missing. Only for paths made of names.
    pub fn find<'a>(&self, root: &'a Value) -> Option<&'a Value> {
        self.names().try_fold(root, |value, name| value.get(name?))
    }

    /// The same in a binary item.
    pub fn find_in<'a>(&self, root: Node<'a>) -> Option<Node<'a>> {
        self.names().try_fold(root, |node, name| node.get(name?))
    }

    /// Whether the path names exactly one value, as a partition key must.
    pub fn is_names(&self) -> bool {
        self.names().all(|name| name.is_some())
    }

    fn names(&self) -> impl Iterator<Item = Option<&str>> {
        self.0.iter().map(|segment| match segment {
            Segment::Name(name) => Some(name.as_str()),
            _ => None,
        })
    }
}

impl std::str::FromStr for Path {
    type Err = PathError;
    fn from_str(text: &str) -> Result<Path, PathError> {
        Path::parse(text)
    }
}

fn parse_segments(text: &str) -> Result<Vec<Segment>, &'static str> {
    let mut segments = Vec::new();
    let mut rest = text;
    while let Some(after) = rest.strip_prefix('/') {
        if matches!(segments.last(), Some(Segment::Scalar | Segment::Wildcard)) {
            return Err("only the last segment can be '?' or '*'");
        }
        let (segment, tail) = parse_segment(after)?;
        segments.push(segment);
        rest = tail;
    }
    match (rest, segments.is_empty()) {
        ("", false) => Ok(segments),
        (_, true) => Err("does not start with '/'"),
        _ => Err("a quoted name is followed by something other than '/'"),
    }
}

fn parse_segment(text: &str) -> Result<(Segment, &str), &'static str> {
    if text.starts_with('"') {
        return parse_quoted(text);
    }
    let (segment, rest) = text.split_at(text.find('/').unwrap_or(text.len()));
    let segment = match segment {
        "?" => Segment::Scalar,
        "*" => Segment::Wildcard,
        "[]" => Segment::Elements,
        "" if rest.is_empty() => return Err("ends with '/'"),
        "" => return Err("a segment is empty"),
        name if is_bare(name) => Segment::Name(name.to_owned()),
        _ => return Err("a name with other characters than letters, digits and '_' is not quoted"),
    };
    Ok((segment, rest))
}

fn parse_quoted(text: &str) -> Result<(Segment, &str), &'static str> {
    let (literal, rest) = text.split_at(quoted_len(text).ok_or("a quoted name has no end")?);
    match text::parse(literal.as_bytes(), text::Limits::default()) {
        Ok(Value::String(name)) => Ok((Segment::Name(name), rest)),
        _ => Err("a quoted name is not a JSON string"),
    }
}

/// Length of the literal at the front, both quotes included.
fn quoted_len(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = 1;
    loop {
        match bytes.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

fn is_bare(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|char| char.is_alphanumeric() || char == '_')
}

/// Writes the path back, quoting names that need it.
impl fmt::Display for Path {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|segment| write!(formatter, "/{segment}"))
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Segment::Name(name) if is_bare(name) => formatter.write_str(name),
            Segment::Name(name) => formatter.write_str(&Value::from(name.as_str()).to_json()),
            Segment::Elements => formatter.write_str("[]"),
            Segment::Scalar => formatter.write_str("?"),
            Segment::Wildcard => formatter.write_str("*"),
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(path: &str, expect: Expect) {
        expect.assert_eq(&match Path::parse(path) {
            Ok(path) => {
                assert_eq!(Path::parse(&path.to_string()), Ok(path.clone()));
                format!("{:?} {path}", path.0)
            }
            Err(error) => error.to_string(),
        });
    }

    #[test]
    fn paths() {
        check("/a", expect![[r#"[Name("a")] /a"#]]);
        check("/a/b_1/größe", expect![[r#"[Name("a"), Name("b_1"), Name("größe")] /a/b_1/größe"#]]);
        check(r#"/"a/b"/c"#, expect![[r#"[Name("a/b"), Name("c")] /"a/b"/c"#]]);
        check(
            r#"/"say \"hi\" \\ \u00e9 \n"/?"#,
            expect![[r#"[Name("say \"hi\" \\ é \n"), Scalar] /"say \"hi\" \\ é \n"/?"#]],
        );
        check(r#"/"plain"/"""#, expect![[r#"[Name("plain"), Name("")] /plain/"""#]]);
        check("/list/[]/x/?", expect![[r#"[Name("list"), Elements, Name("x"), Scalar] /list/[]/x/?"#]]);
        check("/*", expect!["[Wildcard] /*"]);
    }

    #[test]
    fn errors() {
        check("", expect![[r#"path "": does not start with '/'"#]]);
        check("a", expect![[r#"path "a": does not start with '/'"#]]);
        check("/", expect![[r#"path "/": ends with '/'"#]]);
        check("/a/", expect![[r#"path "/a/": ends with '/'"#]]);
        check("/a//b", expect![[r#"path "/a//b": a segment is empty"#]]);
        check("/a/*/b", expect![[r#"path "/a/*/b": only the last segment can be '?' or '*'"#]]);
        check("/?/", expect![[r#"path "/?/": only the last segment can be '?' or '*'"#]]);
        check(
            "/a-b",
            expect![[
                r#"path "/a-b": a name with other characters than letters, digits and '_' is not quoted"#
            ]],
        );
        check(
            "/[0]",
            expect![[
                r#"path "/[0]": a name with other characters than letters, digits and '_' is not quoted"#
            ]],
        );
        check("/\"a", expect![[r#"path "/\"a": a quoted name has no end"#]]);
        check("/\"a\\", expect![[r#"path "/\"a\\": a quoted name has no end"#]]);
        check(
            "/\"a\"b",
            expect![[r#"path "/\"a\"b": a quoted name is followed by something other than '/'"#]],
        );
        check("/\"\\x\"", expect![[r#"path "/\"\\x\"": a quoted name is not a JSON string"#]]);
    }

    #[test]
    fn find() {
        let root = text::parse(br#"{"a":{"b c":[1,{"d":2}]},"e":null}"#, Default::default()).unwrap();
        let item = crate::Item::from_value(&root);
        for (path, found) in [
            (r#"/a/"b c""#, Some("[1,{\"d\":2}]")),
            ("/e", Some("null")),
            ("/e/f", None),
            ("/a/b", None),
            ("/a/[]", None),
            ("/a/?", None),
        ] {
            let path = Path::parse(path).unwrap();
            assert_eq!(path.find(&root).map(Value::to_json).as_deref(), found, "{path}");
            assert_eq!(
                path.find_in(item.root()).map(|node| node.to_value().to_json()).as_deref(),
                found,
                "{path}"
            );
        }
    }
}
