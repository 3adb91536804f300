//! Regular expressions, with an engine whose time is linear in the length of the text. Look-around and
//! back-references are not supported and give undefined.
//!
//! Linear still means length of the text times size of the pattern, for every match. So a search that may take long
//! is not one call of the engine: [`MeteredSearch`] runs its automaton byte by byte and spends steps on the way. For what only
//! the engine can do (groups, word boundaries next to letters that are not ASCII), the worst case is spent before.

use std::sync::{Arc, Mutex, PoisonError};

use quire_value::Value;
use regex_automata::hybrid::{LazyStateID, dfa};
use regex_automata::nfa::thompson::{self, WhichCaptures};
use regex_automata::util::captures::Captures;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input, MatchKind, Span, meta};

use super::{Call, Function, IndexUse, between, f};

/// Limits of the cache of compiled patterns, in patterns and bytes; a query seldom has more than one pattern.
const PATTERNS_MAX: usize = 64;
const PATTERNS_BYTES_MAX: usize = 8 << 20;
/// Maximum size of a compiled pattern: nested counted repetitions grow fast.
const PATTERN_BYTES_MAX: usize = 1 << 20;
/// Maximum work of one call of the engine, as states of the pattern times bytes of the text: about a millisecond.
const DIRECT_WORK_MAX: u64 = 1 << 18;
/// Work per step of the meter, for a call whose worst case is spent.
const WORK_PER_STEP: u64 = 4;
/// Work per step for a short call, which nearly always takes far less than its worst case.
const DIRECT_WORK_PER_STEP: u64 = 256;
/// Bytes of text between two charges of a walk.
const WALK_BYTES: usize = 64;
/// Memory and steps to compile a pattern: for a byte of it, and for a class that may have thousands of letters
/// (`\\w`, `[…]`).
const BYTE_MEMORY: usize = 256;
const CLASS_MEMORY: usize = 8 << 10;
const BYTE_STEPS: u64 = 16;
const CLASS_STEPS: u64 = 2_048;

pub(super) const FUNCTIONS: &[Function] = &[
    f(&["RegexMatch", "REGEX_MATCH"], between(2, 3), regex_match, IndexUse::Prefix),
    f(&["RegexExtract", "REGEX_EXTRACT"], between(2, 4), regex_extract, IndexUse::None),
    f(&["RegexExtractAll", "REGEX_EXTRACT_ALL"], between(2, 4), regex_extract_all, IndexUse::None),
];

/// A cache of compiled patterns. Patterns are shared, because a copy starts without the lazily built states.
#[derive(Default)]
pub(crate) struct RegexCache(Mutex<CompiledPatterns>);

#[derive(Default)]
struct CompiledPatterns {
    patterns: Vec<Compiled>,
    bytes: usize,
}

struct Compiled {
    pattern: String,
    modifiers: String,
    /// `None` if the pattern does not compile.
    regex: Option<Arc<Regex>>,
}

impl RegexCache {
    fn get(&self, call: &Call<'_>, pattern: &str, modifiers: &str) -> Option<Arc<Regex>> {
        let mut cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |entry: &&Compiled| entry.pattern == pattern && entry.modifiers == modifiers;
        if let Some(compiled) = cached.patterns.iter().find(same) {
            return compiled.regex.clone();
        }
        let classes = pattern.bytes().filter(|byte| matches!(byte, b'\\' | b'[' | b'.')).count();
        call.spend(pattern.len() as u64 * BYTE_STEPS + classes as u64 * CLASS_STEPS)?;
        call.build(pattern.len() * BYTE_MEMORY + classes * CLASS_MEMORY)?;
        let regex = Regex::compile(pattern, modifiers).map(Arc::new);
        let bytes = pattern.len() + regex.as_ref().map_or(0, |regex| regex.memory_bytes());
        if cached.patterns.len() == PATTERNS_MAX || cached.bytes + bytes > PATTERNS_BYTES_MAX {
            *cached = CompiledPatterns::default();
        }
        let (pattern, modifiers) = (pattern.to_owned(), modifiers.to_owned());
        cached.patterns.push(Compiled { pattern, modifiers, regex: regex.clone() });
        cached.bytes += bytes;
        regex
    }
}

struct Regex {
    engine: meta::Regex,
    /// Forward automaton to the end of a match, and reverse automaton to its start.
    ends: dfa::DFA,
    begins: dfa::DFA,
    /// States of the pattern: the maximum work per byte of text.
    states: u64,
}

impl Regex {
    fn compile(pattern: &str, modifiers: &str) -> Option<Regex> {
        let mut syntax = syntax::Config::new();
        for modifier in modifiers.chars() {
            syntax = match modifier {
                'm' => syntax.multi_line(true),
                's' => syntax.dot_matches_new_line(true),
                'i' => syntax.case_insensitive(true),
                'x' => syntax.ignore_whitespace(true),
                _ => return None,
            };
        }
        let parsed = syntax::parse_with(pattern, &syntax).ok()?;
        let limits = meta::Config::new()
            .nfa_size_limit(Some(PATTERN_BYTES_MAX))
            .hybrid_cache_capacity(PATTERN_BYTES_MAX);
        let engine = meta::Builder::new().configure(limits).build_from_hir(&parsed).ok()?;
        let nfa = |reverse: bool| {
            let config = thompson::Config::new()
                .reverse(reverse)
                .which_captures(WhichCaptures::None)
                .nfa_size_limit(Some(PATTERN_BYTES_MAX));
            thompson::Compiler::new().configure(config).build_from_hir(&parsed).ok()
        };
        let automaton = |nfa: thompson::NFA, kind: MatchKind| {
            let config = dfa::Config::new()
                .match_kind(kind)
                .unicode_word_boundary(true)
                .cache_capacity(PATTERN_BYTES_MAX)
                .skip_cache_capacity_check(true);
            dfa::Builder::new().configure(config).build_from_nfa(nfa).ok()
        };
        let forward = nfa(false)?;
        let states = forward.states().len() as u64;
        let ends = automaton(forward, MatchKind::LeftmostFirst)?;
        let begins = automaton(nfa(true)?, MatchKind::All)?;
        Some(Regex { engine, ends, begins, states })
    }

    fn memory_bytes(&self) -> usize {
        self.engine.memory_usage() + self.ends.memory_usage() + self.begins.memory_usage()
    }

    fn work(&self, bytes: usize) -> u64 {
        self.states.saturating_mul(bytes as u64)
    }

    /// Spends one call of the engine over so many bytes.
    fn spend_on_engine(&self, call: &Call<'_>, bytes: usize) -> Option<()> {
        call.spend(1 + self.work(bytes) / WORK_PER_STEP)
    }

    /// Whether there is a match; the outer `None` when the limit is exceeded.
    fn is_match(&self, call: &Call<'_>, text: &str) -> Option<bool> {
        if self.work(text.len()) <= DIRECT_WORK_MAX {
            call.spend(1 + text.len() as u64 / 16 + self.work(text.len()) / DIRECT_WORK_PER_STEP)?;
            return Some(self.engine.is_match(text));
        }
        match MeteredSearch::new(self, call)?.end(Input::new(text).earliest(true))? {
            SearchResult::Found(end) => Some(end.is_some()),
            SearchResult::Unsupported => {
                self.spend_on_engine(call, text.len())?;
                Some(self.engine.is_match(text))
            }
        }
    }

    /// The first match from a position on.
    fn find(&self, call: &Call<'_>, text: &str, from: usize) -> Option<Option<Span>> {
        let input = Input::new(text).range(from..);
        let rest = text.len() - from;
        let engine = |input: &Input<'_>| self.engine.find(input.clone()).map(|found| found.span());
        if self.work(rest) <= DIRECT_WORK_MAX {
            // Most matches end early, but each of a thousand may scan the whole rest.
            call.spend(1 + self.work(rest) / DIRECT_WORK_PER_STEP)?;
            return Some(engine(&input));
        }
        match MeteredSearch::new(self, call)?.span(input.clone())? {
            SearchResult::Found(span) => Some(span),
            SearchResult::Unsupported => {
                self.spend_on_engine(call, rest)?;
                Some(engine(&input))
            }
        }
    }

    /// The groups of a match.
    fn captures(&self, call: &Call<'_>, text: &str, found: Span) -> Option<Captures> {
        call.build(self.engine.captures_len() * 4 * size_of::<usize>())?;
        self.spend_on_engine(call, found.len())?;
        let mut captures = self.engine.create_captures();
        self.engine.search_captures(&Input::new(text).span(found).anchored(Anchored::Yes), &mut captures);
        Some(captures)
    }
}

/// `Unsupported`: the text has bytes that the automaton does not support.
enum SearchResult<T> {
    Found(T),
    Unsupported,
}

/// A search that spends steps for every piece of text, and for every state it builds.
struct MeteredSearch<'w> {
    regex: &'w Regex,
    call: &'w Call<'w>,
    ends: dfa::Cache,
    begins: dfa::Cache,
    /// Bytes of built states that were already charged.
    charged_bytes: usize,
}

impl<'w> MeteredSearch<'w> {
    fn new(regex: &'w Regex, call: &'w Call<'_>) -> Option<MeteredSearch<'w>> {
        call.build(2 * PATTERN_BYTES_MAX)?;
        let (ends, begins) = (regex.ends.create_cache(), regex.begins.create_cache());
        let mut walk = MeteredSearch { regex, call, ends, begins, charged_bytes: 0 };
        walk.charged_bytes = walk.made_bytes();
        Some(walk)
    }

    fn made_bytes(&self) -> usize {
        let made = |cache: &dfa::Cache| cache.memory_usage() + cache.clear_count() * PATTERN_BYTES_MAX;
        made(&self.ends) + made(&self.begins)
    }

    fn charge(&mut self, bytes: usize) -> Option<()> {
        let made = self.made_bytes();
        let new = made.saturating_sub(self.charged_bytes);
        self.charged_bytes = self.charged_bytes.max(made);
        // Building a state takes time in proportion to the pattern states it stands for.
        self.call.spend(1 + bytes as u64 / 16 + new as u64 / 4)
    }

    fn span(&mut self, mut input: Input<'_>) -> Option<SearchResult<Option<Span>>> {
        loop {
            let end = match self.end(input.clone())? {
                SearchResult::Unsupported => return Some(SearchResult::Unsupported),
                SearchResult::Found(None) => return Some(SearchResult::Found(None)),
                SearchResult::Found(Some(end)) => end,
            };
            let begin = match self.begin(&input, end)? {
                SearchResult::Found(Some(begin)) => begin,
                // The reverse automaton finds the start, unless it is stuck.
                SearchResult::Found(None) | SearchResult::Unsupported => {
                    return Some(SearchResult::Unsupported);
                }
            };
            // An empty match inside of a character does not count.
            if begin == end && !is_boundary(input.haystack(), end) {
                input.set_start(end + 1);
                continue;
            }
            return Some(SearchResult::Found(Some(Span { start: begin, end })));
        }
    }

    /// The end of the first match.
    fn end(&mut self, input: Input<'_>) -> Option<SearchResult<Option<usize>>> {
        let regex = self.regex;
        let Ok(mut state) = regex.ends.start_state_forward(&mut self.ends, &input) else {
            return Some(SearchResult::Unsupported);
        };
        let mut found = None;
        for (index, byte) in input.haystack()[input.start()..input.end()].iter().enumerate() {
            if index % WALK_BYTES == 0 {
                self.charge(WALK_BYTES)?;
            }
            let at = input.start() + index;
            let Ok(next) = regex.ends.next_state(&mut self.ends, state, *byte) else {
                return Some(SearchResult::Unsupported);
            };
            state = next;
            match StateKind::of(state) {
                StateKind::Nothing => {}
                // The automaton reports a match one byte late.
                StateKind::Match if input.get_earliest() => {
                    // An empty match inside of a character does not count, and the search does not show what follows.
                    let is_whole = is_boundary(input.haystack(), at);
                    return Some(if is_whole {
                        SearchResult::Found(Some(at))
                    } else {
                        SearchResult::Unsupported
                    });
                }
                StateKind::Match => found = Some(at),
                StateKind::Dead => return Some(SearchResult::Found(found)),
                StateKind::Quit => return Some(SearchResult::Unsupported),
            }
        }
        let Ok(last) = regex.ends.next_eoi_state(&mut self.ends, state) else {
            return Some(SearchResult::Unsupported);
        };
        if last.is_match() {
            found = Some(input.end());
        }
        Some(SearchResult::Found(found))
    }

    /// The start of the match that ends at `end`.
    fn begin(&mut self, input: &Input<'_>, end: usize) -> Option<SearchResult<Option<usize>>> {
        let regex = self.regex;
        let input = input.clone().range(input.start()..end).anchored(Anchored::Yes);
        let Ok(mut state) = regex.begins.start_state_reverse(&mut self.begins, &input) else {
            return Some(SearchResult::Unsupported);
        };
        let mut found = None;
        for (index, byte) in input.haystack()[input.start()..end].iter().rev().enumerate() {
            if index % WALK_BYTES == 0 {
                self.charge(WALK_BYTES)?;
            }
            let Ok(next) = regex.begins.next_state(&mut self.begins, state, *byte) else {
                return Some(SearchResult::Unsupported);
            };
            state = next;
            match StateKind::of(state) {
                StateKind::Nothing => {}
                StateKind::Match => found = Some(end - index),
                StateKind::Dead => return Some(SearchResult::Found(found)),
                StateKind::Quit => return Some(SearchResult::Unsupported),
            }
        }
        // The byte before the range decides `^` and `\\b`.
        let last = match input.start().checked_sub(1).and_then(|before| input.haystack().get(before)) {
            Some(byte) => regex.begins.next_state(&mut self.begins, state, *byte),
            None => regex.begins.next_eoi_state(&mut self.begins, state),
        };
        let Ok(last) = last else { return Some(SearchResult::Unsupported) };
        if last.is_quit() {
            return Some(SearchResult::Unsupported);
        }
        if last.is_match() {
            found = Some(input.start());
        }
        Some(SearchResult::Found(found))
    }
}

enum StateKind {
    Nothing,
    Match,
    Dead,
    Quit,
}

impl StateKind {
    #[inline]
    fn of(state: LazyStateID) -> StateKind {
        if !state.is_tagged() || state.is_start() || state.is_unknown() {
            StateKind::Nothing
        } else if state.is_match() {
            StateKind::Match
        } else if state.is_dead() {
            StateKind::Dead
        } else {
            StateKind::Quit
        }
    }
}

fn is_boundary(text: &[u8], at: usize) -> bool {
    text.get(at).is_none_or(|byte| byte & 0xC0 != 0x80)
}

/// The text and the compiled pattern of a call.
fn prepare<'a>(call: &Call<'a>) -> Option<(&'a str, Arc<Regex>)> {
    let text = call.string(0)?;
    let pattern = call.string(1)?;
    let modifiers = call.optional(2, "", Call::string)?;
    Some((text, call.context.patterns.get(call, pattern, modifiers)?))
}

fn regex_match(call: &Call<'_>) -> Option<Value> {
    let (text, regex) = prepare(call)?;
    Some(Value::Bool(regex.is_match(call, text)?))
}

fn regex_extract(call: &Call<'_>) -> Option<Value> {
    let (text, regex) = prepare(call)?;
    let group = usize::try_from(call.optional(3, 0, Call::integer)?).ok()?;
    let found = regex.find(call, text, 0)??;
    let found = if group == 0 { found } else { regex.captures(call, text, found)?.get_group(group)? };
    Some(Value::from(&text[found.range()]))
}

/// One array per match: the whole match, or the selected groups.
fn regex_extract_all(call: &Call<'_>) -> Option<Value> {
    let (text, regex) = prepare(call)?;
    let groups = match call.value(3) {
        None => vec![0],
        Some(Value::Array(groups)) => groups.iter().map(group_number).collect::<Option<_>>()?,
        Some(group) => vec![group_number(group)?],
    };
    let mut matches = Vec::new();
    let (mut from, mut last_end) = (0, None);
    while from <= text.len() {
        let Some(found) = regex.find(call, text, from)? else { break };
        // An empty match at the end of the previous match does not count.
        let is_repeated = found.is_empty() && last_end == Some(found.end);
        from = if found.is_empty() { behind(text, found.end) } else { found.end };
        if is_repeated {
            continue;
        }
        last_end = Some(found.end);
        matches.push(extracted(call, &regex, text, found, &groups)?);
    }
    Some(Value::Array(matches))
}

/// Position of the next character.
fn behind(text: &str, at: usize) -> usize {
    at + text[at..].chars().next().map_or(1, char::len_utf8)
}

fn extracted(call: &Call<'_>, regex: &Regex, text: &str, found: Span, groups: &[usize]) -> Option<Value> {
    let captures = match groups {
        [0] => None,
        _ => Some(regex.captures(call, text, found)?),
    };
    let span = |group: &usize| match (&captures, *group) {
        (_, 0) => Some(found),
        (Some(captures), group) => captures.get_group(group),
        (None, _) => None,
    };
    let spans = groups.iter().filter_map(span);
    let bytes: usize = spans.clone().map(|span| span.len() + 2 * size_of::<Value>()).sum();
    call.spend_bytes(bytes)?;
    call.build(bytes + 2 * size_of::<Value>())?;
    Some(spans.map(|span| Value::from(&text[span.range()])).collect())
}

fn group_number(value: &Value) -> Option<usize> {
    usize::try_from(value.as_i64()?).ok()
}
