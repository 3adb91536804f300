//! Numbers: exact where JSON integers fit 64 bits, doubles otherwise.

/// Invariant: `Unsigned` only above `i64::MAX`; `Double` is finite except inside query evaluation.
///
/// Equality, order and hash are by mathematical value (see `order`), so `Int(1)` equals `Double(1.0)`.
#[derive(Clone, Copy, Debug)]
pub enum Number {
    Int(i64),
    Unsigned(u64),
    Double(f64),
}

/// Buffer for the longest text of a number (`-2.2250738585072014e-308` is 24 bytes).
pub(crate) type NumberText = [u8; 32];

const TWO_POW_63: f64 = 9_223_372_036_854_775_808.0;
const TWO_POW_64: f64 = 18_446_744_073_709_551_616.0;

impl Number {
    pub fn from_u64(value: u64) -> Number {
        i64::try_from(value).map_or(Number::Unsigned(value), Number::Int)
    }

    pub fn as_f64(self) -> f64 {
        match self {
            Number::Int(value) => value as f64,
            Number::Unsigned(value) => value as f64,
            Number::Double(value) => value,
        }
    }

    /// The value as i64 when it is integral and in range (`1.0` is 1).
    pub fn as_i64(self) -> Option<i64> {
        match self {
            Number::Int(value) => Some(value),
            Number::Unsigned(_) => None,
            Number::Double(value) => {
                let fits = value.trunc() == value && (-TWO_POW_63..TWO_POW_63).contains(&value);
                fits.then_some(value as i64)
            }
        }
    }

    /// The value as u64 when it is integral and in range (`1.0` is 1).
    pub fn as_u64(self) -> Option<u64> {
        match self {
            Number::Int(value) => u64::try_from(value).ok(),
            Number::Unsigned(value) => Some(value),
            Number::Double(value) => {
                let fits = value.trunc() == value && (0.0..TWO_POW_64).contains(&value);
                fits.then_some(value as u64)
            }
        }
    }

    pub fn is_finite(self) -> bool {
        !matches!(self, Number::Double(value) if !value.is_finite())
    }

    /// The same value as an integer if it is one, so that every value has one form.
    pub fn normalized(self) -> Number {
        match self.as_i64() {
            Some(value) => Number::Int(value),
            None => self.as_u64().map_or(self, Number::Unsigned),
        }
    }

    /// Largest double not above the value, and the difference (nonzero only beyond 2^53).
    pub fn floor_to_double(self) -> (f64, u16) {
        match self {
            Number::Int(value) => floor_integer(i128::from(value), value as f64),
            Number::Unsigned(value) => floor_integer(i128::from(value), value as f64),
            Number::Double(value) => (value, 0),
        }
    }

    /// The inverse of [`Number::floor_to_double`]; `None` when no number gives these parts.
    pub fn from_floor(floor: f64, rest: u16) -> Option<Number> {
        if rest == 0 {
            return Some(Number::Double(floor).normalized());
        }
        if !(-TWO_POW_63..TWO_POW_64).contains(&floor) || floor.trunc() != floor {
            return None;
        }
        let exact = floor as i128 + i128::from(rest);
        let number = match i64::try_from(exact) {
            Ok(value) => Number::Int(value),
            Err(_) => Number::Unsigned(u64::try_from(exact).ok()?),
        };
        (number.floor_to_double() == (floor, rest)).then_some(number)
    }

    /// Appends the JSON form: integers in full, doubles shortest round-trip, integral doubles without `.0`, `-0` as
    /// `0`. NaN and infinity are written as `null`; values leave them out before.
    pub fn write_json(self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.format(&mut [0; 32]));
    }

    /// The JSON form without an allocation.
    pub(crate) fn format(self, text: &mut NumberText) -> &[u8] {
        match self {
            Number::Int(value) => copy(itoa::Buffer::new().format(value), text),
            Number::Unsigned(value) => copy(itoa::Buffer::new().format(value), text),
            Number::Double(value) => format_double(value, text),
        }
    }
}

fn floor_integer(exact: i128, nearest: f64) -> (f64, u16) {
    let floor = if nearest as i128 > exact { nearest.next_down() } else { nearest };
    // Doubles below 2^64 are at most 2048 apart.
    (floor, (exact - floor as i128) as u16)
}

fn format_double(value: f64, text: &mut NumberText) -> &[u8] {
    if !value.is_finite() {
        return copy("null", text);
    }
    // An integral double is written with all its digits while they would be read back as an exact integer:
    // the shortest digits of 2^63 are those of another 64-bit integer.
    match Number::Double(value).normalized() {
        Number::Double(value) => copy(zmij::Buffer::new().format_finite(value).trim_end_matches(".0"), text),
        integer => integer.format(text),
    }
}

fn copy<'a>(source: &str, text: &'a mut NumberText) -> &'a [u8] {
    let text = &mut text[..source.len()];
    text.copy_from_slice(source.as_bytes());
    text
}

impl From<i64> for Number {
    fn from(value: i64) -> Number {
        Number::Int(value)
    }
}
impl From<i32> for Number {
    fn from(value: i32) -> Number {
        Number::Int(i64::from(value))
    }
}
impl From<u32> for Number {
    fn from(value: u32) -> Number {
        Number::Int(i64::from(value))
    }
}
impl From<u64> for Number {
    fn from(value: u64) -> Number {
        Number::from_u64(value)
    }
}
impl From<f64> for Number {
    fn from(value: f64) -> Number {
        Number::Double(value)
    }
}

impl std::fmt::Display for Number {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&String::from_utf8_lossy(self.format(&mut [0; 32])))
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(numbers: &[Number], expect: Expect) {
        let lines: Vec<String> = numbers.iter().map(ToString::to_string).collect();
        expect.assert_eq(&lines.join("\n"));
    }

    #[test]
    fn integers_are_written_in_full() {
        let numbers =
            [Number::Int(0), Number::Int(i64::MIN), Number::from_u64(u64::MAX), Number::from(7_u32)];
        check(
            &numbers,
            expect![[r#"
                0
                -9223372036854775808
                18446744073709551615
                7"#]],
        );
    }

    #[test]
    fn doubles_are_written_shortest() {
        let doubles = [
            0.1,
            -0.0,
            1.0,
            -2.5,
            20.825,
            13.475000000000001,
            1e21,
            1.5e300,
            5e-324,
            1e-7,
            0.00001,
            1e20,
            TWO_POW_63,
            TWO_POW_64,
            -TWO_POW_64,
            f64::MAX,
            f64::NAN,
        ];
        check(
            &doubles.map(Number::Double),
            expect![[r#"
                0.1
                0
                1
                -2.5
                20.825
                13.475000000000001
                1e+21
                1.5e+300
                5e-324
                1e-7
                0.00001
                1e+20
                9223372036854775808
                1.8446744073709552e+19
                -1.8446744073709552e+19
                1.7976931348623157e+308
                null"#]],
        );
    }

    #[test]
    fn floor_and_rest_rebuild_the_number() {
        let edges =
            [0, 1, -1, (1 << 53) + 1, -(1 << 53) - 1, i64::MAX, i64::MIN, i64::MIN + 1, i64::MAX - 511];
        for number in edges.map(Number::Int).into_iter().chain([u64::MAX, 1 << 63].map(Number::from_u64)) {
            let (floor, rest) = number.floor_to_double();
            assert!(Number::Double(floor).total_cmp(number).is_le(), "{number}");
            assert_eq!(Number::from_floor(floor, rest), Some(number));
        }
        assert_eq!(Number::from_floor(1.0, 1), None);
        assert_eq!(Number::from_floor(0.5, 1), None);
        assert_eq!(Number::from_floor(f64::INFINITY, 1), None);
    }

    #[test]
    fn integral_doubles_convert() {
        assert_eq!(Number::Double(3.0).as_i64(), Some(3));
        assert_eq!(Number::Double(-0.0).as_u64(), Some(0));
        assert_eq!(Number::Double(3.5).as_i64(), None);
        assert_eq!(Number::Double(TWO_POW_63).as_i64(), None);
        assert_eq!(Number::Double(-TWO_POW_63).as_i64(), Some(i64::MIN));
        assert_eq!(Number::Double(TWO_POW_64).as_u64(), None);
        assert_eq!(Number::Double(f64::NAN).as_i64(), None);
        assert_eq!(Number::Unsigned(u64::MAX).as_i64(), None);
    }
}
