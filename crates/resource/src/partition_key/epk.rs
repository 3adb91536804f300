//! Effective partition keys: the position of a key in a container's hash space.
//!
//! A component has two encodings (`UTF-8` is the string's bytes):
//!
//! | type                          | for hashing, V2 / V1                           | ordered                      |
//! |-------------------------------|------------------------------------------------|------------------------------|
//! | undefined, null, false, true  | marker                                         | marker                       |
//! | number                        | marker, f64 little-endian                      | marker, `encode_number`      |
//! | string                        | marker, UTF-8, `FF` / marker, UTF-8, `00`      | marker, UTF-8 + 1 each, `00` |
//!
//! V2 is the 128-bit hash of all components with its top two bits cleared; `MultiHash` is V2 of each component,
//! joined; V1 is the 32-bit hash as an ordered number, then the ordered components; `Range` is the ordered
//! components alone. Clients compute the same bytes.

use std::cell::RefCell;

use quire_value::murmur::{murmur32, murmur128};

use super::key::one_zero;
use super::{Component, PartitionKeyDefinition, PartitionKeyKind};

pub(crate) const UNDEFINED: u8 = 0x00;
pub(crate) const NULL: u8 = 0x01;
pub(crate) const FALSE: u8 = 0x02;
pub(crate) const TRUE: u8 = 0x03;
pub(crate) const NUMBER: u8 = 0x05;
pub(crate) const STRING: u8 = 0x08;
const MAXIMUM: u8 = 0xFF;

const STRING_TERMINATOR_V2: u8 = 0xFF;
const STRING_TERMINATOR_V1: u8 = 0x00;
const STRING_LENGTH_MAX_V1: usize = 100; // UTF-16 code units
const STRING_LENGTH_MAX_ORDERED_BYTES: usize = 100;

const RID_PREFIX_MAX: u32 = (1 << 24) - 1;

/// Bytes whose upper-case hex is the EPK of the protocol; ordered bytewise like the hex. `""` is the minimum.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EffectivePartitionKey(pub Vec<u8>);

/// Half-open; the maximum is the single byte `FF`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpkRange {
    pub min: EffectivePartitionKey,
    pub max: EffectivePartitionKey,
}

impl EffectivePartitionKey {
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02X}")).collect()
    }

    /// Also accepts an odd number of digits (clients write bounds by hand): as text, `1F3` is just before `1F30`.
    pub fn from_hex(text: &str) -> Option<EffectivePartitionKey> {
        let digit = |digit: u8| (digit as char).to_digit(16).map(|value| value as u8);
        let bytes = text.as_bytes().chunks(2).map(|pair| {
            let low = pair.get(1).map_or(Some(0), |low| digit(*low))?;
            Some(digit(pair[0])? << 4 | low)
        });
        bytes.collect::<Option<Vec<u8>>>().map(EffectivePartitionKey)
    }

    pub fn maximum() -> EffectivePartitionKey {
        EffectivePartitionKey(vec![MAXIMUM])
    }

    /// 24 bits that order like effective keys: the top of the first hash. For item rids.
    pub fn rid_prefix(&self, kind: PartitionKeyKind, version: u8) -> u32 {
        let mut top = [0; 4];
        let known = self.0.len().min(4);
        top[..known].copy_from_slice(&self.0[..known]);
        let top = u32::from_be_bytes(top);
        match (kind, version) {
            (PartitionKeyKind::Range, _) => top >> 8,
            (PartitionKeyKind::Hash, 1) => self.rid_prefix_v1(),
            // After the two bits that are always zero in a key, though not in a bound.
            (PartitionKeyKind::Hash | PartitionKeyKind::MultiHash, _) => (top >> 6).min(RID_PREFIX_MAX),
        }
    }

    /// A bound below all keys with this rid prefix (see [`EffectivePartitionKey::rid_prefix`]) and above all with a
    /// smaller one.
    pub fn of_rid_prefix(kind: PartitionKeyKind, version: u8, prefix: u32) -> EffectivePartitionKey {
        let mut floor = Vec::with_capacity(16);
        prefix_floor(kind, version, prefix, &mut floor);
        let is_hash = kind != PartitionKeyKind::Range && (kind, version) != (PartitionKeyKind::Hash, 1);
        if is_hash && prefix > 0 {
            floor.resize(16, 0); // as long as a hash: no key is shorter but the empty one
        }
        EffectivePartitionKey(floor)
    }

    /// By search, since a bound need not contain a complete number.
    fn rid_prefix_v1(&self) -> u32 {
        let mut floor = Vec::with_capacity(16);
        let prefix = first_prefix(|prefix| {
            prefix_floor(PartitionKeyKind::Hash, 1, prefix + 1, &mut floor);
            floor.as_slice() > self.0.as_slice()
        });
        prefix.min(RID_PREFIX_MAX)
    }
}

impl EpkRange {
    pub fn full() -> EpkRange {
        EpkRange { min: EffectivePartitionKey::default(), max: EffectivePartitionKey::maximum() }
    }

    pub fn contains(&self, key: &EffectivePartitionKey) -> bool {
        self.min <= *key && *key < self.max
    }

    pub fn intersect(&self, other: &EpkRange) -> Option<EpkRange> {
        let min = std::cmp::max(&self.min, &other.min);
        let max = std::cmp::min(&self.max, &other.max);
        (min < max).then(|| EpkRange { min: min.clone(), max: max.clone() })
    }

    /// Everything under a hierarchical prefix: `[H, H FF)`.
    pub fn of_prefix(prefix: &EffectivePartitionKey) -> EpkRange {
        let mut max = prefix.clone();
        max.0.push(MAXIMUM);
        EpkRange { min: prefix.clone(), max }
    }

    /// `count` ranges that cover "" .. "FF" without gaps, evenly over the part that the hash of `definition` uses.
    pub fn split_evenly(definition: &PartitionKeyDefinition, count: usize) -> Vec<EpkRange> {
        let count = count.max(1);
        let mut ranges = Vec::with_capacity(count);
        let mut min = EffectivePartitionKey::default();
        for index in 1..count {
            let max = boundary(definition, index, count);
            ranges.push(EpkRange { min, max: max.clone() });
            min = max;
        }
        ranges.push(EpkRange { min, max: EffectivePartitionKey::maximum() });
        ranges
    }

    /// Smallest and largest 24-bit item rid prefix (see [`PartitionKeyDefinition::rid_prefix`]) that can occur in
    /// this range. If smallest is above largest, none can.
    pub fn rid_prefixes(&self, kind: PartitionKeyKind, version: u8) -> (u32, u32) {
        let mut floor = Vec::with_capacity(16);
        let beyond = first_prefix(|prefix| {
            prefix_floor(kind, version, prefix, &mut floor);
            floor >= self.max.0
        });
        if beyond == 0 {
            return (1, 0);
        }
        (self.min.rid_prefix(kind, version), beyond - 1)
    }
}

/// The smallest prefix for which `holds` is true (it must be monotonic); one more than the largest if none.
fn first_prefix(mut holds: impl FnMut(u32) -> bool) -> u32 {
    let (mut low, mut high) = (0, RID_PREFIX_MAX + 1);
    while low < high {
        let middle = (low + high) / 2;
        if holds(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

/// A lower bound of the effective keys with this rid prefix that is above all keys with a smaller one. Zero bytes
/// at the end are left out: a key that stops earlier has the same prefix.
fn prefix_floor(kind: PartitionKeyKind, version: u8, prefix: u32, floor: &mut Vec<u8>) {
    floor.clear();
    if prefix > RID_PREFIX_MAX {
        return floor.push(MAXIMUM);
    }
    match (kind, version) {
        (PartitionKeyKind::Range, _) => floor.extend(&prefix.to_be_bytes()[1..]),
        (PartitionKeyKind::Hash, 1) => encode_number(f64::from(prefix << 8), floor),
        // The 24 bits after the two that are always zero.
        (PartitionKeyKind::Hash | PartitionKeyKind::MultiHash, _) => {
            floor.extend((prefix << 6).to_be_bytes())
        }
    }
    while floor.last() == Some(&0) {
        floor.pop();
    }
}

/// Last value of part `index` of `count`, so two parts of the V2 space meet at `1FFF…`, as in the service.
fn boundary(definition: &PartitionKeyDefinition, index: usize, count: usize) -> EffectivePartitionKey {
    let mut key = Vec::with_capacity(16);
    match (definition.kind, definition.version) {
        // These keys are not hashed. Most are strings of printable ASCII: their first bytes after the marker.
        (PartitionKeyKind::Range, _) => {
            const FIRST: u32 = 0x0821_0000;
            const LAST: u32 = 0x0880_0000;
            let offset = part(u128::from(LAST - FIRST), index, count) as u32;
            key.extend((FIRST + offset).to_be_bytes());
        }
        (PartitionKeyKind::Hash, 1) => {
            encode_number((part(1 << 32, index, count) - 1) as u32 as f64, &mut key);
        }
        (PartitionKeyKind::Hash | PartitionKeyKind::MultiHash, _) => {
            key.extend((part(1 << 126, index, count) - 1).to_be_bytes());
        }
    }
    EffectivePartitionKey(key)
}

/// `whole * index / count`, rounded down, without overflow.
fn part(whole: u128, index: usize, count: usize) -> u128 {
    let (index, count) = (index as u128, count as u128);
    whole / count * index + whole % count * index / count
}

pub(crate) fn effective(
    kind: PartitionKeyKind,
    version: u8,
    components: &[Component],
) -> EffectivePartitionKey {
    let mut key = Vec::with_capacity(16 * components.len());
    match (kind, version) {
        _ if components.is_empty() => {}
        (PartitionKeyKind::Range, _) => encode_ordered(components, &mut key),
        (PartitionKeyKind::Hash, 1) => {
            encode_number(f64::from(hash_v1(components)), &mut key);
            encode_ordered(components, &mut key);
        }
        (PartitionKeyKind::Hash, _) => key.extend(hash_v2(components)),
        (PartitionKeyKind::MultiHash, _) => {
            key.extend(components.iter().flat_map(|component| hash_v2(std::slice::from_ref(component))));
        }
    }
    EffectivePartitionKey(key)
}

fn hash_v2(components: &[Component]) -> [u8; 16] {
    thread_local! {
        static BYTES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    let (low, high) = BYTES.with_borrow_mut(|bytes| {
        bytes.clear();
        for component in components {
            encode_for_hash(component, STRING_TERMINATOR_V2, bytes);
        }
        murmur128(bytes)
    });
    // Low half first, little-endian, then all 16 bytes reversed: big-endian with the high half first.
    let mut hash = (u128::from(high) << 64 | u128::from(low)).to_be_bytes();
    hash[0] &= 0x3F;
    hash
}

fn hash_v1(components: &[Component]) -> u32 {
    let mut bytes = Vec::with_capacity(64);
    for component in components {
        encode_for_hash(component, STRING_TERMINATOR_V1, &mut bytes);
    }
    murmur32(&bytes)
}

fn encode_for_hash(component: &Component, string_terminator: u8, out: &mut Vec<u8>) {
    match component {
        Component::Undefined => out.push(UNDEFINED),
        Component::Null => out.push(NULL),
        Component::Bool(false) => out.push(FALSE),
        Component::Bool(true) => out.push(TRUE),
        Component::Number(value) => {
            out.push(NUMBER);
            out.extend(one_zero(*value).to_bits().to_le_bytes());
        }
        Component::String(text) => {
            let hashed = if string_terminator == STRING_TERMINATOR_V1 { truncate_v1(text) } else { text };
            out.push(STRING);
            out.extend(hashed.as_bytes());
            out.push(string_terminator);
        }
    }
}

fn encode_ordered(components: &[Component], out: &mut Vec<u8>) {
    for component in components {
        match component {
            Component::Undefined => out.push(UNDEFINED),
            Component::Null => out.push(NULL),
            Component::Bool(false) => out.push(FALSE),
            Component::Bool(true) => out.push(TRUE),
            Component::Number(value) => encode_number(one_zero(*value), out),
            Component::String(text) => encode_ordered_string(truncate_v1(text), out),
        }
    }
}

/// The marker, 8 bits of the order-preserving form of the bits, then 7 bits per byte, of which all but the last
/// have their lowest bit set.
fn encode_number(value: f64, out: &mut Vec<u8>) {
    let bits = value.to_bits();
    let mut payload = if bits >> 63 == 0 { bits ^ 1 << 63 } else { (!bits).wrapping_add(1) };
    out.push(NUMBER);
    out.push((payload >> 56) as u8);
    payload <<= 8;
    loop {
        let byte = (payload >> 56) as u8;
        payload <<= 7;
        if payload == 0 {
            return out.push(byte & !1);
        }
        out.push(byte | 1);
    }
}

fn encode_ordered_string(text: &str, out: &mut Vec<u8>) {
    let bytes = text.as_bytes();
    let short = bytes.len() <= STRING_LENGTH_MAX_ORDERED_BYTES;
    let kept = if short { bytes } else { &bytes[..=STRING_LENGTH_MAX_ORDERED_BYTES] };
    out.push(STRING);
    out.extend(kept.iter().map(|byte| byte.wrapping_add(1)));
    if short {
        out.push(0);
    }
}

/// At most 100 UTF-16 code units, whole characters.
fn truncate_v1(text: &str) -> &str {
    let mut units = 0;
    for (index, character) in text.char_indices() {
        units += character.len_utf16();
        if units > STRING_LENGTH_MAX_V1 {
            return &text[..index];
        }
    }
    text
}

#[cfg(test)]
mod tests;
