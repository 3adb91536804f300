//! Date and time functions. What a moment consists of is read from its printed form.

use std::sync::OnceLock;

use regex::Regex;

use super::calendar::{self, DAY, HOUR, MINUTE, Nanoseconds, SECOND, TICK};
use super::json::{Json, JsonOrUndefined};

const MILLISECOND: i128 = SECOND / 1_000;
const MICROSECOND: i128 = SECOND / 1_000_000;

/// How long a part is, and where the printed form has it: `0001-01-01T00:00:00.0000000Z`.
#[derive(Clone, Copy)]
struct DatePart {
    names: &'static [&'static str],
    length: PartLength,
    digits: (usize, usize),
}

#[derive(Clone, Copy)]
enum PartLength {
    Months(i128),
    Nanoseconds(i128),
}

const YEAR: DatePart =
    DatePart { names: &["year", "yyyy", "yy"], length: PartLength::Months(12), digits: (0, 4) };
const MONTH: DatePart =
    DatePart { names: &["month", "mm", "m"], length: PartLength::Months(1), digits: (5, 7) };
const DAY_OF_MONTH: DatePart =
    DatePart { names: &["day", "dd", "d"], length: PartLength::Nanoseconds(DAY), digits: (8, 10) };

const PARTS: &[DatePart] = &[
    YEAR,
    MONTH,
    DAY_OF_MONTH,
    DatePart { names: &["hour", "hh"], length: PartLength::Nanoseconds(HOUR), digits: (11, 13) },
    DatePart { names: &["minute", "mi", "n"], length: PartLength::Nanoseconds(MINUTE), digits: (14, 16) },
    DatePart { names: &["second", "ss", "s"], length: PartLength::Nanoseconds(SECOND), digits: (17, 19) },
    // Below a second: the whole fraction in that unit.
    DatePart {
        names: &["millisecond", "ms"],
        length: PartLength::Nanoseconds(MILLISECOND),
        digits: (20, 23),
    },
    DatePart {
        names: &["microsecond", "mcs"],
        length: PartLength::Nanoseconds(MICROSECOND),
        digits: (20, 26),
    },
    DatePart { names: &["nanosecond", "ns"], length: PartLength::Nanoseconds(1), digits: (20, 27) },
];

pub use super::calendar::parse;

fn part_of(name: &Json) -> Option<DatePart> {
    let name = name.as_str()?.to_lowercase();
    PARTS.iter().find(|part| part.names.contains(&name.as_str())).copied()
}

fn time_of(value: &Json) -> Option<Nanoseconds> {
    parse(value.as_str()?)
}

fn print(moment: Nanoseconds) -> JsonOrUndefined {
    calendar::print(moment).map(Json::String)
}

/// `None`: no function of this family. The time is in units of 100 ns since 1970.
pub fn call(name: &str, values: &[Json], now_ticks: i128) -> Option<JsonOrUndefined> {
    let now = calendar::epoch() + now_ticks * TICK;
    Some(match name {
        "GETCURRENTDATETIME" | "GETCURRENTDATETIMESTATIC" => print(now),
        "GETCURRENTTIMESTAMP" | "GETCURRENTTIMESTAMPSTATIC" => Some(since_1970(now, MILLISECOND)),
        "GETCURRENTTICKS" | "GETCURRENTTICKSSTATIC" => Some(since_1970(now, TICK)),
        "NOW" if values.is_empty() => print(now),
        "NOW" => values.get(1).and_then(|count| moved(&values[0], count.as_i64()?, now)),
        "AGO" => values[1].as_i64().and_then(|count| moved(&values[0], count.checked_neg()?, now)),
        "DATETIMEADD" => {
            time_of(&values[2]).and_then(|moment| moved(&values[0], values[1].as_i64()?, moment))
        }
        "DATETIMEDIFF" => difference(values),
        "DATETIMEPART" => {
            part_of(&values[0]).zip(time_of(&values[1])).map(|(part, moment)| value_of(part, moment))
        }
        "YEAR" => time_of(&values[0]).map(|moment| value_of(YEAR, moment)),
        "MONTH" => time_of(&values[0]).map(|moment| value_of(MONTH, moment)),
        "DAY" => time_of(&values[0]).map(|moment| value_of(DAY_OF_MONTH, moment)),
        "DATETIMEBIN" => bin(values),
        "DATETIMEFROMPARTS" => from_parts(values),
        "DATETIMETOTICKS" => time_of(&values[0]).map(|moment| since_1970(moment, TICK)),
        "DATETIMETOTIMESTAMP" => time_of(&values[0]).map(|moment| since_1970(moment, MILLISECOND)),
        "TICKSTODATETIME" => {
            values[0].as_i64().and_then(|ticks| print(calendar::epoch() + i128::from(ticks) * TICK))
        }
        "TIMESTAMPTODATETIME" => {
            values[0].as_i64().and_then(|time| print(calendar::epoch() + i128::from(time) * MILLISECOND))
        }
        "DATETIMEFORMAT" => {
            time_of(&values[0]).zip(values[1].as_str()).map(|(moment, form)| formatted(moment, form))
        }
        _ => return None,
    })
}

fn since_1970(moment: Nanoseconds, unit: i128) -> Json {
    Json::Integer((moment - calendar::epoch()).div_euclid(unit))
}

fn value_of(part: DatePart, moment: Nanoseconds) -> Json {
    let printed = calendar::print(moment).expect("a moment of the calendar");
    let digits: i128 = printed[part.digits.0..part.digits.1].parse().expect("digits");
    // The printed form has seven digits of a second, not nine.
    Json::Integer(if part.digits == (20, 27) { digits * TICK } else { digits })
}

/// What is shorter than a tick moves nothing, in either direction.
fn moved(part: &Json, count: i64, moment: Nanoseconds) -> JsonOrUndefined {
    let count = i128::from(count);
    print(match part_of(part)?.length {
        PartLength::Months(months) => calendar::months_later(moment, months * count)?,
        PartLength::Nanoseconds(length) => moment + length * count / TICK * TICK,
    })
}

/// Boundaries between the two, not the time: all parts begin with the year 1.
fn difference(values: &[Json]) -> JsonOrUndefined {
    let (start, end) = (time_of(&values[1])?, time_of(&values[2])?);
    let complete = |moment: Nanoseconds| match part_of(&values[0]).map(|part| part.length) {
        Some(PartLength::Months(months)) => Some(calendar::place_of(moment).0 as i128 / months),
        Some(PartLength::Nanoseconds(length)) => Some(moment / length),
        None => None,
    };
    let crossed = complete(end)? - complete(start)?;
    Some(i64::try_from(crossed).map_or(Json::number(crossed as f64), |crossed| Json::Integer(crossed.into())))
}

fn bin(values: &[Json]) -> JsonOrUndefined {
    let (moment, part) = (time_of(&values[0])?, part_of(&values[1])?);
    let size = values.get(2).map_or(Some(1), Json::as_i64).filter(|size| *size > 0)?;
    let origin = values.get(3).map_or(Some(calendar::epoch()), time_of)?;
    if origin < calendar::year_start(1601) {
        return None;
    }
    match part.length {
        PartLength::Months(months) => print(bin_of_months(moment, origin, months * i128::from(size))?),
        PartLength::Nanoseconds(length) => {
            let start = moment - (moment - origin).rem_euclid(length * i128::from(size));
            print(start - start.rem_euclid(TICK))
        }
    }
}

/// Bin by bin from the origin, until the moment is not before the bin and before the next one.
fn bin_of_months(moment: Nanoseconds, origin: Nanoseconds, months: i128) -> Option<Nanoseconds> {
    let start = |bin: i128| calendar::months_later(origin, months.checked_mul(bin)?);
    let mut bin = 0;
    while start(bin)? > moment {
        bin -= 1;
    }
    while start(bin + 1).is_some_and(|next| next <= moment) {
        bin += 1;
    }
    start(bin)
}

fn from_parts(values: &[Json]) -> JsonOrUndefined {
    let mut parts = values.iter().map(Json::as_i64).collect::<Option<Vec<i64>>>()?;
    parts.resize(7, 0);
    let [year, month, day, hour, minute, second, ticks] = parts[..] else { return None };
    // A part that is too large or negative makes no date text.
    let text = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ticks:07}Z");
    print(parse(&text)?)
}

fn formatted(moment: Nanoseconds, form: &str) -> Json {
    static SPECIFIERS: OnceLock<Regex> = OnceLock::new();
    let specifiers = SPECIFIERS.get_or_init(|| {
        let runs = "y{1,4}|M{1,2}|d{1,2}|H{1,2}|h{1,2}|m{1,2}|s{1,2}|f{1,7}|F{1,7}";
        Regex::new(&format!(r"(?s)\\.?|{runs}|.")).expect("a regular expression")
    });
    let printed = calendar::print(moment).expect("a moment of the calendar");
    let found = specifiers.find_iter(form).map(|specifier| specified(&printed, specifier.as_str()));
    Json::String(found.collect())
}

/// One specifier, or one character that is none.
fn specified(printed: &str, specifier: &str) -> String {
    let length = specifier.len();
    let two = |digits: &str| match (length, digits.strip_prefix('0')) {
        (1, Some(digit)) => digit.to_owned(),
        _ => digits.to_owned(),
    };
    match specifier.chars().next() {
        Some('\\') => specifier[1..].to_owned(),
        Some('y') if length > 2 => printed[0..4].to_owned(),
        Some('y') => two(&printed[2..4]),
        Some('M') => two(&printed[5..7]),
        Some('d') => two(&printed[8..10]),
        Some('H') => two(&printed[11..13]),
        Some('h') => two(match &printed[11..13] {
            "00" => "12",
            "13" => "01",
            "14" => "02",
            "15" => "03",
            "16" => "04",
            "17" => "05",
            "18" => "06",
            "19" => "07",
            "20" => "08",
            "21" => "09",
            "22" => "10",
            "23" => "11",
            morning => morning,
        }),
        Some('m') => two(&printed[14..16]),
        Some('s') => two(&printed[17..19]),
        Some('f') => printed[20..20 + length].to_owned(),
        Some('F') => printed[20..20 + length].trim_end_matches('0').to_owned(),
        _ => specifier.to_owned(),
    }
}
