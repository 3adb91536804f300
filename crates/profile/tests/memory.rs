//! Memory of a scan stays within its bound: a process of its own, so that nothing else is counted.

#[cfg(target_os = "linux")]
#[test]
fn a_scan_of_everything_different() {
    use quire_profile::{ItemInput, Scan, Survey};
    use quire_resource::ContainerDefinition;
    use quire_value::{Item, Limits, text};

    /// 64 MB while building.
    const BOUND_KB: u64 = 64 << 10;
    let json = r#"{"id":"c","partitionKey":{"paths":["/id"],"kind":"Hash","version":2}}"#;
    let json = text::parse(json.as_bytes(), Limits::default()).expect("JSON");
    let definition = ContainerDefinition::create(&json).expect("a definition");
    let mut scan = Scan::new(&definition, &Survey::new());
    let before = resident_kb();
    for number in 0..400 {
        // Ten objects of 150 names, every value different and as long as samples keep.
        let object = |object: usize| {
            let members: Vec<String> =
                (0..150).map(|name| format!(r#""n{name}":"{number:020}-{object:030}-{name:030}""#)).collect();
            format!(r#""o{object}":{{{}}}"#, members.join(","))
        };
        let objects: Vec<String> = (0..10).map(object).collect();
        let text = format!(r#"{{"id":"i{number}",{}}}"#, objects.join(","));
        let item = Item::from_json(text.as_bytes(), Limits::default()).expect("an item");
        let partition_key = definition.partition_key.extract(item.root()).expect("a key");
        let bytes = text.len() as u64;
        scan.add(ItemInput { item: item.root(), partition_key: &partition_key, bytes, ts: number });
    }
    let grown = resident_kb().saturating_sub(before);
    println!("a scan of 1,500 paths with different values took {grown} KB");
    assert!(grown < BOUND_KB, "{grown} KB");
    drop(scan);

    fn resident_kb() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").expect("a status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("resident memory");
        line.trim().trim_end_matches(" kB").trim().parse().expect("a number")
    }
}
