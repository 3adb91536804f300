//! The byte form of a workload: numbers as variable-length integers, the rest with its length before it.
//!
//! | type            | bytes                                                             |
//! |-----------------|-------------------------------------------------------------------|
//! | integer         | LEB128                                                            |
//! | double          | 8, little-endian                                                  |
//! | bool, option    | 1 (0 or 1), then the value                                        |
//! | text, list, map | length, then its parts in order                                   |
//! | struct          | its members in the order of the tables at the end of this file    |
//!
//! A workload begins with a format byte; another member takes a new one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::sketch::Histogram;

use super::actions::Patterns;
use super::change_sets::ChangeSets;
use super::growth::{Growth, Versions};
use super::hour::{ExecutionTotals, HourTotals, ItemTotals, OperationCount};
use super::record::{ActionSource, ArrayLength, ItemChange, Operation, Record, RecordedQuery};
use super::sequence::{FollowedRead, SequenceTotals};
use super::shape::{Projection, QueryShape, Scope};

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("corrupt workload")]
pub struct CorruptWorkload;

pub(crate) trait Encode: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn take(input: &mut &[u8]) -> Result<Self, CorruptWorkload>;
}

impl Encode for u64 {
    fn put(&self, out: &mut Vec<u8>) {
        let mut rest = *self;
        while rest >= 0x80 {
            out.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        out.push(rest as u8);
    }

    fn take(input: &mut &[u8]) -> Result<u64, CorruptWorkload> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = take_byte(input)?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(CorruptWorkload)
    }
}

macro_rules! encode_small {
    ($($kind:ty),*) => {$(
        impl Encode for $kind {
            fn put(&self, out: &mut Vec<u8>) {
                u64::from(*self).put(out);
            }
            fn take(input: &mut &[u8]) -> Result<$kind, CorruptWorkload> {
                <$kind>::try_from(u64::take(input)?).map_err(|_| CorruptWorkload)
            }
        }
    )*};
}
encode_small!(u8, u16, u32);

impl Encode for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn take(input: &mut &[u8]) -> Result<bool, CorruptWorkload> {
        match take_byte(input)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(CorruptWorkload),
        }
    }
}

impl Encode for f64 {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend(self.to_le_bytes());
    }
    fn take(input: &mut &[u8]) -> Result<f64, CorruptWorkload> {
        let (bytes, rest) = input.split_first_chunk::<8>().ok_or(CorruptWorkload)?;
        *input = rest;
        Ok(f64::from_le_bytes(*bytes))
    }
}

impl Encode for String {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u64).put(out);
        out.extend(self.as_bytes());
    }
    fn take(input: &mut &[u8]) -> Result<String, CorruptWorkload> {
        let length = take_length(input)?;
        let (bytes, rest) = input.split_at(length);
        *input = rest;
        String::from_utf8(bytes.to_vec()).map_err(|_| CorruptWorkload)
    }
}

impl Encode for Arc<str> {
    fn put(&self, out: &mut Vec<u8>) {
        self.to_string().put(out);
    }
    fn take(input: &mut &[u8]) -> Result<Arc<str>, CorruptWorkload> {
        Ok(Arc::from(String::take(input)?))
    }
}

impl<T: Encode> Encode for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        self.iter().for_each(|value| value.put(out));
    }
    fn take(input: &mut &[u8]) -> Result<Option<T>, CorruptWorkload> {
        bool::take(input)?.then(|| T::take(input)).transpose()
    }
}

impl<T: Encode> Encode for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u64).put(out);
        self.iter().for_each(|value| value.put(out));
    }
    fn take(input: &mut &[u8]) -> Result<Vec<T>, CorruptWorkload> {
        // Every part has a byte or more, so that a length cannot ask for more memory than there are bytes.
        (0..take_length(input)?).map(|_| T::take(input)).collect()
    }
}

impl<T: Encode + Ord> Encode for BTreeSet<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u64).put(out);
        self.iter().for_each(|value| value.put(out));
    }
    fn take(input: &mut &[u8]) -> Result<BTreeSet<T>, CorruptWorkload> {
        (0..take_length(input)?).map(|_| T::take(input)).collect()
    }
}

impl<K: Encode + Ord, V: Encode> Encode for BTreeMap<K, V> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u64).put(out);
        for (key, value) in self {
            key.put(out);
            value.put(out);
        }
    }
    fn take(input: &mut &[u8]) -> Result<BTreeMap<K, V>, CorruptWorkload> {
        (0..take_length(input)?).map(|_| Ok((K::take(input)?, V::take(input)?))).collect()
    }
}

impl<A: Encode, B: Encode> Encode for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }
    fn take(input: &mut &[u8]) -> Result<(A, B), CorruptWorkload> {
        Ok((A::take(input)?, B::take(input)?))
    }
}

impl<A: Encode, B: Encode, C: Encode> Encode for (A, B, C) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
        self.2.put(out);
    }
    fn take(input: &mut &[u8]) -> Result<(A, B, C), CorruptWorkload> {
        Ok((A::take(input)?, B::take(input)?, C::take(input)?))
    }
}

impl<T: Encode + Copy + Default, const N: usize> Encode for [T; N] {
    fn put(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|value| value.put(out));
    }
    fn take(input: &mut &[u8]) -> Result<[T; N], CorruptWorkload> {
        let mut values = [T::default(); N];
        for value in &mut values {
            *value = T::take(input)?;
        }
        Ok(values)
    }
}

impl Encode for Histogram {
    fn put(&self, out: &mut Vec<u8>) {
        self.points().put(out);
        self.max().put(out);
    }
    fn take(input: &mut &[u8]) -> Result<Histogram, CorruptWorkload> {
        let mut histogram = Histogram::default();
        for (value, count) in Vec::<(f64, u64)>::take(input)? {
            histogram.add_many(value, count);
        }
        histogram.raise_max(f64::take(input)?);
        Ok(histogram)
    }
}

fn take_byte(input: &mut &[u8]) -> Result<u8, CorruptWorkload> {
    let (byte, rest) = input.split_first().ok_or(CorruptWorkload)?;
    *input = rest;
    Ok(*byte)
}

fn take_length(input: &mut &[u8]) -> Result<usize, CorruptWorkload> {
    let length = usize::take_from(u64::take(input)?)?;
    if length <= input.len() { Ok(length) } else { Err(CorruptWorkload) }
}

trait TakeFrom: Sized {
    fn take_from(value: u64) -> Result<Self, CorruptWorkload>;
}

impl TakeFrom for usize {
    fn take_from(value: u64) -> Result<usize, CorruptWorkload> {
        usize::try_from(value).map_err(|_| CorruptWorkload)
    }
}

/// Enums by their place in a list.
macro_rules! encode_enum {
    ($kind:ty: $($variant:expr),*) => {
        impl Encode for $kind {
            fn put(&self, out: &mut Vec<u8>) {
                let place = [$($variant),*].iter().position(|variant| variant == self).unwrap_or_default();
                (place as u64).put(out);
            }
            fn take(input: &mut &[u8]) -> Result<$kind, CorruptWorkload> {
                let place = usize::take_from(u64::take(input)?)?;
                [$($variant),*].get(place).copied().ok_or(CorruptWorkload)
            }
        }
    };
}

macro_rules! encode_struct {
    ($kind:ident { $($member:ident),* $(,)? }) => {
        impl Encode for $kind {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$member.put(out);)*
            }
            fn take(input: &mut &[u8]) -> Result<$kind, CorruptWorkload> {
                Ok($kind { $($member: Encode::take(input)?),* })
            }
        }
    };
}

impl Encode for Projection {
    fn put(&self, out: &mut Vec<u8>) {
        let paths = match self {
            Projection::All => None,
            Projection::Paths(paths) => Some(paths.clone()),
        };
        paths.put(out);
    }
    fn take(input: &mut &[u8]) -> Result<Projection, CorruptWorkload> {
        Ok(<Option<Vec<String>> as Encode>::take(input)?.map_or(Projection::All, Projection::Paths))
    }
}

encode_enum!(Scope: Scope::Full, Scope::Prefix, Scope::None);
encode_enum!(ActionSource: ActionSource::Header, ActionSource::Trace, ActionSource::Connection);
encode_enum!(
    Operation: Operation::Read, Operation::Create, Operation::Replace, Operation::Upsert, Operation::Patch,
    Operation::Delete, Operation::Query, Operation::Feed, Operation::Batch, Operation::Procedure
);
encode_struct!(Record {
    time_ms,
    action,
    container,
    operation,
    status,
    sub_status,
    charge,
    bytes,
    micros,
    item,
    id,
    partition_key,
    change,
    query,
    weight,
});
encode_struct!(ItemChange {
    paths,
    size_before,
    size_after,
    if_match,
    lengths,
    element_keys,
    one_number,
    in_batch,
    item_type,
});
encode_struct!(ArrayLength { path, before, after });
encode_struct!(RecordedQuery { shape, execution, rows_read, returned, items, is_last, refused });
encode_struct!(QueryShape {
    id,
    text,
    equality,
    range,
    order_by,
    functions,
    joins,
    aggregates,
    group_by,
    projection,
    scope,
    offset,
    limit,
    used,
    excluded,
});
encode_struct!(ChangeSets { sets, others });
encode_struct!(Growth { items, versions });
encode_struct!(Versions { grew, shrank, added, first_ms, last_ms });
encode_struct!(OperationCount { count, charge, bytes });
encode_struct!(ExecutionTotals { count, charge, rows_read, returned, refused, drained });
encode_struct!(ItemTotals { writes, conflicts, burst, charge, key });
encode_struct!(Patterns {
    writing,
    not_atomic,
    not_atomic_writes,
    lost_updates,
    read_modify_write,
    examples,
});
encode_struct!(SequenceTotals { actions, followed, reads, reached });
encode_struct!(FollowedRead { actions, width, charge, whole, projected });
encode_struct!(HourTotals {
    operations,
    changes,
    size_before,
    size_after,
    shapes,
    creates,
    create_keys,
    throttled,
    throttled_keys,
    used_keys,
    items,
    element_keys,
    if_match,
    minutes,
    key_moves,
    patterns,
    sequences,
});
