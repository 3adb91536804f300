//! Strings, counted in UTF-16 code units, and conversions from and to text.

use super::json::{self, Json, JsonOrUndefined};

/// `None`: no function of this family.
pub fn call(name: &str, values: &[Json]) -> Option<JsonOrUndefined> {
    let text = |index: usize| values.get(index).and_then(Json::as_str);
    let integer = |index: usize| values.get(index).and_then(Json::as_i64);
    Some(match name {
        "CONCAT" => {
            values.iter().map(Json::as_str).collect::<Option<Vec<_>>>().map(|all| Json::String(all.concat()))
        }
        "CONTAINS" => test(values, |text, part| text.contains(part)),
        "STARTSWITH" => test(values, |text, part| text.starts_with(part)),
        "ENDSWITH" => test(values, |text, part| text.ends_with(part)),
        "STRINGEQUALS" => test(values, |text, part| text == part),
        "INDEXOF" => index_of(values),
        "LASTINDEXOF" => last_index_of(values),
        "LEFT" => slice(text(0), Some(0), integer(1)),
        "SUBSTRING" => slice(text(0), integer(1), integer(2)),
        "RIGHT" => right(text(0), integer(1)),
        "SUBSTRINGBEFORE" => cut(text(0), text(1), |text, by| text.find(by), true),
        "SUBSTRINGAFTER" => cut(text(0), text(1), |text, by| text.find(by), false),
        "LASTSUBSTRINGBEFORE" => cut(text(0), text(1), |text, by| text.rfind(by), true),
        "LASTSUBSTRINGAFTER" => cut(text(0), text(1), |text, by| text.rfind(by), false),
        "LENGTH" => text(0).map(|text| Json::Integer(text.encode_utf16().count() as i128)),
        "LOWER" => text(0).map(|text| Json::String(text.chars().map(lower).collect())),
        "UPPER" => text(0).map(|text| Json::String(text.chars().map(upper).collect())),
        "TRIM" | "LTRIM" | "RTRIM" => trim(name, values),
        "REPLACE" => replace(text(0), text(1), text(2)),
        "REPLICATE" => replicate(text(0), values.get(1).and_then(Json::as_f64)),
        "REVERSE" => text(0).map(|text| Json::String(text.chars().rev().collect())),
        "STRINGJOIN" => join(values),
        "STRINGSPLIT" => text(0).zip(text(1)).map(|(text, by)| split(text, by)),
        "TOSTRING" => Some(match &values[0] {
            Json::String(text) => Json::text(text),
            other => Json::String(other.to_text()),
        }),
        "STRINGTONUMBER" => parsed(text(0), Json::is_number),
        "STRINGTOBOOLEAN" => parsed(text(0), |value| value.as_bool().is_some()),
        "STRINGTONULL" => parsed(text(0), |value| matches!(value, Json::Null)),
        "STRINGTOARRAY" => parsed(text(0), |value| value.as_array().is_some()),
        "STRINGTOOBJECT" => parsed(text(0), |value| value.as_object().is_some()),
        _ => return None,
    })
}

/// One character to one: what would be longer stays.
fn lower(letter: char) -> char {
    let mut all = letter.to_lowercase();
    match (all.next(), all.next()) {
        (Some(one), None) => one,
        _ => letter,
    }
}

fn upper(letter: char) -> char {
    let mut all = letter.to_uppercase();
    match (all.next(), all.next()) {
        (Some(one), None) => one,
        _ => letter,
    }
}

fn folded(text: &str) -> String {
    text.chars().map(|letter| lower(upper(letter))).collect()
}

fn test(values: &[Json], found: fn(&str, &str) -> bool) -> JsonOrUndefined {
    let (text, part) = (values[0].as_str()?, values[1].as_str()?);
    let ignore_case = match values.get(2) {
        Some(value) => value.as_bool()?,
        None => false,
    };
    Some(Json::Bool(if ignore_case { found(&folded(text), &folded(part)) } else { found(text, part) }))
}

/// CONTAINS of every part, joined by three-valued OR or AND.
pub fn contains_several(name: &str, values: &[JsonOrUndefined]) -> JsonOrUndefined {
    let ignore_case = name.ends_with("CI");
    let change = |text: &str| if ignore_case { folded(text) } else { text.to_owned() };
    let text = change(values[0].as_ref()?.as_str()?);
    let terms: Vec<Option<bool>> =
        values[1..].iter().map(|part| Some(text.contains(&change(part.as_ref()?.as_str()?)))).collect();
    let decisive = name.starts_with("CONTAINSANY");
    if terms.contains(&Some(decisive)) {
        return Some(Json::Bool(decisive));
    }
    if terms.contains(&None) { None } else { Some(Json::Bool(!decisive)) }
}

fn units(text: &str) -> Vec<u16> {
    text.encode_utf16().collect()
}

/// Halves of a pair that lost the other are left out.
fn whole(units: &[u16]) -> Json {
    let is_high = |unit: u16| (0xD800..0xDC00).contains(&unit);
    let is_low = |unit: u16| (0xDC00..0xE000).contains(&unit);
    let mut units = units;
    if units.first().is_some_and(|unit| is_low(*unit)) {
        units = &units[1..];
    }
    if units.last().is_some_and(|unit| is_high(*unit)) {
        units = &units[..units.len() - 1];
    }
    Json::String(String::from_utf16(units).expect("pairs are whole"))
}

fn slice(text: Option<&str>, start: Option<i64>, length: Option<i64>) -> JsonOrUndefined {
    let (units, start, length) = (units(text?), start?, length?);
    if start < 0 || length <= 0 || start >= units.len() as i64 {
        return Some(Json::text(""));
    }
    let end = start.saturating_add(length).min(units.len() as i64);
    Some(whole(&units[start as usize..end as usize]))
}

fn right(text: Option<&str>, length: Option<i64>) -> JsonOrUndefined {
    let (units, length) = (units(text?), length?);
    if length <= 0 {
        return Some(Json::text(""));
    }
    let start = (units.len() as i64 - length).max(0);
    Some(whole(&units[start as usize..]))
}

fn index_of(values: &[Json]) -> JsonOrUndefined {
    let (text, part) = (units(values[0].as_str()?), units(values[1].as_str()?));
    let start = match values.get(2) {
        Some(start) => start.as_i64()?,
        None => 0,
    };
    if start < 0 {
        return None;
    }
    let mut at = start as usize;
    while at + part.len() <= text.len() {
        if text[at..].starts_with(&part) {
            return Some(Json::Integer(at as i128));
        }
        at += 1;
    }
    Some(Json::Integer(-1))
}

/// The last one that ends at or before the position.
fn last_index_of(values: &[Json]) -> JsonOrUndefined {
    let (text, part) = (units(values[0].as_str()?), units(values[1].as_str()?));
    let last = match values.get(2) {
        Some(last) => last.as_i64()?,
        None => text.len() as i64 - 1,
    };
    let mut found = -1;
    for at in 0..=text.len() {
        let ends = at + part.len();
        if ends <= text.len() && ends as i64 - 1 <= last && text[at..].starts_with(&part) {
            found = at as i128;
        }
    }
    Some(Json::Integer(found))
}

fn cut(
    text: Option<&str>,
    by: Option<&str>,
    find: fn(&str, &str) -> Option<usize>,
    before: bool,
) -> JsonOrUndefined {
    let (text, by) = (text?, by?);
    let at = find(text, by)?;
    Some(Json::text(if before { &text[..at] } else { &text[at + by.len()..] }))
}

fn trim(name: &str, values: &[Json]) -> JsonOrUndefined {
    let text = values[0].as_str()?;
    let set: Option<&str> = match values.get(1) {
        Some(set) => Some(set.as_str()?),
        None => None,
    };
    let is_stripped = |letter: char| match set {
        Some(set) => set.contains(letter),
        None => letter.is_whitespace(),
    };
    let mut letters: Vec<char> = text.chars().collect();
    if name != "RTRIM" {
        let kept = letters.iter().position(|letter| !is_stripped(*letter)).unwrap_or(letters.len());
        letters.drain(..kept);
    }
    if name != "LTRIM" {
        while letters.last().is_some_and(|letter| is_stripped(*letter)) {
            letters.pop();
        }
    }
    Some(Json::String(letters.into_iter().collect()))
}

fn replace(text: Option<&str>, find: Option<&str>, by: Option<&str>) -> JsonOrUndefined {
    let (text, find, by) = (text?, find?, by?);
    (!find.is_empty()).then(|| Json::String(text.split(find).collect::<Vec<_>>().join(by)))
}

fn replicate(text: Option<&str>, times: Option<f64>) -> JsonOrUndefined {
    let (text, times) = (text?, times?);
    if !times.is_finite() || times < 0.0 {
        return None;
    }
    let letters = times.trunc() * units(text).len() as f64;
    (letters <= 10_000.0).then(|| {
        let times = if text.is_empty() { 0 } else { times.trunc() as usize };
        Json::String((0..times).map(|_| text).collect())
    })
}

fn join(values: &[Json]) -> JsonOrUndefined {
    let parts: Option<Vec<&str>> = values[0].as_array()?.iter().map(Json::as_str).collect();
    Some(Json::String(parts?.join(values[1].as_str()?)))
}

fn split(text: &str, by: &str) -> Json {
    if by.is_empty() {
        return Json::Array(vec![Json::text(text)]);
    }
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(by) {
        parts.push(Json::text(&rest[..at]));
        rest = &rest[at + by.len()..];
    }
    parts.push(Json::text(rest));
    Json::Array(parts)
}

fn parsed(text: Option<&str>, wanted: fn(&Json) -> bool) -> JsonOrUndefined {
    json::parse(text?).filter(wanted)
}
