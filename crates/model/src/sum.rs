//! Exact sums: whatever the order of additions and subtractions, the same sum, rounded once when it is asked for.
//!
//! A sum is `mantissa * 2^exponent` with an odd mantissa of any length, or zero. Every double and every 64-bit integer is such a
//! number, and sums of them are; the longest has about 2,200 bits. The form is unique, so equal sums are equal bytes.
//!
//! Stored: format (1 byte, now 1), exponent (4 bytes, little-endian), mantissa (two's complement, little-endian, shortest).

use num_bigint::{BigInt, BigUint, Sign};
use quire_value::Number;

const FORMAT: u8 = 1;
/// Bits of a double's mantissa, and the exponent of the smallest double.
const MANTISSA_BITS: i64 = 53;
const EXPONENT_MIN: i64 = -1074;
const EXPONENT_MAX: i64 = 1023;
/// Of what was stored: nothing that numbers add up to is outside.
const STORED_EXPONENTS: std::ops::RangeInclusive<i32> = -1074..=4096;
/// Bits of a quotient before it is rounded: the mantissa, and more than enough to round by.
const QUOTIENT_BITS: u64 = 70;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sum {
    mantissa: BigInt,
    exponent: i32,
}

/// Bytes that are no sum.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("corrupt sum: {reason}")]
pub struct CorruptSum {
    pub reason: &'static str,
}

impl Sum {
    pub fn is_zero(&self) -> bool {
        self.mantissa.sign() == Sign::NoSign
    }

    /// Adds a finite number; others add nothing.
    pub fn add(&mut self, number: Number) {
        if let Some(other) = Sum::of(number) {
            self.add_sum(&other);
        }
    }

    pub fn add_sum(&mut self, other: &Sum) {
        if other.is_zero() {
            return;
        }
        let exponent = if self.is_zero() { other.exponent } else { self.exponent.min(other.exponent) };
        let mantissa = self.shifted(exponent) + other.shifted(exponent);
        *self = Sum { mantissa, exponent }.normal();
    }

    pub fn negate(&mut self) {
        self.mantissa = -std::mem::take(&mut self.mantissa);
    }

    /// An integer while it is one and fits 64 bits, else the nearest double. Beyond all doubles that is the largest one.
    pub fn to_number(&self) -> Number {
        self.as_integer().unwrap_or_else(|| {
            let magnitude = self.mantissa.magnitude();
            Number::Double(signed(self.mantissa.sign(), nearest_double(magnitude, i64::from(self.exponent))))
        })
    }

    /// The exact sum divided by a count, rounded once as [`Sum::to_number`] does; nothing for a count of none.
    pub fn divided_by(&self, count: u64) -> Option<Number> {
        if count == 0 {
            return None;
        }
        let divisor = BigUint::from(count);
        let magnitude = self.mantissa.magnitude();
        if self.exponent >= 0 && self.exponent <= 64 {
            let whole = magnitude << self.exponent.unsigned_abs();
            if &whole % &divisor == BigUint::default() {
                let mantissa = BigInt::from_biguint(self.mantissa.sign(), whole / divisor);
                return Some(Sum { mantissa, exponent: 0 }.normal().to_number());
            }
        }
        let shift = (QUOTIENT_BITS + divisor.bits()).saturating_sub(magnitude.bits());
        let shifted = magnitude << shift;
        let (quotient, rest) = (&shifted / &divisor, &shifted % &divisor);
        // One more bit says whether there is more behind the quotient.
        let sticky = (quotient << 1u32) + u32::from(rest != BigUint::default());
        let exponent = i64::from(self.exponent) - shift as i64 - 1;
        Some(Number::Double(signed(self.mantissa.sign(), nearest_double(&sticky, exponent))).normalized())
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![FORMAT];
        bytes.extend(self.exponent.to_le_bytes());
        bytes.extend(self.mantissa.to_signed_bytes_le());
        bytes
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<Sum, CorruptSum> {
        let corrupt = |reason| CorruptSum { reason };
        let rest = match bytes.split_first() {
            Some((&FORMAT, rest)) => rest,
            _ => return Err(corrupt("unknown format")),
        };
        let (exponent, mantissa) = rest.split_first_chunk().ok_or(corrupt("too short"))?;
        let exponent = i32::from_le_bytes(*exponent);
        if !STORED_EXPONENTS.contains(&exponent) {
            return Err(corrupt("exponent out of range"));
        }
        let sum = Sum { mantissa: BigInt::from_signed_bytes_le(mantissa), exponent };
        if sum.clone().normal() != sum || sum.to_bytes() != bytes {
            return Err(corrupt("not in its one form"));
        }
        Ok(sum)
    }

    fn of(number: Number) -> Option<Sum> {
        let (mantissa, exponent) = match number {
            Number::Int(value) => (BigInt::from(value), 0),
            Number::Unsigned(value) => (BigInt::from(value), 0),
            Number::Double(value) if value.is_finite() => parts(value),
            Number::Double(_) => return None,
        };
        Some(Sum { mantissa, exponent }.normal())
    }

    fn shifted(&self, exponent: i32) -> BigInt {
        &self.mantissa << (self.exponent - exponent).max(0).unsigned_abs()
    }

    fn normal(self) -> Sum {
        match self.mantissa.trailing_zeros() {
            None => Sum::default(),
            Some(0) => self,
            Some(zeros) => {
                let exponent = self.exponent + i32::try_from(zeros).unwrap_or(i32::MAX);
                Sum { mantissa: self.mantissa >> zeros, exponent }
            }
        }
    }

    fn as_integer(&self) -> Option<Number> {
        let is_integer =
            self.exponent >= 0 && self.mantissa.bits() + u64::from(self.exponent.unsigned_abs()) <= 64;
        if !is_integer {
            return None;
        }
        let value = self.shifted(0);
        let signed = i64::try_from(&value).ok().map(Number::Int);
        signed.or_else(|| u64::try_from(&value).ok().map(Number::from_u64))
    }
}

/// A finite double as `mantissa * 2^exponent`.
fn parts(value: f64) -> (BigInt, i32) {
    let bits = value.to_bits();
    let field = (bits >> 52) & 0x7FF;
    let fraction = bits & ((1 << 52) - 1);
    let (magnitude, exponent) = match field {
        0 => (fraction, EXPONENT_MIN as i32),
        _ => (fraction | 1 << 52, field as i32 - 1075),
    };
    let mantissa = BigInt::from(magnitude);
    (if value.is_sign_negative() { -mantissa } else { mantissa }, exponent)
}

fn signed(sign: Sign, magnitude: f64) -> f64 {
    if sign == Sign::Minus { -magnitude } else { magnitude }
}

/// Ties to even; the largest double for what is beyond it.
fn nearest_double(magnitude: &BigUint, exponent: i64) -> f64 {
    let bits = magnitude.bits() as i64;
    let shift = (bits - MANTISSA_BITS).max(EXPONENT_MIN - exponent);
    let (kept, exponent) = match u64::try_from(shift) {
        Ok(shift @ 1..) => (rounded(magnitude, shift), exponent + shift as i64),
        _ => (u64::try_from(magnitude).unwrap_or(0), exponent),
    };
    if exponent > EXPONENT_MAX {
        return if kept == 0 { 0.0 } else { f64::MAX };
    }
    let value = kept as f64 * power_of_two(exponent);
    if value.is_finite() { value } else { f64::MAX }
}

/// Without its last bits. What is kept fits a double's mantissa.
fn rounded(magnitude: &BigUint, shift: u64) -> u64 {
    let kept = u64::try_from(magnitude >> shift).unwrap_or(u64::MAX);
    let is_half = magnitude.bit(shift - 1);
    let is_more = magnitude.trailing_zeros().is_some_and(|zeros| zeros < shift - 1);
    kept + u64::from(is_half && (is_more || kept % 2 == 1))
}

/// Exact from the smallest double to the largest power.
fn power_of_two(exponent: i64) -> f64 {
    match exponent {
        ..-1022 => f64::from_bits(1 << (exponent - EXPONENT_MIN).clamp(0, 51)),
        _ => f64::from_bits(((exponent.min(EXPONENT_MAX) + 1023) as u64) << 52),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use quire_testkit::values::any_number;

    use super::*;

    fn sum(numbers: &[Number]) -> Sum {
        let mut sum = Sum::default();
        numbers.iter().for_each(|number| sum.add(*number));
        sum
    }

    /// The exact value as a fraction over `2^1074`.
    fn over_smallest(number: Number) -> BigInt {
        match number {
            Number::Int(value) => BigInt::from(value) << 1074u32,
            Number::Unsigned(value) => BigInt::from(value) << 1074u32,
            Number::Double(value) => {
                let (mantissa, exponent) = parts(value);
                mantissa << (exponent + 1074).unsigned_abs()
            }
        }
    }

    /// `numerator / (count * 2^1074)` by long decimal division, which the standard library rounds right.
    fn by_decimals(numerator: &BigInt, count: u64) -> f64 {
        // 2^-1074 is 5^1074 / 10^1074; enough further digits make any quotient of a count exact or not a tie.
        let scaled = numerator * BigInt::from(5).pow(1074) * BigInt::from(10).pow(60);
        let (quotient, rest) = (&scaled / BigInt::from(count), &scaled % BigInt::from(count));
        let more = if rest == BigInt::default() { "" } else { "1" };
        let text = format!("{quotient}{more}e-{}", 1074 + 60 + more.len());
        let value: f64 = text.parse().expect("a number");
        value.clamp(f64::MIN, f64::MAX)
    }

    fn same(found: Number, expected: f64) -> bool {
        found.as_f64() == expected
    }

    proptest! {
        #[test]
        fn sums_are_exact_and_rounded_once(numbers in prop::collection::vec(any_number(), 0..12)) {
            let exact: BigInt = numbers.iter().map(|number| over_smallest(*number)).sum();
            let found = sum(&numbers).to_number();
            prop_assert!(same(found, by_decimals(&exact, 1)), "{found:?}");
            if let Number::Int(_) | Number::Unsigned(_) = found {
                prop_assert_eq!(over_smallest(found), exact);
            } else {
                let is_integer = exact.trailing_zeros().is_none_or(|zeros| zeros >= 1074);
                let bits = (&exact >> 1074u32).bits();
                prop_assert!(!is_integer || bits >= 64, "an integer that fits stays one: {found:?}");
            }
        }

        #[test]
        fn averages_are_exact_and_rounded_once(numbers in prop::collection::vec(any_number(), 1..12)) {
            let exact: BigInt = numbers.iter().map(|number| over_smallest(*number)).sum();
            let count = numbers.len() as u64;
            let found = sum(&numbers).divided_by(count).expect("a count");
            prop_assert!(same(found, by_decimals(&exact, count)), "{found:?}");
        }

        #[test]
        fn the_order_does_not_matter_and_what_was_added_can_be_taken_away(
            numbers in prop::collection::vec(any_number(), 0..12),
            gone in prop::collection::vec(any_number(), 0..12),
        ) {
            let mut mixed = sum(&gone);
            numbers.iter().rev().for_each(|number| mixed.add(*number));
            let mut taken = sum(&gone);
            taken.negate();
            mixed.add_sum(&taken);
            prop_assert_eq!(&mixed, &sum(&numbers));
            prop_assert_eq!(mixed.to_bytes(), sum(&numbers).to_bytes());
        }

        #[test]
        fn stored_sums_are_read_back(numbers in prop::collection::vec(any_number(), 0..6), damage in any::<Vec<u8>>()) {
            let sum = sum(&numbers);
            prop_assert_eq!(Sum::from_bytes(&sum.to_bytes()), Ok(sum));
            if let Ok(read) = Sum::from_bytes(&damage) {
                prop_assert_eq!(read.to_bytes(), damage);
            }
        }
    }

    #[test]
    fn edges() {
        let double = |value: f64| Number::Double(value);
        let shown = |numbers: &[Number]| sum(numbers).to_number().to_string();
        assert_eq!(shown(&[]), "0");
        assert_eq!(shown(&[double(-0.0)]), "0");
        assert_eq!(shown(&[double(0.1), double(0.2), double(0.3)]), "0.6");
        assert_eq!(shown(&[double(1e308), double(1e308), double(-1e308)]), "1e+308");
        assert_eq!(shown(&[double(f64::MAX), double(f64::MAX)]), double(f64::MAX).to_string());
        assert_eq!(shown(&[double(1e100), Number::Int(1), double(-1e100)]), "1");
        assert_eq!(shown(&[Number::Int(i64::MAX), Number::Int(1)]), "9223372036854775808");
        assert_eq!(sum(&[Number::from_u64(u64::MAX), Number::Int(1)]).to_number(), double(2_f64.powi(64)));
        assert_eq!(sum(&[Number::Int(i64::MIN), Number::Int(-1)]).to_number(), double(-(2_f64.powi(63))));
        assert_eq!(shown(&[double(f64::from_bits(1)), double(f64::from_bits(1))]), "1e-323");
        assert_eq!(shown(&[double(1.5), double(1.5)]), "3");
        assert_eq!(sum(&[Number::Int(7)]).divided_by(2).unwrap().to_string(), "3.5");
        assert_eq!(sum(&[Number::Int(i64::MAX)]).divided_by(1), Some(Number::Int(i64::MAX)));
        assert_eq!(sum(&[Number::Int(6)]).divided_by(3), Some(Number::Int(2)));
        assert_eq!(sum(&[]).divided_by(0), None);
        assert_eq!(sum(&[]).divided_by(5), Some(Number::Int(0)));
    }

    /// These bytes are on disk.
    #[test]
    fn golden_bytes() {
        let hex = |numbers: &[Number]| {
            sum(numbers).to_bytes().iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        assert_eq!(hex(&[]), "010000000000");
        assert_eq!(hex(&[Number::Int(10)]), "010100000005");
        assert_eq!(hex(&[Number::Double(-0.75)]), "01fefffffffd");
        assert_eq!(hex(&[Number::Int(127), Number::Int(128)]), "0100000000ff00");
    }
}
