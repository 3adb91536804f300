//! Searches for terms that a full-text index can serve: ORDER BY RANK, the scores in query plans, and the statistics
//! that clients sum.

use quire_value::{Number, Path, Value};

use crate::bind::bound::{Expr, Input, Score};
use crate::error::SqlError;
use crate::exec::text_counts;
use crate::functions::{Aggregate, term_text};
use crate::query::{Evaluator, Query};
use crate::text::{self, Language};

use super::{ConditionFinder, Constants};

/// A text of the item, and the terms that are searched in it.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchedText {
    /// Names only.
    pub path: Path,
    pub language: Language,
    pub terms: Vec<SearchTerm>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SearchTerm {
    /// As in the query.
    pub value: Value,
    /// In order; several words are a phrase. A term of stop words has none and occurs nowhere.
    pub words: Vec<String>,
    /// Maximum edit distance of each word.
    pub distance: u64,
}

/// ORDER BY RANK.
#[derive(Clone, Debug, PartialEq)]
pub struct RankSearch {
    pub components: Vec<RankComponent>,
    /// The ranks of several scores decide, not one score.
    pub is_fused: bool,
    pub distinct: bool,
    pub offset: u64,
    pub limit: Option<u64>,
    /// The query has a WHERE.
    pub is_filtered: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct RankComponent {
    /// `None`: a distance between vectors.
    pub text: Option<SearchedText>,
    /// Negative: the lowest score ranks first.
    pub weight: f64,
}

/// ORDER BY a score with given statistics, highest first, as in query plans.
#[derive(Clone, Debug, PartialEq)]
pub struct ScoreOrder {
    pub text: SearchedText,
    pub documents: f64,
    pub total_words: f64,
    pub hits: Vec<f64>,
    pub offset: u64,
    pub limit: Option<u64>,
}

/// A query of one row over all items that consists of counts only. `counts` has one entry per aggregate, in the order
/// of [`Query::run_with_aggregates`].
#[derive(Clone, Debug, PartialEq)]
pub struct TextStatisticsSearch {
    pub texts: Vec<SearchedText>,
    pub counts: Vec<TextCount>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextCount {
    Items,
    /// The number of words of all texts.
    Words {
        text: usize,
    },
    /// The number of items in whose text the term occurs.
    Hits {
        text: usize,
        term: usize,
    },
}

impl Query {
    /// `None` unless the query ranks by scores of texts at plain paths.
    pub fn rank_search(&self) -> Option<RankSearch> {
        let ranking = self.compiled.ranking.as_ref().filter(|_| self.is_ranked())?;
        let written = self.written();
        let components = self.with_finder(|finder| {
            let component = |component: &crate::bind::bound::Component| {
                let text = match &component.score {
                    Score::Text { text, terms, language } => Some(searched(finder, text, terms, *language)?),
                    Score::Vector(_) => None,
                };
                Some(RankComponent { text, weight: component.weight })
            };
            ranking.components.iter().map(component).collect::<Option<Vec<_>>>()
        })?;
        Some(RankSearch {
            components,
            is_fused: ranking.is_fused,
            distinct: written.distinct,
            offset: written.offset,
            limit: written.limit,
            is_filtered: written.filter.is_some(),
        })
    }

    /// `None` unless the query sorts by one such score alone.
    pub fn score_order(&self) -> Option<ScoreOrder> {
        let (offset, limit) = self.sorted()?;
        let [item] = self.compiled.bound.order_by.as_slice() else { return None };
        let Expr::Coalesce(scores) = &item.expr else { return None };
        let Some(Expr::Call { function, arguments }) = scores.first() else { return None };
        let [text, terms, documents, total_words, hits, language] = arguments.as_slice() else { return None };
        if function.name() != "_FullTextScore" || !item.descending {
            return None;
        }
        self.with_finder(|finder| {
            let terms = finder.constant_of(terms)?;
            let language = Language::of_code(finder.constant_of(language)?.as_str()?)?;
            let number = |value: Value| Some(value.as_number()?.as_f64());
            let hits = finder.constant_of(hits)?;
            Some(ScoreOrder {
                text: searched(finder, text, terms.as_array()?, language)?,
                documents: number(finder.constant_of(documents)?)?,
                total_words: number(finder.constant_of(total_words)?)?,
                hits: hits.as_array()?.iter().map(|hits| number(hits.clone())).collect::<Option<_>>()?,
                offset,
                limit,
            })
        })
    }

    /// `None` if the query has anything but such counts.
    pub fn text_statistics(&self) -> Option<TextStatisticsSearch> {
        let grouping = self.compiled.bound.grouping.as_ref().filter(|grouping| grouping.keys.is_empty())?;
        let [source] = self.compiled.bound.sources.as_slice() else { return None };
        if !matches!(source.input, Input::Container) || source.iterate || self.compiled.bound.filter.is_some()
        {
            return None;
        }
        let mut search = TextStatisticsSearch { texts: Vec::new(), counts: Vec::new() };
        self.with_finder(|finder| {
            for call in &grouping.aggregates {
                let count = match (call.aggregate, &call.argument) {
                    (Aggregate::Count, argument) => finder
                        .constant_of(argument)
                        .filter(|value| !value.is_undefined())
                        .map(|_| TextCount::Items),
                    (Aggregate::Sum, Expr::Call { function, arguments })
                        if function.name() == "_FullTextWordCount" =>
                    {
                        let [text, language] = arguments.as_slice() else { return None };
                        let (text, _) = search.text_and_term(finder, text, None, language)?;
                        Some(TextCount::Words { text })
                    }
                    (Aggregate::CountIf, Expr::Call { function, arguments })
                        if function.name() == "FullTextContains" =>
                    {
                        let [text, term, language] = arguments.as_slice() else { return None };
                        let (text, term) = search.text_and_term(finder, text, Some(term), language)?;
                        Some(TextCount::Hits { text, term })
                    }
                    _ => None,
                };
                search.counts.push(count?);
            }
            (!search.texts.is_empty()).then_some(())
        })?;
        Some(search)
    }

    /// Paths of the texts whose scores the query sorts by.
    pub(super) fn scored_paths(&self, finder: &ConditionFinder<'_>) -> Vec<Path> {
        let ranked = self.compiled.ranking.iter().flat_map(|ranking| &ranking.components);
        let ranked = ranked.filter_map(|component| match &component.score {
            Score::Text { text, .. } => Some(text),
            Score::Vector(_) => None,
        });
        let sorted = self.compiled.bound.order_by.iter().filter_map(|item| match &item.expr {
            Expr::Coalesce(scores) => match scores.first()? {
                Expr::Call { function, arguments } if function.name() == "_FullTextScore" => {
                    arguments.first()
                }
                _ => None,
            },
            _ => None,
        });
        let item_paths = ranked.chain(sorted).filter_map(|text| finder.item_path(text));
        let item_paths =
            item_paths.filter(|item_path| item_path.is_names() && !item_path.segments.is_empty());
        item_paths.map(|item_path| Path(item_path.segments)).collect()
    }

    /// With the levels of the outermost query in scope.
    fn with_finder<T>(&self, use_finder: impl FnOnce(&ConditionFinder<'_>) -> Option<T>) -> Option<T> {
        let constants = Constants::new(self);
        let constant = |expr: &Expr| constants.of(expr);
        let mut finder = ConditionFinder::new(self, &constant);
        finder.rows(&self.compiled.bound);
        use_finder(&finder)
    }
}

impl TextStatisticsSearch {
    /// The path of the text, and the term.
    fn text_and_term(
        &mut self,
        finder: &ConditionFinder<'_>,
        text: &Expr,
        term: Option<&Expr>,
        language: &Expr,
    ) -> Option<(usize, usize)> {
        let language = Language::of_code(finder.constant_of(language)?.as_str()?)?;
        let terms = match term {
            Some(term) => vec![finder.constant_of(term)?],
            None => Vec::new(),
        };
        let found = searched(finder, text, &terms, language)?;
        let known = |known: &SearchedText| (&known.path, known.language) == (&found.path, language);
        let at = self.texts.iter().position(known).unwrap_or_else(|| {
            self.texts.push(SearchedText { terms: Vec::new(), ..found.clone() });
            self.texts.len() - 1
        });
        let terms = &mut self.texts[at].terms;
        terms.extend(found.terms);
        Some((at, terms.len().saturating_sub(1)))
    }
}

/// `None` if it is not a plain path, or a term is not a string.
fn searched(
    finder: &ConditionFinder<'_>,
    text: &Expr,
    terms: &[Value],
    language: Language,
) -> Option<SearchedText> {
    let item_path =
        finder.item_path(text).filter(|item_path| item_path.is_names() && !item_path.segments.is_empty())?;
    let term = |value: &Value| {
        let (text, distance) = term_text(value)?;
        let words = text::terms(language, text).collect();
        Some(SearchTerm { value: value.clone(), words, distance })
    };
    let terms = terms.iter().map(term).collect::<Option<Vec<_>>>()?;
    Some(SearchedText { path: Path(item_path.segments), language, terms })
}

impl Evaluator<'_> {
    /// The number of words of a text, and how often each of the terms occurs.
    pub fn text_counts(&self, searched: &SearchedText, text: &str) -> Result<Vec<u64>, SqlError> {
        let terms = searched.terms.iter().map(|term| term.value.clone()).collect();
        let counts = text_counts(Expr::constant(text), terms, searched.language);
        let counts = self.constant(&counts)?;
        let count = |count: &Value| count.as_number().and_then(Number::as_u64).unwrap_or(0);
        Ok(counts.as_array().map_or(Vec::new(), |counts| counts.iter().map(count).collect()))
    }
}
