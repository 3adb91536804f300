//! Published and computed vectors of effective keys.

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

/// Values that the clients compute.
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
