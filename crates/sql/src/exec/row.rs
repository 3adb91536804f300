//! What comes out of a query.

use std::hash::{BuildHasher, Hasher, RandomState};

use quire_value::{Kind, Object, Value, text};

use super::datum::{Datum, View, sum_members};

/// A row, still where its parts lie: written as JSON without becoming a value first.
pub struct Row<'a>(pub(super) Shape<'a>);

pub(super) enum Shape<'a> {
    Datum(Datum<'a>),
    /// The defined properties of a select list, whose names all differ.
    Members(Vec<(&'a str, Datum<'a>)>),
}

impl<'a> Row<'a> {
    /// Appends compact JSON text, without what has no JSON form (`undefined`, NaN, infinity).
    pub fn write_json(&self, out: &mut Vec<u8>) {
        match &self.0 {
            Shape::Datum(datum) => datum.view().write_json(out),
            Shape::Members(members) => write_members(members, out),
        }
    }

    /// The row without what has no JSON form.
    pub fn to_value(&self) -> Value {
        let mut value = self.again().into_value();
        drop_non_finite(&mut value);
        value
    }

    pub(super) fn into_datum(self) -> Datum<'a> {
        match self.0 {
            Shape::Datum(datum) => datum,
            Shape::Members(_) => Datum::Owned(self.into_value()),
        }
    }

    /// As evaluated, with what has no JSON form.
    pub(super) fn into_value(self) -> Value {
        match self.0 {
            Shape::Datum(datum) => datum.into_value(),
            Shape::Members(members) => {
                let members = members.into_iter().map(|(name, datum)| (name, datum.into_value()));
                Value::Object(members.collect::<Object>())
            }
        }
    }

    /// The same row, borrowed.
    pub(super) fn again(&self) -> Row<'_> {
        Row(match &self.0 {
            Shape::Datum(datum) => Shape::Datum(Datum::Borrowed(datum.view())),
            Shape::Members(members) => Shape::Members(
                members.iter().map(|(name, datum)| (*name, Datum::Borrowed(datum.view()))).collect(),
            ),
        })
    }

    pub(super) fn is_undefined(&self) -> bool {
        matches!(&self.0, Shape::Datum(datum) if datum.is_undefined())
    }

    pub(crate) fn is_json(&self) -> bool {
        match &self.0 {
            Shape::Datum(datum) => datum.view().is_json(),
            Shape::Members(_) => true,
        }
    }

    pub(super) fn equals(&self, value: &Value) -> bool {
        match &self.0 {
            Shape::Datum(datum) => datum.view().equals(View::Value(value)),
            Shape::Members(members) => value.as_object().is_some_and(|object| same_members(members, object)),
        }
    }

    /// That of the value.
    pub(super) fn hash(&self, random: &RandomState) -> u64 {
        let mut hasher = random.build_hasher();
        match &self.0 {
            Shape::Datum(datum) => datum.view().hash_with(random, &mut hasher),
            Shape::Members(members) => {
                std::hash::Hash::hash(&Kind::Object, &mut hasher);
                let members = members.iter().map(|(name, datum)| (*name, datum.view()));
                hasher.write_u64(sum_members(members, random));
            }
        }
        hasher.finish()
    }
}

impl<'a> From<Datum<'a>> for Row<'a> {
    fn from(datum: Datum<'a>) -> Row<'a> {
        Row(Shape::Datum(datum))
    }
}

/// Rows of one select list have their names in one order, so looking for names is the exception.
fn same_members(members: &[(&str, Datum<'_>)], object: &Object) -> bool {
    if members.len() != object.len() {
        return false;
    }
    let equal = |name: &str, datum: &Datum<'_>, other: (&str, &Value)| {
        let value = if other.0 == name { Some(other.1) } else { object.get(name) };
        value.is_some_and(|value| datum.view().equals(View::Value(value)))
    };
    members.iter().zip(object.iter()).all(|((name, datum), other)| equal(name, datum, other))
}

fn write_members(members: &[(&str, Datum<'_>)], out: &mut Vec<u8>) {
    out.push(b'{');
    let written = members.iter().filter(|(_, datum)| datum.view().is_json());
    for (index, (name, datum)) in written.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        text::write_string(name, out);
        out.push(b':');
        datum.view().write_json(out);
    }
    out.push(b'}');
}

/// NaN and infinities have no JSON form: they are left out like `undefined`.
fn drop_non_finite(value: &mut Value) {
    match value {
        Value::Number(number) if !number.is_finite() => *value = Value::Undefined,
        Value::Array(elements) => {
            elements.iter_mut().for_each(drop_non_finite);
            elements.retain(|element| !element.is_undefined());
        }
        Value::Object(object) => {
            let mut dropped = false;
            for (_, property) in object.iter_mut() {
                drop_non_finite(property);
                dropped |= property.is_undefined();
            }
            if dropped {
                let members = std::mem::take(object).into_iter();
                *object = members.filter(|(_, property)| !property.is_undefined()).collect();
            }
        }
        _ => {}
    }
}
