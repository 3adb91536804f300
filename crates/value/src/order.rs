//! Total order of values: undefined < null < boolean < number < string < array < object.

use std::cmp::Ordering;

use crate::{Number, Value};

impl Number {
    /// By exact mathematical value; `-0` equals `0`; NaN first (it never leaves the evaluator).
    pub fn total_cmp(self, _other: Number) -> Ordering {
        todo!()
    }
}

impl Value {
    pub fn total_cmp(&self, _other: &Value) -> Ordering {
        todo!()
    }
}

impl PartialEq for Value {
    fn eq(&self, _other: &Value) -> bool {
        todo!()
    }
}
