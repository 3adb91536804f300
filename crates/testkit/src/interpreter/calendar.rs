//! The calendar as a list of all months of the years 1 to 9999: nothing is computed but by looking there.
//!
//! A moment is a number of nanoseconds since the year 1 began, in UTC, so it is never negative.

use std::sync::OnceLock;

use regex::Regex;

pub type Nanoseconds = i128;

pub const DAY: i128 = 24 * HOUR;
pub const HOUR: i128 = 60 * MINUTE;
pub const MINUTE: i128 = 60 * SECOND;
pub const SECOND: i128 = 1_000_000_000;
/// What a moment is counted in where it is stored or printed.
pub const TICK: i128 = 100;

const LAST_YEAR: usize = 9999;

/// The day on which each month begins, counted from the first day of the year 1, and the day after the last month.
fn month_starts() -> &'static [i128] {
    static STARTS: OnceLock<Vec<i128>> = OnceLock::new();
    STARTS.get_or_init(|| {
        let mut starts = vec![0];
        for year in 1..=LAST_YEAR {
            let is_leap = if year % 100 == 0 { year % 400 == 0 } else { year % 4 == 0 };
            let february = if is_leap { 29 } else { 28 };
            for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
                starts.push(starts[starts.len() - 1] + length);
            }
        }
        starts
    })
}

/// The place in the list of a month (1 to 12) of a year.
fn month_place(year: i128, month: i128) -> Option<usize> {
    let is_month = (1..=LAST_YEAR as i128).contains(&year) && (1..=12).contains(&month);
    is_month.then(|| ((year - 1) * 12 + month - 1) as usize)
}

/// The midnight at which a day of a month begins; `None` when the month has no such day.
fn midnight(place: usize, day: i128) -> Option<Nanoseconds> {
    let starts = month_starts();
    let start = starts.get(place)?;
    let is_day = day >= 1 && start + day <= *starts.get(place + 1)?;
    is_day.then(|| (start + day - 1) * DAY)
}

/// The start of 1970.
pub fn epoch() -> Nanoseconds {
    year_start(1970)
}

pub fn year_start(year: i128) -> Nanoseconds {
    month_place(year, 1).and_then(|place| midnight(place, 1)).expect("a year of the calendar")
}

pub fn contains(moment: Nanoseconds) -> bool {
    let starts = month_starts();
    (0..starts[starts.len() - 1] * DAY).contains(&moment)
}

/// The place of the moment's month in the list, the day of the month, and the time of the day.
pub fn place_of(moment: Nanoseconds) -> (usize, i128, i128) {
    let starts = month_starts();
    let day = moment / DAY;
    let place = starts.partition_point(|start| *start <= day) - 1;
    (place, day - starts[place] + 1, moment % DAY)
}

/// So many months later, on the same day of the month, or on the last day of a month that is too short.
pub fn months_later(moment: Nanoseconds, months: i128) -> Option<Nanoseconds> {
    let (place, day, time) = place_of(moment);
    let place = usize::try_from((place as i128).checked_add(months)?).ok()?;
    let midnight = (1..=day).rev().find_map(|day| midnight(place, day))?;
    Some(midnight + time)
}

/// `YYYY-MM-DD`, then nothing or `Z`, or a time with up to seven digits of a second and nothing, `Z` or an offset.
/// Nothing before 1601.
pub fn parse(text: &str) -> Option<Nanoseconds> {
    static FORM: OnceLock<Regex> = OnceLock::new();
    let form = FORM.get_or_init(|| {
        let date = "([0-9]{4})-([0-9]{2})-([0-9]{2})";
        let time = r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,7}))?";
        let zone = "Z|([+-])([0-9]{2}):([0-9]{2})";
        Regex::new(&format!("\\A{date}(?:Z|[T ]{time}(?:{zone})?)?\\z")).expect("a regular expression")
    });
    let found = form.captures(text)?;
    let number = |group: usize| found.get(group).map_or(0, |digits| digits.as_str().parse().expect("digits"));
    let day = midnight(month_place(number(1), number(2))?, number(3))?;
    let is_time = number(4) < 24 && number(5) < 60 && number(6) < 60;
    let is_offset = number(9) <= 14 && number(10) < 60;
    if number(1) < 1601 || !is_time || !is_offset {
        return None;
    }
    let fraction = found.get(7).map_or(0, |digits| {
        let ticks: i128 = format!("{:0<7}", digits.as_str()).parse().expect("digits");
        ticks * TICK
    });
    let offset = number(9) * HOUR + number(10) * MINUTE;
    let east = found.get(8).is_some_and(|sign| sign.as_str() == "+");
    let moment = day + number(4) * HOUR + number(5) * MINUTE + number(6) * SECOND + fraction;
    Some(if east { moment - offset } else { moment + offset }).filter(|moment| contains(*moment))
}

/// `YYYY-MM-DDThh:mm:ss.fffffffZ`; `None` outside of the calendar.
pub fn print(moment: Nanoseconds) -> Option<String> {
    if !contains(moment) {
        return None;
    }
    let (place, day, time) = place_of(moment);
    let (year, month) = (place / 12 + 1, place % 12 + 1);
    let (hours, minutes, seconds) = (time / HOUR, time % HOUR / MINUTE, time % MINUTE / SECOND);
    let ticks = time % SECOND / TICK;
    Some(format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{ticks:07}Z"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_days() {
        let days = |text: &str| (parse(text).unwrap() - epoch()) / DAY;
        // As `date --date=… +%s` has them, divided by the seconds of a day.
        assert_eq!(days("1970-01-01"), 0);
        assert_eq!(days("1601-01-01"), -134_774);
        assert_eq!(days("1900-03-01"), -25_508);
        assert_eq!(days("2000-03-01"), 11_017);
        assert_eq!(days("2024-02-29"), 19_782);
        assert_eq!(days("9999-12-31"), 2_932_896);
        assert_eq!(epoch() / DAY, 719_162);
    }

    #[test]
    fn what_is_printed_is_read_again() {
        for text in
            ["1601-01-01T00:00:00.0000000Z", "2024-02-29T13:14:15.1234567Z", "9999-12-31T23:59:59.9999999Z"]
        {
            assert_eq!(parse(text).and_then(print).as_deref(), Some(text));
        }
        assert_eq!(print(0).as_deref(), Some("0001-01-01T00:00:00.0000000Z"));
        assert_eq!(
            parse("2024-01-01T01:30:00+02:00").and_then(print).unwrap(),
            "2023-12-31T23:30:00.0000000Z"
        );
        assert_eq!(parse("9999-12-31T23:59:59-00:01"), None);
        for text in [
            "2023-02-29",
            "1600-12-31",
            "2024-13-01",
            "2024-01-01T24:00:00",
            "2024-01-01+01:00",
            "٢٠٢٤-01-01",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn short_months_end_on_their_last_day() {
        let later = |text: &str, months: i128| {
            months_later(parse(text).unwrap(), months).and_then(print).unwrap_or_default()
        };
        assert_eq!(later("2024-01-31", 1), "2024-02-29T00:00:00.0000000Z");
        assert_eq!(later("2024-03-31T12:00:00", -13), "2023-02-28T12:00:00.0000000Z");
        assert_eq!(later("9999-12-31", 1), "");
        assert_eq!(later("2024-01-01", -2024 * 12), "");
    }
}
