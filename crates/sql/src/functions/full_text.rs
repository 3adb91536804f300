//! Full-text functions: whether terms occur in a text, how often, and the BM25 score.
//!
//! The binder adds the language of the text as the last argument. A term is a string (a phrase if it has several
//! words), or `{"term": "…", "distance": n}`, where each word may differ in up to n letters.

use quire_value::Value;

use crate::text::{self, Language, Token};

use super::{Call, Function, Implementation, IndexUse, at_least, exactly, f, row};

pub(super) const FUNCTIONS: &[Function] = &[
    f(&["FullTextContains", "FULLTEXT_CONTAINS"], exactly(2), contains_all, IndexUse::FullText)
        .with_language(),
    f(&["FullTextContainsAll", "FULLTEXT_CONTAINS_ALL"], at_least(2), contains_all, IndexUse::FullText)
        .with_language(),
    f(&["FullTextContainsAny", "FULLTEXT_CONTAINS_ANY"], at_least(2), contains_any, IndexUse::FullText)
        .with_language(),
    row(&["FullTextScore"], at_least(2), Implementation::Ranking, IndexUse::FullText),
    f(&["_FullTextScore"], exactly(5), score_with_statistics, IndexUse::FullText).with_language(),
    f(&["_FullTextWordCount"], exactly(1), word_count, IndexUse::None).with_language(),
];

/// Internal, not for queries: `(text, [terms], language)` to the number of words and the number of occurrences of
/// each term.
pub(crate) static COUNTS: Function = f(&["_FullTextCounts"], exactly(2), counts, IndexUse::None);

/// Maximum edit distance of a word.
const DISTANCE_MAX: i64 = 2;
/// Steps to analyse text, relative to reading it.
const ANALYSIS_EFFORT: usize = 16;
/// Memory of the words of a text, per byte of text: `a b c` has a word in every second byte.
const ANALYSIS_BYTES: usize = 24;

/// Statistics of all texts at one path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextStatistics {
    pub total_word_count: u64,
    /// For each term, the number of items in whose text it occurs.
    pub hit_counts: Vec<u64>,
}

/// The usual BM25 parameters: saturation of term frequency, and influence of text length.
const SATURATION: f64 = 1.2;
const LENGTH_WEIGHT: f64 = 0.75;

/// `occurrences` has one number per term. Terms without a hit count are assumed to occur in no other item.
pub fn score(documents: f64, total_words: f64, hits: &[f64], words: f64, occurrences: &[f64]) -> f64 {
    let average = if documents > 0.0 { total_words / documents } else { 0.0 };
    let length = if average > 0.0 { words / average } else { 1.0 };
    let terms = occurrences.iter().enumerate().map(|(index, occurrences)| {
        let hits = hits.get(index).copied().unwrap_or(0.0).clamp(0.0, documents.max(0.0));
        let rarity = (1.0 + (documents.max(0.0) - hits + 0.5) / (hits + 0.5)).ln();
        let frequency = occurrences * (SATURATION + 1.0)
            / (occurrences + SATURATION * (1.0 - LENGTH_WEIGHT + LENGTH_WEIGHT * length));
        rarity * frequency
    });
    terms.sum()
}

fn contains_all(call: &Call<'_>) -> Option<Value> {
    let (text, terms) = text_and_terms(call)?;
    for term in &terms {
        if text.occurrences(call, term)? == 0 {
            return Some(Value::Bool(false));
        }
    }
    Some(Value::Bool(true))
}

fn contains_any(call: &Call<'_>) -> Option<Value> {
    let (text, terms) = text_and_terms(call)?;
    for term in &terms {
        if text.occurrences(call, term)? > 0 {
            return Some(Value::Bool(true));
        }
    }
    Some(Value::Bool(false))
}

fn word_count(call: &Call<'_>) -> Option<Value> {
    Some(Value::from(Text::analyse(call)?.length() as i64))
}

fn counts(call: &Call<'_>) -> Option<Value> {
    let text = Text::analyse(call)?;
    let terms = terms(call, call.array(1)?.iter())?;
    let mut counts = vec![Value::from(text.length() as i64)];
    for term in &terms {
        counts.push(Value::from(text.occurrences(call, term)? as i64));
    }
    Some(Value::Array(counts))
}

/// `(text, [terms], documents, total words, [hit counts])`
fn score_with_statistics(call: &Call<'_>) -> Option<Value> {
    let terms = terms(call, call.array(1)?.iter())?;
    let hits: Vec<f64> =
        call.array(4)?.iter().map(|hits| Some(hits.as_number()?.as_f64())).collect::<Option<_>>()?;
    let (documents, total_words) = (call.double(2)?, call.double(3)?);
    let text = Text::analyse(call)?;
    let occurrences: Vec<f64> =
        terms.iter().map(|term| Some(text.occurrences(call, term)? as f64)).collect::<Option<_>>()?;
    Some(Value::from(score(documents, total_words, &hits, text.length() as f64, &occurrences)))
}

fn text_and_terms<'c>(call: &Call<'c>) -> Option<(Text<'c>, Vec<Term<'c>>)> {
    let terms = terms(call, (1..call.len() - 1).filter_map(|index| call.value(index)))?;
    Some((Text::analyse(call)?, terms))
}

fn terms<'v>(call: &Call<'_>, values: impl Iterator<Item = &'v Value>) -> Option<Vec<Term<'v>>> {
    let language = language(call);
    values.map(|value| Term::read(call, language, value)).collect()
}

/// The last argument.
fn language(call: &Call<'_>) -> Language {
    let code = call.len().checked_sub(1).and_then(|last| call.string(last));
    code.and_then(Language::of_code).unwrap_or_default()
}

/// An analysed text.
struct Text<'t> {
    tokens: Vec<Token<'t>>,
}

impl<'t> Text<'t> {
    /// The first argument.
    fn analyse(call: &Call<'t>) -> Option<Text<'t>> {
        let text = call.string(0)?;
        call.spend_bytes(text.len().saturating_mul(ANALYSIS_EFFORT))?;
        call.build(text.len().saturating_mul(ANALYSIS_BYTES))?;
        Some(Text { tokens: text::tokens(language(call), text).collect() })
    }

    fn length(&self) -> usize {
        text::length(&self.tokens)
    }

    /// `None` when counting exceeds the limits of the run.
    fn occurrences(&self, call: &Call<'_>, term: &Term<'_>) -> Option<usize> {
        let Some((first, rest)) = term.words.split_first() else { return Some(0) };
        call.spend_bytes(self.tokens.len().saturating_mul(4))?;
        let mut found = 0;
        for (index, token) in self.tokens.iter().enumerate() {
            term.spend_on(call, first, token)?;
            if term.accepts(first, token) {
                call.spend_bytes(rest.len().saturating_mul(ANALYSIS_EFFORT))?;
                let shift = i64::from(token.position) - i64::from(first.position);
                found += usize::from(self.continues(call, &self.tokens[index + 1..], term, rest, shift)?);
            }
        }
        Some(found)
    }

    /// Whether the other words of a phrase follow, each at the same distance from the first as in the phrase.
    fn continues(
        &self,
        call: &Call<'_>,
        mut tokens: &[Token<'t>],
        term: &Term<'_>,
        words: &[Token<'_>],
        shift: i64,
    ) -> Option<bool> {
        for word in words {
            let wanted = i64::from(word.position) + shift;
            // Binary search: a phrase may have any number of stop words between two other words.
            let skipped = tokens.partition_point(|token| i64::from(token.position) < wanted);
            if let Some(token) = tokens.get(skipped) {
                term.spend_on(call, word, token)?;
            }
            match tokens.get(skipped) {
                Some(token) if i64::from(token.position) == wanted && term.accepts(word, token) => {
                    tokens = &tokens[skipped + 1..];
                }
                _ => return Some(false),
            }
        }
        Some(true)
    }
}

/// A search term. A term of stop words only occurs nowhere.
struct Term<'v> {
    words: Vec<Token<'v>>,
    distance: usize,
}

impl<'v> Term<'v> {
    fn read(call: &Call<'_>, language: Language, value: &'v Value) -> Option<Term<'v>> {
        let (text, distance) = term_text(value)?;
        call.spend_bytes(text.len().saturating_mul(ANALYSIS_EFFORT))?;
        call.build(text.len().saturating_mul(ANALYSIS_BYTES))?;
        Some(Term { words: text::tokens(language, text).collect(), distance: distance as usize })
    }

    /// Comparing two words takes time in proportion to the product of their lengths.
    fn spend_on(&self, call: &Call<'_>, word: &Token<'_>, token: &Token<'_>) -> Option<()> {
        match self.distance {
            0 => Some(()),
            _ => call.spend_bytes(64 + word.term.len() * token.term.len() * 4),
        }
    }

    fn accepts(&self, word: &Token<'_>, token: &Token<'_>) -> bool {
        match self.distance {
            0 => word.term == token.term,
            distance => within(&word.term, &token.term, distance),
        }
    }
}

/// The text of a term and its maximum edit distance; `None` if the value is not a term.
pub(crate) fn term_text(value: &Value) -> Option<(&str, u64)> {
    match value {
        Value::String(text) => Some((text, 0)),
        Value::Object(term) => {
            if term.iter().any(|(name, _)| !matches!(name, "term" | "distance")) {
                return None;
            }
            let distance = term.get("distance").map_or(Some(0), Value::as_i64)?;
            let distance = (0..=DISTANCE_MAX).contains(&distance).then_some(distance)?;
            Some((term.get("term")?.as_str()?, distance as u64))
        }
        _ => None,
    }
}

/// Whether the edit distance (insertions, deletions, replacements) is at most `distance`.
fn within(left: &str, right: &str, distance: usize) -> bool {
    let (left, right): (Vec<char>, Vec<char>) = (left.chars().collect(), right.chars().collect());
    if left.len().abs_diff(right.len()) > distance {
        return false;
    }
    let mut above: Vec<usize> = (0..=right.len()).collect();
    for (row, letter) in left.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut above[0], row + 1);
        let mut smallest = row + 1;
        for (column, other) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != other);
            diagonal = above[column + 1];
            above[column + 1] = replaced.min(diagonal + 1).min(above[column] + 1);
            smallest = smallest.min(above[column + 1]);
        }
        if smallest > distance {
            return false;
        }
    }
    above[right.len()] <= distance
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_between_words() {
        for (left, right, distance) in [
            ("", "", 0),
            ("fox", "fox", 0),
            ("fox", "fix", 1),
            ("fox", "foxes", 2),
            ("straße", "strasse", 2),
            ("ab", "ba", 2),
        ] {
            assert!(within(left, right, distance), "{left} {right}");
            assert!(distance == 0 || !within(left, right, distance - 1), "{left} {right}");
        }
        assert!(!within("fox", "wolf", 2));
    }

    #[test]
    fn scores() {
        let score =
            |hits: f64, words: f64, occurrences: f64| score(10.0, 100.0, &[hits], words, &[occurrences]);
        assert_eq!(score(1.0, 10.0, 0.0), 0.0);
        assert!(score(1.0, 10.0, 1.0) > score(5.0, 10.0, 1.0), "rare terms count more");
        assert!(score(1.0, 10.0, 2.0) > score(1.0, 10.0, 1.0), "repeated terms count more");
        assert!(score(1.0, 5.0, 1.0) > score(1.0, 50.0, 1.0), "in short texts terms count more");
        assert!(score(10.0, 10.0, 1.0) > 0.0, "a term that all have is not bad");
        let by_hand = (1.0f64 + 9.5 / 1.5).ln();
        assert!((score(1.0, 10.0, 1.0) - by_hand).abs() < 1e-12);
    }
}
