//! Memory of a scan stays within its bound: a process of its own in which one test runs, so that nothing else is counted.
//! `QUIRE_PROFILE_ITEMS` asks for more items.
#![cfg(target_os = "linux")]

use quire_profile::{ContainerProfile, ContainerScan, ItemInput, Relations, Scan, Survey, Workload};
use quire_resource::ContainerDefinition;
use quire_value::{Item, Limits, Value, text};

/// 64 MB while building.
const BOUND_KB: u64 = 64 << 10;
/// Names of one object that are kept.
const NAMES_MAX: usize = 200;

#[test]
fn scans_of_everything_different() {
    let json = r#"{"id":"c","partitionKey":{"paths":["/id"],"kind":"Hash","version":2}}"#;
    let json = text::parse(json.as_bytes(), Limits::default()).expect("JSON");
    let definition = ContainerDefinition::create(&json).expect("a definition");
    // The smaller one first: memory that a scan gives back may stay with the process.
    let scan = scanned(&definition, "100,000 names", 200, different_names);
    let scan = scan.finish(1, 0, 1);
    let relations = Relations::new(&[ContainerScan { definition: &definition, scan: &scan }]);
    let profile = ContainerProfile::new(&definition, scan, &relations, Workload::new().container("c"));
    let json = profile.to_json("d", &|_| String::new(), &|_| None);
    let paths = json.get("paths").and_then(Value::as_array).expect("paths");
    assert!((NAMES_MAX..=NAMES_MAX + 10).contains(&paths.len()), "{} paths", paths.len());
    let items = std::env::var("QUIRE_PROFILE_ITEMS").map_or(60_000, |items| items.parse().expect("a number"));
    scanned(&definition, &format!("{items} items, all different"), items, different_items);
    scanned(&definition, "1,500 paths with different values", 400, different_values);
}

fn scanned(definition: &ContainerDefinition, what: &str, items: u64, text: fn(u64) -> String) -> Scan {
    let mut scan = Scan::new(definition, &Survey::new());
    let before = resident_kb();
    for number in 0..items {
        let text = text(number);
        let item = Item::from_json(text.as_bytes(), Limits::default()).expect("an item");
        let partition_key = definition.partition_key.extract(item.root()).expect("a key");
        let bytes = text.len() as u64;
        scan.add(ItemInput { number, item: item.root(), partition_key: &partition_key, bytes, ts: number });
    }
    let grown = resident_kb().saturating_sub(before);
    let held = scan.held_bytes() as u64 >> 10;
    println!("a scan of {what} took {grown} KB, of which it knows {held} KB");
    assert!(grown < BOUND_KB, "{what}: {grown} KB");
    assert!(grown < 2 * held + 1_024, "{what}: {grown} KB, and it says {held} KB");
    scan
}

/// Ten values that no other item has, an array and a key of its own.
fn different_items(number: u64) -> String {
    let members: Vec<String> = (0..10)
        .map(|name| format!(r#""n{name}":"{}""#, (number * 10 + name).wrapping_mul(0x9e37_79b9)))
        .collect();
    let list: Vec<String> = (0..number % 300 / 40).map(|place| (number + place).to_string()).collect();
    format!(
        r#"{{"id":"i{number}","key":"k{number}","at":{},"list":[{}],{}}}"#,
        1_700_000_000 + number,
        list.join(","),
        members.join(",")
    )
}

/// 500 names that no other item has.
fn different_names(number: u64) -> String {
    let members: Vec<String> = (0..500).map(|name| format!(r#""name-{number}-{name}":{name}"#)).collect();
    format!(r#"{{"id":"i{number}",{}}}"#, members.join(","))
}

/// Ten objects of 150 names, every value different and as long as samples keep.
fn different_values(number: u64) -> String {
    let object = |object: usize| {
        let members: Vec<String> =
            (0..150).map(|name| format!(r#""n{name}":"{number:020}-{object:030}-{name:030}""#)).collect();
        format!(r#""o{object}":{{{}}}"#, members.join(","))
    };
    let objects: Vec<String> = (0..10).map(object).collect();
    format!(r#"{{"id":"i{number}",{}}}"#, objects.join(","))
}

fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("resident memory");
    line.trim().trim_end_matches(" kB").trim().parse().expect("a number")
}
