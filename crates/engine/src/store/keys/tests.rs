use super::*;
use proptest::prelude::*;

const DECLARATION: DeclarationKeys = DeclarationKeys { container: 7, declaration: 2 };

fn epk(bytes: &[u8]) -> EffectivePartitionKey {
    EffectivePartitionKey(bytes.to_vec())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// On disk: a change here is a new format.
#[test]
fn golden_bytes() {
    let golden = [
        (counts(1, 2), "c00000000100000002"),
        (rid_counter(1), "c100000001"),
        (item(7, rid(0x12_3456, 9)), "0000000701234560000000 09"),
        (id(7, &epk(&[0xAA, 0xBB]), "é"), "00000007 01 0002 aabb c3a9"),
        (
            unique(&unique_prefix(7, &epk(&[0xAA]), 3, &[0x11; 16]), 5),
            "00000007 02 0001 aa 03 11111111111111111111111111111111 0000000000000005",
        ),
        (latest(7, 1, 0x0102, 3), "00000007 01 00000001 0000000000000102 0003"),
        (expiry(7, 1_700_000_000, 5), "00000007 02 000000006553f100 0000000000000005"),
        (
            Counts { lsn: 1, items: 2, bytes: 3, last_ts: 4, unindexed_items: 5, indexes_overflowed: true }
                .encode(),
            "02 0000000000000001 0000000000000002 0000000000000003 0000000000000004 0000000000000005 01",
        ),
        (index_counts(1, 2, 3), "c2000000010000000203"),
        (index_build(7), "c300000007"),
        (vector_index(7, 2), "c90000000700000002"),
        (VectorKeys { container: 7, index: 2 }.node(3), "00000007 03 00000002 01 0000000000000003"),
        (VectorKeys { container: 7, index: 2 }.leaf_row(3), "00000007 03 00000002 02 0000000000000003 02"),
        (
            VectorKeys { container: 7, index: 2 }.leaf_changes(3),
            "00000007 03 00000002 02 0000000000000003 01",
        ),
        (VectorKeys { container: 7, index: 2 }.place(5), "00000007 03 00000002 03 0000000000000005"),
        (
            VectorKeys { container: 7, index: 2 }.unindexed(1, 5),
            "00000007 03 00000002 04 01 0000000000000005",
        ),
        (versions_floor(7, 2), "c40000000700000002"),
        (view_progress(7), "c800000007"),
        (profile(7), "ca00000007"),
        (advice_list(7), "d40000000701"),
        (workload(7, 2), "d50000000700000002"),
        (advice_decisions(7), "d40000000702"),
        (refactoring(7, 2), "d60000000700000002"),
        (journal(7, 2, 3), "cb00000007000000020000000000000003"),
        (skipped_item(7, 3), "cc00000007010000000000000003"),
        (unplaceable_item(7, 3), "cc00000007030000000000000003"),
        (
            skipped_claim(7, &[0x11; 16], &[0x22; 16], 3),
            "cc0000000702 11111111111111111111111111111111 22222222222222222222222222222222 0000000000000003",
        ),
        (version(7, 1, 0x0102, 3), "00000007 03 00000001 0000000000000102 0003"),
        (DECLARATION.link_key(&[0x11; 16]), "00000007 04 00000002 11111111111111111111111111111111"),
        (DECLARATION.total(&[0x11; 16]), "00000007 05 00000002 11111111111111111111111111111111"),
        (DECLARATION.extremes_of(&[0x11; 16]), "00000007 06 00000002 11111111111111111111111111111111"),
        (
            DECLARATION.mirror(&[0x11; 16], &[0xAA; 9]),
            "00000007 07 00000002 11111111111111111111111111111111 aaaaaaaaaaaaaaaaaa",
        ),
        (DECLARATION.fan_out(&[0x11; 16]), "00000007 09 00000002 11111111111111111111111111111111"),
        (DECLARATION.counted_mark(5), "00000007 08 00000002 0000000000000005"),
        (DECLARATION.counted_below_rid(), "00000007 08 00000002"),
        (
            LinkKeys { container: 7, index: 9 }.referrers(&[0x11; 16]),
            "00000007 0000000000000009 11111111111111111111111111111111",
        ),
        (index_name(7, 9), "00000007 0000000000000000 0000000000000009"),
    ];
    for (bytes, expected) in golden {
        assert_eq!(hex(&bytes), expected.replace(' ', ""));
    }
}

#[test]
fn counts_survive_and_garbage_does_not() {
    let unindexed =
        Counts { lsn: 1, items: 2, bytes: 3, last_ts: 4, unindexed_items: 2, ..Counts::default() };
    let old = [1u64, 2, 3, 4].map(u64::to_be_bytes).concat();
    assert_eq!(Counts::decode(&[&[1], &old[..]].concat()), Some(unindexed));
    let counts = Counts { lsn: u64::MAX, last_ts: -5, ..unindexed };
    assert_eq!(Counts::decode(&counts.encode()), Some(counts));
    assert_eq!(Counts::decode(&[]), None);
    assert_eq!(Counts::decode(&[2; 33]), None);
    assert_eq!(Counts::decode(&[1; 32]), None);
}

proptest! {
    #[test]
    fn items_sort_by_prefix_then_counter(a in (0u32..1 << 24, 0u64..1 << 36), b in (0u32..1 << 24, 0u64..1 << 36)) {
        prop_assert_eq!(a.cmp(&b), item(1, rid(a.0, a.1)).cmp(&item(1, rid(b.0, b.1))));
        prop_assert_eq!(rid_prefix(rid(a.0, a.1)), a.0);
        prop_assert_eq!(rid_of_item_key(&item(1, rid(a.0, a.1))), Some(rid(a.0, a.1)));
    }

    #[test]
    fn feed_rows_sort_by_lsn_then_ordinal(a: (u64, u16), b: (u64, u16)) {
        prop_assert_eq!(a.cmp(&b), latest(1, 1, a.0, a.1).cmp(&latest(1, 1, b.0, b.1)));
    }

    #[test]
    fn expiry_rows_sort_by_time(a in (0i64.., 0u64..1 << 60), b in (0i64.., 0u64..1 << 60)) {
        prop_assert_eq!(a.cmp(&b), expiry(1, a.0, a.1).cmp(&expiry(1, b.0, b.1)));
    }

    #[test]
    fn id_rows_are_unambiguous(a: (Vec<u8>, String), b: (Vec<u8>, String)) {
        prop_assert_eq!(a == b, id(1, &epk(&a.0), &a.1) == id(1, &epk(&b.0), &b.1));
    }
}
