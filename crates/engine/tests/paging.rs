//! Lists in pages: every scope, joined pages are the whole, tokens are bound and cannot be forged.

mod support;

use std::collections::BTreeSet;

use quire_engine::{EngineError, Scope};
use quire_resource::{EffectivePartitionKey, EpkRange, PartitionKeyDefinition};
use quire_value::Value;
use support::fixture::{Fixture, Random, pk, request, text_of};

const HASH: &str = r#"{"paths":["/pk"],"kind":"Hash","version":2}"#;
const HASH_V1: &str = r#"{"paths":["/pk"],"kind":"Hash"}"#;
const RANGE: &str = r#"{"paths":["/pk"],"kind":"Range"}"#;
const MULTI: &str = r#"{"paths":["/pk","/u"],"kind":"MultiHash","version":2}"#;

fn names(items: &[Value]) -> Vec<String> {
    items.iter().map(|item| format!("{}:{}", text_of(item, "pk"), text_of(item, "id"))).collect()
}

fn set(items: &[Value]) -> BTreeSet<String> {
    names(items).into_iter().collect()
}

fn filled(key: &str, partitions: u32) -> (Fixture, BTreeSet<String>) {
    let fixture = Fixture::with_key(key, "", partitions);
    let mut all = BTreeSet::new();
    for n in 0..120 {
        let (pk, u) = (format!("key{}", n % 13), format!("u{}", n % 5));
        fixture.create(&format!(r#"{{"id":"{n}","pk":"{pk}","u":"{u}"}}"#)).expect("created");
        all.insert(format!("{pk}:{n}"));
    }
    (fixture, all)
}

#[test]
fn pages_of_any_size_are_the_whole() {
    for (key, partitions) in
        [(HASH, 1), (HASH, 5), (HASH_V1, 1), (HASH_V1, 4), (RANGE, 1), (RANGE, 3), (MULTI, 3)]
    {
        let (fixture, all) = filled(key, partitions);
        assert_eq!(fixture.container.partitions().len(), partitions as usize);
        let whole = names(&fixture.all(None, &Scope::default(), -1));
        assert_eq!(whole.len(), 120);
        assert_eq!(whole.iter().cloned().collect::<BTreeSet<_>>(), all);
        for size in [1, 7, 119, 120, 121] {
            assert_eq!(names(&fixture.all(None, &Scope::default(), size)), whole, "{key} in pages of {size}");
        }
    }
}

#[test]
fn partitions_tile_the_container() {
    for (key, partitions) in [(HASH, 5), (HASH_V1, 5), (RANGE, 3), (MULTI, 4)] {
        let (fixture, all) = filled(key, partitions);
        let mut seen = Vec::new();
        for partition in fixture.container.partitions() {
            let scope = Scope { partition_id: Some(partition.id), ..Scope::default() };
            let items = fixture.all(None, &scope, 10);
            assert_eq!(items.len() as u64, partition.item_count);
            seen.extend(names(&items));
        }
        assert_eq!(seen.len(), all.len());
        assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), all);
        let gone = Scope { partition_id: Some("99".to_owned()), ..Scope::default() };
        let error = fixture.page(None, &request(gone, -1, None)).err();
        assert!(matches!(error, Some(EngineError::PartitionGone { id }) if id == "99"));
    }
}

#[test]
fn keys_and_prefixes_select_their_items() {
    for (key, partitions) in [(HASH, 5), (HASH_V1, 2), (RANGE, 2)] {
        let (fixture, all) = filled(key, partitions);
        for n in 0..13 {
            let scope = Scope { partition_key: Some(pk(&format!(r#"["key{n}"]"#))), ..Scope::default() };
            let own: BTreeSet<_> =
                all.iter().filter(|name| name.starts_with(&format!("key{n}:"))).cloned().collect();
            assert_eq!(set(&fixture.all(None, &scope, 3)), own);
        }
    }
    let (fixture, all) = filled(MULTI, 4);
    let prefix = Scope { partition_key: Some(pk(r#"["key3"]"#)), ..Scope::default() };
    let own: BTreeSet<_> = all.iter().filter(|name| name.starts_with("key3:")).cloned().collect();
    assert_eq!(set(&fixture.all(None, &prefix, 2)), own);
    let complete = Scope { partition_key: Some(pk(r#"["key3","u3"]"#)), ..Scope::default() };
    assert!(
        fixture
            .all(None, &complete, 2)
            .iter()
            .all(|item| text_of(item, "u") == "u3" && text_of(item, "pk") == "key3")
    );
    let nothing = Scope { partition_key: Some(pk("[]")), ..Scope::default() };
    assert_eq!(fixture.all(None, &nothing, -1).len(), 120);
}

/// Two ranges that meet at a random point share the container between them, wherever the point is.
#[test]
fn ranges_cut_anywhere() {
    for (key, partitions) in [(HASH, 1), (HASH, 3), (HASH_V1, 2), (RANGE, 2), (MULTI, 2)] {
        let (fixture, all) = filled(key, partitions);
        let definition: &PartitionKeyDefinition = &fixture.container.definition.partition_key;
        let mut random = Random(7);
        for _ in 0..40 {
            let n = random.below(13);
            let full = if key == MULTI { format!(r#"["key{n}","u1"]"#) } else { format!(r#"["key{n}"]"#) };
            let mut cut = definition.effective(&pk(&full)).0;
            if random.below(2) == 0 {
                cut.truncate(random.below(cut.len() as u64) as usize + 1);
            }
            let EpkRange { min, max } = EpkRange::full();
            let cut = EffectivePartitionKey(cut);
            let low = Scope { range: Some(EpkRange { min, max: cut.clone() }), ..Scope::default() };
            let high = Scope { range: Some(EpkRange { min: cut, max }), ..Scope::default() };
            let (low, high) = (set(&fixture.all(None, &low, 50)), set(&fixture.all(None, &high, 50)));
            assert!(low.is_disjoint(&high));
            assert_eq!(&low | &high, all);
        }
    }
}

#[test]
fn a_page_holds_four_megabytes() {
    let fixture = Fixture::new("");
    let filler = "x".repeat(1 << 20);
    for n in 0..6 {
        fixture.create(&format!(r#"{{"id":"{n}","pk":"p","x":"{filler}"}}"#)).expect("created");
    }
    let page = fixture.page(None, &request(Scope::default(), -1, None)).expect("page");
    assert_eq!(page.count, 3);
    assert!(page.rows.len() <= 4 << 20 && page.continuation.is_some());
    assert_eq!(page.metrics.loaded_count, 3);
    assert_eq!(fixture.all(None, &Scope::default(), -1).len(), 6);
}

#[test]
fn tokens_are_short_bound_and_cannot_be_forged() {
    let (fixture, _) = filled(HASH, 2);
    let scope = Scope { partition_id: Some("0".to_owned()), ..Scope::default() };
    let token =
        fixture.page(None, &request(scope.clone(), 2, None)).expect("page").continuation.expect("more");
    assert!(token.len() < 100 && token.bytes().all(|byte| byte.is_ascii_graphic()));
    let bad = |scope: &Scope, token: &str| {
        let result = fixture.page(None, &request(scope.clone(), 2, Some(token.to_owned())));
        matches!(result, Err(EngineError::BadContinuation))
    };
    assert!(!bad(&scope, &token));
    assert!(bad(&Scope::default(), &token), "of another scope");
    for garbage in ["", "x", "-RID:~1#RT:1", "{}", &token[1..], &format!("{token}A"), &token.to_lowercase()] {
        assert!(bad(&scope, garbage), "{garbage:?}");
    }
    let mut bytes = token.into_bytes();
    for at in 0..bytes.len() - 1 {
        let old = bytes[at];
        bytes[at] = if old == b'A' { b'B' } else { b'A' };
        let forged = String::from_utf8(bytes.clone()).expect("ASCII");
        assert!(bad(&scope, &forged), "changed at {at}");
        bytes[at] = old;
    }
}

#[test]
fn tokens_survive_a_restart_and_changes_between_pages() {
    let (fixture, all) = filled(HASH, 1);
    let first = fixture.page(None, &request(Scope::default(), 50, None)).expect("page");
    let again = fixture.reopened(std::sync::Arc::clone(&fixture.storage));
    let shown = quire_value::text::parse(&first.rows, Default::default()).expect("JSON");
    let shown = set(shown.as_array().expect("array"));
    // What was shown may go, what is new may or may not come; what stays comes once.
    let gone = shown.iter().next().cloned().expect("50 items");
    let (key, id) = gone.split_once(':').expect("both");
    again.delete(id, &format!(r#"["{key}"]"#)).expect("deleted");
    let mut rest = BTreeSet::new();
    let mut token = first.continuation;
    while let Some(continuation) = token {
        let page = again.page(None, &request(Scope::default(), 50, Some(continuation))).expect("page");
        let items = quire_value::text::parse(&page.rows, Default::default()).expect("JSON");
        rest.extend(set(items.as_array().expect("array")));
        token = page.continuation;
    }
    assert!(rest.is_disjoint(&shown));
    assert_eq!(&rest | &shown, all);
}

#[test]
fn page_sizes() {
    let (fixture, _) = filled(HASH, 1);
    let page = |size: Option<i64>| {
        let request =
            quire_engine::PageRequest { item_count_max: size, ..request(Scope::default(), -1, None) };
        fixture.page(None, &request).map(|page| page.count)
    };
    assert_eq!(page(None).ok(), Some(120));
    assert_eq!(page(Some(0)).ok(), Some(120));
    assert_eq!(page(Some(3)).ok(), Some(3));
    assert!(matches!(page(Some(-2)), Err(EngineError::BadRequest { .. })));
}

#[test]
fn charges_count_partitions_and_items() {
    let (fixture, _) = filled(HASH, 5);
    let answer = fixture.engine.list_items(&fixture.container, &request(Scope::default(), -1, None));
    let page = answer.result.expect("page");
    let expected =
        2.5 * 5.0 + 0.065 * 120.0 + 0.1 * 120.0 + 0.3 * page.rows.len() as f64 / f64::from(1 << 20);
    assert!((answer.charge - expected).abs() < 0.01, "{} is not {expected}", answer.charge);
    let last = fixture.container.partitions().last().expect("partitions").id.clone();
    assert_eq!(
        *answer.position.expect("a position").partition_id,
        *last,
        "the one that the last row came from"
    );
}
