//! Aggregates: every one skips undefined values.

use std::borrow::Cow;
use std::collections::HashSet;

use quire_value::Value;

use super::type_check::is_primitive;
use super::{Function, Implementation, IndexUse, exactly, row};

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
        seen: HashSet<Value>,
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
            Aggregate::MakeSet => Accumulator::Set { seen: HashSet::new(), values: Vec::new() },
        }
    }

    /// Takes one value; says whether it is kept, so that its size counts.
    pub fn push(&mut self, value: Cow<'_, Value>) -> bool {
        if value.is_undefined() {
            return false;
        }
        match self {
            Accumulator::Count(count) => *count += 1,
            Accumulator::CountIf(count) => *count += u64::from(*value == Value::Bool(true)),
            Accumulator::Sum(sum) => *sum = add(*sum, &value),
            Accumulator::Average { sum, count } => {
                *sum = add(*sum, &value);
                *count += 1;
            }
            Accumulator::Extreme { best, valid, keep } => {
                *valid = *valid && is_primitive(&value);
                if *valid && best.as_ref().is_none_or(|best| value.total_cmp(best) == *keep) {
                    *best = Some(value.into_owned());
                }
            }
            Accumulator::List(values) => {
                values.push(value.into_owned());
                return true;
            }
            Accumulator::Set { seen, values } => {
                if seen.contains(&*value) {
                    return false;
                }
                let value = value.into_owned();
                seen.insert(value.clone());
                values.push(value);
                return true;
            }
        }
        false
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

fn add(sum: Option<f64>, value: &Value) -> Option<f64> {
    Some(sum? + value.as_number()?.as_f64())
}
