//! What texts look like: dates, and binary data in disguise.

/// Shorter texts are no blobs.
pub(crate) const BLOB_BYTES_MIN: usize = 20 << 10;
/// Share of base64's alphabet in a blob, in hundredths.
const BLOB_ALPHABET_MIN: usize = 98;
/// Longer texts are no dates.
const DATE_BYTES_MAX: usize = 40;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DateText {
    /// ISO 8601 in UTC, by its precision: text order is time order among equal precisions.
    Sortable(&'static str),
    Other,
}

pub(crate) fn date(text: &[u8]) -> Option<DateText> {
    // Most texts are ruled out by their digits.
    if text.len() < 8 || text.len() > DATE_BYTES_MAX || digit_count(text) < 4 {
        return None;
    }
    iso(text).or_else(|| is_local_date(text).then_some(DateText::Other))
}

/// `2026-11-17`, `2026-11-17T09:30:00.123Z`, with or without a zone.
fn iso(text: &[u8]) -> Option<DateText> {
    let day = text.get(..10).filter(|day| fits(day, b"0000-00-00") && is_month(&day[5..7]))?;
    let rest = &text[day.len()..];
    let Some((b'T' | b' ' | b't', time)) = rest.split_first() else {
        return rest.is_empty().then_some(DateText::Sortable("day"));
    };
    let has_t = rest[0] == b'T';
    let (clock, after) = match time {
        _ if time.get(..8).is_some_and(|clock| fits(clock, b"00:00:00")) => ("s", &time[8..]),
        _ if time.get(..5).is_some_and(|clock| fits(clock, b"00:00")) => ("min", &time[5..]),
        _ => return None,
    };
    let digits = after.strip_prefix(b".").map_or(0, digits_of);
    let zone = if digits > 0 { &after[digits + 1..] } else { after };
    let precision = match (clock, digits) {
        (clock, 0) => clock,
        (_, 3) => "ms",
        (_, 6) => "us",
        (_, 7) => "100ns",
        _ => "fraction",
    };
    match zone {
        b"Z" if has_t => Some(DateText::Sortable(precision)),
        b"" | b"Z" => Some(DateText::Other),
        [b'+' | b'-', offset @ ..] if offset.len() >= 4 && offset[0].is_ascii_digit() => {
            Some(DateText::Other)
        }
        _ => None,
    }
}

/// `11/17/2026`, `17.11.2026`, `2026/11/17`, `17 Nov 2026`, `Tue, 17 Nov 2026 09:30:00 GMT`.
fn is_local_date(text: &[u8]) -> bool {
    const FORMS: [&[u8]; 6] =
        [b"00/00/0000", b"00.00.0000", b"00-00-0000", b"0000/00/00", b"0/00/0000", b"0000.00.00"];
    FORMS.iter().any(|form| text.get(..form.len()).is_some_and(|start| fits(start, form)))
        || has_month_name(text)
}

fn has_month_name(text: &[u8]) -> bool {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let Ok(text) = std::str::from_utf8(text) else { return false };
    let mut words = text.split([' ', ',']).filter(|word| !word.is_empty());
    let is_year = |word: &str| word.len() == 4 && word.bytes().all(|byte| byte.is_ascii_digit());
    let has_year = text.split([' ', ',']).any(is_year);
    has_year && words.any(|word| word.get(..3).is_some_and(|start| MONTHS.contains(&start)))
}

fn fits(text: &[u8], form: &[u8]) -> bool {
    text.len() == form.len()
        && text.iter().zip(form).all(|(byte, form)| match form {
            b'0' => byte.is_ascii_digit(),
            form => byte == form,
        })
}

fn is_month(text: &[u8]) -> bool {
    matches!(text, [b'0', b'1'..=b'9'] | [b'1', b'0'..=b'2'])
}

fn digit_count(text: &[u8]) -> usize {
    text.iter().filter(|byte| byte.is_ascii_digit()).count()
}

fn digits_of(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

pub(crate) fn is_blob(text: &[u8]) -> bool {
    let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=-_\r\n".contains(byte);
    text.starts_with(b"data:")
        || text.len() >= BLOB_BYTES_MIN
            && text.iter().filter(|byte| is_base64(byte)).count() * 100 >= text.len() * BLOB_ALPHABET_MIN
}

/// Seconds since the epoch of an ISO date in UTC.
pub(crate) fn seconds(text: &[u8]) -> Option<f64> {
    let Some(DateText::Sortable(precision)) = date(text) else { return None };
    let number = |from: usize, to: usize| std::str::from_utf8(text.get(from..to)?).ok()?.parse::<i64>().ok();
    let days = days_from_civil(number(0, 4)?, number(5, 7)?, number(8, 10)?);
    if precision == "day" {
        return Some(days as f64 * 86_400.0);
    }
    let seconds = if precision == "min" { 0 } else { number(17, 19)? };
    let fraction = text
        .get(19..)
        .and_then(|rest| std::str::from_utf8(rest).ok())
        .map_or(0.0, |rest| rest.trim_end_matches('Z').parse::<f64>().unwrap_or_default());
    Some((days * 86_400 + number(11, 13)? * 3_600 + number(14, 16)? * 60 + seconds) as f64 + fraction)
}

/// Days since 1970-01-01 in the proleptic Gregorian calendar.
pub(crate) fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        let form = |text: &str| date(text.as_bytes());
        assert_eq!(form("2026-11-17"), Some(DateText::Sortable("day")));
        assert_eq!(form("2026-11-17T09:30:00Z"), Some(DateText::Sortable("s")));
        assert_eq!(form("2026-11-17T09:30:00.123Z"), Some(DateText::Sortable("ms")));
        for other in ["2026-11-17T09:30:00+01:00", "2026-11-17 09:30:00", "11/17/2026", "17 Nov 2026"] {
            assert_eq!(form(other), Some(DateText::Other), "{other}");
        }
        for none in ["2026-13-17", "hello world", "1234567890", "0001-0002-00"] {
            assert_eq!(form(none), None, "{none}");
        }
        assert_eq!(seconds(b"1970-01-02T00:00:01.500Z"), Some(86_401.5));
        assert_eq!(seconds(b"2026-11-17"), Some(1_794_873_600.0));
    }

    #[test]
    fn blobs() {
        assert!(is_blob(b"data:image/png;base64,AAAA"));
        assert!(is_blob("QUJD".repeat(6_000).as_bytes()));
        assert!(!is_blob("a plain text of words ".repeat(2_000).as_bytes()));
        assert!(!is_blob(b"QUJD"));
    }
}
