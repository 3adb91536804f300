//! Scores of texts from a full-text index: what ORDER BY RANK needs to know of all texts, the items that come first, and
//! the counts that clients of several partitions ask for.
//!
//! The index tells how many texts have a term, how often it occurs in each and how long they are, as of the page's
//! snapshot. From that the items are chosen that can be among the rows of the page; the query is run over these, so
//! scores, ranks and their order are always those of the items. Invariant: the rows of a page are the same, byte for
//! byte, as if every item of the scope had been read. What cannot be told exactly is left to reading every item.
//!
//! Items that have expired and are not removed yet still have their rows: they are looked up by time and taken off. An
//! item without any of the terms has a score of 0, and one without a text has none; they come last, in their own order.

use std::collections::{HashMap, HashSet};
use std::ops::{Bound, ControlFlow};

use quire_sql::functions::{TextStatistics, full_text_score};
use quire_sql::{
    RankSearch, RankStatistics, ScoreOrder, SearchTerm, SearchedText, SqlError, TextCount,
    TextStatisticsSearch, ValueRange, fused_scores, rank_contribution,
};
use quire_storage::{Direction, KeyRange, Scan};
use quire_value::{Node as ItemNode, Path, Value};

use super::super::scan::{End, Next, Reader, ScanBudget};
use super::super::window::{Window, is_between};
use super::candidates::Candidates;
use super::explain::Node;
use super::index_only::{edges, key_rows};
use super::known::{Known, encoded};
use super::rids::Rids;
use crate::api::EngineError;
use crate::indexes::ScoringIndex;
use crate::query::exec::evaluate::Evaluator;
use crate::query::plan::{FETCH, ITEM, SEEK};
use crate::store::keys;

/// Rows of an index that one call of the reader gathers.
const READ_ROWS_MAX: usize = 16 << 10;
/// Items fetched at a time.
const FETCH_ITEMS: usize = 256;
/// Items that may have expired; where there are more, every item is read.
const EXPIRED_MAX: usize = 1024;
/// Seconds by which the clock may have stood back when an item was written.
const CLOCK_STEP_SECONDS: i64 = 60;
/// What an occurrence weighs while it is gathered, sorted and scored.
const POSTING_BYTES: usize = 64;

/// What a page knows of the texts in its scope.
pub(crate) struct RankedTexts {
    pub statistics: RankStatistics,
    search: RankSearch,
    /// One per component; `None` of a distance.
    texts: Vec<Option<TextPostings>>,
    scope: TextScope,
}

/// Which of the rows of an index are about items in scope.
struct TextScope {
    /// Expired, but not removed.
    gone: HashSet<u64>,
    /// Prefixes under which items of a neighbouring partition can lie.
    edges: Vec<u32>,
    /// Under an edge: whether the item is in scope.
    judged: HashMap<u64, bool>,
    /// The items of the one logical partition in scope, in order; `None`: whole partitions are.
    members: Option<Vec<u64>>,
    /// Those that are gone included.
    items: u64,
}

/// A text of the items in scope, as its index has it.
struct TextPostings {
    index: ScoringIndex,
    statistics: TextStatistics,
    /// Where a term occurs, by child id and then by term.
    postings: Vec<Posting>,
    /// Every item in scope has such a text.
    is_in_all: bool,
}

#[derive(Clone, Copy, Debug)]
struct Posting {
    rid: u64,
    term: u32,
    occurrences: u32,
}

/// Statistics of a score.
struct Statistics<'a> {
    documents: f64,
    total_words: f64,
    hits: &'a [f64],
}

/// The items that a page looks at, and how many rows they are known to give.
struct Chosen<'c, 'e, 'w> {
    reader: &'c mut Reader<'w>,
    evaluator: &'c Evaluator<'e>,
    rids: Vec<u64>,
    needed: usize,
    /// Items that gave no row, and their bytes.
    rejected: (u64, u64),
}

impl RankedTexts {
    /// `None`: an index does not tell.
    pub fn of(
        reader: &mut Reader<'_>,
        known: &Known<'_>,
        evaluator: &Evaluator<'_>,
        search: RankSearch,
    ) -> Result<Option<RankedTexts>, EngineError> {
        if search.components.iter().all(|component| component.text.is_none()) {
            return Ok(None);
        }
        unless_too_large(RankedTexts::read(reader, known, evaluator, search))
    }

    fn read(
        reader: &mut Reader<'_>,
        known: &Known<'_>,
        evaluator: &Evaluator<'_>,
        search: RankSearch,
    ) -> Result<Option<RankedTexts>, EngineError> {
        let searched: Vec<&SearchedText> =
            search.components.iter().filter_map(|component| component.text.as_ref()).collect();
        let Some((items, read, scope)) = read_texts(reader, known, evaluator, &searched)? else {
            return Ok(None);
        };
        let statistics = RankStatistics {
            document_count: items,
            texts: read.iter().map(|text| text.statistics.clone()).collect(),
        };
        let mut read = read.into_iter();
        let texts = search.components.iter().map(|component| {
            component.text.as_ref()?;
            read.next()
        });
        let texts = texts.collect();
        Ok(Some(RankedTexts { statistics, search, texts, scope }))
    }

    /// The items that can be among the first `rows` rows, those that OFFSET takes not counted; `None`: any can.
    pub fn candidates(
        &self,
        reader: &mut Reader<'_>,
        known: &Known<'_>,
        evaluator: &Evaluator<'_>,
        rows: usize,
    ) -> Result<Option<(Candidates, Node)>, EngineError> {
        if self.search.distinct {
            return Ok(None);
        }
        let limit =
            self.search.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let offset = usize::try_from(self.search.offset).unwrap_or(usize::MAX);
        let needed = rows.min(limit).saturating_add(offset);
        let budget = reader.meter.set_budget(ScanBudget::WHOLE);
        let rids = unless_too_large(match self.texts.as_slice() {
            [Some(text)] if !self.search.is_fused => {
                let hits = doubles(&text.statistics.hit_counts);
                let statistics = Statistics {
                    documents: self.statistics.document_count as f64,
                    total_words: text.statistics.total_word_count as f64,
                    hits: &hits,
                };
                best(reader, known, evaluator, text, &self.scope, &statistics, needed)
            }
            _ => self.fused(reader, known, evaluator, needed),
        });
        reader.meter.set_budget(budget);
        Ok(rids?.map(|rids| chosen_node(&self.label(), needed, rids)))
    }

    fn label(&self) -> String {
        let texts = self.search.components.iter().filter_map(|component| component.text.as_ref());
        let paths: Vec<String> = texts.map(|text| text.path.to_string()).collect();
        paths.join(", ")
    }

    /// Items with none of the terms rank behind all others by every score, so only whether there is one, and what the best
    /// of them can come to, matters to those before it.
    fn fused(
        &self,
        reader: &mut Reader<'_>,
        known: &Known<'_>,
        evaluator: &Evaluator<'_>,
        needed: usize,
    ) -> Result<Option<Vec<u64>>, EngineError> {
        let weights: Vec<f64> = self.search.components.iter().map(|component| component.weight).collect();
        let texts: Option<Vec<&TextPostings>> = self.texts.iter().map(Option::as_ref).collect();
        let searched: Option<Vec<&SearchedText>> =
            self.search.components.iter().map(|component| component.text.as_ref()).collect();
        // By distance every item has its rank, and with a negative weight the items without a term come first.
        let (Some(texts), Some(searched)) = (texts, searched) else { return Ok(None) };
        if weights.iter().any(|weight| *weight < 0.0) {
            return Ok(None);
        }
        let mut with_terms: Vec<u64> =
            texts.iter().flat_map(|text| text.postings.iter().map(|posting| posting.rid)).collect();
        with_terms.sort_unstable();
        with_terms.dedup();
        if self.scope.is_dearer(with_terms.len(), known) {
            return Ok(None);
        }
        let mut scored: Vec<Vec<Option<f64>>> = Vec::with_capacity(with_terms.len());
        reader.meter.keep(with_terms.len() * texts.len() * size_of::<Option<f64>>())?;
        let mut chosen = Chosen::new(reader, evaluator, needed);
        for rids in with_terms.chunks(FETCH_ITEMS) {
            chosen.judge_each(rids, |_, item| {
                let score = |at: usize| self.score_of(evaluator, searched[at], at, item);
                scored.push((0..searched.len()).map(score).collect::<Result<_, _>>()?);
                Ok(())
            })?;
        }
        for (at, text) in texts.iter().enumerate() {
            let is_score = |score: fn(Option<f64>) -> bool| scored.iter().any(|scores| score(scores[at]));
            if is_score(|score| score.is_none())
                && !is_score(|score| score == Some(0.0))
                && !chosen.add_witness(known, text, &self.scope, &with_terms)?
            {
                return Ok(None);
            }
        }
        // A witness of one text has no term of any; what it scores for the others does not come before.
        let witnesses: Vec<u64> = chosen.rids[scored.len()..].to_vec();
        for rid in witnesses {
            let mut scores = None;
            chosen.look_at(rid, |item| {
                let score = |at: usize| self.score_of(evaluator, searched[at], at, item);
                scores = Some((0..searched.len()).map(score).collect::<Result<Vec<_>, _>>()?);
                Ok(())
            })?;
            scored.extend(scores);
        }
        let rows: Vec<&[Option<f64>]> = scored.iter().map(Vec::as_slice).collect();
        let bound: f64 = (0..weights.len()).fold(0.0, |sum, at| {
            let mut positive: Vec<f64> =
                scored.iter().filter_map(|scores| scores[at]).filter(|score| *score > 0.0).collect();
            positive.sort_by(f64::total_cmp);
            positive.dedup();
            sum + rank_contribution(weights[at], positive.len() as u64 + 1)
        });
        let before = fused_scores(&rows, &weights).into_iter().filter(|score| *score > bound).count();
        Ok((before >= needed).then(|| chosen.finish()))
    }

    fn score_of(
        &self,
        evaluator: &Evaluator<'_>,
        searched: &SearchedText,
        at: usize,
        item: ItemNode<'_>,
    ) -> Result<Option<f64>, EngineError> {
        let Some(text) = searched.path.find_in(item).and_then(ItemNode::as_str) else { return Ok(None) };
        let counts = doubles(&evaluator.text_counts(searched, text)?);
        let (Some((words, occurrences)), Some(of)) = (counts.split_first(), &self.texts[at]) else {
            return Ok(None);
        };
        let TextStatistics { total_word_count, hit_counts } = &of.statistics;
        let documents = self.statistics.document_count as f64;
        let hits = doubles(hit_counts);
        Ok(Some(full_text_score(documents, *total_word_count as f64, &hits, *words, occurrences)))
    }
}

/// The items that can be among the first rows of a query that sorts by a score with given statistics.
pub(crate) fn score_candidates(
    reader: &mut Reader<'_>,
    known: &Known<'_>,
    evaluator: &Evaluator<'_>,
    order: &ScoreOrder,
    needed: usize,
) -> Result<Option<(Candidates, Node)>, EngineError> {
    let budget = reader.meter.set_budget(ScanBudget::WHOLE);
    let found = (|| {
        let Some((_, texts, scope)) = read_texts(reader, known, evaluator, &[&order.text])? else {
            return Ok(None);
        };
        let statistics =
            Statistics { documents: order.documents, total_words: order.total_words, hits: &order.hits };
        match texts.as_slice() {
            [text] => best(reader, known, evaluator, text, &scope, &statistics, needed),
            _ => Ok(None),
        }
    })();
    reader.meter.set_budget(budget);
    Ok(unless_too_large(found)?.map(|rids| chosen_node(&order.text.path.to_string(), needed, rids)))
}

/// The aggregates of a query that is made of counts.
pub(crate) fn counted(
    reader: &mut Reader<'_>,
    known: &Known<'_>,
    evaluator: &Evaluator<'_>,
    search: &TextStatisticsSearch,
) -> Result<Option<(Vec<Value>, Node)>, EngineError> {
    let searched: Vec<&SearchedText> = search.texts.iter().collect();
    let found = unless_too_large(read_texts(reader, known, evaluator, &searched))?;
    let Some((items, texts, _)) = found else { return Ok(None) };
    let value = |count: &TextCount| match *count {
        TextCount::Items => Value::from(items),
        TextCount::Words { text } => Value::from(texts[text].statistics.total_word_count as f64),
        TextCount::Hits { text, term } => Value::from(texts[text].statistics.hit_counts[term]),
    };
    let paths: Vec<String> = searched.iter().map(|text| text.path.to_string()).collect();
    let node = Node::new(format!("Counts of full-text index {}, index only", paths.join(", ")));
    Ok(Some((search.counts.iter().map(value).collect(), node)))
}

fn chosen_node(paths: &str, needed: usize, rids: Vec<u64>) -> (Candidates, Node) {
    let node = Node::new(format!("Best of full-text index {paths}"))
        .with_rows(needed as u64, Some(rids.len() as u64));
    (Candidates::Rids(Rids::sorted(rids)), Node::new("Fetch items by child id").with(node))
}

fn doubles(counts: &[u64]) -> Vec<f64> {
    counts.iter().map(|count| *count as f64).collect()
}

/// Reading every item may need less memory.
fn unless_too_large<T>(result: Result<Option<T>, EngineError>) -> Result<Option<T>, EngineError> {
    match result {
        Err(EngineError::Sql(SqlError::QueryMemory { .. })) => Ok(None),
        other => other,
    }
}

/// The number of items in scope and what the index has of the texts; `None`: it does not tell exactly.
fn read_texts(
    reader: &mut Reader<'_>,
    known: &Known<'_>,
    evaluator: &Evaluator<'_>,
    searched: &[&SearchedText],
) -> Result<Option<(u64, Vec<TextPostings>, TextScope)>, EngineError> {
    let indexes: Option<Vec<ScoringIndex>> = searched
        .iter()
        .map(|text| known.scoring_index(&text.path).filter(|index| index.language == text.language))
        .collect();
    let Some(indexes) = indexes else { return Ok(None) };
    // Words that nearly match may be anywhere in the index.
    if searched.iter().flat_map(|text| &text.terms).any(|term| term.distance > 0) {
        return Ok(None);
    }
    let Some(mut scope) = TextScope::of(reader, known)? else { return Ok(None) };
    let mut texts = Vec::with_capacity(searched.len());
    for (searched, index) in searched.iter().zip(indexes) {
        let Some((words, is_in_all)) = scope.words(reader, known, index)? else { return Ok(None) };
        let gone = scope.words_gone(reader, evaluator, searched)?;
        let mut text = TextPostings {
            index,
            statistics: TextStatistics {
                total_word_count: words.saturating_sub(gone),
                hit_counts: Vec::with_capacity(searched.terms.len()),
            },
            postings: Vec::new(),
            is_in_all,
        };
        for (at, term) in searched.terms.iter().enumerate() {
            let found = match term.words.as_slice() {
                [] => Vec::new(),
                [word] => scope.occurrences(reader, known, index, word)?,
                words => match scope.phrase(reader, known, evaluator, (index, searched, term), words)? {
                    Some(found) => found,
                    None => return Ok(None),
                },
            };
            text.statistics.hit_counts.push(found.len() as u64);
            let posting = |(rid, occurrences)| Posting { rid, term: at as u32, occurrences };
            text.postings.extend(found.into_iter().map(posting));
        }
        text.postings.sort_unstable_by_key(|posting| (posting.rid, posting.term));
        texts.push(text);
    }
    let items = scope.items.saturating_sub(scope.gone.len() as u64);
    Ok(Some((items, texts, scope)))
}

impl TextScope {
    /// `None`: items are hidden in a way that the index does not know of.
    fn of(reader: &mut Reader<'_>, known: &Known<'_>) -> Result<Option<TextScope>, EngineError> {
        if reader.moment.hides_keys() || reader.hides_items() {
            return Ok(None);
        }
        let members = if reader.windows.iter().all(Window::is_whole) {
            None
        } else {
            let Some((_, _, keys)) = key_rows(reader, known) else { return Ok(None) };
            let mut members = Vec::new();
            gather(reader, keys, |_, rid| members.push(rid))?;
            Some(members)
        };
        let Some(expired) = may_be_expired(reader, known)? else { return Ok(None) };
        let mut gone = HashSet::new();
        for rids in expired.chunks(FETCH_ITEMS) {
            for (rid, bytes) in rids.iter().zip(reader.fetch(rids)?) {
                if let Some(bytes) = bytes
                    && reader.is_hidden_in_scope(*rid, &bytes)?
                {
                    gone.insert(*rid);
                }
            }
        }
        let (items, edges) = match &members {
            Some(members) => (members.len() as u64, Vec::new()),
            None => (known.items(), edges(reader)),
        };
        Ok(Some(TextScope { gone, edges, judged: HashMap::new(), members, items }))
    }

    /// Whether fetching so many items costs more than reading all of them in their order.
    fn is_dearer(&self, items: usize, known: &Known<'_>) -> bool {
        !known.is_preferred() && items as f64 * FETCH > self.items as f64 * ITEM
    }

    /// Words in all texts, and whether every item has one; `None`: not counted.
    fn words(
        &self,
        reader: &mut Reader<'_>,
        known: &Known<'_>,
        index: ScoringIndex,
    ) -> Result<Option<(u64, bool)>, EngineError> {
        let Some(members) = &self.members else {
            return Ok(known.rows(index.words).map(|words| (words, known.has_all(index.lengths))));
        };
        let (Some(first), Some(last)) = (members.first(), members.last()) else { return Ok(Some((0, true))) };
        let (mut words, mut texts) = (0, 0);
        each_length(reader, known, index, (*first, *last), &mut |value, rid| {
            if members.binary_search(&rid).is_ok() {
                words += value.last_chunk().map_or(0, |words| u64::from(u32::from_be_bytes(*words)));
                texts += 1;
            }
            ControlFlow::Continue(())
        })?;
        Ok(Some((words, texts == members.len())))
    }

    /// Words in the texts of items that are gone.
    fn words_gone(
        &self,
        reader: &mut Reader<'_>,
        evaluator: &Evaluator<'_>,
        searched: &SearchedText,
    ) -> Result<u64, EngineError> {
        let rids: Vec<u64> = self.gone.iter().copied().collect();
        let bare = SearchedText { terms: Vec::new(), ..searched.clone() };
        let mut words = 0;
        for rids in rids.chunks(FETCH_ITEMS) {
            for bytes in reader.fetch(rids)?.into_iter().flatten() {
                let row = crate::store::item_row::Row::trusted(&bytes)?;
                if let Some(text) = searched.path.find_in(row.node()?).and_then(ItemNode::as_str) {
                    words += evaluator.text_counts(&bare, text)?.first().copied().unwrap_or(0);
                }
            }
        }
        Ok(words)
    }

    /// In which texts a word occurs and how often, by child id.
    fn occurrences(
        &mut self,
        reader: &mut Reader<'_>,
        known: &Known<'_>,
        index: ScoringIndex,
        word: &str,
    ) -> Result<Vec<(u64, u32)>, EngineError> {
        let mut rids = Vec::new();
        let mut repeated: HashMap<u64, u32> = HashMap::new();
        for interval in reader.intervals() {
            let keys = known.term_keys_in(index.terms, word, interval);
            gather(reader, keys, |_, rid| rids.push(rid))?;
            let keys = known.term_keys_in(index.repeated, word, interval);
            gather(reader, keys, |value, rid| {
                repeated.extend(value.last_chunk().map(|count| (rid, u32::from_be_bytes(*count))));
            })?;
        }
        self.judge_edges(reader, &rids)?;
        rids.retain(|rid| self.contains(reader, *rid));
        Ok(rids.into_iter().map(|rid| (rid, repeated.get(&rid).copied().unwrap_or(1))).collect())
    }

    /// The same for words that follow each other: where all of them are, the text says whether they do. `None`: reading
    /// every item is cheaper.
    fn phrase(
        &mut self,
        reader: &mut Reader<'_>,
        known: &Known<'_>,
        evaluator: &Evaluator<'_>,
        (index, searched, term): (ScoringIndex, &SearchedText, &SearchTerm),
        words: &[String],
    ) -> Result<Option<Vec<(u64, u32)>>, EngineError> {
        let mut unique: Vec<&String> = words.iter().collect();
        unique.sort();
        unique.dedup();
        let mut all: Option<Vec<u64>> = None;
        for word in unique {
            let found = self.occurrences(reader, known, index, word)?;
            all = Some(match all {
                None => found.into_iter().map(|(rid, _)| rid).collect(),
                Some(mut all) => {
                    all.retain(|rid| found.binary_search_by_key(rid, |(found, _)| *found).is_ok());
                    all
                }
            });
        }
        let all = all.unwrap_or_default();
        if self.is_dearer(all.len(), known) {
            return Ok(None);
        }
        let only = SearchedText { terms: vec![term.clone()], ..searched.clone() };
        let mut found = Vec::new();
        for rids in all.chunks(FETCH_ITEMS) {
            for (rid, bytes) in rids.iter().zip(reader.fetch(rids)?) {
                let Some(bytes) = bytes else { continue };
                let mut occurrences = 0;
                let end = reader.show(*rid, &bytes, &mut |item| {
                    if let Some(text) = only.path.find_in(item.row.node()?).and_then(ItemNode::as_str) {
                        occurrences = evaluator.text_counts(&only, text)?.get(1).copied().unwrap_or(0);
                    }
                    Ok(Next::More)
                })?;
                check(end)?;
                if occurrences > 0 {
                    found.push((*rid, u32::try_from(occurrences).unwrap_or(u32::MAX)));
                }
            }
        }
        Ok(Some(found))
    }

    /// Looks at the items of which the index does not tell whether they are in scope.
    fn judge_edges(&mut self, reader: &mut Reader<'_>, rids: &[u64]) -> Result<(), EngineError> {
        let is_open =
            |rid: &u64| self.edges.contains(&keys::rid_prefix(*rid)) && !self.judged.contains_key(rid);
        let open: Vec<u64> = rids.iter().copied().filter(is_open).collect();
        for rids in open.chunks(FETCH_ITEMS) {
            for (rid, bytes) in rids.iter().zip(reader.fetch(rids)?) {
                let mut is_in = false;
                if let Some(bytes) = bytes {
                    let end = reader.show(*rid, &bytes, &mut |_| {
                        is_in = true;
                        Ok(Next::More)
                    })?;
                    check(end)?;
                }
                self.judged.insert(*rid, is_in);
            }
        }
        Ok(())
    }

    /// After [`TextScope::judge_edges`].
    fn contains(&self, reader: &Reader<'_>, rid: u64) -> bool {
        self.members
            .as_ref()
            .map_or_else(|| reader.can_hold(rid), |members| members.binary_search(&rid).is_ok())
            && !self.gone.contains(&rid)
            && (self.edges.is_empty() || self.judged.get(&rid).copied().unwrap_or(true))
    }
}

/// Child ids of items of which time says that they may have expired; `None`: too many.
fn may_be_expired(reader: &mut Reader<'_>, known: &Known<'_>) -> Result<Option<Vec<u64>>, EngineError> {
    let Some(default) = reader.container.definition.default_ttl else { return Ok(Some(Vec::new())) };
    let (number, now) = (reader.container.number, reader.moment.seconds);
    let range = KeyRange {
        start: Bound::Included(keys::expiry(number, 0, 0)),
        end: Bound::Included(keys::expiry(number, now, u64::MAX)),
    };
    let scan = Scan {
        space: keys::FEEDS,
        range,
        direction: Direction::Forward,
        rows_max: EXPIRED_MAX + 1,
        bytes_max: usize::MAX,
        keys_only: true,
    };
    let mut rids = Vec::new();
    reader.meter.spend(EXPIRED_MAX as u64)?;
    reader.snapshot.visit(&scan, &mut |key, _| {
        rids.extend(keys::rid_of_expiry_key(key));
        ControlFlow::Continue(())
    })?;
    if default > 0 {
        let path = Path(vec![quire_value::Segment::Name("_ts".to_owned())]);
        let Some(index) = known.range_index(&path, &[]) else { return Ok(None) };
        let latest = Value::from(now - i64::from(default) + CLOCK_STEP_SECONDS);
        let written = ValueRange { low: Bound::Unbounded, high: Bound::Included(latest) };
        let keys = known.keys(index, &encoded(&written, None));
        reader.index_rows(keys, Direction::Forward, EXPIRED_MAX + 1, &mut |key| {
            rids.extend(key.last_chunk().map(|rid| u64::from_be_bytes(*rid)));
            ControlFlow::Continue(())
        })?;
    }
    rids.sort_unstable();
    rids.dedup();
    Ok((rids.len() <= EXPIRED_MAX).then_some(rids))
}

/// The first by score, then those without a term in their own order, until enough of them give rows; `None`: some of the
/// rows come from items that the index does not know.
fn best(
    reader: &mut Reader<'_>,
    known: &Known<'_>,
    evaluator: &Evaluator<'_>,
    text: &TextPostings,
    scope: &TextScope,
    statistics: &Statistics<'_>,
    needed: usize,
) -> Result<Option<Vec<u64>>, EngineError> {
    let Some(scored) = scored(reader, known, text, statistics)? else { return Ok(None) };
    let mut chosen = Chosen::new(reader, evaluator, needed);
    let mut rest = scored.as_slice();
    while !rest.is_empty() && !chosen.is_enough() {
        let (batch, left) = rest.split_at(chosen.batch().min(rest.len()));
        // Where windows share a prefix the order is theirs: equal scores of it stay together.
        let together = batch.last().map_or(0, |(score, last)| {
            let is_next = |rid: u64| is_same_prefix(rid, *last) && is_between(chosen.reader.windows, rid);
            left.iter().take_while(|(other, rid)| other == score && is_next(*rid)).count()
        });
        let (batch, left) = rest.split_at(batch.len() + together);
        let rids: Vec<u64> = batch.iter().map(|(_, rid)| *rid).collect();
        chosen.judge(&rids)?;
        rest = left;
    }
    if chosen.is_enough() {
        return Ok(Some(chosen.finish()));
    }
    let mut with_terms: Vec<u64> = scored.into_iter().map(|(_, rid)| rid).collect();
    with_terms.sort_unstable();
    let is_complete = chosen.fill(known, text, scope, &with_terms)?;
    Ok(is_complete.then(|| chosen.finish()))
}

fn is_same_prefix(left: u64, right: u64) -> bool {
    keys::rid_prefix(left) == keys::rid_prefix(right)
}

/// Every item with a term and its score, the highest first and then by child id; `None`: some score is not above 0.
fn scored(
    reader: &mut Reader<'_>,
    known: &Known<'_>,
    text: &TextPostings,
    statistics: &Statistics<'_>,
) -> Result<Option<Vec<(f64, u64)>>, EngineError> {
    let terms = text.statistics.hit_counts.len();
    let groups = || text.postings.chunk_by(|left, right| left.rid == right.rid);
    let rids: Vec<u64> = groups().map(|postings| postings[0].rid).collect();
    let lengths = lengths(reader, known, text.index, &rids)?;
    let mut scored = Vec::with_capacity(rids.len());
    let mut occurrences = vec![0.0; terms];
    for postings in groups() {
        reader.meter.spend(terms as u64)?;
        occurrences.fill(0.0);
        for posting in postings {
            occurrences[posting.term as usize] = f64::from(posting.occurrences);
        }
        let Some(words) = lengths.get(&postings[0].rid) else { return Ok(None) };
        let Statistics { documents, total_words, hits } = statistics;
        let score = full_text_score(*documents, *total_words, hits, f64::from(*words), &occurrences);
        if score.is_nan() || score <= 0.0 {
            return Ok(None);
        }
        scored.push((score, postings[0].rid));
    }
    scored
        .sort_by(|(left, left_rid), (right, right_rid)| right.total_cmp(left).then(left_rid.cmp(right_rid)));
    Ok(Some(scored))
}

/// The number of words in the texts of these items, which are in order.
fn lengths(
    reader: &mut Reader<'_>,
    known: &Known<'_>,
    index: ScoringIndex,
    rids: &[u64],
) -> Result<HashMap<u64, u32>, EngineError> {
    let mut lengths = HashMap::with_capacity(rids.len());
    let (Some(first), Some(last)) = (rids.first(), rids.last()) else { return Ok(lengths) };
    reader.meter.keep(rids.len() * POSTING_BYTES)?;
    let rows = known.rows(index.lengths).unwrap_or(u64::MAX);
    let mut add = |value: &[u8], rid: u64| {
        lengths.extend(value.last_chunk().map(|length| (rid, u32::from_be_bytes(*length))));
    };
    if rids.len() as f64 * SEEK < rows as f64 {
        for rid in rids {
            each_length(reader, known, index, (*rid, *rid), &mut |value, rid| {
                add(value, rid);
                ControlFlow::Break(())
            })?;
        }
    } else {
        each_length(reader, known, index, (*first, *last), &mut |value, rid| {
            if rids.binary_search(&rid).is_ok() {
                add(value, rid);
            }
            ControlFlow::Continue(())
        })?;
    }
    Ok(lengths)
}

/// The rows of the lengths of items from one child id to another, in their order.
fn each_length(
    reader: &mut Reader<'_>,
    known: &Known<'_>,
    index: ScoringIndex,
    (first, last): (u64, u64),
    visit: &mut dyn FnMut(&[u8], u64) -> ControlFlow<()>,
) -> Result<(), EngineError> {
    let mut keys = known.length_keys_in(index.lengths, (first, last));
    loop {
        let (mut after, mut is_enough) = (None, false);
        let rows_max = if first == last { 1 } else { READ_ROWS_MAX };
        let more = reader.index_rows(keys.clone(), Direction::Forward, rows_max, &mut |key| {
            let Some((value, rid)) = key.split_last_chunk() else { return ControlFlow::Continue(()) };
            after = Some(key.to_vec());
            let flow = visit(value, u64::from_be_bytes(*rid));
            is_enough = flow.is_break();
            flow
        })?;
        let Some(after) = after.filter(|_| more && !is_enough) else { return Ok(()) };
        keys.start = Bound::Excluded(after);
    }
}

/// All rows of a range, which are held by the page.
fn gather(
    reader: &mut Reader<'_>,
    mut keys: KeyRange,
    mut take: impl FnMut(&[u8], u64),
) -> Result<(), EngineError> {
    loop {
        let (mut after, mut rows) = (None, 0);
        let more = reader.index_rows(keys.clone(), Direction::Forward, READ_ROWS_MAX, &mut |key| {
            if let Some((value, rid)) = key.split_last_chunk() {
                take(value, u64::from_be_bytes(*rid));
            }
            rows += 1;
            let after = after.get_or_insert_with(Vec::new);
            after.clear();
            after.extend_from_slice(key);
            ControlFlow::Continue(())
        })?;
        reader.meter.keep(rows * POSTING_BYTES)?;
        let Some(after) = after.filter(|_| more) else { return Ok(()) };
        keys.start = Bound::Excluded(after);
    }
}

fn check(end: End) -> Result<(), EngineError> {
    match end {
        End::Paused(_) => Err(SqlError::Budget { what: "a minute" }.into()),
        End::Done | End::Stopped => Ok(()),
    }
}

impl<'c, 'e, 'w> Chosen<'c, 'e, 'w> {
    fn new(reader: &'c mut Reader<'w>, evaluator: &'c Evaluator<'e>, needed: usize) -> Chosen<'c, 'e, 'w> {
        Chosen { reader, evaluator, rids: Vec::new(), needed, rejected: (0, 0) }
    }

    fn is_enough(&self) -> bool {
        self.rids.len() >= self.needed
    }

    /// Items to look at next.
    fn batch(&self) -> usize {
        self.needed.saturating_sub(self.rids.len()).clamp(1, FETCH_ITEMS)
    }

    /// Takes those that give a row.
    fn judge(&mut self, rids: &[u64]) -> Result<(), EngineError> {
        self.judge_each(rids, |_, _| Ok(()))
    }

    fn judge_each(
        &mut self,
        rids: &[u64],
        mut taken: impl FnMut(u64, ItemNode<'_>) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        for (rid, bytes) in rids.iter().zip(self.reader.fetch(rids)?) {
            let Some(bytes) = bytes else { continue };
            let (before, evaluator) = (self.reader.meter.cost(), self.evaluator);
            let mut produces_row = false;
            let end = self.reader.show(*rid, &bytes, &mut |found| {
                produces_row = evaluator.produces_row(found)?;
                if produces_row {
                    taken(*rid, found.row.node()?)?;
                }
                Ok(Next::More)
            })?;
            check(end)?;
            if produces_row {
                // It is read once more by the query.
                self.reader.meter.forget_since(&before);
                self.rids.push(*rid);
            } else {
                self.rejected.0 += 1;
                self.rejected.1 += bytes.len() as u64;
            }
        }
        Ok(())
    }

    fn look_at(
        &mut self,
        rid: u64,
        mut look: impl FnMut(ItemNode<'_>) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        for bytes in self.reader.fetch(&[rid])?.into_iter().flatten() {
            let end = self.reader.show(rid, &bytes, &mut |found| {
                look(found.row.node()?)?;
                Ok(Next::More)
            })?;
            check(end)?;
        }
        Ok(())
    }

    /// Goes on with texts that have none of the terms, in the order of the items. False: items without a text would follow,
    /// or so many give no row that reading all items is cheaper.
    fn fill(
        &mut self,
        known: &Known<'_>,
        text: &TextPostings,
        scope: &TextScope,
        with_terms: &[u64],
    ) -> Result<bool, EngineError> {
        let is_exhausted =
            self.each_without_term(known, text, scope, with_terms, |chosen| chosen.is_enough())?;
        match is_exhausted {
            None => Ok(false),
            Some(false) => Ok(true),
            // All items were seen where all have a text.
            Some(true) => Ok(self.is_enough() || text.is_in_all),
        }
    }

    /// One item without any of the terms that gives a row, if there is one. False: it was not found in time.
    fn add_witness(
        &mut self,
        known: &Known<'_>,
        text: &TextPostings,
        scope: &TextScope,
        with_terms: &[u64],
    ) -> Result<bool, EngineError> {
        let before = self.rids.len();
        let found =
            self.each_without_term(known, text, scope, with_terms, |chosen| chosen.rids.len() > before)?;
        Ok(found.is_some())
    }

    /// Judges items with a text and none of the terms until it is enough; true: these were all. `None`: too many.
    fn each_without_term(
        &mut self,
        known: &Known<'_>,
        text: &TextPostings,
        scope: &TextScope,
        with_terms: &[u64],
        is_enough: impl Fn(&Chosen<'_, '_, '_>) -> bool,
    ) -> Result<Option<bool>, EngineError> {
        let mut fetched = 0;
        for (low, high) in self.reader.intervals() {
            let mut from = low;
            loop {
                let (mut rids, wanted): (Vec<u64>, usize) = (Vec::new(), self.batch());
                let windows = self.reader.windows;
                each_length(self.reader, known, text.index, (from, high), &mut |_, rid| {
                    let is_next = rids.len() < wanted
                        || rids.last().is_some_and(|last| is_same_prefix(*last, rid))
                            && is_between(windows, rid);
                    if is_next && with_terms.binary_search(&rid).is_err() && !scope.gone.contains(&rid) {
                        rids.push(rid);
                    }
                    if is_next { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                })?;
                let Some(last) = rids.last().copied() else { break };
                fetched += rids.len();
                if scope.is_dearer(fetched, known) {
                    return Ok(None);
                }
                for rids in rids.chunks(FETCH_ITEMS) {
                    self.judge(rids)?;
                }
                if is_enough(self) {
                    return Ok(Some(false));
                }
                let Some(next) = last.checked_add(1).filter(|next| *next <= high) else { break };
                from = next;
            }
        }
        Ok(Some(true))
    }

    /// What was looked at in vain stays counted.
    fn finish(self) -> Vec<u64> {
        self.rids
    }
}
