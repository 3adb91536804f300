//! Values of one type as values of another, where that loses nothing.

use quire_value::{Limits, Value, iso_date, text};

/// What values are to become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TargetType {
    Number,
    String,
    /// `2026-11-15T18:32:04.007Z`
    IsoDate,
    /// Seconds since 1970.
    Epoch,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RetypeOutcome {
    /// It has the form.
    Same,
    To(Value),
    /// It cannot be converted, or not back again.
    Lossy,
}

/// Numbers of this size and more count milliseconds, smaller ones seconds.
const MILLISECONDS_FROM: u64 = 100_000_000_000;
/// The end of the year 9999.
const SECONDS_MAX: i64 = 253_402_300_799;
const SECONDS_PER_DAY: i64 = 86_400;

impl TargetType {
    pub const ALL: [(&'static str, TargetType); 4] = [
        ("number", TargetType::Number),
        ("string", TargetType::String),
        ("iso-date", TargetType::IsoDate),
        ("epoch", TargetType::Epoch),
    ];

    pub fn named(name: &str) -> Option<TargetType> {
        TargetType::ALL.iter().find(|(own, _)| *own == name).map(|(_, form)| *form)
    }
}

pub(crate) fn converted(value: &Value, form: TargetType) -> RetypeOutcome {
    match (form, value) {
        (TargetType::Number | TargetType::Epoch, Value::Number(_))
        | (TargetType::String, Value::String(_)) => RetypeOutcome::Same,
        (TargetType::Number, Value::String(text)) => or_lossy(number(text)),
        (TargetType::String, Value::Number(_)) => or_lossy(number_text(value)),
        (TargetType::IsoDate, Value::String(text)) if is_sortable_date(text) => RetypeOutcome::Same,
        (TargetType::IsoDate, Value::String(text)) => or_lossy(other_date(text).map(Value::from)),
        (TargetType::IsoDate, Value::Number(_)) => or_lossy(value.as_i64().and_then(date)),
        (TargetType::Epoch, Value::String(text)) => or_lossy(seconds(text).map(Value::from)),
        _ => RetypeOutcome::Lossy,
    }
}

fn or_lossy(value: Option<Value>) -> RetypeOutcome {
    value.map_or(RetypeOutcome::Lossy, RetypeOutcome::To)
}

/// A text that is written as the number would be.
fn number(text: &str) -> Option<Value> {
    let value = text::parse(text.as_bytes(), Limits::default()).ok()?;
    (matches!(value, Value::Number(_)) && value.to_json() == text).then_some(value)
}

fn number_text(value: &Value) -> Option<Value> {
    let text = value.to_json();
    number(&text).is_some_and(|again| again == *value).then(|| Value::from(text))
}

fn date(number: i64) -> Option<Value> {
    let ms = if number.unsigned_abs() >= MILLISECONDS_FROM { number } else { number.checked_mul(1000)? };
    (0..=SECONDS_MAX * 1000 + 999).contains(&ms).then(|| Value::from(iso_date(ms)))
}

/// Dates, and times in UTC, whose order as texts is that of time.
fn is_sortable_date(text: &str) -> bool {
    let Some((date, time)) = text.split_at_checked(10) else { return false };
    day(date).is_some() && (time.is_empty() || time_of_day(time).is_some())
}

/// Of `15.11.2026` and `2026/11/15`: which is the day and which is the month cannot be mistaken.
fn other_date(text: &str) -> Option<String> {
    let [year, month, day_of_month] = match numbers(text, '.', [2, 2, 4]) {
        Some([day, month, year]) => [year, month, day],
        None => numbers(text, '/', [4, 2, 2])?,
    };
    let date = format!("{year:04}-{month:02}-{day_of_month:02}");
    day(&date).map(|_| date)
}

/// Of a date with a time in UTC, in whole seconds.
fn seconds(text: &str) -> Option<i64> {
    let (date, time) = text.split_at_checked(10)?;
    match time_of_day(time)? {
        (seconds, true) => Some(day(date)? * SECONDS_PER_DAY + seconds),
        (_, false) => None,
    }
}

/// `T18:32:04.007Z`: seconds of the day, and whether there is no part of a second.
fn time_of_day(text: &str) -> Option<(i64, bool)> {
    let text = text.strip_prefix('T')?.strip_suffix('Z')?;
    let (whole, part) = text.split_once('.').map_or((text, None), |(whole, part)| (whole, Some(part)));
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if part.is_some_and(|part| !is_digits(part)) {
        return None;
    }
    let [hour, minute, second] = numbers(whole, ':', [2, 2, 2])?;
    let is_time = hour < 24 && minute < 60 && second < 60;
    let is_whole = part.is_none_or(|part| part.bytes().all(|byte| byte == b'0'));
    is_time.then_some((hour * 3600 + minute * 60 + second, is_whole))
}

/// Days since 1970 of `2026-11-15`.
fn day(text: &str) -> Option<i64> {
    let [year, month, day] = numbers(text, '-', [4, 2, 2])?;
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let lengths = [31, if is_leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let length = *lengths.get(usize::try_from(month - 1).ok()?)?;
    if !(1..=length).contains(&day) {
        return None;
    }
    let before = year - 1;
    let days = before * 365 + before.div_euclid(4) - before.div_euclid(100) + before.div_euclid(400);
    let in_year: i64 = lengths.iter().take(usize::try_from(month - 1).ok()?).sum();
    Some(days + in_year + day - 1 - 719_162)
}

/// Numbers of these many digits, with a character between them.
fn numbers(text: &str, between: char, digits: [usize; 3]) -> Option<[i64; 3]> {
    let mut parts = text.split(between);
    let mut found = [0; 3];
    for (place, digits) in found.iter_mut().zip(digits) {
        let part = parts.next().filter(|part| part.len() == digits)?;
        *place = part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse().ok()).flatten()?;
    }
    parts.next().is_none().then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(form: TargetType, before: &str, after: Option<&str>) {
        let json = |text: &str| text::parse(text.as_bytes(), Limits::default()).expect("JSON");
        let expected = after.map_or(RetypeOutcome::Lossy, |after| RetypeOutcome::To(json(after)));
        assert_eq!(converted(&json(before), form), expected, "{before} as {form:?}");
    }

    #[test]
    fn numbers_and_texts() {
        check(TargetType::Number, r#""12""#, Some("12"));
        check(TargetType::Number, r#""-0.5""#, Some("-0.5"));
        check(TargetType::Number, r#""9007199254740993""#, Some("9007199254740993"));
        for lossy in
            [r#""012""#, r#""1.50""#, r#""1e3""#, r#"" 1""#, r#""""#, r#""x""#, "true", "null", "[1]"]
        {
            check(TargetType::Number, lossy, None);
        }
        check(TargetType::String, "12", Some(r#""12""#));
        check(TargetType::String, "0.1", Some(r#""0.1""#));
        check(TargetType::String, "null", None);
        assert_eq!(converted(&Value::from(1), TargetType::Number), RetypeOutcome::Same);
        assert_eq!(converted(&Value::from("x"), TargetType::String), RetypeOutcome::Same);
    }

    #[test]
    fn dates() {
        check(TargetType::IsoDate, "1794767524", Some(r#""2026-11-15T18:32:04.000Z""#));
        check(TargetType::IsoDate, "1794767524007", Some(r#""2026-11-15T18:32:04.007Z""#));
        check(TargetType::IsoDate, "1.5", None);
        check(TargetType::IsoDate, r#""15.11.2026""#, Some(r#""2026-11-15""#));
        check(TargetType::IsoDate, r#""2026/11/15""#, Some(r#""2026-11-15""#));
        check(TargetType::IsoDate, r#""11/15/2026""#, None);
        check(TargetType::IsoDate, r#""31.02.2026""#, None);
        check(TargetType::IsoDate, r#""2026-02-29""#, None);
        for same in ["2024-02-29", "2026-11-15T18:32:04Z", "2026-11-15T18:32:04.007Z"] {
            assert_eq!(converted(&Value::from(same), TargetType::IsoDate), RetypeOutcome::Same, "{same}");
        }
        check(TargetType::Epoch, r#""2026-11-15T18:32:04.000Z""#, Some("1794767524"));
        check(TargetType::Epoch, r#""1970-01-01T00:00:00Z""#, Some("0"));
        check(TargetType::Epoch, r#""2000-03-01T00:00:00Z""#, Some("951868800"));
        for lossy in ["2026-11-15", "2026-11-15T18:32:04.007Z", "2026-11-15T18:32:04+01:00", "T", "é"] {
            check(TargetType::Epoch, &Value::from(lossy).to_json(), None);
        }
    }
}
