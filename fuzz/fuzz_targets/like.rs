//! Any text, pattern and escape: LIKE agrees with a matcher that tries everything.
#![no_main]

use quire_sql::{Parameters, Query, SqlError};
use quire_value::Value;

/// What the matcher that tries everything can do in time.
const CHARACTERS_MAX: usize = 200;

libfuzzer_sys::fuzz_target!(|input: (u8, &str)| {
    let (escape, lines) = input;
    let (text, pattern) = lines.split_once('\n').unwrap_or((lines, lines));
    if text.chars().count() > CHARACTERS_MAX || pattern.chars().count() > CHARACTERS_MAX {
        return;
    }
    let escape = [None, Some('!'), Some('%'), Some('['), Some('a')][usize::from(escape % 5)];
    let found = match like(text, pattern, escape) {
        Ok(found) => found,
        Err(error) => panic!("{text:?} LIKE {pattern:?}: {error}"),
    };
    let tokens = tokens(&pattern.chars().collect::<Vec<_>>(), escape);
    let text_characters: Vec<char> = text.chars().collect();
    assert_eq!(found, matches(&tokens, &text_characters), "{text:?} LIKE {pattern:?} ESCAPE {escape:?}");
});

fn like(text: &str, pattern: &str, escape: Option<char>) -> Result<bool, SqlError> {
    let clause = escape.map_or_else(String::new, |escape| format!(" ESCAPE '{escape}'"));
    let parameters =
        [("@t", text), ("@p", pattern)].map(|(name, value)| (name.to_owned(), Value::from(value)));
    let query =
        Query::compile(&format!("SELECT VALUE @t LIKE @p{clause}"), &Parameters(parameters.to_vec()), &[])?;
    Ok(query.rows(&[Value::Object(Default::default())])? == [Value::from(true)])
}

enum Token {
    Run,
    Any,
    One(char),
    Set(bool, Vec<(char, char)>),
}

fn tokens(pattern: &[char], escape: Option<char>) -> Vec<Token> {
    let Some((&first, rest)) = pattern.split_first() else { return Vec::new() };
    let (token, rest) = match first {
        _ if Some(first) == escape && !rest.is_empty() => (Token::One(rest[0]), &rest[1..]),
        '%' if escape != Some('%') => (Token::Run, rest),
        '_' => (Token::Any, rest),
        '[' => set(rest, escape).unwrap_or((Token::One('['), rest)),
        _ => (Token::One(first), rest),
    };
    let mut all = vec![token];
    all.extend(tokens(rest, escape));
    all
}

/// What is behind a bracket that closes.
fn set(mut rest: &[char], escape: Option<char>) -> Option<(Token, &[char])> {
    let negated = rest.first() == Some(&'^');
    rest = &rest[usize::from(negated)..];
    let mut ranges = Vec::new();
    while *rest.first()? != ']' {
        let (low, behind) = member(rest, escape)?;
        rest = behind;
        let mut high = low;
        if let ['-', after, ..] = rest
            && *after != ']'
        {
            (high, rest) = member(&rest[1..], escape)?;
        }
        ranges.push((low, high));
    }
    Some((Token::Set(negated, ranges), &rest[1..]))
}

fn member(rest: &[char], escape: Option<char>) -> Option<(char, &[char])> {
    match rest {
        [first, escaped, ..] if Some(*first) == escape => Some((*escaped, &rest[2..])),
        [first, ..] => Some((*first, &rest[1..])),
        [] => None,
    }
}

/// Which beginnings of the text the tokens so far can be.
fn matches(tokens: &[Token], text: &[char]) -> bool {
    let mut reached = vec![false; text.len() + 1];
    reached[0] = true;
    for token in tokens {
        let mut next = vec![false; text.len() + 1];
        for (at, _) in reached.iter().enumerate().filter(|(_, reached)| **reached) {
            match token {
                Token::Run => next[at..].fill(true),
                _ if at < text.len() => next[at + 1] |= accepts(token, text[at]),
                _ => {}
            }
        }
        reached = next;
    }
    reached[text.len()]
}

fn accepts(token: &Token, character: char) -> bool {
    match token {
        Token::Run | Token::Any => true,
        Token::One(wanted) => *wanted == character,
        Token::Set(negated, ranges) => {
            ranges.iter().any(|(low, high)| *low <= character && character <= *high) != *negated
        }
    }
}
