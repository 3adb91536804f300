//! Date and time. A text that is not a date-time gives undefined.

use quire_value::{Number, Value};

use super::calendar::{self, Fields, Part, TICKS_PER_SECOND, add_months, in_range, month_index};
use super::{Call, Evaluate, Function, IndexUse, Volatility, between, exactly, f};

const TICKS_PER_MILLISECOND: i64 = TICKS_PER_SECOND / 1_000;
/// The earliest origin of DateTimeBin: 1601-01-01.
const BIN_ORIGIN_MIN: i64 = -116_444_736_000_000_000;

pub(super) const FUNCTIONS: &[Function] = &[
    clock(&["GetCurrentDateTime", "GET_CURRENT_DATE_TIME"], IndexUse::None, current_datetime),
    clock(&["GetCurrentTimestamp", "GET_CURRENT_TIMESTAMP"], IndexUse::None, current_timestamp),
    clock(&["GetCurrentTicks", "GET_CURRENT_TICKS"], IndexUse::None, current_ticks),
    clock(&["GetCurrentDateTimeStatic"], IndexUse::Range, current_datetime),
    clock(&["GetCurrentTimestampStatic"], IndexUse::Range, current_timestamp),
    clock(&["GetCurrentTicksStatic"], IndexUse::Range, current_ticks),
    f(&["NOW"], between(0, 2), now, IndexUse::None).with_volatility(Volatility::Clock),
    f(&["AGO"], exactly(2), |call| shifted(call, -1), IndexUse::None).with_volatility(Volatility::Clock),
    f(&["DateTimeAdd", "DATE_TIME_ADD"], exactly(3), date_time_add, IndexUse::None),
    f(&["DateTimeDiff", "DATE_TIME_DIFF"], exactly(3), date_time_diff, IndexUse::None),
    f(
        &["DateTimePart", "DATE_TIME_PART"],
        exactly(2),
        |call| part(Part::parse(call.string(0)?)?, moment(call, 1)?),
        IndexUse::None,
    ),
    f(&["DateTimeBin", "DATE_TIME_BIN"], between(2, 4), date_time_bin, IndexUse::None),
    f(&["DateTimeFromParts", "DATE_TIME_FROM_PARTS"], between(3, 7), date_time_from_parts, IndexUse::None),
    f(
        &["DateTimeToTicks", "DATE_TIME_TO_TICKS"],
        exactly(1),
        |call| Some(Value::from(moment(call, 0)?)),
        IndexUse::None,
    ),
    f(
        &["DateTimeToTimestamp", "DATE_TIME_TO_TIMESTAMP"],
        exactly(1),
        |call| Some(timestamp(moment(call, 0)?)),
        IndexUse::None,
    ),
    f(
        &["TicksToDateTime", "TICKS_TO_DATE_TIME"],
        exactly(1),
        |call| from_ticks(i128::from(call.integer(0)?)),
        IndexUse::None,
    ),
    f(&["TimestampToDateTime", "TIMESTAMP_TO_DATE_TIME"], exactly(1), timestamp_to_date_time, IndexUse::None),
    f(&["DateTimeFormat", "DATE_TIME_FORMAT"], exactly(2), date_time_format, IndexUse::None),
    f(&["YEAR"], exactly(1), |call| part(Part::Year, moment(call, 0)?), IndexUse::Range),
    f(&["MONTH"], exactly(1), |call| part(Part::Month, moment(call, 0)?), IndexUse::Range),
    f(&["DAY"], exactly(1), |call| part(Part::Day, moment(call, 0)?), IndexUse::Range),
];

const fn clock(names: &'static [&'static str], index_use: IndexUse, evaluate: Evaluate) -> Function {
    f(names, exactly(0), evaluate, index_use).with_volatility(Volatility::Clock)
}

fn moment(call: &Call<'_>, index: usize) -> Option<i64> {
    calendar::parse(call.string(index)?)
}

fn from_ticks(ticks: i128) -> Option<Value> {
    Some(Value::String(calendar::print(in_range(ticks)?)))
}

fn timestamp(ticks: i64) -> Value {
    Value::from(ticks.div_euclid(TICKS_PER_MILLISECOND))
}

fn current_datetime(call: &Call<'_>) -> Option<Value> {
    from_ticks(i128::from(call.context.now_ticks))
}

fn current_timestamp(call: &Call<'_>) -> Option<Value> {
    Some(timestamp(call.context.now_ticks))
}

fn current_ticks(call: &Call<'_>) -> Option<Value> {
    Some(Value::from(call.context.now_ticks))
}

fn now(call: &Call<'_>) -> Option<Value> {
    if call.len() == 0 { current_datetime(call) } else { shifted(call, 1) }
}

/// The current time, plus or minus a number of parts.
fn shifted(call: &Call<'_>, direction: i64) -> Option<Value> {
    let count = call.integer(1)?.checked_mul(direction)?;
    let ticks = add(call.context.now_ticks, Part::parse(call.string(0)?)?, count)?;
    from_ticks(i128::from(ticks))
}

fn date_time_add(call: &Call<'_>) -> Option<Value> {
    let ticks = add(moment(call, 2)?, Part::parse(call.string(0)?)?, call.integer(1)?)?;
    from_ticks(i128::from(ticks))
}

fn add(ticks: i64, part: Part, count: i64) -> Option<i64> {
    match part.nanoseconds() {
        None => add_months(ticks, count.checked_mul(part.months())?),
        Some(nanoseconds) => in_range(i128::from(ticks) + i128::from(count).checked_mul(nanoseconds)? / 100),
    }
}

/// Boundaries crossed, not time elapsed.
fn date_time_diff(call: &Call<'_>) -> Option<Value> {
    let part = Part::parse(call.string(0)?)?;
    let (start, end) = (moment(call, 1)?, moment(call, 2)?);
    let crossed = match part.nanoseconds() {
        None => {
            let months = part.months();
            i128::from(month_index(end).div_euclid(months) - month_index(start).div_euclid(months))
        }
        Some(nanoseconds) => {
            let boundary = |ticks: i64| (i128::from(ticks) * 100).div_euclid(nanoseconds);
            boundary(end) - boundary(start)
        }
    };
    let number = i64::try_from(crossed).map_or(Number::Double(crossed as f64), Number::Int);
    Some(Value::Number(number))
}

fn part(part: Part, ticks: i64) -> Option<Value> {
    let fields = Fields::from_ticks(ticks);
    Some(Value::from(match part {
        Part::Year => fields.year,
        Part::Month => fields.month,
        Part::Day => fields.day,
        Part::Hour => fields.hour,
        Part::Minute => fields.minute,
        Part::Second => fields.second,
        Part::Millisecond => fields.fraction / 10_000,
        Part::Microsecond => fields.fraction / 10,
        Part::Nanosecond => fields.fraction * 100,
    }))
}

fn date_time_bin(call: &Call<'_>) -> Option<Value> {
    let (ticks, part) = (moment(call, 0)?, Part::parse(call.string(1)?)?);
    let size = call.optional(2, 1, Call::integer)?;
    let origin = call.optional(3, 0, moment)?;
    if size < 1 || origin < BIN_ORIGIN_MIN {
        return None;
    }
    match part.nanoseconds() {
        None => bin_months(ticks, origin, size.saturating_mul(part.months())),
        Some(nanoseconds) => {
            let width = nanoseconds.checked_mul(i128::from(size))?;
            let elapsed = (i128::from(ticks) - i128::from(origin)) * 100;
            let start = elapsed.div_euclid(width).checked_mul(width)?;
            from_ticks(i128::from(origin) + start.div_euclid(100))
        }
    }
}

fn bin_months(ticks: i64, origin: i64, size: i64) -> Option<Value> {
    let bin = (month_index(ticks) - month_index(origin)).div_euclid(size);
    let start = |bin: i64| add_months(origin, bin.checked_mul(size)?);
    // The day of the month of the origin may be later than that of the date.
    let found = start(bin).filter(|start| *start <= ticks).or_else(|| start(bin - 1))?;
    from_ticks(i128::from(found))
}

fn date_time_from_parts(call: &Call<'_>) -> Option<Value> {
    let optional = |index| call.optional(index, 0, Call::integer);
    let fields = Fields {
        year: call.integer(0)?,
        month: call.integer(1)?,
        day: call.integer(2)?,
        hour: optional(3)?,
        minute: optional(4)?,
        second: optional(5)?,
        fraction: optional(6)?,
    };
    if fields.year < calendar::YEAR_MIN {
        return None;
    }
    from_ticks(i128::from(fields.to_ticks()?))
}

fn timestamp_to_date_time(call: &Call<'_>) -> Option<Value> {
    from_ticks(i128::from(call.integer(0)?) * i128::from(TICKS_PER_MILLISECOND))
}

/// Custom format specifiers: repeated letters; `\` makes the next character literal.
fn date_time_format(call: &Call<'_>) -> Option<Value> {
    let fields = Fields::from_ticks(moment(call, 0)?);
    let format = call.string(1)?;
    let mut out = String::with_capacity(format.len() + 8);
    let mut rest = format;
    let mut letters = rest.chars();
    while let Some(letter) = letters.next() {
        // Before repeated letters are counted: a text of `\` alone would be counted again at every second character.
        if letter == '\\' {
            out.extend(letters.next());
            rest = letters.as_str();
            continue;
        }
        let run = rest.len() - rest.trim_start_matches(letter).len();
        specifier(&fields, letter, run / letter.len_utf8(), &mut out);
        rest = &rest[run..];
        letters = rest.chars();
    }
    Some(Value::String(out))
}

fn specifier(fields: &Fields, letter: char, count: usize, out: &mut String) {
    let hour_of_twelve = (fields.hour + 11) % 12 + 1;
    let (value, width_max) = match letter {
        'y' if count <= 2 => (fields.year % 100, 2),
        'y' => (fields.year, count),
        'M' => (fields.month, 2),
        'd' => (fields.day, 2),
        'H' => (fields.hour, 2),
        'h' => (hour_of_twelve, 2),
        'm' => (fields.minute, 2),
        's' => (fields.second, 2),
        'f' | 'F' if count <= 7 => return fraction(fields.fraction, letter, count, out),
        _ => {
            out.extend(std::iter::repeat_n(letter, count));
            return;
        }
    };
    // Without a width in `format!`: the maximum is 65,535.
    let digits = value.to_string();
    let zeros = count.min(width_max).saturating_sub(digits.len());
    out.extend(std::iter::repeat_n('0', zeros));
    out.push_str(&digits);
}

/// `f` pads with zeros, `F` drops trailing zeros.
fn fraction(ticks: i64, letter: char, count: usize, out: &mut String) {
    let digits = format!("{ticks:07}");
    let digits = &digits[..count];
    out.push_str(if letter == 'F' { digits.trim_end_matches('0') } else { digits });
}
