//! Numbers: exact where JSON integers fit 64 bits, doubles otherwise.

/// Invariant: `Unsigned` only above `i64::MAX`; `Double` is finite except inside query evaluation.
#[derive(Clone, Copy, Debug)]
pub enum Number {
    Int(i64),
    Unsigned(u64),
    Double(f64),
}

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
        todo!()
    }
    /// Largest double not above the value, and what is left (nonzero only beyond 2^53).
    pub fn floor_to_double(self) -> (f64, u16) {
        todo!()
    }
    /// Appends the JSON form: integers in full, doubles shortest round-trip, integral doubles without `.0`, `-0` as `0`.
    pub fn write_json(self, _out: &mut Vec<u8>) {
        todo!()
    }
}
