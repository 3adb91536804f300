//! LIKE patterns: `%` any run, `_` one character, `[a-f]` and `[^a-f]` one (not) of, all else literal.
//!
//! A pattern is cut at its `%` into pieces of fixed length. The leftmost place for each piece in turn leaves the most
//! text to the pieces behind it, so nothing is ever tried twice and no pattern takes exponential time.

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pattern {
    /// What stands between the `%`; at least one piece, pieces may be empty.
    pieces: Vec<Piece>,
}

/// What a pattern asks for beyond its [prefix](Pattern::prefix).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Nothing, and nothing may follow.
    Text,
    /// Nothing.
    Prefix,
    Other,
}

#[derive(Clone, Debug, PartialEq)]
enum Piece {
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
    pub fn new(pattern: &str, escape: Option<char>) -> Pattern {
        let characters: Vec<char> = pattern.chars().collect();
        let mut pieces = Vec::new();
        let mut tokens = Vec::new();
        let mut position = 0;
        while position < characters.len() {
            if characters[position] == '%' && escape != Some('%') {
                pieces.push(Piece::new(std::mem::take(&mut tokens)));
                position += 1;
            } else {
                let (token, next) = token(&characters, position, escape);
                tokens.push(token);
                position = next;
            }
        }
        pieces.push(Piece::new(tokens));
        Pattern { pieces }
    }

    /// What every text that matches begins with.
    pub fn prefix(&self) -> String {
        match self.pieces.first() {
            Some(Piece::Text(text)) => text.clone(),
            Some(Piece::Tokens(tokens)) => tokens.iter().map_while(Token::character).collect(),
            None => String::new(),
        }
    }

    pub fn shape(&self) -> Shape {
        match self.pieces.as_slice() {
            [Piece::Text(_)] => Shape::Text,
            [Piece::Text(_), rest @ ..] if rest.iter().all(Piece::is_empty) => Shape::Prefix,
            _ => Shape::Other,
        }
    }

    /// How many steps a match of a text of this length may take.
    pub fn work(&self, text_length: usize) -> usize {
        let longest = self.pieces.iter().map(Piece::tokens).max().unwrap_or(0);
        text_length / 16 + text_length * longest / 4
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

impl Piece {
    fn new(tokens: Vec<Token>) -> Piece {
        let text: Option<String> = tokens.iter().map(Token::character).collect();
        text.map_or(Piece::Tokens(tokens), Piece::Text)
    }

    fn is_empty(&self) -> bool {
        matches!(self, Piece::Text(text) if text.is_empty())
    }

    fn tokens(&self) -> usize {
        match self {
            Piece::Text(_) => 0,
            Piece::Tokens(tokens) => tokens.len(),
        }
    }

    fn strip_start<'t>(&self, text: &'t str) -> Option<&'t str> {
        match self {
            Piece::Text(piece) => text.strip_prefix(piece.as_str()),
            Piece::Tokens(tokens) => strip_tokens(tokens, text),
        }
    }

    /// The text behind the leftmost match.
    fn skip_past<'t>(&self, text: &'t str) -> Option<&'t str> {
        match self {
            Piece::Text(piece) => {
                let found = memchr::memmem::find(text.as_bytes(), piece.as_bytes());
                found.and_then(|at| text.get(at + piece.len()..))
            }
            Piece::Tokens(tokens) => {
                text.char_indices().find_map(|(at, _)| strip_tokens(tokens, &text[at..]))
            }
        }
    }

    fn ends(&self, text: &str) -> bool {
        match self {
            Piece::Text(piece) => text.ends_with(piece.as_str()),
            Piece::Tokens(tokens) => {
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

/// The token at `position` and where the next one starts.
fn token(pattern: &[char], position: usize, escape: Option<char>) -> (Token, usize) {
    let character = pattern[position];
    if let Some(literal) = pattern.get(position + 1).filter(|_| escape == Some(character)) {
        return (Token::Character(*literal), position + 2);
    }
    match character {
        '_' => (Token::Any, position + 1),
        '[' => set(pattern, position, escape).unwrap_or((Token::Character('['), position + 1)),
        _ => (Token::Character(character), position + 1),
    }
}

/// `None` when the bracket does not close: then it is a plain character.
fn set(pattern: &[char], position: usize, escape: Option<char>) -> Option<(Token, usize)> {
    let mut at = position + 1;
    let negated = pattern.get(at) == Some(&'^');
    at += usize::from(negated);
    let mut ranges = Vec::new();
    loop {
        match *pattern.get(at)? {
            ']' => return Some((Token::Set { negated, ranges }, at + 1)),
            _ => {
                let (low, next) = member(pattern, at, escape)?;
                let is_range =
                    pattern.get(next) == Some(&'-') && pattern.get(next + 1).is_some_and(|c| *c != ']');
                let (high, next) = if is_range { member(pattern, next + 1, escape)? } else { (low, next) };
                ranges.push((low, high));
                at = next;
            }
        }
    }
}

fn member(pattern: &[char], at: usize, escape: Option<char>) -> Option<(char, usize)> {
    let character = *pattern.get(at)?;
    match pattern.get(at + 1) {
        Some(literal) if escape == Some(character) => Some((*literal, at + 2)),
        _ => Some((character, at + 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn like(text: &str, pattern: &str) -> bool {
        Pattern::new(pattern, None).matches(text)
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
        let escaped = Pattern::new("50!%", Some('!'));
        assert!(escaped.matches("50%") && !escaped.matches("50x"));
    }

    #[test]
    fn many_wildcards_take_no_time() {
        let pattern = Pattern::new(&"%a_".repeat(2_000), None);
        assert!(!pattern.matches(&"a".repeat(3_000)));
    }
}
