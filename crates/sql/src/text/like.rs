//! LIKE patterns: `%` any characters, `_` one character, `[a-f]` and `[^a-f]` one character of (not of) a set, all
//! else literal.
//!
//! A pattern is split at its `%` into pieces of fixed length. Each piece takes its leftmost match, which leaves the
//! most text to the following pieces. So there is no backtracking, and no pattern takes exponential time.

use crate::error::SqlError;
use crate::limits::Spend;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pattern {
    /// The parts between the `%`; at least one, and parts may be empty.
    pieces: Vec<PatternPiece>,
}

/// What a pattern requires after its [prefix](Pattern::prefix).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LikeShape {
    /// The end of the text.
    Text,
    /// Nothing.
    Prefix,
    Other,
}

#[derive(Clone, Debug, PartialEq)]
enum PatternPiece {
    Text(String),
    Tokens(Vec<Token>),
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Any,
    Character(char),
    Set { negated: bool, ranges: Vec<(char, char)> },
}

impl Pattern {
    /// Upper bound of the memory for a compiled pattern, and while it is compiled.
    pub fn bytes_max(pattern: &str) -> usize {
        pattern.len().saturating_mul(size_of::<char>() + size_of::<Token>())
    }

    pub fn new(pattern: &str, escape: Option<char>, spend: &mut Spend<'_>) -> Result<Pattern, SqlError> {
        spend(1 + pattern.len() as u64 / 4)?;
        let characters: Vec<char> = pattern.chars().collect();
        let last_close = characters.iter().rposition(|character| *character == ']').unwrap_or(0);
        let mut text = PatternText { characters: &characters, escape, last_close, spend };
        let mut pieces = Vec::new();
        let mut tokens = Vec::new();
        let mut position = 0;
        while position < characters.len() {
            if characters[position] == '%' && escape != Some('%') {
                pieces.push(PatternPiece::new(std::mem::take(&mut tokens)));
                position += 1;
            } else {
                let (token, next) = text.token(position)?;
                tokens.push(token);
                position = next;
            }
        }
        pieces.push(PatternPiece::new(tokens));
        Ok(Pattern { pieces })
    }

    /// The common prefix of all matching texts.
    pub fn prefix(&self) -> String {
        match self.pieces.first() {
            Some(PatternPiece::Text(text)) => text.clone(),
            Some(PatternPiece::Tokens(tokens)) => tokens.iter().map_while(Token::character).collect(),
            None => String::new(),
        }
    }

    pub fn shape(&self) -> LikeShape {
        match self.pieces.as_slice() {
            [PatternPiece::Text(_)] => LikeShape::Text,
            [PatternPiece::Text(_), rest @ ..] if rest.iter().all(PatternPiece::is_empty) => {
                LikeShape::Prefix
            }
            _ => LikeShape::Other,
        }
    }

    /// Upper bound of the steps to match a text of this length.
    pub fn work(&self, text_length: usize) -> u64 {
        let longest = self.pieces.iter().map(PatternPiece::comparisons).max().unwrap_or(0) as u64;
        let text_length = text_length as u64;
        text_length / 16 + text_length.saturating_mul(longest) / 4
    }

    /// Whether the whole text matches.
    pub fn matches(&self, text: &str) -> bool {
        let [first, rest @ ..] = self.pieces.as_slice() else { return false };
        let Some(text) = first.strip_start(text) else { return false };
        let [middle @ .., last] = rest else { return text.is_empty() };
        let mut text = text;
        for piece in middle {
            match piece.skip_past(text) {
                Some(rest) => text = rest,
                None => return false,
            }
        }
        last.ends(text)
    }
}

impl PatternPiece {
    fn new(tokens: Vec<Token>) -> PatternPiece {
        let text: Option<String> = tokens.iter().map(Token::character).collect();
        text.map_or(PatternPiece::Tokens(tokens), PatternPiece::Text)
    }

    fn is_empty(&self) -> bool {
        matches!(self, PatternPiece::Text(text) if text.is_empty())
    }

    /// Upper bound of the character comparisons at one position of a text.
    fn comparisons(&self) -> usize {
        match self {
            PatternPiece::Text(_) => 0,
            PatternPiece::Tokens(tokens) => tokens.iter().map(Token::comparisons).sum(),
        }
    }

    fn strip_start<'t>(&self, text: &'t str) -> Option<&'t str> {
        match self {
            PatternPiece::Text(piece) => text.strip_prefix(piece.as_str()),
            PatternPiece::Tokens(tokens) => strip_tokens(tokens, text),
        }
    }

    /// The text after the leftmost match.
    fn skip_past<'t>(&self, text: &'t str) -> Option<&'t str> {
        match self {
            PatternPiece::Text(piece) => {
                let found = memchr::memmem::find(text.as_bytes(), piece.as_bytes());
                found.and_then(|at| text.get(at + piece.len()..))
            }
            PatternPiece::Tokens(tokens) => {
                text.char_indices().find_map(|(at, _)| strip_tokens(tokens, &text[at..]))
            }
        }
    }

    fn ends(&self, text: &str) -> bool {
        match self {
            PatternPiece::Text(piece) => text.ends_with(piece.as_str()),
            PatternPiece::Tokens(tokens) => {
                let start = text.char_indices().rev().nth(tokens.len() - 1).map(|(at, _)| at);
                start.is_some_and(|at| strip_tokens(tokens, &text[at..]) == Some(""))
            }
        }
    }
}

fn strip_tokens<'t>(tokens: &[Token], text: &'t str) -> Option<&'t str> {
    let mut characters = text.chars();
    for token in tokens {
        if !token.accepts(characters.next()?) {
            return None;
        }
    }
    Some(characters.as_str())
}

impl Token {
    fn character(&self) -> Option<char> {
        match self {
            Token::Character(character) => Some(*character),
            Token::Any | Token::Set { .. } => None,
        }
    }

    fn comparisons(&self) -> usize {
        match self {
            Token::Any | Token::Character(_) => 1,
            Token::Set { ranges, .. } => 1 + ranges.len(),
        }
    }

    fn accepts(&self, character: char) -> bool {
        match self {
            Token::Any => true,
            Token::Character(wanted) => *wanted == character,
            Token::Set { negated, ranges } => {
                ranges.iter().any(|(low, high)| (*low..=*high).contains(&character)) != *negated
            }
        }
    }
}

/// A pattern while it is parsed.
struct PatternText<'p, 's> {
    characters: &'p [char],
    escape: Option<char>,
    /// Position of the last `]`: a bracket after it does not close.
    last_close: usize,
    spend: &'p mut Spend<'s>,
}

impl PatternText<'_, '_> {
    /// The token at `position` and where the next one starts.
    fn token(&mut self, position: usize) -> Result<(Token, usize), SqlError> {
        let character = self.characters[position];
        let escaped = self.characters.get(position + 1).filter(|_| self.escape == Some(character));
        if let Some(literal) = escaped {
            return Ok((Token::Character(*literal), position + 2));
        }
        Ok(match character {
            '_' => (Token::Any, position + 1),
            '[' => self.set(position)?.unwrap_or((Token::Character('['), position + 1)),
            _ => (Token::Character(character), position + 1),
        })
    }

    /// `None` when the bracket does not close: it is a plain character then.
    fn set(&mut self, position: usize) -> Result<Option<(Token, usize)>, SqlError> {
        let mut at = position + 1;
        let negated = self.characters.get(at) == Some(&'^');
        at += usize::from(negated);
        let mut ranges = Vec::new();
        // With escaped brackets, each of thousands may be scanned to the end, so each member costs a step.
        while at <= self.last_close {
            (self.spend)(1)?;
            if self.characters[at] == ']' {
                return Ok(Some((Token::Set { negated, ranges }, at + 1)));
            }
            let Some((low, next)) = self.member(at) else { return Ok(None) };
            let behind = self.characters.get(next + 1);
            let is_range = self.characters.get(next) == Some(&'-') && behind.is_some_and(|c| *c != ']');
            let (high, next) = match is_range {
                true => match self.member(next + 1) {
                    Some(high) => high,
                    None => return Ok(None),
                },
                false => (low, next),
            };
            ranges.push((low, high));
            at = next;
        }
        Ok(None)
    }

    fn member(&self, at: usize) -> Option<(char, usize)> {
        let character = *self.characters.get(at)?;
        match self.characters.get(at + 1) {
            Some(literal) if self.escape == Some(character) => Some((*literal, at + 2)),
            _ => Some((character, at + 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern_of(pattern: &str, escape: Option<char>) -> Pattern {
        Pattern::new(pattern, escape, &mut |_| Ok(())).expect("no limit")
    }

    fn like(text: &str, pattern: &str) -> bool {
        pattern_of(pattern, None).matches(text)
    }

    #[test]
    fn wildcards() {
        assert!(like("abc", "a%c") && like("abc", "%") && like("", "%") && like("abc", "_b_"));
        assert!(!like("abc", "ab") && !like("abc", "_") && !like("", "_") && !like("ab", "ab%b"));
        assert!(like("aab", "%ab") && like("xaybz", "%a_b%") && !like("xab", "%a_b%"));
    }

    #[test]
    fn sets_and_escapes() {
        assert!(like("b", "[a-c]") && !like("d", "[a-c]") && like("d", "[^a-c]") && like("%", "[%]"));
        assert!(like("[", "[[]") && like("]", "]") && like("[a", "[a") && like("-", "[a-]"));
        let escaped = pattern_of("50!%", Some('!'));
        assert!(escaped.matches("50%") && !escaped.matches("50x"));
    }

    /// In steps, not seconds: an unclosed bracket must not be scanned again and again.
    #[test]
    fn open_brackets_are_read_once() {
        let mut steps = 0;
        let mut spend = |more: u64| {
            steps += more;
            Ok(())
        };
        let pattern = Pattern::new(&"[".repeat(100_000), None, &mut spend).expect("no limit");
        assert!(pattern.matches(&"[".repeat(100_000)) && steps < 100_000, "{steps}");
        let hostile = format!("{}!]", "[".repeat(100_000));
        let mut left = 1_000_000u64;
        let refused = Pattern::new(&hostile, Some('!'), &mut |steps| {
            left = left.checked_sub(steps).ok_or(SqlError::Cancelled)?;
            Ok(())
        });
        assert_eq!(refused, Err(SqlError::Cancelled), "where that is not known before, it is spent");
    }

    #[test]
    fn sets_count_with_all_their_ranges() {
        let few = pattern_of("%[a]x%", None).work(1_000);
        let many = pattern_of(&format!("%[{}]x%", "abcd".repeat(1_000)), None).work(1_000);
        assert!(many > 1_000 * few, "{few} {many}");
    }

    #[test]
    fn many_wildcards_take_no_time() {
        let pattern = pattern_of(&"%a_".repeat(2_000), None);
        assert!(!pattern.matches(&"a".repeat(3_000)));
    }
}
