//! Full-text indexes: the terms of a text, how often each occurs, and how many there are.
//!
//! | rows     | value                                            | of a text                                     |
//! |----------|--------------------------------------------------|-----------------------------------------------|
//! | terms    | the term                                         | one for every term that occurs                |
//! | repeated | the term, rid (8 bytes), occurrences (4 bytes)   | one for every term that occurs more than once |
//! | lengths  | rid (8 bytes), number of terms (4 bytes)         | one                                           |
//!
//! So all of them lie by rid, and what a part of the container has of a term is one range.
//!
//! The sum of the lengths is kept with the counts of the partition, under an id of its own that has no rows. Rows of
//! version 1 were the terms alone, and of some stop words, too; an index of them finds items but does not score them. In version 2
//! every term counted in a length; lengths and their sum have other names since, so that the two are not mixed while items
//! get their new rows.

use std::borrow::Cow;
use std::sync::Arc;

use quire_resource::ContainerDefinition;
use quire_sql::text::{self, Language, Token, indexed_tokens, tokens};
use quire_value::{Node, Path, key};

use super::change::RowSet;
use super::{IndexId, IndexKind, IndexName, RowsVersion};

pub(super) struct FullTextIndexer {
    /// Names only.
    pub path: Path,
    pub language: Language,
    pub name: Arc<IndexName>,
    /// `None`: rows of version 1.
    scored: Option<ScoredRows>,
}

/// What a score needs besides the terms.
struct ScoredRows {
    /// The length is made of all terms, as in version 2.
    counts_all: bool,
    repeated: Arc<IndexName>,
    lengths: Arc<IndexName>,
    words: IndexId,
}

/// The parts of a full-text index that scores are computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScoringIndex {
    pub language: Language,
    pub terms: IndexId,
    pub repeated: IndexId,
    pub lengths: IndexId,
    /// Counted only.
    pub words: IndexId,
}

impl FullTextIndexer {
    /// `None`: the path names no single place.
    pub fn new(
        path: &Path,
        definition: &ContainerDefinition,
        version: RowsVersion,
    ) -> Option<FullTextIndexer> {
        if path.0.is_empty() || !path.is_names() {
            return None;
        }
        let policy = definition.full_text.paths.iter().find(|policy| policy.path == *path);
        let language = policy.and_then(|policy| Language::of_code(&policy.language)).unwrap_or_default();
        let text = format!("{path} in {}", language.code());
        let named = |kind, text: &str| Arc::new(IndexName::of_path(kind, text));
        let counts_all = version < RowsVersion::UNCOUNTED_WORDS || language != Language::English;
        let lengths = if counts_all { text.clone() } else { format!("{text}, some words not counted") };
        let scored = (version >= RowsVersion::SCORED_TEXTS).then(|| ScoredRows {
            counts_all,
            repeated: named(IndexKind::FullTextRepeated, &text),
            lengths: named(IndexKind::FullTextLength, &lengths),
            words: named(IndexKind::FullTextWords, &lengths).id,
        });
        Some(FullTextIndexer {
            path: path.clone(),
            language,
            name: named(IndexKind::FullText, &text),
            scored,
        })
    }

    /// `None`: it has no scores.
    pub fn scoring(&self) -> Option<ScoringIndex> {
        let scored = self.scored.as_ref()?;
        Some(ScoringIndex {
            language: self.language,
            terms: self.name.id,
            repeated: scored.repeated.id,
            lengths: scored.lengths.id,
            words: scored.words,
        })
    }

    pub fn rows(&self, item: Node<'_>, rid: u64, rows: &mut RowSet) {
        let Some(text) = self.path.find_in(item).and_then(Node::as_str) else { return };
        rows.name(&self.name);
        match &self.scored {
            Some(scored) => self.scored_rows(scored, text, rid, rows),
            None => {
                let mut term = Vec::new();
                for token in indexed_tokens(self.language, text) {
                    self.term_row(&token.term, &mut term, rows);
                }
            }
        }
    }

    fn scored_rows(&self, scored: &ScoredRows, text: &str, rid: u64, rows: &mut RowSet) {
        let tokens: Vec<Token<'_>> = tokens(self.language, text).collect();
        let length = if scored.counts_all { tokens.len() } else { text::length(&tokens) };
        let mut terms: Vec<Cow<'_, str>> = tokens.into_iter().map(|token| token.term).collect();
        let length = u32::try_from(length).expect("an item of 2 MB has far less than 4 billion words");
        terms.sort_unstable();
        let mut encoded = Vec::new();
        for equal in terms.chunk_by(|left, right| left == right) {
            self.term_row(&equal[0], &mut encoded, rows);
            if equal.len() > 1 {
                rows.name(&scored.repeated);
                let occurrences = (equal.len() as u32).to_be_bytes();
                let place = [rid.to_be_bytes().as_slice(), &occurrences].concat();
                rows.push_encoded(scored.repeated.id, [&encoded, &place]);
            }
        }
        rows.name(&scored.lengths);
        rows.push_encoded(scored.lengths.id, [&rid.to_be_bytes(), &length.to_be_bytes()]);
        rows.add_to_count(scored.words, u64::from(length));
    }

    fn term_row(&self, term: &str, encoded: &mut Vec<u8>, rows: &mut RowSet) {
        encoded.clear();
        encode_term(term, encoded);
        rows.push_encoded(self.name.id, [&[], encoded]);
    }
}

/// A term as rows have it. Terms are never cut here: what is too long for a term was cut when the text was analysed.
pub(crate) fn encode_term(term: &str, out: &mut Vec<u8>) {
    key::encode_string(term, out);
}
