//! The words of a script's text, as far as they are needed to know what it names and assigns. Not a parser: the text was compiled
//! before.

/// A piece of the text. Comments are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// An identifier or a keyword.
    Name(&'a str),
    Punctuator(&'a str),
    /// A string, a number, a pattern or the end of a template.
    Literal,
}

const LINE_ENDS: [char; 4] = ['\n', '\r', '\u{2028}', '\u{2029}'];
/// Longest first.
const PUNCTUATORS: [&str; 27] = [
    ">>>=", "...", "===", "!==", "**=", "<<=", ">>=", ">>>", "&&=", "||=", "??=", "=>", "==", "!=", "<=",
    ">=", "&&", "||", "??", "?.", "++", "--", "+=", "-=", "*=", "%=", "/=",
];
/// After these a value begins, so that a slash begins a pattern.
const KEYWORDS_BEFORE_VALUE: [&str; 13] = [
    "return",
    "typeof",
    "instanceof",
    "in",
    "new",
    "delete",
    "void",
    "throw",
    "case",
    "do",
    "else",
    "default",
    "extends",
];

/// Keywords or names: only a parser knows.
const MAYBE_KEYWORDS: [&str; 4] = ["of", "yield", "await", "let"];

/// `None` where the text cannot be taken apart without parsing it.
pub(super) fn tokens(text: &str) -> Option<Vec<Token<'_>>> {
    let mut tokens = Tokens { text, at: 0, found: Vec::new(), is_new_line: false, templates: Vec::new() };
    while tokens.at < text.len() {
        tokens.next()?;
    }
    tokens.templates.is_empty().then_some(tokens.found)
}

struct Tokens<'a> {
    text: &'a str,
    at: usize,
    found: Vec<Token<'a>>,
    /// Whether a line ended since the last one.
    is_new_line: bool,
    /// Braces that are open inside of each `${` that is.
    templates: Vec<usize>,
}

impl<'a> Tokens<'a> {
    fn next(&mut self) -> Option<()> {
        let rest = self.text.get(self.at..)?;
        let first = rest.chars().next()?;
        match first {
            _ if first.is_whitespace() || first == '\u{feff}' => self.skip(first.len_utf8()),
            '\\' => return None, // an escape in a name
            '"' | '\'' => self.string(first)?,
            '`' => {
                self.at += 1;
                self.template()?;
            }
            '/' => self.slash(rest)?,
            '<' if rest.starts_with("<!--") => return None,
            '-' if rest.starts_with("-->") => return None,
            '{' | '}' => self.brace(first)?,
            _ if first.is_ascii_digit() => self.number(rest),
            _ if is_name(first) => {
                let length = rest.find(|letter| !is_name(letter)).unwrap_or(rest.len());
                self.push(Token::Name(&rest[..length]), length);
            }
            _ => {
                let long = PUNCTUATORS.iter().find(|long| rest.starts_with(**long));
                let length = long.map_or(first.len_utf8(), |long| long.len());
                self.push(Token::Punctuator(&rest[..length]), length);
            }
        }
        Some(())
    }

    fn push(&mut self, token: Token<'a>, length: usize) {
        self.found.push(token);
        self.at += length;
        self.is_new_line = false;
    }

    /// Over white space or a comment.
    fn skip(&mut self, length: usize) {
        self.is_new_line |= self.text[self.at..self.at + length].contains(LINE_ENDS);
        self.at += length;
    }

    fn string(&mut self, quote: char) -> Option<()> {
        let mut letters = self.text[self.at..].char_indices().skip(1);
        while let Some((at, letter)) = letters.next() {
            match letter {
                '\\' => _ = letters.next()?,
                letter if letter == quote => {
                    self.push(Token::Literal, at + 1);
                    return Some(());
                }
                _ => {}
            }
        }
        None
    }

    /// From inside of a template to its end, or to a value in it.
    fn template(&mut self) -> Option<()> {
        let rest = &self.text[self.at..];
        let mut letters = rest.char_indices();
        while let Some((at, letter)) = letters.next() {
            match letter {
                '\\' => _ = letters.next()?,
                '`' => {
                    self.push(Token::Literal, at + 1);
                    return Some(());
                }
                '$' if rest[at..].starts_with("${") => {
                    self.push(Token::Punctuator("("), at + 2);
                    self.templates.push(0);
                    return Some(());
                }
                _ => {}
            }
        }
        None
    }

    fn brace(&mut self, brace: char) -> Option<()> {
        if let Some(open) = self.templates.last_mut() {
            match (brace, *open) {
                ('}', 0) => {
                    self.templates.pop();
                    self.push(Token::Punctuator(")"), 1);
                    return self.template();
                }
                ('}', _) => *open -= 1,
                _ => *open += 1,
            }
        }
        self.push(Token::Punctuator(if brace == '{' { "{" } else { "}" }), 1);
        Some(())
    }

    fn slash(&mut self, rest: &'a str) -> Option<()> {
        if rest.starts_with("//") {
            self.skip(rest.find(LINE_ENDS).unwrap_or(rest.len()));
            return Some(());
        }
        if let Some(comment) = rest.strip_prefix("/*") {
            self.skip(comment.find("*/")? + 4);
            return Some(());
        }
        if self.begins_pattern()? {
            return self.pattern(rest);
        }
        let length = if rest.starts_with("/=") { 2 } else { 1 };
        self.push(Token::Punctuator(&rest[..length]), length);
        Some(())
    }

    /// Whether a slash begins a pattern, by the word before it. `None`: only a parser knows whether a statement or a value ended there.
    fn begins_pattern(&self) -> Option<bool> {
        let mut last = self.found.iter().rev();
        let (last, before) = (*last.next()?, last.next());
        let is_member = matches!(before, Some(Token::Punctuator("." | "?.")));
        match last {
            Token::Punctuator(")" | "}" | "++" | "--") => None,
            Token::Name(name) if !is_member && MAYBE_KEYWORDS.contains(&name) => None,
            Token::Name(name) if !is_member && KEYWORDS_BEFORE_VALUE.contains(&name) => Some(true),
            // A statement may end with the line.
            Token::Name(_) | Token::Literal | Token::Punctuator("]") => (!self.is_new_line).then_some(false),
            Token::Punctuator(_) => Some(true),
        }
    }

    fn pattern(&mut self, rest: &'a str) -> Option<()> {
        let mut letters = rest.char_indices().skip(1);
        let mut in_class = false;
        while let Some((at, letter)) = letters.next() {
            match letter {
                '\\' => _ = letters.next()?,
                letter if LINE_ENDS.contains(&letter) => return None,
                '[' => in_class = true,
                ']' => in_class = false,
                '/' if !in_class => {
                    let flags = rest[at + 1..].find(|letter| !is_name(letter)).unwrap_or(rest.len() - at - 1);
                    self.push(Token::Literal, at + 1 + flags);
                    return Some(());
                }
                _ => {}
            }
        }
        None
    }

    /// `1e-5` becomes several tokens, which does no harm.
    fn number(&mut self, rest: &'a str) {
        let is_digit = |letter: char| is_name(letter) || letter == '.';
        let length = rest.find(|letter| !is_digit(letter)).unwrap_or(rest.len());
        self.push(Token::Literal, length);
    }
}

fn is_name(letter: char) -> bool {
    letter == '_'
        || letter == '$'
        || letter == '#'
        || letter.is_alphanumeric()
        || !letter.is_ascii() && !letter.is_whitespace()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let Some(tokens) = tokens(text) else { return "cannot be taken apart".to_owned() };
        let words = tokens.iter().map(|token| match token {
            Token::Name(name) => name,
            Token::Punctuator(text) => text,
            Token::Literal => "~",
        });
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn texts() {
        let check = |text: &str, expected: &str| assert_eq!(shown(text), expected, "{text}");
        check("a.b = 'it\\'s' // c", "a . b = ~");
        check("x /* y */ / z", "x / z");
        check("f(/['\"/]/g, 1)", "f ( ~ , ~ )");
        check("return /'/", "return ~");
        check("a[i]/2", "a [ i ] / ~");
        check("`a${b + `${c}`}d` + e", "( b + ( c ) ~ ) ~ + e");
        check("`${{a: 1}}`", "( { a : ~ } ) ~");
        check("a?.b ??= c >>>= d", "a ?. b ??= c >>>= d");
        check("x = 1.5e3", "x = ~");
        check("a.in / b / c", "a . in / b / c");
        check("a in /b/", "a in ~");
        check("a = b /\nc", "a = b / c");
        for text in [
            "if (a) /b/.test(c)",
            "a\\u0062",
            "'open",
            "`open",
            "/* open",
            "x = /open",
            "<!-- a",
            "`${a`",
            "x = of / a / b",
            "x = yield / a / b",
            "++/a/.b",
            "a++ / b",
            "var a\n/b/",
            "var a /*\n*/ /b/",
            "break a // b\n/c/",
        ] {
            check(text, "cannot be taken apart");
        }
    }
}
