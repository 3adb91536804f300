//! Aggregates: every one skips undefined values.

use quire_value::Value;

use super::type_check::is_primitive_kind;
use super::{Function, Implementation, IndexUse, exactly, row};
use crate::SqlError;
use crate::exec::{Datum, Places, View};
use crate::meter::Kept;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregate {
    Count,
    Sum,
    Average,
    Min,
    Max,
    CountIf,
    MakeList,
    MakeSet,
}

pub(super) const FUNCTIONS: &[Function] = &[
    aggregate(&["COUNT"], Aggregate::Count),
    aggregate(&["SUM"], Aggregate::Sum),
    aggregate(&["AVG"], Aggregate::Average),
    aggregate(&["MIN"], Aggregate::Min),
    aggregate(&["MAX"], Aggregate::Max),
    aggregate(&["COUNTIF", "COUNT_IF"], Aggregate::CountIf),
    aggregate(&["MAKELIST", "MAKE_LIST"], Aggregate::MakeList),
    aggregate(&["MAKESET", "MAKE_SET"], Aggregate::MakeSet),
];

const fn aggregate(names: &'static [&'static str], aggregate: Aggregate) -> Function {
    row(names, exactly(1), Implementation::Aggregate(aggregate), IndexUse::None)
}

/// An aggregate over the values seen so far.
pub(crate) enum Accumulator {
    Count(u64),
    CountIf(u64),
    /// `None`: something that is no number was among them.
    Sum(Option<f64>),
    Average {
        sum: Option<f64>,
        count: u64,
    },
    Extreme {
        best: Option<Value>,
        valid: bool,
        keep: std::cmp::Ordering,
    },
    List(Vec<Value>),
    Set {
        places: Places,
        values: Vec<Value>,
    },
}

impl Accumulator {
    pub fn new(aggregate: Aggregate) -> Accumulator {
        use std::cmp::Ordering;
        match aggregate {
            Aggregate::Count => Accumulator::Count(0),
            Aggregate::CountIf => Accumulator::CountIf(0),
            Aggregate::Sum => Accumulator::Sum(Some(0.0)),
            Aggregate::Average => Accumulator::Average { sum: Some(0.0), count: 0 },
            Aggregate::Min => Accumulator::Extreme { best: None, valid: true, keep: Ordering::Less },
            Aggregate::Max => Accumulator::Extreme { best: None, valid: true, keep: Ordering::Greater },
            Aggregate::MakeList => Accumulator::List(Vec::new()),
            Aggregate::MakeSet => Accumulator::Set { places: Places::default(), values: Vec::new() },
        }
    }

    /// Takes a value as many times as there are rows like it, exactly as if each came by itself. What is kept counts
    /// against the meter.
    pub fn push(&mut self, datum: Datum<'_>, times: u64, kept: &Kept<'_>) -> Result<(), SqlError> {
        let value = datum.view();
        if value.is_undefined() {
            return Ok(());
        }
        match self {
            Accumulator::Count(count) => *count += times,
            Accumulator::CountIf(count) => *count += if value.as_bool() == Some(true) { times } else { 0 },
            Accumulator::Sum(sum) => *sum = add(*sum, value, times),
            Accumulator::Average { sum, count } => {
                *sum = add(*sum, value, times);
                *count += times;
            }
            Accumulator::Extreme { best, valid, keep } => {
                *valid = *valid && is_primitive_kind(value.kind());
                let is_better = |best: &Value| value.total_cmp(View::Value(best)) == *keep;
                if *valid && best.as_ref().is_none_or(is_better) {
                    kept.keep(value.approximate_size())?;
                    if let Some(worse) = best.replace(datum.into_value()) {
                        kept.release(View::Value(&worse).approximate_size());
                    }
                }
            }
            Accumulator::List(values) => {
                let bytes = value.approximate_size();
                kept.keep(bytes)?;
                let value = datum.into_value();
                for _ in 1..times {
                    kept.keep(bytes)?;
                    values.push(value.clone());
                }
                values.push(value);
            }
            Accumulator::Set { places, values } => {
                let datum = [datum];
                let hash = places.hash(&datum);
                let is_it = |place: usize| {
                    values.get(place).is_some_and(|known| datum[0].view().equals(View::Value(known)))
                };
                if places.find(hash, is_it).is_none() {
                    kept.keep(datum[0].view().approximate_size() + Places::SLOT_BYTES)?;
                    places.insert(hash, values.len());
                    let [datum] = datum;
                    values.push(datum.into_value());
                }
            }
        }
        Ok(())
    }

    pub fn finish(self) -> Value {
        let number = |sum: Option<f64>| sum.map_or(Value::Undefined, Value::from);
        match self {
            Accumulator::Count(count) | Accumulator::CountIf(count) => Value::from(count),
            Accumulator::Sum(sum) => number(sum),
            Accumulator::Average { count: 0, .. } => Value::Undefined,
            Accumulator::Average { sum, count } => number(sum.map(|sum| sum / count as f64)),
            Accumulator::Extreme { valid: false, .. } => Value::Undefined,
            Accumulator::Extreme { best, .. } => best.unwrap_or(Value::Undefined),
            Accumulator::List(values) | Accumulator::Set { values, .. } => Value::Array(values),
        }
    }
}

/// One by one: the sum of doubles is not their product.
fn add(sum: Option<f64>, value: View<'_>, times: u64) -> Option<f64> {
    let number = value.as_number()?.as_f64();
    let mut sum = sum?;
    for _ in 0..times {
        sum += number;
    }
    Some(sum)
}
