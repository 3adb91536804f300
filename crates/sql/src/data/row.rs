//! The output of a query.

use std::hash::{BuildHasher, Hasher, RandomState};

use quire_value::{Kind, Object, Value, text};

use crate::error::SqlError;

use super::datum::{Datum, ValueRef, sum_members};

/// A row with more members is not called small.
const SMALL_MEMBERS_MAX: usize = 8;

/// A row that still borrows its parts. Written as JSON without building a value first.
pub struct Row<'a>(pub(crate) RowForm<'a>);

pub(crate) enum RowForm<'a> {
    Datum(Datum<'a>),
    /// The defined properties of a select list. All names differ.
    Members(Vec<(&'a str, Datum<'a>)>),
}

impl<'a> Row<'a> {
    /// Appends compact JSON text. Leaves out what has no JSON form (`undefined`, NaN, infinity).
    pub fn write_json(&self, out: &mut Vec<u8>) {
        match &self.0 {
            RowForm::Datum(datum) => datum.write_json(out),
            RowForm::Members(members) => write_members(members, out),
        }
    }

    pub fn to_value(&self) -> Value {
        self.reborrow().into_value()
    }

    /// Refuses a row that contains NaN or an infinity: it has no JSON form.
    pub fn check(&self) -> Result<(), SqlError> {
        let is_finite = match &self.0 {
            RowForm::Datum(datum) => datum.is_finite(),
            RowForm::Members(members) => members.iter().all(|(_, datum)| datum.is_finite()),
        };
        if is_finite { Ok(()) } else { Err(SqlError::NotRepresentable) }
    }

    pub(crate) fn into_datum(self) -> Datum<'a> {
        match self.0 {
            RowForm::Datum(datum) => datum,
            RowForm::Members(_) => Datum::Owned(self.into_value()),
        }
    }

    /// Whether a copy is needed to make it one value.
    pub(crate) fn is_in_parts(&self) -> bool {
        matches!(self.0, RowForm::Members(_))
    }

    /// The value as evaluated, including what has no JSON form.
    pub(crate) fn into_value(self) -> Value {
        match self.0 {
            RowForm::Datum(datum) => datum.into_value(),
            RowForm::Members(members) => {
                let members = members.into_iter().map(|(name, datum)| (name, datum.into_value()));
                Value::Object(members.collect::<Object>())
            }
        }
    }

    /// The same row, borrowed.
    pub(crate) fn reborrow(&self) -> Row<'_> {
        Row(match &self.0 {
            RowForm::Datum(datum) => RowForm::Datum(Datum::Borrowed(datum.value_ref())),
            RowForm::Members(members) => RowForm::Members(
                members.iter().map(|(name, datum)| (*name, Datum::Borrowed(datum.value_ref()))).collect(),
            ),
        })
    }

    pub(crate) fn is_undefined(&self) -> bool {
        matches!(&self.0, RowForm::Datum(datum) if datum.is_undefined())
    }

    /// Whether all of it is surely small, without a look at each value: scalars, and parts of stored items, of at most so many bytes.
    pub fn is_small(&self, bytes_max: usize) -> bool {
        match &self.0 {
            RowForm::Datum(datum) => datum.is_small(bytes_max),
            RowForm::Members(members) => {
                members.len() <= SMALL_MEMBERS_MAX
                    && members
                        .iter()
                        .all(|(name, datum)| name.len() <= bytes_max && datum.is_small(bytes_max))
            }
        }
    }

    /// The estimated memory of an owned copy.
    pub fn approximate_size(&self) -> usize {
        match &self.0 {
            RowForm::Datum(datum) => datum.approximate_size(),
            RowForm::Members(members) => members
                .iter()
                .map(|(name, datum)| name.len() + 2 * std::mem::size_of::<Value>() + datum.approximate_size())
                .sum(),
        }
    }

    pub(crate) fn equals(&self, value: &Value) -> bool {
        match &self.0 {
            RowForm::Datum(datum) => datum.value_ref().equals(ValueRef::Value(value)),
            RowForm::Members(members) => {
                value.as_object().is_some_and(|object| same_members(members, object))
            }
        }
    }

    /// The hash of its value.
    pub(crate) fn hash(&self, random: &RandomState) -> u64 {
        let mut hasher = random.build_hasher();
        match &self.0 {
            RowForm::Datum(datum) => datum.value_ref().hash_with(random, &mut hasher),
            RowForm::Members(members) => {
                std::hash::Hash::hash(&Kind::Object, &mut hasher);
                let members = members.iter().map(|(name, datum)| (*name, datum.value_ref()));
                hasher.write_u64(sum_members(members, random));
            }
        }
        hasher.finish()
    }
}

impl<'a> From<Datum<'a>> for Row<'a> {
    fn from(datum: Datum<'a>) -> Row<'a> {
        Row(RowForm::Datum(datum))
    }
}

/// Rows of one select list usually have their names in the same order, so a search by name is the exception.
fn same_members(members: &[(&str, Datum<'_>)], object: &Object) -> bool {
    if members.len() != object.len() {
        return false;
    }
    let equal = |name: &str, datum: &Datum<'_>, other: (&str, &Value)| {
        let value = if other.0 == name { Some(other.1) } else { object.get(name) };
        value.is_some_and(|value| datum.value_ref().equals(ValueRef::Value(value)))
    };
    members.iter().zip(object.iter()).all(|((name, datum), other)| equal(name, datum, other))
}

fn write_members(members: &[(&str, Datum<'_>)], out: &mut Vec<u8>) {
    out.push(b'{');
    let written = members.iter().filter(|(_, datum)| datum.is_json());
    for (index, (name, datum)) in written.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        text::write_string(name, out);
        out.push(b':');
        datum.write_json(out);
    }
    out.push(b'}');
}
