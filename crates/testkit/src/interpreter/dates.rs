//! Dates and times: text to units of 100 ns since 1970 and back.

use super::json::{Json, Maybe};

const DAY: i128 = 24 * HOUR;
const HOUR: i128 = 60 * MINUTE;
const MINUTE: i128 = 60 * SECOND;
const SECOND: i128 = 10_000_000;
const MILLISECOND: i128 = SECOND / 1_000;

/// Year, month, day.
type Date = (i128, i128, i128);

/// Days since 1970, counted year by year and month by month.
fn days_of((year, month, day): Date) -> i128 {
    let leap_days = |year: i128| year / 4 - year / 100 + year / 400;
    let years = (year - 1970) * 365 + leap_days(year - 1) - leap_days(1969);
    let months: i128 = (1..month).map(|month| month_length(year, month)).sum();
    years + months + day - 1
}

fn date_of(days: i128) -> Date {
    let mut year = 1970 + days / 366 - 1;
    while days_of((year + 1, 1, 1)) <= days {
        year += 1;
    }
    let mut month = 1;
    while month < 12 && days_of((year, month + 1, 1)) <= days {
        month += 1;
    }
    (year, month, days - days_of((year, month, 1)) + 1)
}

fn month_length(year: i128, month: i128) -> i128 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// `YYYY-MM-DD`, then nothing, or a time with up to seven digits of a second, then nothing, `Z` or an offset.
pub fn parse(text: &str) -> Option<i128> {
    let digits = |part: Option<&str>, length: usize| {
        let part = part.filter(|part| part.len() == length && part.bytes().all(|b| b.is_ascii_digit()))?;
        part.parse::<i128>().ok()
    };
    let dash = |at: usize, mark: &str| text.get(at..at + 1) == Some(mark);
    let date = (digits(text.get(0..4), 4)?, digits(text.get(5..7), 2)?, digits(text.get(8..10), 2)?);
    let (year, month, day) = date;
    let is_date = dash(4, "-") && dash(7, "-") && (1..=12).contains(&month) && day >= 1;
    if !is_date || year < 1601 || day > month_length(year, month) {
        return None;
    }
    let ticks = days_of(date) * DAY;
    let rest = &text[10..];
    if rest.is_empty() || rest == "Z" {
        return Some(ticks);
    }
    let rest = rest.strip_prefix(['T', ' '])?;
    let (hour, minute, second) =
        (digits(rest.get(0..2), 2)?, digits(rest.get(3..5), 2)?, digits(rest.get(6..8), 2)?);
    let is_time = rest.get(2..3) == Some(":") && rest.get(5..6) == Some(":");
    if !is_time || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let mut rest = &rest[8..];
    let mut fraction = 0;
    if let Some(after) = rest.strip_prefix('.') {
        let length = after.bytes().take_while(u8::is_ascii_digit).count();
        if length == 0 || length > 7 {
            return None;
        }
        fraction = format!("{:0<7}", &after[..length]).parse().ok()?;
        rest = &after[length..];
    }
    let offset = match rest {
        "" | "Z" => 0,
        _ => {
            let sign = if rest.starts_with('-') { -1 } else { 1 };
            let offset = rest.strip_prefix(['+', '-'])?;
            let (hours, minutes) = (digits(offset.get(0..2), 2)?, digits(offset.get(3..5), 2)?);
            if offset.len() != 5 || offset.get(2..3) != Some(":") || hours > 14 || minutes > 59 {
                return None;
            }
            sign * (hours * HOUR + minutes * MINUTE)
        }
    };
    Some(ticks + hour * HOUR + minute * MINUTE + second * SECOND + fraction - offset)
}

/// `None` outside of the years 1 to 9999.
fn print(ticks: i128) -> Maybe {
    let (first, end) = (days_of((1, 1, 1)) * DAY, days_of((10_000, 1, 1)) * DAY);
    if !(first..end).contains(&ticks) {
        return None;
    }
    let (year, month, day) = date_of(ticks.div_euclid(DAY));
    let time = ticks.rem_euclid(DAY);
    Some(Json::String(format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:07}Z",
        time / HOUR,
        time / MINUTE % 60,
        time / SECOND % 60,
        time % SECOND
    )))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
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

fn part_of(name: &Json) -> Option<Part> {
    Some(match name.as_str()?.to_ascii_lowercase().as_str() {
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

impl Part {
    /// In hundredths of a nanosecond's hundred: ticks times 100, so that nanoseconds are whole.
    fn nanoseconds(self) -> i128 {
        match self {
            Part::Year | Part::Month => 0,
            Part::Day => DAY * 100,
            Part::Hour => HOUR * 100,
            Part::Minute => MINUTE * 100,
            Part::Second => SECOND * 100,
            Part::Millisecond => 1_000_000,
            Part::Microsecond => 1_000,
            Part::Nanosecond => 1,
        }
    }
}

/// `None`: no function of this family.
pub fn call(name: &str, values: &[Json], now: i128) -> Option<Maybe> {
    let moment = |index: usize| values.get(index).and_then(|value| parse(value.as_str()?));
    let part = |index: usize| values.get(index).and_then(part_of);
    let integer = |value: i128| Some(Json::Integer(value));
    Some(match name {
        "GETCURRENTDATETIME" | "GETCURRENTDATETIMESTATIC" => print(now),
        "GETCURRENTTIMESTAMP" | "GETCURRENTTIMESTAMPSTATIC" => integer(now.div_euclid(MILLISECOND)),
        "GETCURRENTTICKS" | "GETCURRENTTICKSSTATIC" => integer(now),
        "NOW" if values.is_empty() => print(now),
        "NOW" => {
            part(0).zip(values.get(1)).and_then(|(part, count)| shifted(part, count.as_i64()?.into(), now))
        }
        "AGO" => part(0)
            .zip(values.get(1))
            .and_then(|(part, count)| shifted(part, -i128::from(count.as_i64()?), now)),
        "DATETIMEADD" => part(0)
            .zip(moment(2))
            .and_then(|(part, moment)| shifted(part, values[1].as_i64()?.into(), moment)),
        "DATETIMEDIFF" => part(0)
            .zip(moment(1).zip(moment(2)))
            .map(|(part, (start, end))| Json::Integer(crossed(part, end) - crossed(part, start))),
        "DATETIMEPART" => part(0).zip(moment(1)).map(|(part, moment)| Json::Integer(value_of(part, moment))),
        "YEAR" => moment(0).map(|moment| Json::Integer(value_of(Part::Year, moment))),
        "MONTH" => moment(0).map(|moment| Json::Integer(value_of(Part::Month, moment))),
        "DAY" => moment(0).map(|moment| Json::Integer(value_of(Part::Day, moment))),
        "DATETIMEBIN" => bin(values),
        "DATETIMEFROMPARTS" => from_parts(values),
        "DATETIMETOTICKS" => moment(0).map(Json::Integer),
        "DATETIMETOTIMESTAMP" => moment(0).map(|ticks| Json::Integer(ticks.div_euclid(MILLISECOND))),
        "TICKSTODATETIME" => values[0].as_f64().and_then(|_| print(values[0].as_integer()?)),
        "TIMESTAMPTODATETIME" => values[0].as_integer().and_then(|ms| print(ms * MILLISECOND)),
        "DATETIMEFORMAT" => moment(0).zip(values[1].as_str()).map(|(ticks, form)| format(ticks, form)),
        _ => return None,
    })
}

/// Months and years keep the day, or take the last one there is.
fn shifted(part: Part, count: i128, ticks: i128) -> Maybe {
    let months = match part {
        Part::Year => count.checked_mul(12)?,
        Part::Month => count,
        _ => return print(((ticks * 100) + part.nanoseconds().checked_mul(count)?).div_euclid(100)),
    };
    let (year, month, day) = date_of(ticks.div_euclid(DAY));
    let month = (year * 12 + month - 1).checked_add(months)?;
    let (year, month) = (month.div_euclid(12), month.rem_euclid(12) + 1);
    if !(1..=9999).contains(&year) {
        return None;
    }
    let day = day.min(month_length(year, month));
    print(days_of((year, month, day)) * DAY + ticks.rem_euclid(DAY))
}

/// Boundaries of the part since 1970 (years and months since year 0).
fn crossed(part: Part, ticks: i128) -> i128 {
    let (year, month, _) = date_of(ticks.div_euclid(DAY));
    match part {
        Part::Year => year,
        Part::Month => year * 12 + month,
        _ => (ticks * 100).div_euclid(part.nanoseconds()),
    }
}

/// Below a second: the whole fraction in that unit.
fn value_of(part: Part, ticks: i128) -> i128 {
    let (year, month, day) = date_of(ticks.div_euclid(DAY));
    let time = ticks.rem_euclid(DAY);
    match part {
        Part::Year => year,
        Part::Month => month,
        Part::Day => day,
        Part::Hour => time / HOUR,
        Part::Minute => time / MINUTE % 60,
        Part::Second => time / SECOND % 60,
        _ => (time % SECOND) * 100 / part.nanoseconds(),
    }
}

fn bin(values: &[Json]) -> Maybe {
    let ticks = parse(values[0].as_str()?)?;
    let part = part_of(&values[1])?;
    let size = match values.get(2) {
        Some(size) => i128::from(size.as_i64()?),
        None => 1,
    };
    let origin = match values.get(3) {
        Some(origin) => parse(origin.as_str()?)?,
        None => 0,
    };
    if size <= 0 {
        return None;
    }
    if part == Part::Year || part == Part::Month {
        // The last multiple of so many months from the origin that has come.
        let months = if part == Part::Year { size.checked_mul(12)? } else { size };
        let month_of = |ticks: i128| crossed(Part::Month, ticks);
        let mut bins = (month_of(ticks) - month_of(origin)).div_euclid(months);
        loop {
            let start = shifted(Part::Month, bins * months, origin).and_then(|start| parse_any(&start))?;
            if start <= ticks {
                return print(start);
            }
            bins -= 1;
        }
    }
    let width = part.nanoseconds().checked_mul(size)?;
    let bins = ((ticks - origin) * 100).div_euclid(width);
    print((origin * 100 + bins * width).div_euclid(100))
}

/// Of what was printed, also before 1601.
fn parse_any(printed: &Json) -> Option<i128> {
    let text = printed.as_str()?;
    let number = |from: usize, to: usize| text[from..to].parse::<i128>().ok();
    let days = days_of((number(0, 4)?, number(5, 7)?, number(8, 10)?));
    let time = number(11, 13)? * HOUR + number(14, 16)? * MINUTE + number(17, 19)? * SECOND + number(20, 27)?;
    Some(days * DAY + time)
}

fn from_parts(values: &[Json]) -> Maybe {
    let parts: Option<Vec<i128>> = values.iter().map(|value| value.as_i64().map(i128::from)).collect();
    let mut parts = parts?;
    parts.resize(7, 0);
    let [year, month, day, hour, minute, second, fraction] = parts[..] else { return None };
    let text = |value: i128, width: usize| format!("{value:0width$}");
    let date = format!("{}-{}-{}", text(year, 4), text(month, 2), text(day, 2));
    let time = format!("{}:{}:{}.{}Z", text(hour, 2), text(minute, 2), text(second, 2), text(fraction, 7));
    print(parse(&format!("{date}T{time}"))?)
}

fn format(ticks: i128, form: &str) -> Json {
    let letters: Vec<char> = form.chars().collect();
    let mut out = String::new();
    let mut at = 0;
    while at < letters.len() {
        let letter = letters[at];
        if letter == '\\' {
            out.extend(letters.get(at + 1));
            at += 2;
            continue;
        }
        let run = letters[at..].iter().take_while(|other| **other == letter).count();
        let length = match letter {
            'y' => run.min(4),
            'M' | 'd' | 'H' | 'h' | 'm' | 's' => run.min(2),
            'f' | 'F' => run.min(7),
            _ => 1,
        };
        at += length;
        let two = |value: i128| if length == 1 { format!("{value}") } else { format!("{value:02}") };
        let value = |part: Part| value_of(part, ticks);
        match letter {
            'y' if length > 2 => out.push_str(&format!("{:04}", value(Part::Year))),
            'y' => out.push_str(&two(value(Part::Year) % 100)),
            'M' => out.push_str(&two(value(Part::Month))),
            'd' => out.push_str(&two(value(Part::Day))),
            'H' => out.push_str(&two(value(Part::Hour))),
            'h' => out.push_str(&two((value(Part::Hour) + 11) % 12 + 1)),
            'm' => out.push_str(&two(value(Part::Minute))),
            's' => out.push_str(&two(value(Part::Second))),
            'f' | 'F' => {
                let digits = format!("{:07}", ticks.rem_euclid(SECOND));
                let digits = &digits[..length];
                out.push_str(if letter == 'f' { digits } else { digits.trim_end_matches('0') });
            }
            other => out.push(other),
        }
    }
    Json::String(out)
}
