//! Aggregates. All skip undefined values.

use quire_value::Value;

use crate::data::{Datum, Fields, KeyIndex, ValueRef, put_double, put_number, put_value};
use crate::error::SqlError;
use crate::limits::RetainedMemory;

use super::type_check::is_primitive_kind;
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

/// The state of an aggregate over the values so far.
pub(crate) enum Accumulator {
    Count(u64),
    CountIf(u64),
    Sum(Total),
    Average { total: Total, count: u64 },
    Extreme { best: Option<Value>, valid: bool, keep: std::cmp::Ordering },
    List(Vec<Value>),
    Set { index: KeyIndex, values: Vec<Value> },
}

/// A sum of doubles. The result depends on the order, so values are added in the order in which they come.
pub(crate) struct Total {
    /// `None`: one of the values was not a number.
    sum: Option<f64>,
    /// Numbers with their multiplicities, to be added after an earlier sum that is not known here.
    pending: Option<Vec<(f64, u64)>>,
}

impl Total {
    fn new(is_later: bool) -> Total {
        Total { sum: Some(0.0), pending: is_later.then(Vec::new) }
    }

    fn push(&mut self, value: ValueRef<'_>, times: u64, kept: &RetainedMemory<'_>) -> Result<(), SqlError> {
        match (value.as_number(), &mut self.pending) {
            (None, _) => self.sum = None,
            (Some(number), None) => self.add(number.as_f64(), times),
            (Some(number), Some(pending)) if self.sum.is_some() => {
                kept.retain_bytes(std::mem::size_of::<(f64, u64)>())?;
                pending.push((number.as_f64(), times));
            }
            _ => {}
        }
        Ok(())
    }

    /// Adds one by one: a product would round differently.
    fn add(&mut self, number: f64, times: u64) {
        let Some(sum) = &mut self.sum else { return };
        for _ in 0..times {
            *sum += number;
        }
    }

    fn merge(&mut self, later: Total) {
        later.pending.into_iter().flatten().for_each(|(number, times)| self.add(number, times));
        self.sum = self.sum.filter(|_| later.sum.is_some());
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.sum.is_some()));
        put_double(self.sum.unwrap_or_default(), out);
        let pending = self.pending.as_deref().unwrap_or_default();
        put_number(pending.len() as u64, out);
        for (number, times) in pending {
            put_double(*number, out);
            put_number(*times, out);
        }
    }

    /// `is_later` as when it was created.
    fn decode(fields: &mut Fields<'_>, is_later: bool) -> Result<Total, SqlError> {
        let (is_number, sum) = (fields.flag()?, fields.double()?);
        let pending = (0..fields.number()?).map(|_| Ok((fields.double()?, fields.number()?)));
        let pending = pending.collect::<Result<Vec<(f64, u64)>, SqlError>>()?;
        Ok(Total { sum: is_number.then_some(sum), pending: is_later.then_some(pending) })
    }
}

impl Accumulator {
    pub fn new(aggregate: Aggregate) -> Accumulator {
        Accumulator::start(aggregate, false)
    }

    /// For values that follow others not seen here. To be [merged](Accumulator::merge).
    pub fn later(aggregate: Aggregate) -> Accumulator {
        Accumulator::start(aggregate, true)
    }

    fn start(aggregate: Aggregate, is_later: bool) -> Accumulator {
        use std::cmp::Ordering;
        match aggregate {
            Aggregate::Count => Accumulator::Count(0),
            Aggregate::CountIf => Accumulator::CountIf(0),
            Aggregate::Sum => Accumulator::Sum(Total::new(is_later)),
            Aggregate::Average => Accumulator::Average { total: Total::new(is_later), count: 0 },
            Aggregate::Min => Accumulator::Extreme { best: None, valid: true, keep: Ordering::Less },
            Aggregate::Max => Accumulator::Extreme { best: None, valid: true, keep: Ordering::Greater },
            Aggregate::MakeList => Accumulator::List(Vec::new()),
            Aggregate::MakeSet => Accumulator::Set { index: KeyIndex::default(), values: Vec::new() },
        }
    }

    /// Adds a value `times` times, with the same result as `times` separate calls. Memory is counted in `kept`.
    pub fn push(&mut self, datum: Datum<'_>, times: u64, kept: &RetainedMemory<'_>) -> Result<(), SqlError> {
        let value = datum.value_ref();
        if value.is_undefined() {
            return Ok(());
        }
        match self {
            Accumulator::Count(count) => *count += times,
            Accumulator::CountIf(count) => *count += if value.as_bool() == Some(true) { times } else { 0 },
            Accumulator::Sum(total) => total.push(value, times, kept)?,
            Accumulator::Average { total, count } => {
                total.push(value, times, kept)?;
                *count += times;
            }
            Accumulator::Extreme { best, valid, keep } => {
                *valid = *valid && is_primitive_kind(value.kind());
                let is_better = |best: &Value| value.total_cmp(ValueRef::Value(best)) == *keep;
                if *valid && best.as_ref().is_none_or(is_better) {
                    kept.retain_bytes(value.approximate_size())?;
                    if let Some(worse) = best.replace(datum.into_value()) {
                        kept.release(ValueRef::Value(&worse).approximate_size());
                    }
                }
            }
            Accumulator::List(values) => {
                let bytes = value.approximate_size();
                kept.retain_bytes(bytes)?;
                let value = datum.into_value();
                for _ in 1..times {
                    kept.retain_bytes(bytes)?;
                    values.push(value.clone());
                }
                values.push(value);
            }
            Accumulator::Set { index, values } => {
                let datum = [datum];
                let hash = index.hash(&datum);
                let is_equal = |position: usize| {
                    values
                        .get(position)
                        .is_some_and(|known| datum[0].value_ref().equals(ValueRef::Value(known)))
                };
                if index.find(hash, is_equal).is_none() {
                    kept.retain_bytes(datum[0].value_ref().approximate_size() + KeyIndex::SLOT_BYTES)?;
                    index.insert(hash, values.len());
                    let [datum] = datum;
                    values.push(datum.into_value());
                }
            }
        }
        Ok(())
    }

    /// Adds the values of a later accumulator, with the same result as adding them one by one.
    pub fn merge(&mut self, later: Accumulator, kept: &RetainedMemory<'_>) -> Result<(), SqlError> {
        match (&mut *self, later) {
            (Accumulator::Count(count), Accumulator::Count(more))
            | (Accumulator::CountIf(count), Accumulator::CountIf(more)) => *count += more,
            (Accumulator::Sum(total), Accumulator::Sum(later)) => total.merge(later),
            (Accumulator::Average { total, count }, Accumulator::Average { total: later, count: more }) => {
                total.merge(later);
                *count += more;
            }
            (
                Accumulator::Extreme { valid, .. },
                Accumulator::Extreme { best: later, valid: later_valid, .. },
            ) => {
                *valid = *valid && later_valid;
                if let Some(value) = later {
                    self.push(Datum::Owned(value), 1, kept)?;
                }
            }
            (Accumulator::List(_), Accumulator::List(values))
            | (Accumulator::Set { .. }, Accumulator::Set { values, .. }) => {
                for value in values {
                    self.push(Datum::Owned(value), 1, kept)?;
                }
            }
            _ => return Err(crate::data::invalid_record()),
        }
        Ok(())
    }

    /// Appends its state, for [`Accumulator::decode`].
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Accumulator::Count(count) | Accumulator::CountIf(count) => put_number(*count, out),
            Accumulator::Sum(total) => total.encode(out),
            Accumulator::Average { total, count } => {
                total.encode(out);
                put_number(*count, out);
            }
            Accumulator::Extreme { best, valid, .. } => {
                out.push(u8::from(*valid));
                put_value(best.as_ref().unwrap_or(&Value::Undefined), out);
            }
            Accumulator::List(values) | Accumulator::Set { values, .. } => {
                put_number(values.len() as u64, out);
                values.iter().for_each(|value| put_value(value, out));
            }
        }
    }

    /// Reads a state. Its memory is counted in `kept`. `is_later`: created by [`Accumulator::later`].
    pub fn decode(
        aggregate: Aggregate,
        is_later: bool,
        fields: &mut Fields<'_>,
        kept: &RetainedMemory<'_>,
    ) -> Result<Accumulator, SqlError> {
        let mut taken = Accumulator::start(aggregate, is_later);
        match &mut taken {
            Accumulator::Count(count) | Accumulator::CountIf(count) => *count = fields.number()?,
            Accumulator::Sum(total) => *total = Total::decode(fields, is_later)?,
            Accumulator::Average { total, count } => {
                *total = Total::decode(fields, is_later)?;
                *count = fields.number()?;
            }
            Accumulator::Extreme { best, valid, .. } => {
                *valid = fields.flag()?;
                let value = fields.value()?;
                kept.retain_bytes(ValueRef::Value(&value).approximate_size())?;
                *best = Some(value).filter(|value| !value.is_undefined());
            }
            Accumulator::List(_) | Accumulator::Set { .. } => {
                for _ in 0..fields.number()? {
                    taken.push(Datum::Owned(fields.value()?), 1, kept)?;
                }
            }
        }
        Ok(taken)
    }

    pub fn finish(self) -> Value {
        let number = |sum: Option<f64>| sum.map_or(Value::Undefined, Value::from);
        match self {
            Accumulator::Count(count) | Accumulator::CountIf(count) => Value::from(count),
            Accumulator::Sum(total) => number(total.sum),
            Accumulator::Average { count: 0, .. } => Value::Undefined,
            Accumulator::Average { total, count } => number(total.sum.map(|sum| sum / count as f64)),
            Accumulator::Extreme { valid: false, .. } => Value::Undefined,
            Accumulator::Extreme { best, .. } => best.unwrap_or(Value::Undefined),
            Accumulator::List(values) | Accumulator::Set { values, .. } => Value::Array(values),
        }
    }
}
