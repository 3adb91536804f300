//! Full-text analysis: from text to terms, the same for items, queries and indexes.
//!
//! Words by Unicode's rules (UAX #29); compatibility forms and letter case folded (NFKC, lower case); English stop
//! words removed; stems by language (Snowball). Stop words count for positions, so a phrase matches only with the
//! same number of words between its words. Some more English words do not count in the length of a text.
//!
//! Terms are stored on disk: a change of the analysis needs new indexes. So the stemmer is pinned to one version.

mod language;
pub(crate) mod like; // LIKE patterns
mod stop_words;

use std::borrow::Cow;

use snowball_stemmers_rs::Stemmer;
use unicode_normalization::UnicodeNormalization;
use unicode_segmentation::UnicodeSegmentation;

pub use self::language::Language;
pub use self::stop_words::{ENGLISH_STOP_WORDS, ENGLISH_UNCOUNTED_WORDS};

/// Longer words are truncated and not stemmed: they are not words of a language.
pub const TERM_LENGTH_BYTES_MAX: usize = 128;

/// The term of one word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token<'t> {
    pub term: Cow<'t, str>,
    /// Position of the word in the text; stop words count.
    pub position: u32,
    /// It makes the text longer.
    pub is_counted: bool,
}

/// The length of a text, as scores need it.
pub fn length(tokens: &[Token<'_>]) -> usize {
    tokens.iter().filter(|token| token.is_counted).count()
}

/// Words without rows in an index of version 1. Stored on disk, so this list never changes: other stop words have
/// rows that no query reads. Sorted, and all are stop words.
const ENGLISH_UNINDEXED_WORDS: &[&str] = &[
    "a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it", "no",
    "not", "of", "on", "or", "such", "that", "the", "their", "then", "there", "these", "they", "this", "to",
    "was", "will", "with",
];

/// The terms of a text in their order, repeated as often as they occur.
pub fn terms(language: Language, text: &str) -> impl Iterator<Item = String> {
    tokens(language, text).map(|token| token.term.into_owned())
}

/// The terms of a text with their positions.
pub fn tokens(language: Language, text: &str) -> impl Iterator<Item = Token<'_>> {
    tokens_but(language, text, ENGLISH_STOP_WORDS)
}

/// The terms of a text that an index of version 1 contains: all terms, and some stop words.
pub fn indexed_tokens(language: Language, text: &str) -> impl Iterator<Item = Token<'_>> {
    tokens_but(language, text, ENGLISH_UNINDEXED_WORDS)
}

fn tokens_but<'t>(
    language: Language,
    text: &'t str,
    stop_words: &'static [&'static str],
) -> impl Iterator<Item = Token<'t>> {
    let stemmer = Stemmer::create(language.algorithm());
    let words = text.unicode_words().flat_map(move |word| parts(language, word));
    words.zip(0..).filter_map(move |(word, position)| {
        let word = folded(word);
        let is_in = |words: &[&str]| language == Language::English && words.binary_search(&&*word).is_ok();
        if is_in(stop_words) {
            return None;
        }
        let is_counted = !is_in(ENGLISH_UNCOUNTED_WORDS);
        Some(Token { term: stemmed(&stemmer, word), position, is_counted })
    })
}

/// Apostrophes join in English ("don't") and separate elsewhere ("l'été", "dell'arte").
fn parts(language: Language, word: &str) -> impl Iterator<Item = &str> {
    word.split(move |letter| language != Language::English && is_apostrophe(letter))
        .filter(|part| !part.is_empty())
}

fn is_apostrophe(letter: char) -> bool {
    matches!(letter, '\'' | '\u{2019}' | '\u{FF07}')
}

fn folded(word: &str) -> Cow<'_, str> {
    if word.is_ascii() {
        let is_folded = !word.bytes().any(|byte| byte.is_ascii_uppercase());
        return if is_folded { Cow::Borrowed(word) } else { Cow::Owned(word.to_ascii_lowercase()) };
    }
    let normal: String =
        word.nfkc().map(|letter| if is_apostrophe(letter) { '\'' } else { letter }).collect();
    Cow::Owned(normal.to_lowercase())
}

fn stemmed<'w>(stemmer: &Stemmer, mut word: Cow<'w, str>) -> Cow<'w, str> {
    if word.len() > TERM_LENGTH_BYTES_MAX {
        let end = word.floor_char_boundary(TERM_LENGTH_BYTES_MAX);
        word.to_mut().truncate(end);
        return word;
    }
    match stemmer.stem(&word) {
        stem if *stem == *word => word,
        stem => Cow::Owned(stem.into_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(language: Language, text: &str, expected: &[&str]) {
        assert_eq!(terms(language, text).collect::<Vec<_>>(), expected, "{text}");
    }

    #[test]
    fn english() {
        check(Language::English, "The Foxes are running, quickly!", &["fox", "run", "quick"]);
        check(Language::English, "Fishing for fish; the fisher fished.", &["fish", "fish", "fisher", "fish"]);
        check(Language::English, "don't DON\u{2019}T", &["don't", "don't"]);
        check(Language::English, "the dog's", &["dog"]);
        check(Language::English, "e-mail 3.14 C++ foo_bar", &["e", "mail", "3.14", "c", "foo_bar"]);
        check(Language::English, " \t—…!?", &[]);
    }

    #[test]
    fn positions_count_stop_words() {
        let positions: Vec<u32> =
            tokens(Language::English, "state of the art").map(|token| token.position).collect();
        assert_eq!(positions, [0, 3]);
    }

    #[test]
    fn other_languages() {
        check(Language::German, "Die Häuser der Straße", &["die", "haus", "der", "strass"]);
        check(Language::French, "l'avion des étés", &["l", "avion", "de", "été"]);
        check(Language::Italian, "dell'arte nazionale", &["dell", "arte", "nazional"]);
        check(Language::Spanish, "canciones", &["cancion"]);
        check(Language::Portuguese, "canções", &["cançõ"]);
    }

    #[test]
    fn equal_words_are_equal_however_written() {
        check(Language::English, "caf\u{e9} cafe\u{301} ＣＡＦＥ", &["café", "café", "cafe"]);
        check(Language::English, "東京", &["東", "京"]);
        check(Language::English, "ОДИН Ελλάς", &["один", "ελλάς"]);
    }

    #[test]
    fn stop_words_are_in_order() {
        assert!(ENGLISH_STOP_WORDS.is_sorted() && ENGLISH_UNINDEXED_WORDS.is_sorted());
        assert!(ENGLISH_UNINDEXED_WORDS.iter().all(|word| ENGLISH_STOP_WORDS.contains(word)));
        assert!(ENGLISH_UNCOUNTED_WORDS.is_sorted());
        assert!(ENGLISH_UNCOUNTED_WORDS.iter().all(|word| !ENGLISH_STOP_WORDS.contains(word)));
    }

    #[test]
    fn an_index_has_every_term() {
        let text = "Both foxes were first, and who is the other well-known fox?";
        let terms: Vec<String> = terms(Language::English, text).collect();
        assert_eq!(terms, ["fox", "known", "fox"]);
        let indexed: Vec<String> =
            indexed_tokens(Language::English, text).map(|token| token.term.into_owned()).collect();
        assert!(terms.iter().all(|term| indexed.contains(term)));
        assert!(indexed.contains(&"both".to_owned()), "rows that are on disk stay what they are");
    }

    #[test]
    fn some_words_are_found_and_not_counted() {
        let tokens: Vec<Token<'_>> = tokens(Language::English, "Known throughout the area").collect();
        let terms: Vec<&str> = tokens.iter().map(|token| &*token.term).collect();
        assert_eq!((terms, length(&tokens)), (vec!["known", "throughout", "area"], 1));
    }

    #[test]
    fn long_words_are_cut_between_letters() {
        let long: String = "é".repeat(1_000);
        let term = terms(Language::English, &long).next().expect("one word");
        assert_eq!(term, "é".repeat(TERM_LENGTH_BYTES_MAX / 2));
    }

    #[test]
    fn any_text_can_be_analysed_in_any_language() {
        let pieces = [
            "a", "ung", "é", "ß", "'", "\u{301}", "東", "😀", "İ", "ly", "ness", "-", "qu", "gu", "ã", "õe",
            "y",
        ];
        let mut seed = 1u64;
        for _ in 0..20_000 {
            let mut text = String::new();
            for _ in 0..8 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                text.push_str(pieces[(seed >> 33) as usize % pieces.len()]);
            }
            for language in [
                Language::English,
                Language::German,
                Language::Spanish,
                Language::French,
                Language::Italian,
                Language::Portuguese,
            ] {
                assert!(terms(language, &text).count() <= text.len(), "{text}");
            }
        }
    }
}
