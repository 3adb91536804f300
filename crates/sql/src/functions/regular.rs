//! Regular expressions, by an engine whose time is linear in the text. Not offered, and so undefined: look-around and
//! back-references.

use std::sync::{Arc, Mutex, PoisonError};

use quire_value::Value;
use regex::{Regex, RegexBuilder};

use super::{Call, Function, IndexUse, between, f};

/// Compiled patterns that are kept; a query seldom has more than one.
const PATTERNS_MAX: usize = 64;
/// Bytes of a compiled pattern: nested counted repetitions grow fast.
const PATTERN_BYTES_MAX: usize = 1 << 20;

pub(super) const FUNCTIONS: &[Function] = &[
    f(&["RegexMatch", "REGEX_MATCH"], between(2, 3), regex_match, IndexUse::Prefix),
    f(&["RegexExtract", "REGEX_EXTRACT"], between(2, 4), regex_extract, IndexUse::None),
    f(&["RegexExtractAll", "REGEX_EXTRACT_ALL"], between(2, 4), regex_extract_all, IndexUse::None),
];

/// Compiled patterns; shared, because a copy of one starts without the states it has found.
#[derive(Default)]
pub(crate) struct Patterns(Mutex<Vec<Compiled>>);

struct Compiled {
    pattern: String,
    modifiers: String,
    /// `None` for one that does not compile.
    regex: Option<Arc<Regex>>,
}

impl Patterns {
    fn get(&self, pattern: &str, modifiers: &str) -> Option<Arc<Regex>> {
        let mut compiled = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = compiled.iter().find(|known| known.pattern == pattern && known.modifiers == modifiers);
        if let Some(known) = known {
            return known.regex.clone();
        }
        if compiled.len() == PATTERNS_MAX {
            compiled.clear();
        }
        let regex = compile(pattern, modifiers).map(Arc::new);
        let (pattern, modifiers) = (pattern.to_owned(), modifiers.to_owned());
        compiled.push(Compiled { pattern, modifiers, regex: regex.clone() });
        regex
    }
}

fn compile(pattern: &str, modifiers: &str) -> Option<Regex> {
    let mut builder = RegexBuilder::new(pattern);
    builder.size_limit(PATTERN_BYTES_MAX).dfa_size_limit(PATTERN_BYTES_MAX);
    for modifier in modifiers.chars() {
        match modifier {
            'm' => builder.multi_line(true),
            's' => builder.dot_matches_new_line(true),
            'i' => builder.case_insensitive(true),
            'x' => builder.ignore_whitespace(true),
            _ => return None,
        };
    }
    builder.build().ok()
}

/// The text and the compiled pattern of a call.
fn prepare<'a>(call: &Call<'a>) -> Option<(&'a str, Arc<Regex>)> {
    let text = call.string(0)?;
    let pattern = call.string(1)?;
    let modifiers = call.optional(2, "", Call::string)?;
    call.spend_bytes(text.len() + pattern.len())?;
    Some((text, call.surroundings.patterns.get(pattern, modifiers)?))
}

fn regex_match(call: &Call<'_>) -> Option<Value> {
    let (text, regex) = prepare(call)?;
    Some(Value::Bool(regex.is_match(text)))
}

fn regex_extract(call: &Call<'_>) -> Option<Value> {
    let (text, regex) = prepare(call)?;
    let group = usize::try_from(call.optional(3, 0, Call::integer)?).ok()?;
    let found = regex.captures(text)?.get(group)?;
    Some(Value::from(found.as_str()))
}

/// One array per match: the whole match, or the groups asked for.
fn regex_extract_all(call: &Call<'_>) -> Option<Value> {
    let (text, regex) = prepare(call)?;
    let groups = match call.value(3) {
        None => vec![0],
        Some(Value::Array(groups)) => groups.iter().map(group_number).collect::<Option<_>>()?,
        Some(group) => vec![group_number(group)?],
    };
    call.spend_bytes(text.len().saturating_mul(4 + 4 * groups.len()))?;
    let extract = |captures: regex::Captures<'_>| -> Value {
        groups
            .iter()
            .filter_map(|group| captures.get(*group))
            .map(|found| Value::from(found.as_str()))
            .collect()
    };
    Some(Value::Array(regex.captures_iter(text).map(extract).collect()))
}

fn group_number(value: &Value) -> Option<usize> {
    usize::try_from(value.as_i64()?).ok()
}
