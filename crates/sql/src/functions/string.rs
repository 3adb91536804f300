//! Strings. Comparison is ordinal; ignoring case folds each character, independent of the language.

use std::borrow::Cow;

use quire_value::Value;

use super::{Call, Function, IndexUse, at_least, between, exactly, f, utf16};

/// Memory of a short text: the value, its allocation, and the free capacity of a growing array.
const PIECE_BYTES: usize = 2 * size_of::<Value>() + 32;
/// Longest result of REPLICATE, in characters.
const REPLICATE_LENGTH_MAX: usize = 10_000;

pub(super) const FUNCTIONS: &[Function] = &[
    f(&["CONCAT"], at_least(2), concat, IndexUse::None),
    f(&["CONTAINS"], between(2, 3), contains, IndexUse::Scan),
    f(&["STARTSWITH"], between(2, 3), |call| test(call, |s, t| s.starts_with(t)), IndexUse::Prefix),
    f(&["ENDSWITH"], between(2, 3), |call| test(call, |s, t| s.ends_with(t)), IndexUse::Scan),
    f(&["StringEquals", "STRING_EQUALS"], between(2, 3), |call| test(call, |s, t| s == t), IndexUse::Seek),
    f(&["CONTAINS_ANY_CS", "ContainsAnyCs"], at_least(2), |call| any(call, false), IndexUse::Scan)
        .seeing_undefined(),
    f(&["CONTAINS_ANY_CI", "ContainsAnyCi"], at_least(2), |call| any(call, true), IndexUse::Scan)
        .seeing_undefined(),
    f(&["CONTAINS_ALL_CS", "ContainsAllCs"], at_least(2), |call| all(call, false), IndexUse::Scan)
        .seeing_undefined(),
    f(&["CONTAINS_ALL_CI", "ContainsAllCi"], at_least(2), |call| all(call, true), IndexUse::Scan)
        .seeing_undefined(),
    f(&["INDEX_OF"], between(2, 3), index_of, IndexUse::None),
    f(&["LastIndexOf", "LAST_INDEX_OF"], between(2, 3), last_index_of, IndexUse::None),
    f(&["LEFT"], exactly(2), |call| substring(call.string(0)?, 0, call.integer(1)?), IndexUse::Range),
    f(&["RIGHT"], exactly(2), right, IndexUse::Range),
    f(
        &["SUBSTRING"],
        exactly(3),
        |call| substring(call.string(0)?, call.integer(1)?, call.integer(2)?),
        IndexUse::Range,
    ),
    f(
        &["SubstringBefore", "SUBSTRING_BEFORE"],
        exactly(2),
        |call| split(call, |text, by| text.split_once(by), Side::Before),
        IndexUse::None,
    ),
    f(
        &["SubstringAfter", "SUBSTRING_AFTER"],
        exactly(2),
        |call| split(call, |text, by| text.split_once(by), Side::After),
        IndexUse::None,
    ),
    f(
        &["LastSubstringBefore", "LAST_SUBSTRING_BEFORE"],
        exactly(2),
        |call| split(call, |text, by| text.rsplit_once(by), Side::Before),
        IndexUse::None,
    ),
    f(
        &["LastSubstringAfter", "LAST_SUBSTRING_AFTER"],
        exactly(2),
        |call| split(call, |text, by| text.rsplit_once(by), Side::After),
        IndexUse::None,
    ),
    f(
        &["LENGTH"],
        exactly(1),
        |call| Some(Value::from(utf16::length(call.string(0)?) as i64)),
        IndexUse::None,
    ),
    f(&["LOWER"], exactly(1), |call| Some(map(call.string(0)?, lower)), IndexUse::None),
    f(&["UPPER"], exactly(1), |call| Some(map(call.string(0)?, upper)), IndexUse::None),
    f(&["TRIM"], between(1, 2), |call| trim(call, |text, set| text.trim_matches(set)), IndexUse::None),
    f(&["LTRIM"], between(1, 2), |call| trim(call, |text, set| text.trim_start_matches(set)), IndexUse::None),
    f(&["RTRIM"], between(1, 2), |call| trim(call, |text, set| text.trim_end_matches(set)), IndexUse::None),
    f(&["REPLACE"], exactly(3), replace, IndexUse::None),
    f(&["REPLICATE"], exactly(2), replicate, IndexUse::None),
    f(
        &["REVERSE"],
        exactly(1),
        |call| Some(Value::String(call.string(0)?.chars().rev().collect())),
        IndexUse::None,
    ),
    f(&["StringJoin", "STRING_JOIN"], exactly(2), join, IndexUse::None),
    f(&["StringSplit", "STRING_SPLIT"], exactly(2), string_split, IndexUse::None),
];

fn concat(call: &Call<'_>) -> Option<Value> {
    let parts: Vec<&str> = (0..call.len()).map(|index| call.string(index)).collect::<Option<_>>()?;
    let bytes = parts.iter().map(|part| part.len()).sum();
    call.copy_bytes(bytes)?;
    Some(Value::String(parts.concat()))
}

fn contains(call: &Call<'_>) -> Option<Value> {
    if call.len() > 2 {
        return test(call, |text, other| text.contains(other));
    }
    let (text, wanted) = (call.text(0)?, call.text(1)?);
    call.spend_bytes(text.len() + wanted.len())?;
    Some(Value::Bool(call.context.searchers.contains(text, wanted)))
}

/// A test of two strings; the third argument is "ignore case".
fn test(call: &Call<'_>, test: fn(&str, &str) -> bool) -> Option<Value> {
    let (text, other) = (call.string(0)?, call.string(1)?);
    let ignore_case = call.optional(2, false, Call::bool)?;
    call.spend_bytes(text.len() + other.len())?;
    Some(Value::Bool(if ignore_case { test(&fold(text), &fold(other)) } else { test(text, other) }))
}

/// Three-valued OR of CONTAINS over the terms.
fn any(call: &Call<'_>, ignore_case: bool) -> Option<Value> {
    terms(call, ignore_case, true)
}

/// Three-valued AND.
fn all(call: &Call<'_>, ignore_case: bool) -> Option<Value> {
    terms(call, ignore_case, false)
}

/// The first term whose result is `decisive` decides; otherwise an undefined term makes the result undefined.
fn terms(call: &Call<'_>, ignore_case: bool, decisive: bool) -> Option<Value> {
    let prepare = |text| if ignore_case { fold(text) } else { Cow::Borrowed(text) };
    let text = prepare(call.string(0)?);
    let mut undefined = false;
    for index in 1..call.len() {
        call.spend_bytes(text.len())?;
        match call.string(index) {
            Some(term) if text.contains(&*prepare(term)) == decisive => return Some(Value::Bool(decisive)),
            Some(_) => {}
            None => undefined = true,
        }
    }
    (!undefined).then_some(Value::Bool(!decisive))
}

fn index_of(call: &Call<'_>) -> Option<Value> {
    let (text, find) = (call.string(0)?, call.string(1)?);
    let start = usize::try_from(call.optional(2, 0, Call::integer)?).ok()?;
    if start > utf16::length(text) {
        return Some(Value::from(-1));
    }
    if find.is_empty() {
        return Some(Value::from(start as i64));
    }
    let from = utf16::byte_at(text, start);
    let found = text[from..].find(find);
    Some(position(text, found.map(|at| from + at)))
}

/// The occurrence must end at or before the position.
fn last_index_of(call: &Call<'_>) -> Option<Value> {
    let (text, find) = (call.string(0)?, call.string(1)?);
    let last = call.optional(2, i64::MAX, Call::integer)?;
    let end = usize::try_from(last.saturating_add(1)).unwrap_or(0);
    if find.is_empty() {
        return Some(Value::from(utf16::length(text).min(end) as i64));
    }
    // Half a surrogate pair is after the position.
    let end = utf16::byte_before(text, end);
    Some(position(text, text[..end].rfind(find)))
}

fn position(text: &str, byte: Option<usize>) -> Value {
    Value::from(byte.map_or(-1, |byte| utf16::length(&text[..byte]) as i64))
}

fn substring(text: &str, start: i64, count: i64) -> Option<Value> {
    let (Ok(start), Ok(count)) = (usize::try_from(start), usize::try_from(count)) else {
        return Some(Value::from(""));
    };
    Some(Value::from(utf16::slice(text, start, count)))
}

fn right(call: &Call<'_>) -> Option<Value> {
    let (text, count) = (call.string(0)?, call.integer(1)?);
    let count = usize::try_from(count).unwrap_or(0);
    let length = utf16::length(text);
    Some(Value::from(utf16::slice(text, length.saturating_sub(count), count)))
}

#[derive(Clone, Copy)]
enum Side {
    Before,
    After,
}

/// Undefined without the separator.
fn split(
    call: &Call<'_>,
    cut: for<'t> fn(&'t str, &'t str) -> Option<(&'t str, &'t str)>,
    side: Side,
) -> Option<Value> {
    let (before, after) = cut(call.string(0)?, call.string(1)?)?;
    Some(Value::from(match side {
        Side::Before => before,
        Side::After => after,
    }))
}

fn map(text: &str, character: fn(char) -> char) -> Value {
    Value::String(text.chars().map(character).collect())
}

/// One character to one character: a letter with two capitals (`ß`) stays.
fn upper(character: char) -> char {
    let mut mapped = character.to_uppercase();
    single(mapped.next(), mapped.next()).unwrap_or(character)
}

fn lower(character: char) -> char {
    let mut mapped = character.to_lowercase();
    single(mapped.next(), mapped.next()).unwrap_or(character)
}

fn single(first: Option<char>, second: Option<char>) -> Option<char> {
    first.filter(|_| second.is_none())
}

fn fold(text: &str) -> Cow<'_, str> {
    Cow::Owned(text.chars().map(|character| lower(upper(character))).collect())
}

/// The second argument is a set of characters, not a prefix.
fn trim(call: &Call<'_>, trim: for<'t> fn(&'t str, &dyn Fn(char) -> bool) -> &'t str) -> Option<Value> {
    let text = call.string(0)?;
    if call.len() == 1 {
        return Some(Value::from(trim(text, &char::is_whitespace)));
    }
    let set = call.string(1)?;
    call.spend_bytes(text.len().saturating_mul(1 + set.len() / 16))?;
    Some(Value::from(trim(text, &|character| set.contains(character))))
}

fn replace(call: &Call<'_>) -> Option<Value> {
    let (text, find, by) = (call.string(0)?, call.string(1)?, call.string(2)?);
    if find.is_empty() {
        return None;
    }
    let count = text.matches(find).count();
    let bytes = text.len().saturating_add(count.saturating_mul(by.len()));
    // Growth doubles the capacity.
    call.build(bytes.saturating_mul(2))?;
    call.spend_bytes(bytes)?;
    Some(Value::String(text.replace(find, by)))
}

fn replicate(call: &Call<'_>) -> Option<Value> {
    let (text, count) = (call.string(0)?, call.double(1)?);
    if !count.is_finite() || count < 0.0 {
        return None;
    }
    // Copies of an empty text are empty.
    let count = if text.is_empty() { 0 } else { count.min(1e9) as usize };
    if utf16::length(text).saturating_mul(count) > REPLICATE_LENGTH_MAX {
        return None;
    }
    call.build(text.len() * count)?;
    Some(Value::String(text.repeat(count)))
}

fn join(call: &Call<'_>) -> Option<Value> {
    let (array, separator) = (call.array(0)?, call.string(1)?);
    let parts: Vec<&str> = array.iter().map(Value::as_str).collect::<Option<_>>()?;
    let lengths = parts.iter().map(|part| part.len().saturating_add(separator.len()));
    let length = lengths.fold(0, usize::saturating_add);
    call.build(length.saturating_add(parts.len() * size_of::<&str>()))?;
    call.spend_bytes(length)?;
    Some(Value::String(parts.join(separator)))
}

fn string_split(call: &Call<'_>) -> Option<Value> {
    let (text, separator) = (call.string(0)?, call.string(1)?);
    if separator.is_empty() {
        return Some(Value::Array(vec![Value::from(text)]));
    }
    // Pieces cost more than their characters.
    call.spend_bytes(text.len().saturating_mul(4))?;
    let pieces = text.matches(separator).count() + 1;
    call.build(pieces.saturating_mul(PIECE_BYTES).saturating_add(text.len()))?;
    Some(Value::Array(text.split(separator).map(Value::from).collect()))
}
