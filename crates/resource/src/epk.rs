//! Effective partition keys: where a key lies in a container's hash space.
//!
//! Let a component be written in two ways (`UTF-8` is the string's bytes):
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

use quire_value::murmur::{murmur32, murmur128};

use crate::partition_key::one_zero;
use crate::{Component, PartitionKeyDefinition, PartitionKeyKind};

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

    /// Accepts an odd number of digits too (clients write bounds by hand): as text, `1F3` is just before `1F30`.
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

    /// By search, since a bound need not hold a whole number.
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

    /// `count` ranges that tile "" .. "FF", evenly over the space that `definition`'s hash really uses.
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

    /// Smallest and largest 24-bit item rid prefix (see [`PartitionKeyDefinition::rid_prefix`]) that can occur in this
    /// range. Smallest above largest: none can.
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

/// The smallest prefix for which `holds`, which must stay true once it is; one more than the largest if none.
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
        // No hash spreads these keys. Most are strings of printable ASCII: their first bytes after the marker.
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
    let mut bytes = Vec::with_capacity(64);
    for component in components {
        encode_for_hash(component, STRING_TERMINATOR_V2, &mut bytes);
    }
    let (low, high) = murmur128(&bytes);
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
mod tests {
    use expect_test::{Expect, expect};
    use proptest::prelude::*;
    use quire_value::{Path, Segment};

    use super::*;
    use crate::PartitionKey;

    fn definition(kind: PartitionKeyKind, version: u8) -> PartitionKeyDefinition {
        let paths = vec![Path(vec![Segment::Name("pk".to_owned())])];
        PartitionKeyDefinition { paths, kind, version, version_given: true, system_key: false }
    }

    const V1: (PartitionKeyKind, u8) = (PartitionKeyKind::Hash, 1);
    const V2: (PartitionKeyKind, u8) = (PartitionKeyKind::Hash, 2);
    const MULTI: (PartitionKeyKind, u8) = (PartitionKeyKind::MultiHash, 2);
    const RANGE: (PartitionKeyKind, u8) = (PartitionKeyKind::Range, 1);

    fn hex(scheme: (PartitionKeyKind, u8), header: &str) -> String {
        let key = PartitionKey::from_header(header).unwrap();
        effective(scheme.0, scheme.1, &key.0).to_hex()
    }

    fn check(scheme: (PartitionKeyKind, u8), vectors: &[(&str, &str)]) {
        for (header, expected) in vectors {
            assert_eq!(hex(scheme, header), *expected, "{header}");
        }
    }

    fn letters(count: usize) -> String {
        format!(r#"["{}"]"#, "a".repeat(count))
    }

    /// Values on which the clients agree.
    #[test]
    fn vectors_v2() {
        check(
            V2,
            &[
                ("[{}]", "11622DAA78F835834610ABE56EFF5CB5"),
                ("[null]", "378867E4430E67857ACE5C908374FE16"),
                ("[true]", "0E711127C5B5A8E4726AC6DD306A3E59"),
                ("[false]", "2FE1BE91E90A3439635E0E9E37361EF2"),
                (r#"[""]"#, "32E9366E637A71B4E710384B2F4970A0"),
                (r#"["partitionKey"]"#, "013AEFCF77FA271571CF665A58C933F1"),
                (r#"["redmond"]"#, "22E342F38A486A088463DFF7838A5963"),
                (r#"["p"]"#, "1D1C97DD684A8CFD0AD88BD3B4BC757C"),
                (r#"["ü日"]"#, "1F210ACC09E6EAB9FE13D8FE03EB4837"),
                (&letters(99), "3C02F609961C32AAC2B912B940D1209A"),
                (&letters(100), "0DBD7D229437BB665DE6417747994D57"),
                (&letters(101), "08042541D30C8BF90D7092B1519AE0BC"),
                (&letters(1024), "332BDF5512AE49615F32C7D98C2DB86C"),
                ("[0]", "155B95BEDAC4B1E9EC1CDC9BB0DDDE58"),
                ("[1]", "20CD98B339BA78A5D0CF6953B87070B0"),
                ("[-1]", "19938E7A936C1C5B9E3AE842BBC16839"),
                ("[5]", "19C08621B135968252FB34B4CF66F811"),
                ("[5.5]", "0E2EE47829D1AF775EEFB6540FD1D0ED"),
                ("[2147483647]", "2D9349D64712AEB5EB1406E2F0BE2725"),
                ("[9007199254740991]", "12C221C7032CED1F9E6693CE1428E6CF"),
                ("[1e300]", "1234CB21048B20039B22F11DBB13CD7B"),
                ("[]", ""),
            ],
        );
    }

    #[test]
    fn vectors_multi_hash() {
        check(
            MULTI,
            &[
                (r#"["redmond","wa"]"#, "22E342F38A486A088463DFF7838A59630993BF58F91772DCE970FC68F36E9F40"),
                (r#"["x"]"#, "11E3F358618BE9AA5BAFF4C7C74F0716"),
                ("[1,null]", "20CD98B339BA78A5D0CF6953B87070B0378867E4430E67857ACE5C908374FE16"),
            ],
        );
    }

    #[test]
    fn vectors_v1() {
        let long = format!("05C1EB5921F70608{}00", "62".repeat(100));
        check(
            V1,
            &[
                (r#"[""]"#, "05C1CF33970FF80800"),
                (r#"["partitionKey"]"#, "05C1E1B3D9CD2608716273756A756A706F4C667A00"),
                (r#"["redmond"]"#, "05C1EFE313830C087366656E706F6500"),
                (&letters(1024), &long),
                ("[null]", "05C1ED45D7475601"),
                ("[true]", "05C1D7C5A903D803"),
                ("[false]", "05C1DB857D857C02"),
                ("[{}]", "05C1D529E345DC00"),
                ("[-128]", "05C1D73349F54C053FA0"),
                ("[127]", "05C1DD539DDFCC05C05FE0"),
                ("[1]", "05C1ED172B6B2605BFF0"),
                ("[5]", "05C1D9C1C5517C05C014"),
                ("[-2147483648]", "05C1DFBF252BCC053E20"),
                ("[2147483647]", "05C1E1F503DFB205C1DFFFFFFFFC"),
                ("[-9223372036854775808]", "05C1DB35F33D1C053C20"),
                ("[9223372036854775807]", "05C1B799AB2DD005C3E0"),
                ("[5e-324]", "05C1E5C91F4D3005800101010101010102"),
                ("[1.7976931348623157e308]", "05C1CBE367C53005FFEFFFFFFFFFFFFFFE"),
                ("[]", ""),
            ],
        );
    }

    #[test]
    fn vectors_range() {
        check(
            RANGE,
            &[
                ("[{}]", "00"),
                ("[null]", "01"),
                ("[false]", "02"),
                ("[0]", "058000"),
                ("[-0.0]", "058000"),
                ("[127]", "05C05FE0"),
                (r#"["redmond"]"#, "087366656E706F6500"),
            ],
        );
    }

    /// 51 characters of three bytes: below the limit in characters, above it in bytes, so no terminator.
    #[test]
    fn long_ordered_strings_have_no_terminator() {
        let key = hex(RANGE, &format!(r#"["{}"]"#, "日".repeat(51)));
        assert_eq!(key.len(), 2 * (1 + 101));
        assert!(key.starts_with("08E798A6E798A6"));
    }

    #[test]
    fn hex_text() {
        let parse = |text| EffectivePartitionKey::from_hex(text).map(|key| key.0);
        assert_eq!(parse(""), Some(vec![]));
        assert_eq!(parse("1fA0"), Some(vec![0x1F, 0xA0]));
        assert_eq!(parse("1F3"), Some(vec![0x1F, 0x30]));
        assert_eq!(parse("FF"), Some(vec![0xFF]));
        assert_eq!(parse("0x"), None);
        assert_eq!(parse("+1"), None);
        assert_eq!(parse("ü"), None);
    }

    fn check_split(scheme: (PartitionKeyKind, u8), count: usize, expect: Expect) {
        let ranges = EpkRange::split_evenly(&definition(scheme.0, scheme.1), count);
        let shown = ranges.iter().map(|range| {
            let (low, high) = range.rid_prefixes(scheme.0, scheme.1);
            format!("[{}, {}) {low:06x}..={high:06x}\n", range.min.to_hex(), range.max.to_hex())
        });
        expect.assert_eq(&shown.collect::<String>());
    }

    #[test]
    fn splits() {
        check_split(
            V2,
            0,
            expect![[r#"
            [, FF) 000000..=ffffff
        "#]],
        );
        check_split(
            V2,
            1,
            expect![[r#"
            [, FF) 000000..=ffffff
        "#]],
        );
        check_split(
            V2,
            2,
            expect![[r#"
            [, 1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF) 000000..=7fffff
            [1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF, FF) 7fffff..=ffffff
        "#]],
        );
        check_split(
            MULTI,
            3,
            expect![[r#"
            [, 15555555555555555555555555555554) 000000..=555555
            [15555555555555555555555555555554, 2AAAAAAAAAAAAAAAAAAAAAAAAAAAAAA9) 555555..=aaaaaa
            [2AAAAAAAAAAAAAAAAAAAAAAAAAAAAAA9, FF) aaaaaa..=ffffff
        "#]],
        );
        check_split(
            V1,
            1,
            expect![[r#"
            [, FF) 000000..=ffffff
        "#]],
        );
        check_split(
            V1,
            2,
            expect![[r#"
            [, 05C1DFFFFFFFFC) 000000..=7fffff
            [05C1DFFFFFFFFC, FF) 7fffff..=ffffff
        "#]],
        );
        check_split(
            V1,
            4,
            expect![[r#"
            [, 05C1CFFFFFFFF8) 000000..=3fffff
            [05C1CFFFFFFFF8, 05C1DFFFFFFFFC) 3fffff..=7fffff
            [05C1DFFFFFFFFC, 05C1E7FFFFFFFE) 7fffff..=bfffff
            [05C1E7FFFFFFFE, FF) bfffff..=ffffff
        "#]],
        );
        check_split(
            RANGE,
            3,
            expect![[r#"
            [, 0840AAAA) 000000..=0840aa
            [0840AAAA, 08605555) 0840aa..=086055
            [08605555, FF) 086055..=feffff
        "#]],
        );
    }

    fn range(min: &str, max: &str) -> EpkRange {
        let key = |text| EffectivePartitionKey::from_hex(text).unwrap();
        EpkRange { min: key(min), max: key(max) }
    }

    #[test]
    fn ranges() {
        let middle = range("10", "20");
        assert_eq!(EpkRange::full(), range("", "FF"));
        assert_eq!(middle.intersect(&EpkRange::full()), Some(middle.clone()));
        assert_eq!(middle.intersect(&range("15", "30")), Some(range("15", "20")));
        assert_eq!(middle.intersect(&range("20", "30")), None);
        assert!(middle.contains(&range("10", "").min));
        assert!(middle.contains(&range("1FFF", "").min));
        assert!(!middle.contains(&range("20", "").min));
        assert_eq!(EpkRange::of_prefix(&range("1A", "").min), range("1A", "1AFF"));
        assert_eq!(range("", "").rid_prefixes(V2.0, V2.1), (1, 0));
        assert_eq!(range("", "00000040").rid_prefixes(V2.0, V2.1), (0, 0));
        assert_eq!(range("00000040", "00000081").rid_prefixes(V2.0, V2.1), (1, 2));
        assert_eq!(range("05BFF0", "FF").rid_prefixes(V1.0, V1.1), (0, RID_PREFIX_MAX));
    }

    proptest! {
        #[test]
        fn a_bound_divides_by_prefix(scheme in any_scheme(), a in any_key(), b in any_key()) {
            let (kind, version) = scheme;
            let (a, b) = (effective(kind, version, &a), effective(kind, version, &b));
            let bound = EffectivePartitionKey::of_rid_prefix(kind, version, b.rid_prefix(kind, version));
            prop_assert!(bound <= b);
            prop_assert_eq!(a >= bound, a.rid_prefix(kind, version) >= b.rid_prefix(kind, version));
        }
    }

    fn any_scheme() -> impl Strategy<Value = (PartitionKeyKind, u8)> {
        prop_oneof![Just(V1), Just(V2), Just(MULTI), Just(RANGE)]
    }

    fn any_key() -> impl Strategy<Value = Vec<Component>> {
        proptest::collection::vec(crate::partition_key::tests::any_component(), 1..=3)
    }

    proptest! {
        #[test]
        fn every_key_lies_in_one_range_and_its_prefix_in_that_ranges_prefixes(
            scheme in any_scheme(), key in any_key(), count in 1usize..60,
        ) {
            let definition = definition(scheme.0, scheme.1);
            let ranges = EpkRange::split_evenly(&definition, count);
            prop_assert_eq!(ranges.len(), count);
            prop_assert_eq!(&ranges[0].min, &EpkRange::full().min);
            prop_assert_eq!(&ranges[count - 1].max, &EpkRange::full().max);
            prop_assert!(ranges.iter().all(|range| range.min < range.max));
            prop_assert!(ranges.windows(2).all(|pair| pair[0].max == pair[1].min));

            let key = PartitionKey(key);
            let home: Vec<_> = ranges.iter().filter(|range| range.contains(&definition.effective(&key))).collect();
            prop_assert_eq!(home.len(), 1);
            let (low, high) = home[0].rid_prefixes(scheme.0, scheme.1);
            prop_assert!((low..=high).contains(&definition.rid_prefix(&key)));
        }

        #[test]
        fn prefixes_order_like_effective_keys(scheme in any_scheme(), a in any_key(), b in any_key()) {
            let definition = definition(scheme.0, scheme.1);
            let (a, b) = (PartitionKey(a), PartitionKey(b));
            let prefix_order = definition.rid_prefix(&a).cmp(&definition.rid_prefix(&b));
            prop_assert!(prefix_order.is_eq() || prefix_order == definition.effective(&a).cmp(&definition.effective(&b)));
        }

        /// The prefix by its definition, against the search.
        #[test]
        fn prefix_is_the_top_of_the_first_hash(key in any_key()) {
            let v2 = hash_v2(&key);
            let top = u32::from_be_bytes([v2[0], v2[1], v2[2], v2[3]]) >> 6;
            prop_assert_eq!(effective(V2.0, V2.1, &key).rid_prefix(V2.0, V2.1), top);
            prop_assert_eq!(effective(V1.0, V1.1, &key).rid_prefix(V1.0, V1.1), hash_v1(&key) >> 8);
            let mut ordered = effective(RANGE.0, RANGE.1, &key).0;
            ordered.resize(3, 0);
            let top = u32::from_be_bytes([0, ordered[0], ordered[1], ordered[2]]);
            prop_assert_eq!(effective(RANGE.0, RANGE.1, &key).rid_prefix(RANGE.0, RANGE.1), top);
        }

        #[test]
        fn prefixes_of_any_range_hold_its_keys(
            scheme in any_scheme(), key in any_key(), min in ".{0,4}", max in ".{0,4}",
        ) {
            let key = effective(scheme.0, scheme.1, &key);
            let min = EffectivePartitionKey(min.into_bytes());
            let max = EffectivePartitionKey(max.into_bytes());
            for range in [EpkRange { min: min.clone(), max }, EpkRange { min: key.clone(), max: EffectivePartitionKey([key.0.clone(), vec![0]].concat()) }] {
                let (low, high) = range.rid_prefixes(scheme.0, scheme.1);
                prop_assert!(!range.contains(&key) || (low..=high).contains(&key.rid_prefix(scheme.0, scheme.1)));
            }
        }

        #[test]
        fn ordered_numbers_order_like_numbers(a in any::<f64>(), b in any::<f64>()) {
            let bytes = |number| { let mut bytes = Vec::new(); encode_number(one_zero(number), &mut bytes); bytes };
            prop_assert_eq!(bytes(a).cmp(&bytes(b)), one_zero(a).total_cmp(&one_zero(b)));
        }
    }
}
