//! Date arithmetic. A point in time is a number of 100-nanosecond ticks since 1970, in UTC, from year 1 to 9999.

pub(super) const TICKS_PER_SECOND: i64 = 10_000_000;
pub(super) const TICKS_PER_DAY: i64 = 86_400 * TICKS_PER_SECOND;

/// First year of date-time values, as in the service.
pub(super) const YEAR_MIN: i64 = 1601;
/// The largest offset from UTC on earth.
const OFFSET_HOURS_MAX: i64 = 14;

const TICKS_MIN: i64 = -719_162 * TICKS_PER_DAY; // 0001-01-01
const TICKS_MAX: i64 = 2_932_897 * TICKS_PER_DAY - 1; // the last tick of 9999

/// The fields of a point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fields {
    pub year: i64,
    pub month: i64,
    pub day: i64,
    pub hour: i64,
    pub minute: i64,
    pub second: i64,
    /// Ticks after the second.
    pub fraction: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Year,
    Month,
    Day,
    Hour,
    Minute,
    Second,
    Millisecond,
    Microsecond,
    Nanosecond,
}

impl Part {
    pub fn parse(name: &str) -> Option<Part> {
        Some(match name.to_ascii_lowercase().as_str() {
            "year" | "yyyy" | "yy" => Part::Year,
            "month" | "mm" | "m" => Part::Month,
            "day" | "dd" | "d" => Part::Day,
            "hour" | "hh" => Part::Hour,
            "minute" | "mi" | "n" => Part::Minute,
            "second" | "ss" | "s" => Part::Second,
            "millisecond" | "ms" => Part::Millisecond,
            "microsecond" | "mcs" => Part::Microsecond,
            "nanosecond" | "ns" => Part::Nanosecond,
            _ => return None,
        })
    }

    /// `None` for years and months, whose length varies.
    pub fn nanoseconds(self) -> Option<i128> {
        const SECOND: i128 = 1_000_000_000;
        Some(match self {
            Part::Year | Part::Month => return None,
            Part::Day => 86_400 * SECOND,
            Part::Hour => 3_600 * SECOND,
            Part::Minute => 60 * SECOND,
            Part::Second => SECOND,
            Part::Millisecond => 1_000_000,
            Part::Microsecond => 1_000,
            Part::Nanosecond => 1,
        })
    }

    /// Months in a year or a month.
    pub fn months(self) -> i64 {
        if self == Part::Year { 12 } else { 1 }
    }
}

pub(super) fn in_range(ticks: i128) -> Option<i64> {
    i64::try_from(ticks).ok().filter(|ticks| (TICKS_MIN..=TICKS_MAX).contains(ticks))
}

impl Fields {
    pub fn from_ticks(ticks: i64) -> Fields {
        let (year, month, day) = civil(ticks.div_euclid(TICKS_PER_DAY));
        let in_day = ticks.rem_euclid(TICKS_PER_DAY);
        let seconds = in_day / TICKS_PER_SECOND;
        Fields {
            year,
            month,
            day,
            hour: seconds / 3_600,
            minute: seconds / 60 % 60,
            second: seconds % 60,
            fraction: in_day % TICKS_PER_SECOND,
        }
    }

    /// `None` if it is not a date.
    pub fn to_ticks(self) -> Option<i64> {
        let valid = (1..=9999).contains(&self.year)
            && (1..=12).contains(&self.month)
            && (1..=days_in_month(self.year, self.month)).contains(&self.day)
            && (0..24).contains(&self.hour)
            && (0..60).contains(&self.minute)
            && (0..60).contains(&self.second)
            && (0..TICKS_PER_SECOND).contains(&self.fraction);
        valid.then(|| {
            let seconds = self.hour * 3_600 + self.minute * 60 + self.second;
            days(self.year, self.month, self.day) * TICKS_PER_DAY + seconds * TICKS_PER_SECOND + self.fraction
        })
    }
}

/// Months since year 0.
pub(super) fn month_index(ticks: i64) -> i64 {
    let fields = Fields::from_ticks(ticks);
    fields.year * 12 + fields.month - 1
}

/// Adds months. A day that the month does not have becomes its last day.
pub(super) fn add_months(ticks: i64, months: i64) -> Option<i64> {
    let mut fields = Fields::from_ticks(ticks);
    let index = (fields.year * 12 + fields.month - 1).checked_add(months)?;
    fields.year = index.div_euclid(12);
    fields.month = index.rem_euclid(12) + 1;
    fields.day = fields.day.min(days_in_month(fields.year, fields.month));
    fields.to_ticks()
}

/// `YYYY-MM-DD`, then nothing, `Z`, or `T` or a space, `hh:mm:ss`, up to seven digits of fraction, and nothing, `Z` or an
/// offset from UTC (`+01:30`). No year before [`YEAR_MIN`].
pub(super) fn parse(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    let mut fields =
        Fields { year: number(bytes, 0, 4)?, month: 0, day: 0, hour: 0, minute: 0, second: 0, fraction: 0 };
    expect(bytes, 4, b"-")?;
    fields.month = number(bytes, 5, 2)?;
    expect(bytes, 7, b"-")?;
    fields.day = number(bytes, 8, 2)?;
    let rest = &bytes[10..];
    let (rest, has_time) = match rest.first() {
        Some(b'T' | b' ') => (time(rest, &mut fields)?, true),
        _ => (rest, false),
    };
    let offset = match rest {
        b"" | b"Z" => 0,
        rest if has_time => offset(rest)?,
        _ => return None,
    };
    if fields.year < YEAR_MIN {
        return None;
    }
    in_range(i128::from(fields.to_ticks()? - offset))
}

/// `+hh:mm` or `-hh:mm`, as ticks.
fn offset(bytes: &[u8]) -> Option<i64> {
    let sign = match bytes.first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    expect(bytes, 3, b":")?;
    let (hours, minutes) = (number(bytes, 1, 2)?, number(bytes, 4, 2)?);
    let is_offset = bytes.len() == 6 && hours <= OFFSET_HOURS_MAX && minutes < 60;
    is_offset.then_some(sign * (hours * 60 + minutes) * 60 * TICKS_PER_SECOND)
}

fn time<'b>(bytes: &'b [u8], fields: &mut Fields) -> Option<&'b [u8]> {
    fields.hour = number(bytes, 1, 2)?;
    expect(bytes, 3, b":")?;
    fields.minute = number(bytes, 4, 2)?;
    expect(bytes, 6, b":")?;
    fields.second = number(bytes, 7, 2)?;
    let rest = &bytes[9..];
    let Some((b'.', digits)) = rest.split_first() else { return Some(rest) };
    let count = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if !(1..=7).contains(&count) {
        return None;
    }
    fields.fraction = number(digits, 0, count)? * 10_i64.pow(7 - count as u32);
    Some(&digits[count..])
}

fn number(bytes: &[u8], at: usize, count: usize) -> Option<i64> {
    let digits = bytes.get(at..at + count)?;
    digits.iter().try_fold(0, |sum, byte| byte.is_ascii_digit().then(|| sum * 10 + i64::from(byte - b'0')))
}

fn expect(bytes: &[u8], at: usize, wanted: &[u8]) -> Option<()> {
    (bytes.get(at..at + wanted.len())? == wanted).then_some(())
}

/// `YYYY-MM-DDThh:mm:ss.fffffffZ`
pub(super) fn print(ticks: i64) -> String {
    let Fields { year, month, day, hour, minute, second, fraction } = Fields::from_ticks(ticks);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction:07}Z")
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970. Years start in March here, so that the leap day is the last day of its year.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The date so many days after 1970-01-01: the inverse of [`days`].
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_survives_the_way_there_and_back() {
        for day in (-719_162..2_932_897).step_by(97) {
            let ticks = day * TICKS_PER_DAY + 12_345;
            assert_eq!(Fields::from_ticks(ticks).to_ticks(), Some(ticks));
            let is_read = Fields::from_ticks(ticks).year >= YEAR_MIN;
            assert_eq!(parse(&print(ticks)), is_read.then_some(ticks));
        }
        assert_eq!(print(TICKS_MIN), "0001-01-01T00:00:00.0000000Z");
        assert_eq!(print(TICKS_MAX), "9999-12-31T23:59:59.9999999Z");
    }

    #[test]
    fn only_fixed_width_dates_are_read() {
        for text in [
            "2024-02-29",
            "2024-02-29Z",
            "2024-02-29T01:02:03",
            "2024-02-29 01:02:03.1Z",
            "2024-01-01T01:02:03+01:00",
        ] {
            assert!(parse(text).is_some(), "{text}");
        }
        for text in [
            "2024-2-1",
            "2023-02-29",
            "2024-01-01T01:02",
            "2024-01-01T01:02:03.12345678Z",
            "",
            "2024-01-01T",
            "2024-01-01T01:02:03+01",
            "2024-01-01+01:00",
            "1600-12-31",
            "2024-01-01T24:00:00",
            "0000-01-01",
            "é024-01-01",
        ] {
            assert!(parse(text).is_none(), "{text}");
        }
    }
}
