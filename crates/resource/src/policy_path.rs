//! The syntax of paths in container definitions, with the position where a bad one fails.
//!
//! `/a/"odd name"/[]/b/?`: names are letters, digits and underscores, or quoted; `[]` is every element; `?` (the
//! scalar here) and `*` (everything from here down) only at the end; `/events/[]/{name, category}/?` is a tuple path.
//! Each policy allows some of these forms.

use quire_value::{Path, Segment};

/// Byte position of the error in a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadPath {
    pub position: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PolicyPath {
    Plain(Path),
    Tuple { prefix: Path, members: Vec<Path> },
}

/// Any path, tuples included. `/` alone is an old form of `/*`.
pub(crate) fn parse_any(text: &str) -> Result<PolicyPath, BadPath> {
    if text == "/" {
        return Ok(PolicyPath::Plain(Path(vec![Segment::Wildcard])));
    }
    Cursor { text, position: 0, syntax: Syntax::Any }.path()
}

/// A path made of names alone.
pub(crate) fn parse_names(text: &str) -> Result<Path, BadPath> {
    parse_plain(text, Syntax::Names)
}

/// A path made of names and `[]`; `/?` at the end is implied and may be written.
pub(crate) fn parse_scalar(text: &str) -> Result<Path, BadPath> {
    let mut path = parse_plain(text, Syntax::Scalar)?;
    path.0.pop_if(|segment| *segment == Segment::Scalar);
    if path.0.is_empty() { Err(BadPath { position: 0 }) } else { Ok(path) }
}

fn parse_plain(text: &str, syntax: Syntax) -> Result<Path, BadPath> {
    match (Cursor { text, position: 0, syntax }).path()? {
        PolicyPath::Plain(path) => Ok(path),
        PolicyPath::Tuple { .. } => Err(BadPath { position: 0 }),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Syntax {
    Any,
    Scalar,
    Names,
}

impl Syntax {
    fn allows(self, segment: &Segment) -> bool {
        match self {
            Syntax::Any => true,
            Syntax::Scalar => !matches!(segment, Segment::Wildcard),
            Syntax::Names => matches!(segment, Segment::Name(_)),
        }
    }
}

struct Cursor<'a> {
    text: &'a str,
    position: usize,
    syntax: Syntax,
}

impl Cursor<'_> {
    fn rest(&self) -> &str {
        &self.text[self.position..]
    }

    fn error(&self) -> BadPath {
        BadPath { position: self.position }
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn take(&mut self, character: char) -> bool {
        let found = self.peek() == Some(character);
        if found {
            self.position += character.len_utf8();
        }
        found
    }

    fn expect(&mut self, character: char) -> Result<(), BadPath> {
        if self.take(character) { Ok(()) } else { Err(self.error()) }
    }

    /// After `?` or `*` nothing may follow.
    fn must_end_after(&self, last: Option<&Segment>) -> Result<(), BadPath> {
        let ends = matches!(last, Some(Segment::Scalar | Segment::Wildcard));
        if ends && !self.rest().is_empty() { Err(self.error()) } else { Ok(()) }
    }

    fn path(&mut self) -> Result<PolicyPath, BadPath> {
        let mut segments = Vec::new();
        while segments.is_empty() || !self.rest().is_empty() {
            self.expect('/')?;
            if self.syntax == Syntax::Any && self.peek() == Some('{') {
                return self.tuple(segments);
            }
            let start = self.position;
            segments.push(self.segment()?);
            if !segments.last().is_some_and(|segment| self.syntax.allows(segment)) {
                return Err(BadPath { position: start });
            }
            self.must_end_after(segments.last())?;
        }
        Ok(PolicyPath::Plain(Path(segments)))
    }

    fn segment(&mut self) -> Result<Segment, BadPath> {
        match self.peek() {
            Some('?') => self.take('?').then_some(Segment::Scalar).ok_or(self.error()),
            Some('*') => self.take('*').then_some(Segment::Wildcard).ok_or(self.error()),
            Some('[') => {
                self.expect('[')?;
                self.expect(']')?;
                Ok(Segment::Elements)
            }
            _ => self.name().map(Segment::Name),
        }
    }

    fn name(&mut self) -> Result<String, BadPath> {
        if let Some(quote @ ('"' | '\'')) = self.peek() {
            return self.quoted(quote);
        }
        let end = self.rest().find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(self.rest().len());
        if end == 0 {
            return Err(self.error());
        }
        let name = self.rest()[..end].to_owned();
        self.position += end;
        Ok(name)
    }

    /// `\` escapes the next character.
    fn quoted(&mut self, quote: char) -> Result<String, BadPath> {
        self.expect(quote)?;
        let mut name = String::new();
        loop {
            let Some(mut character) = self.peek() else { return Err(self.error()) };
            self.position += character.len_utf8();
            if character == quote {
                return if name.is_empty() { Err(self.error()) } else { Ok(name) };
            }
            if character == '\\' {
                character = self.peek().ok_or(self.error())?;
                self.position += character.len_utf8();
            }
            name.push(character);
        }
    }

    /// `{name, a/b}/?` after a prefix that has exactly one `[]`, right before the brace.
    fn tuple(&mut self, prefix: Vec<Segment>) -> Result<PolicyPath, BadPath> {
        let elements = prefix.iter().filter(|segment| **segment == Segment::Elements).count();
        if elements != 1 || prefix.last() != Some(&Segment::Elements) {
            return Err(self.error());
        }
        self.expect('{')?;
        let mut members = vec![self.tuple_member()?];
        while self.take(',') {
            members.push(self.tuple_member()?);
        }
        self.expect('}')?;
        self.expect('/')?;
        self.expect('?')?;
        if !self.rest().is_empty() {
            return Err(self.error());
        }
        Ok(PolicyPath::Tuple { prefix: Path(prefix), members })
    }

    fn tuple_member(&mut self) -> Result<Path, BadPath> {
        while self.take(' ') {}
        let mut names = vec![Segment::Name(self.name()?)];
        while self.take('/') {
            names.push(Segment::Name(self.name()?));
        }
        while self.take(' ') {}
        Ok(Path(names))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(parsed: Result<PolicyPath, BadPath>) -> String {
        let path = |path: &Path| {
            let parts = path.0.iter().map(|segment| match segment {
                Segment::Name(name) => format!("<{name}>"),
                Segment::Elements => "[]".to_owned(),
                Segment::Scalar => "?".to_owned(),
                Segment::Wildcard => "*".to_owned(),
            });
            parts.collect::<String>()
        };
        match parsed {
            Ok(PolicyPath::Plain(plain)) => path(&plain),
            Ok(PolicyPath::Tuple { prefix, members }) => {
                format!("{} {{{}}}", path(&prefix), members.iter().map(path).collect::<Vec<_>>().join(" "))
            }
            Err(BadPath { position }) => format!("fails at {position}"),
        }
    }

    #[test]
    fn any() {
        let table = [
            ("/*", "*"),
            ("/", "*"),
            ("/?", "?"),
            ("/a/b_2/?", "<a><b_2>?"),
            ("/ä/*", "<ä>*"),
            ("/\"odd-name\"/?", "<odd-name>?"),
            ("/\"a/b*?\"/c", "<a/b*?><c>"),
            ("/'it''s", "fails at 5"),
            ("/'a\"b'/*", "<a\"b>*"),
            (r#"/"q\"\\"/?"#, r#"<q"\>?"#),
            ("/list/[]/x/?", "<list>[]<x>?"),
            ("/events/[]/{name, category}/?", "<events>[] {<name> <category>}"),
            ("/e/[]/{a/\"b c\",d}/?", "<e>[] {<a><b c> <d>}"),
            ("", "fails at 0"),
            ("a", "fails at 0"),
            ("//", "fails at 1"),
            ("/a/", "fails at 3"),
            ("/a-b/?", "fails at 2"),
            ("/a/*/b", "fails at 4"),
            ("/a/?/b", "fails at 4"),
            ("/a/[0]", "fails at 4"),
            ("/\"\"/?", "fails at 3"),
            ("/\"open", "fails at 6"),
            ("/\"open\\", "fails at 7"),
            ("/a/{b}/?", "fails at 3"),
            ("/[]/a/[]/{b}/?", "fails at 9"),
            ("/a/[]/{b}", "fails at 9"),
            ("/a/[]/{b}/*", "fails at 10"),
            ("/a/[]/{/b}/?", "fails at 7"),
            ("/a/[]/{b,}/?", "fails at 9"),
            ("/a/[]/{b/?}/?", "fails at 9"),
            ("/a/[]/{b}/?/c", "fails at 11"),
        ];
        for (text, expected) in table {
            assert_eq!(show(parse_any(text)), expected, "{text}");
        }
    }

    #[test]
    fn narrower_forms() {
        let names = |text| show(parse_names(text).map(PolicyPath::Plain));
        assert_eq!(names("/a/\"b c\""), "<a><b c>");
        assert_eq!(names("/a/*"), "fails at 3");
        assert_eq!(names("/a/[]/b"), "fails at 3");
        assert_eq!(names("/"), "fails at 1");
        let scalar = |text| show(parse_scalar(text).map(PolicyPath::Plain));
        assert_eq!(scalar("/a/[]/b"), "<a>[]<b>");
        assert_eq!(scalar("/a/?"), "<a>");
        assert_eq!(scalar("/a/*"), "fails at 3");
        assert_eq!(scalar("/?"), "fails at 0");
    }
}
