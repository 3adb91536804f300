//! What a profile must hold: exact counts, close sketches, no value of an item, bounded memory.

use proptest::prelude::*;
use quire_profile::{
    ActionSource, ArrayLength, ContainerProfile, ContainerScan, ItemChange, ItemInput, LookedUpItem,
    Operation, Record, RecordedQuery, Relations, Scan, ScanResult, Survey, Workload, remove_recorded_part,
    shape_of,
};
use quire_resource::ContainerDefinition;
use quire_sql::Parameters;
use quire_value::{Item, Limits, Value, text};

fn definition(name: &str, key: &str) -> ContainerDefinition {
    let json = format!(r#"{{"id":"{name}","partitionKey":{{"paths":["{key}"],"kind":"Hash","version":2}}}}"#);
    ContainerDefinition::create(&text::parse(json.as_bytes(), Limits::default()).expect("JSON"))
        .expect("a definition")
}

fn item(json: &str) -> Item {
    Item::from_json(json.as_bytes(), Limits::default()).unwrap_or_else(|error| panic!("{error}: {json}"))
}

fn add(scan: &mut Scan, definition: &ContainerDefinition, item: &Item) {
    let partition_key = definition.partition_key.extract(item.root()).expect("a key");
    let bytes = item.root().json_len() as u64;
    scan.add(ItemInput { number: 0, item: item.root(), partition_key: &partition_key, bytes, ts: 1 });
}

fn scanned(definition: &ContainerDefinition, items: &[Item]) -> ScanResult {
    let mut survey = Survey::new();
    items.iter().for_each(|item| survey.add(item.root()));
    let mut scan = Scan::new(definition, &survey);
    items.iter().for_each(|item| add(&mut scan, definition, item));
    scan.finish(1, 0, 1)
}

/// Scan, proofs and pairs of one container, with look-ups answered from its items.
fn profile(definition: &ContainerDefinition, items: &[Item], workload: &Workload) -> ContainerProfile {
    let scan = scanned(definition, items);
    let mut relations = Relations::new(&[ContainerScan { definition, scan: &scan }]);
    let keys: Vec<_> =
        items.iter().map(|item| definition.partition_key.extract(item.root()).expect("a key")).collect();
    let lookups = relations.lookups();
    answer(&mut relations, &lookups, items, &keys);
    relations.begin_pairs();
    for (number, (item, partition_key)) in (0..).zip(items.iter().zip(&keys)) {
        let bytes = item.root().json_len() as u64;
        relations.add(&definition.id, ItemInput { number, item: item.root(), partition_key, bytes, ts: 1 });
    }
    let lookups = relations.target_lookups();
    answer(&mut relations, &lookups, items, &keys);
    ContainerProfile::new(definition, scan, &relations, workload.container(&definition.id))
}

fn answer(
    relations: &mut Relations,
    lookups: &[quire_profile::Lookup],
    items: &[Item],
    keys: &[quire_resource::PartitionKey],
) {
    for lookup in lookups {
        let name = lookup.key.trim_start_matches('/');
        for (number, value) in lookup.values.iter().enumerate() {
            let place = items
                .iter()
                .position(|item| item.root().get(name).and_then(|own| own.as_str()) == Some(value.as_str()));
            let found = place.map(|place| LookedUpItem {
                number: place as u64,
                item: items[place].root(),
                partition_key: &keys[place],
            });
            relations.answer(lookup.number, number, found);
        }
    }
}

/// A sorted list's value at a rank, and the rank of a value in it.
fn rank(sorted: &[u64], value: f64) -> (f64, f64) {
    let below = sorted.partition_point(|own| (*own as f64) < value) as f64;
    let upto = sorted.partition_point(|own| (*own as f64) <= value) as f64;
    (below / sorted.len() as f64, upto / sorted.len() as f64)
}

#[test]
fn counts_are_exact_and_sketches_close() {
    let definition = definition("c", "/key");
    let mut lengths = Vec::new();
    let items: Vec<Item> = (0..20_000u64)
        .map(|number| {
            let length = number.wrapping_mul(2_654_435_761) % 400;
            lengths.push(length);
            let list = (0..length % 7).map(|place| place.to_string()).collect::<Vec<_>>().join(",");
            let text = "x".repeat(length as usize);
            item(&format!(
                r#"{{"id":"i{number}","key":"k{}","list":[{list}],"text":"{text}","n":{}}}"#,
                number % 900,
                number % 5_000
            ))
        })
        .collect();
    let profile = profile(&definition, &items, &Workload::new());
    assert_eq!((profile.items.count, profile.items.scanned), (20_000, 20_000));
    let bytes: u64 = items.iter().map(|item| item.root().json_len() as u64).sum();
    assert_eq!(profile.items.bytes, bytes);
    assert_eq!(profile.partition_key.values.abs_diff(900) * 100 / 900, 0);
    let kind = &profile.types[0];
    let list = kind.array("/list").expect("an array");
    let at_max = lengths.iter().filter(|length| *length % 7 == 6).count() as f64 / 20_000.0;
    assert_eq!((list.length.max, list.at_max()), (6.0, at_max));
    let text = kind.path("/text").expect("a path");
    assert_eq!(text.length.max, *lengths.iter().max().expect("items") as f64);
    lengths.sort_unstable();
    for (wanted, found) in [(0.5, text.length.p50), (0.95, text.length.p95), (0.99, text.length.p99)] {
        let (low, high) = rank(&lengths, found);
        assert!(low - 0.01 <= wanted && wanted <= high + 0.01, "{wanted}: {low} to {high}");
    }
    for (path, distinct) in [("/id", 20_000.0), ("/n", 5_000.0), ("/key", 900.0)] {
        let found = kind.path(path).expect("a path").distinct as f64;
        assert!((found - distinct).abs() <= 0.03 * distinct, "{path}: {found}");
    }
}

#[test]
fn merged_scans_equal_one() {
    let definition = definition("c", "/id");
    let items: Vec<Item> = (0..600)
        .map(|number| {
            let kind =
                if number % 2 == 0 { r#""type":"a","x":1,"y":2"# } else { r#""type":"b","p":[1,2],"q":"r""# };
            item(&format!(r#"{{"id":"i{number}",{kind}}}"#))
        })
        .collect();
    let mut survey = Survey::new();
    items.iter().for_each(|item| survey.add(item.root()));
    let scan_of = |part: &[Item]| {
        let mut scan = Scan::new(&definition, &survey);
        part.iter().for_each(|item| add(&mut scan, &definition, item));
        scan
    };
    let whole = scan_of(&items).finish(1, 0, 1);
    let mut parts = scan_of(&items[..200]);
    parts.merge(&scan_of(&items[200..]));
    let parts = parts.finish(1, 0, 1);
    let json = |scan: ScanResult| {
        let relations = Relations::new(&[]);
        ContainerProfile::new(&definition, scan, &relations, Default::default())
            .to_json("db", &|_| String::new(), &|_| None)
            .to_json()
    };
    let whole = json(whole);
    assert!(whole.contains(r#""discriminator":{"path":"/type""#), "{whole}");
    assert_eq!(whole, json(parts));
}

#[test]
fn a_follower_adds_and_keeps_counts_exact() {
    let definition = definition("c", "/id");
    let mut scan = Scan::new(&definition, &Survey::new());
    let first = item(r#"{"id":"a","v":1}"#);
    (0..100).for_each(|_| add(&mut scan, &definition, &first));
    let key = definition.partition_key.extract(first.root()).expect("a key");
    let longer = item(r#"{"id":"a","v":1,"list":[1,2,3]}"#);
    let input = ItemInput { number: 7, item: longer.root(), partition_key: &key, bytes: 50, ts: 1 };
    (0..5).for_each(|_| scan.follow(input, true));
    (0..3).for_each(|_| scan.count_unscanned_change());
    assert!(!scan.needs_refresh(1) && scan.needs_refresh(3));
    scan.follow(input, false);
    assert_eq!(scan.followed(), 9);
    scan.set_total(102, 1_802);
    let profile =
        ContainerProfile::new(&definition, scan.finish(1, 0, 1), &Relations::new(&[]), Default::default());
    let counts = (profile.items.count, profile.items.scanned, profile.items.bytes);
    assert_eq!(counts, (102, 105, 1_802));
    assert_eq!(profile.types[0].count, 105, "a version is no item");
    let list = profile.types[0].array("/list").expect("an array");
    assert_eq!((list.length.max, list.length.at_max), (3.0, 6));
}

/// 100,000 names, depth, huge and empty containers: bounded, and nothing panics.
#[test]
fn unusual_items() {
    let definition = definition("c", "/id");
    let names: String = (0..100_000).map(|name| format!(r#","n{name}":{name}"#)).collect();
    let deep = format!("{}1{}", r#"{"a":"#.repeat(120), "}".repeat(120));
    let items = [
        item(&format!(r#"{{"id":"a"{names}}}"#)),
        item(&format!(r#"{{"id":"b","deep":{deep}}}"#)),
        item(r#"{"id":"c","":"","a/b":{"~":[[],{},null]}}"#),
    ];
    let found = profile(&definition, &items, &Workload::new());
    assert!(found.types[0].paths.len() <= 800);
    assert!(found.depth.max >= 120.0);
    assert_eq!(found.types[0].objects[0].names.abs_diff(100_000) / 3_000, 0);
    let empty = profile(&definition, &[], &Workload::new());
    assert_eq!(empty.items.count, 0);
    empty.to_json("db", &|_| String::new(), &|_| None);
}

/// Items of 2 MB, as deep as items may be, every value different, a single item: measured exactly, within the bounds of paths.
#[test]
fn extreme_items() {
    let definition = definition("c", "/id");
    let single = profile(&definition, &[item(r#"{"id":"a","list":[1,2],"n":1}"#)], &Workload::new());
    let list = single.types[0].array("/list").expect("an array");
    assert_eq!((single.items.count, single.size.max, list.length.max, list.at_max()), (1, 29.0, 2.0, 1.0));
    let text = "x".repeat(2 << 20);
    let numbers = (0..200_000).map(|number| number.to_string()).collect::<Vec<_>>().join(",");
    let deep = format!("{}1{}", r#"{"a":"#.repeat(126), "}".repeat(126));
    let items = [
        item(&format!(r#"{{"id":"text","text":"{text}"}}"#)),
        item(&format!(r#"{{"id":"numbers","list":[{numbers}]}}"#)),
        item(&format!(r#"{{"id":"deep","deep":{deep}}}"#)),
    ];
    let found = profile(&definition, &items, &Workload::new());
    let kind = &found.types[0];
    assert_eq!(kind.path("/text").map(|path| path.length.max), Some((2 << 20) as f64));
    let list = kind.array("/list").expect("an array");
    assert_eq!((list.length.max, list.at_max()), (200_000.0, 1.0));
    let distinct = kind.path("/list/*").expect("elements").distinct;
    assert!(distinct.abs_diff(200_000) <= 6_000, "{distinct}");
    assert_eq!(found.depth.max, 128.0);
    let sizes: u64 = items.iter().map(|item| item.root().json_len() as u64).sum();
    assert_eq!(found.items.bytes, sizes);
    found.to_json("db", &|_| String::new(), &|_| None);
}

/// Clocks that jump by days and years, forward and back: nothing is lost, and no figure is infinite.
#[test]
fn clock_jumps() {
    let day = 24 * 3_600_000;
    let mut workload = Workload::new();
    let jumps = [0, day, 2 * day, 0, 400 * day, 1, 800 * day, 400 * day];
    for (number, jump) in jumps.into_iter().enumerate() {
        for request in 0..50 {
            let mut record = record(number as u64 * 50 + request, 1);
            record.time_ms = 1_790_000_000_000 + jump;
            workload.record(record);
        }
    }
    workload.close_open_actions();
    let read = Workload::from_bytes(&workload.to_bytes()).expect("the bytes that were written");
    for workload in [&workload, &read] {
        let found = workload.container("c");
        assert!(found.days.is_finite() && found.days > 0.0, "{}", found.days);
        assert!(found.from_ms <= found.to_ms);
    }
    let json = workload.to_json(true, &|ms| ms.to_string());
    assert_eq!(json.get("kept"), Some(&Value::from(400u64)), "all of them are in the ring");
}

/// A clock that was ahead for a while: what was recorded then is of the hours before it was set right. What is older than hours are
/// kept when it jumps is forgotten.
#[test]
fn a_clock_that_was_ahead_is_set_back() {
    let (start, hour) = (1_790_000_000_000, 3_600_000);
    for (ahead, kept) in [(48 * hour, 200), (3 * 365 * 24 * hour, 150)] {
        let mut workload = Workload::new();
        let times = [start, start + ahead, start + ahead + 2 * hour, start + 60_000];
        for (number, time) in times.into_iter().enumerate() {
            for request in 0..50 {
                workload.record(Record { time_ms: time, ..record(number as u64 * 50 + request, 1) });
            }
        }
        workload.close_open_actions();
        let found = workload.container("c");
        assert_eq!(found.to_ms, start + 60_000);
        assert_eq!(found.total_operations(), kept, "none is lost, none counts twice");
        assert!(workload.records().all(|record| record.time_ms <= start + 60_000));
        let json = workload.to_json(true, &|ms| ms.to_string());
        assert_eq!(json.get("to"), Some(&Value::from((start + 60_000).to_string())));
    }
}

fn record(number: u64, shape: u64) -> Record {
    let query = number.is_multiple_of(3).then(|| RecordedQuery {
        shape,
        execution: number,
        rows_read: number % 50,
        returned: 1,
        items: vec![number % 10],
        is_last: true,
        refused: false,
    });
    Record {
        time_ms: 1_790_000_000_000 + number * 7_000,
        action: Some((number / 4, ActionSource::Header)),
        container: "c".into(),
        operation: if query.is_some() { Operation::Query } else { Operation::Replace },
        status: 200,
        sub_status: 0,
        charge: 1.5,
        bytes: 100,
        micros: 300,
        item: Some(number % 20),
        id: Some(number % 20),
        partition_key: Some(number % 7),
        change: query.is_none().then(|| ItemChange {
            paths: vec!["/list".to_owned()],
            size_before: Some(100),
            size_after: Some(110),
            lengths: vec![ArrayLength { path: "/list".to_owned(), before: 1, after: 2 }],
            ..ItemChange::default()
        }),
        query,
        weight: 1,
    }
}

#[test]
fn workload_bytes_read_back() {
    let shape = shape_of("c", "SELECT * FROM c WHERE c.a = 'secret'", &Parameters(Vec::new()), &[], false)
        .expect("a shape");
    assert!(!shape.text.contains("secret"), "{}", shape.text);
    let mut workload = Workload::new();
    workload.add_shape("c", &shape);
    (0..3_000).for_each(|number| workload.record(record(number, shape.id)));
    workload.close_open_actions();
    let bytes = workload.to_bytes();
    let read = Workload::from_bytes(&bytes).expect("the bytes that were written");
    assert_eq!(read.to_bytes(), bytes);
    let (one, other) = (workload.container("c"), read.container("c"));
    assert_eq!(one.operations, other.operations);
    assert_eq!(one.writes.changes, other.writes.changes);
    assert_eq!((one.shapes[0].totals, one.growth), (other.shapes[0].totals, other.growth));
    assert_eq!(one.operations[&Operation::Replace].count, 2_000);
    for cut in 0..bytes.len().min(400) {
        assert!(Workload::from_bytes(&bytes[..cut]).is_err());
    }
}

/// Executions of several pages are one; clocks that jump back do not.
#[test]
fn pages_are_one_execution() {
    let shape = shape_of("c", "SELECT * FROM c", &Parameters(Vec::new()), &[], false).expect("a shape");
    let mut workload = Workload::new();
    workload.add_shape("c", &shape);
    for page in 0..3u64 {
        let mut page_record = record(3, shape.id);
        page_record.time_ms -= page * 60_000;
        if let Some(query) = &mut page_record.query {
            (query.returned, query.is_last) = (100, page == 2);
        }
        workload.record(page_record);
    }
    workload.close_open_actions();
    let totals = workload.container("c").shapes[0].totals;
    assert_eq!((totals.count, totals.returned.max), (1, 300.0));
}

#[test]
fn workload_json() {
    let mut workload = Workload::new();
    (0..10).for_each(|number| workload.record(record(number, 1)));
    let json = workload.to_json(true, &|ms| ms.to_string());
    assert_eq!(json.get("kept"), Some(&Value::from(10u64)));
    let operations = json.get("operations").and_then(|all| all.get("c")).expect("a container");
    assert_eq!(operations.get("query"), Some(&Value::from(4u64)));
    workload.remove_recorded("c");
    assert_eq!(workload.to_json(true, &|ms| ms.to_string()).get("kept"), Some(&Value::from(0u64)));
}

/// What is left of a profile is what the items give without any record.
#[test]
fn a_record_is_forgotten() {
    let definition = definition("c", "/id");
    let items: Vec<Item> = (0..300)
        .map(|n| item(&format!(r#"{{"id":"i{n}","a":{n},"list":[{}]}}"#, vec!["1"; n % 9].join(","))))
        .collect();
    let text = "SELECT c.a FROM c WHERE c.a = 1 ORDER BY c.a";
    let shape = shape_of("c", text, &Parameters(Vec::new()), &[], false).expect("a shape");
    let mut workload = Workload::new();
    workload.add_shape("c", &shape);
    (0..3_000).for_each(|number| workload.record(record(number, shape.id)));
    workload.close_open_actions();
    let json = |workload: &Workload| {
        profile(&definition, &items, workload).to_json("db", &|ms| ms.to_string(), &|n| Some(n.to_string()))
    };
    let (mut recorded, without) = (json(&workload), json(&Workload::new()));
    assert_ne!(recorded, without);
    remove_recorded_part(&mut recorded);
    assert_eq!(recorded.to_json(), without.to_json());
}

fn marked() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        (0..1_000u32).prop_map(|number| format!(r#""MARKER{number}""#)),
        (0..1_000u32).prop_map(|number| format!("7351{number}")),
        Just("null".to_owned()),
        Just("true".to_owned()),
    ];
    leaf.prop_recursive(3, 24, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(|all| format!("[{}]", all.join(","))),
            prop::collection::vec(("[a-e]", inner), 0..5).prop_map(|all| {
                let members: std::collections::BTreeMap<String, String> = all.into_iter().collect();
                let members: Vec<String> =
                    members.iter().map(|(name, value)| format!(r#""{name}":{value}"#)).collect();
                format!("{{{}}}", members.join(","))
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// No value of an item is in the JSON, whatever the items are.
    #[test]
    fn no_value_in_the_json(values in prop::collection::vec(marked(), 1..80)) {
        let definition = definition("c", "/id");
        let items: Vec<Item> =
            values.iter().enumerate().map(|(number, value)| item(&format!(r#"{{"id":"i{number}","v":{value},"w":"MARKER{}"}}"#, number % 30))).collect();
        let shape = shape_of("c", "SELECT * FROM c WHERE c.w = 'MARKER1' AND c.v IN (73511, 73512)", &Parameters(Vec::new()), &[], false)
            .expect("a shape");
        let mut workload = Workload::new();
        workload.add_shape("c", &shape);
        (0..20).for_each(|number| workload.record(record(number, shape.id)));
        let json = profile(&definition, &items, &workload).to_json("db", &|_| String::new(), &|_| None).to_json();
        prop_assert!(!json.contains("MARKER"), "{}", json);
        prop_assert!(!json.contains("7351"), "{}", json);
        let recorded = workload.to_bytes();
        prop_assert!(!recorded.windows(6).any(|window| window == b"MARKER"));
    }
}
