//! What declarations make of items, one sentence of the contract at a time.

use crate::library::{container, item, parse, rules};
use quire_model::{
    ExpectedPathValue, ItemError, OnWrite, OwnedValue, Pointer, PutOutcome, Reference, RollupChange,
    RollupTotals, Segment, TargetKey, added_references, put_owned_values,
};
use quire_resource::{Component, ContainerDefinition, PartitionKey};
use quire_value::Value;

fn containers() -> Vec<ContainerDefinition> {
    vec![
        container("books", &["/id"]),
        container("authors", &["/id"]),
        container("shops", &["/region"]),
        container("users", &["/tenant", "/user"]),
    ]
}

fn link(path: &str, to: &str) -> String {
    format!(
        r#"{{"version":1,"links":[{{"name":"l","from":{{"container":"books","path":"{path}"}},"to":{to}}}]}}"#
    )
}

/// References as `place value [key]`.
fn references(path: &str, to: &str, body: &str) -> Vec<String> {
    let rules = rules(&link(path, to), &containers());
    let item = item(body);
    let shown = |reference: &Reference| {
        let key = match &reference.target.partition_key {
            Some(key) => key.to_header(),
            None => "lookup".to_owned(),
        };
        format!("{} {} {key}", rules.links[0].link.from.path.at(&reference.positions), reference.target.value)
    };
    rules.links[0].references(item.root()).expect("few references").iter().map(shown).collect()
}

const AUTHORS: &str = r#"{"container":"authors"}"#;

#[test]
fn rules_are_shared_by_threads() {
    fn shared<T: Send + Sync>(_: &T) {}
    shared(&rules(&link("/a", AUTHORS), &containers()));
}

#[test]
fn what_is_a_reference() {
    let of = |value: &str| references("/a", AUTHORS, &format!(r#"{{"id":"b","a":{value}}}"#));
    assert_eq!(of(r#""x""#), [r#"/a x ["x"]"#]);
    for none in ["null", "true", "{}", "[]", r#"["x"]"#, r#""""#, "7"] {
        assert_eq!(of(none), [""; 0], "{none}");
    }
    assert_eq!(references("/a", AUTHORS, r#"{"id":"b"}"#), [""; 0]);
}

#[test]
fn numbers_refer_only_with_convert() {
    let of = |value: &str| {
        references("/a", r#"{"container":"authors","convert":"string"}"#, &format!(r#"{{"a":{value}}}"#))
    };
    assert_eq!(of("1"), [r#"/a 1 ["1"]"#]);
    assert_eq!(of("1.0"), of("1"));
    assert_eq!(of("1e300"), [r#"/a 1e+300 ["1e+300"]"#]);
    assert_eq!(of("-2.5"), [r#"/a -2.5 ["-2.5"]"#]);
    assert_eq!(of("18446744073709551615"), [r#"/a 18446744073709551615 ["18446744073709551615"]"#]);
    assert_eq!(of("true"), [""; 0]);
}

#[test]
fn elements_have_their_places() {
    let body = r#"{"a":[{"id":"x"},7,{"id":"y","b":[{"id":"p"},{"id":"q"}]},{"id":""},{"id":"x"}]}"#;
    assert_eq!(
        references("/a/*/id", AUTHORS, body),
        [r#"/a/0/id x ["x"]"#, r#"/a/2/id y ["y"]"#, r#"/a/4/id x ["x"]"#]
    );
    assert_eq!(
        references("/a/*/b/*/id", AUTHORS, body),
        [r#"/a/2/b/0/id p ["p"]"#, r#"/a/2/b/1/id q ["q"]"#]
    );
    assert_eq!(references("/a/*", AUTHORS, r#"{"a":["x",1,"y"]}"#), [r#"/a/0 x ["x"]"#, r#"/a/2 y ["y"]"#]);
}

#[test]
fn routes_of_the_partition_key() {
    let body = r#"{"pub":{"id":"p","region":"eu"},"a":[{"id":"x","t":1},{"id":"y"}],"t":null}"#;
    let shops = |route: &str| format!(r#"{{"container":"shops","partitionKey":{route}}}"#);
    assert_eq!(references("/pub/id", &shops(r#"[{"path":"/pub/region"}]"#), body), [r#"/pub/id p ["eu"]"#]);
    assert_eq!(references("/pub/id", &shops(r#"[{"path":"/pub/none"}]"#), body), ["/pub/id p [{}]"]);
    assert_eq!(references("/pub/id", &shops(r#"[{"path":"/pub"}]"#), body), ["/pub/id p [{}]"]);
    assert_eq!(references("/pub/id", &shops(r#"[{"value":7}]"#), body), ["/pub/id p [7]"]);
    assert_eq!(references("/pub/id", &shops(r#"[{"reference":true}]"#), body), [r#"/pub/id p ["p"]"#]);
    assert_eq!(references("/pub/id", &shops(r#""lookup""#), body), ["/pub/id p lookup"]);
    assert_eq!(
        references("/pub/id", r#"{"container":"shops","key":"/region"}"#, body),
        [r#"/pub/id p ["p"]"#]
    );
    // `*` is the same element as in the link's path; a path without it is the item's.
    let users = r#"{"container":"users","partitionKey":[{"path":"/a/*/t"},{"path":"/t"}]}"#;
    assert_eq!(references("/a/*/id", users, body), ["/a/0/id x [1,null]", "/a/1/id y [{},null]"]);
}

#[test]
fn what_an_item_is_found_by() {
    let found = |to: &str, body: &str| {
        let rules = rules(&link("/a", to), &containers());
        let key = PartitionKey(vec![Component::Number(1.0)]);
        rules.links[0].target_key(item(body).root(), &key).map(|key| (key.value, key.partition_key.is_some()))
    };
    assert_eq!(found(AUTHORS, r#"{"id":"x"}"#), Some(("x".to_owned(), true)));
    let lookup = r#"{"container":"shops","key":"/code","partitionKey":"lookup"}"#;
    assert_eq!(found(lookup, r#"{"id":"x","code":"c"}"#), Some(("c".to_owned(), false)));
    for none in ["1", r#""""#, "null", r#"["c"]"#] {
        assert_eq!(found(lookup, &format!(r#"{{"id":"x","code":{none}}}"#)), None, "{none}");
    }
}

#[test]
fn a_thousand_references_and_no_more() {
    let rules = rules(&link("/a/*", AUTHORS), &containers());
    let body = |count: usize| item(&format!(r#"{{"a":[null,{}]}}"#, vec![r#""x""#; count].join(",")));
    assert_eq!(rules.links[0].references(body(1_000).root()).expect("as many as can be").len(), 1_000);
    let error = rules.links[0].references(body(1_001).root()).expect_err("one more");
    assert_eq!(error.status(), (400, 6105));
    assert_eq!(error.to_string(), "TooManyReferences: 'l' takes at most 1,000 references of one item.");
}

#[test]
fn added_and_changed_references() {
    let rules = rules(&link("/a/*", AUTHORS), &containers());
    let of = |body: &str| rules.links[0].references(item(body).root()).expect("few");
    let added = |old: &str, new: &str| {
        let new = of(new);
        added_references(&of(old), &new).iter().map(|reference| reference.positions[0]).collect::<Vec<_>>()
    };
    assert_eq!(added(r#"{"a":["x","y"]}"#, r#"{"a":["y","z","x"]}"#), [1]);
    assert_eq!(added(r#"{"a":["x"]}"#, r#"{"a":["x","x"]}"#), [1]);
    assert_eq!(added(r#"{}"#, r#"{"a":["x"]}"#), [0]);
    assert_eq!(added(r#"{"a":["x"]}"#, r#"{"a":[]}"#), [0; 0]);
}

#[test]
fn references_are_removed_as_deletes_do() {
    let removed = |path: &str, body: &str, targets: &[&str]| {
        let rules = rules(&link(path, AUTHORS), &containers());
        let mut value = parse(body);
        let mut references = rules.links[0].references(item(body).root()).expect("few");
        references.retain(|reference| targets.contains(&reference.target.value.as_str()));
        let changed = rules.links[0].remove_references(&mut value, &references);
        assert_eq!(changed, value != parse(body));
        value.to_json()
    };
    assert_eq!(removed("/p/id", r#"{"p":{"id":"x","n":1}}"#, &["x"]), r#"{"p":{"n":1}}"#);
    assert_eq!(
        removed("/a/*/id", r#"{"a":[{"id":"x"},{"id":"y"},{"id":"x","n":1},3]}"#, &["x"]),
        r#"{"a":[{"id":"y"},3]}"#
    );
    assert_eq!(removed("/a/*", r#"{"a":["x","y","x"]}"#, &["x"]), r#"{"a":["y"]}"#);
    assert_eq!(
        removed("/a/*/b/*/id", r#"{"a":[{"b":[{"id":"x"},{"id":"y"}]},{"b":[{"id":"x"}]}]}"#, &["x"]),
        r#"{"a":[{"b":[{"id":"y"}]},{"b":[]}]}"#
    );
    assert_eq!(removed("/p", r#"{"p":"x"}"#, &["y"]), r#"{"p":"x"}"#);
}

const COPY: &str = r#"{"version":1,"links":[{"name":"l","from":{"container":"books","path":"/a/*/id"},"to":{"container":"authors"}}],
    "copies":[{"name":"c","link":"l","fields":{"name":"t.name","deep/er":"t.n","all":"t"},"onMissing":"MISSING","onWrite":"WRITE"}],
    "rollups":[{"name":"r","link":"l","op":"count","into":"/stats/n"}]}"#;

/// Puts the copies of one target, `x`, into a body.
fn copied(missing: &str, write: &str, target: &str, body: &str) -> Result<String, ItemError> {
    let rules = rules(&COPY.replace("MISSING", missing).replace("WRITE", write), &containers());
    let (stored, target) = (item(body), item(target));
    let references = rules.links[0].references(stored.root())?;
    let find = |reference: &Reference| (reference.target.value == "x").then_some(target.root());
    let mut value = parse(body);
    let copied: Vec<_> = rules.copied(&rules.copies[0], &references, &find).collect();
    put_owned_values(&mut value, None, &copied)?;
    Ok(value.to_json())
}

#[test]
fn copies_are_the_expressions_over_their_targets() {
    let target = r#"{"id":"x","name":"Ann","n":2,"stats":{"n":7,"m":8}}"#;
    let made = copied(
        "remove",
        "correct",
        target,
        r#"{"a":[{"id":"x","name":"old"},{"id":"gone","name":"old","deep":{"er":1}},{"name":"free"}]}"#,
    );
    let all = r#"{"id":"x","name":"Ann","n":2,"stats":{"m":8}}"#;
    assert_eq!(
        made.expect("corrected"),
        format!(
            r#"{{"a":[{{"id":"x","name":"Ann","all":{all},"deep":{{"er":2}}}},{{"id":"gone","deep":{{}}}},{{"name":"free"}}]}}"#
        )
    );
}

/// An object that is there for an owned path only is not what a client wrote: `t` is the same before and after it was made.
#[test]
fn whole_items_have_no_objects_made_for_owned_paths() {
    let rules = rules(&COPY.replace("MISSING", "keep").replace("WRITE", "correct"), &containers());
    let written = |body: &str| rules.without_owned("authors", item(body).root()).to_json();
    for same in
        [r#"{"id":"x","a":1}"#, r#"{"id":"x","a":1,"stats":{}}"#, r#"{"id":"x","a":1,"stats":{"n":3}}"#]
    {
        assert_eq!(written(same), r#"{"id":"x","a":1}"#);
    }
    assert_eq!(written(r#"{"id":"x","stats":{"n":3,"m":{}}}"#), r#"{"id":"x","stats":{"m":{}}}"#);
    assert_eq!(written(r#"{"id":"x","stats":7}"#), r#"{"id":"x","stats":7}"#);
}

#[test]
fn an_undefined_expression_removes_the_field() {
    let made = copied("remove", "correct", r#"{"id":"x"}"#, r#"{"a":[{"id":"x","name":"old"}]}"#);
    assert_eq!(made.expect("corrected"), r#"{"a":[{"id":"x","all":{"id":"x"}}]}"#);
}

#[test]
fn keep_leaves_what_is_there_without_a_target() {
    let made = copied("keep", "refuse", r#"{"id":"x"}"#, r#"{"a":[{"id":"gone","name":"mine"}]}"#);
    assert_eq!(made.expect("free"), r#"{"a":[{"id":"gone","name":"mine"}]}"#);
}

#[test]
fn refuse_takes_only_the_right_value_or_none() {
    let target = r#"{"id":"x","name":"Ann"}"#;
    let right = r#"{"a":[{"id":"x","name":"Ann","all":{"id":"x","name":"Ann"}}]}"#;
    assert_eq!(copied("remove", "refuse", target, right).expect("right"), right);
    assert_eq!(
        copied("remove", "refuse", target, r#"{"a":[{"id":"x"}]}"#).expect("left out").len(),
        right.len()
    );
    let error = copied("remove", "refuse", target, r#"{"a":[{"id":"x","name":"Bob"}]}"#).expect_err("wrong");
    assert_eq!(error.status(), (400, 6103));
    assert_eq!(error.to_string(), "PathOwned: /a/0/name is maintained by 'c'.");
    let error =
        copied("remove", "refuse", target, r#"{"a":[{"id":"gone","name":"x"}]}"#).expect_err("no target");
    assert_eq!(error.to_string(), "PathOwned: /a/0/name is maintained by 'c'.");
}

#[test]
fn what_a_client_left_as_it_was_is_not_refused() {
    let owned = |right: i64| OwnedValue {
        owner: "r".to_owned(),
        path: Pointer(vec![Segment::Name("n".to_owned())]),
        positions: vec![],
        right: ExpectedPathValue::Value(Value::from(right)),
        on_write: OnWrite::Refuse,
    };
    let stored = parse(r#"{"n":3}"#);
    let mut patched = parse(r#"{"n":3,"x":1}"#);
    put_owned_values(&mut patched, Some(&stored), &[owned(4)]).expect("left as it was");
    assert_eq!(patched.to_json(), r#"{"n":4,"x":1}"#);
    put_owned_values(&mut parse(r#"{"n":5}"#), Some(&stored), &[owned(4)]).expect_err("neither");
    put_owned_values(&mut parse(r#"{"n":3}"#), None, &[owned(4)]).expect_err("nothing is stored");
}

#[test]
fn parents_are_made_and_what_is_no_object_blocks() {
    let put = |body: &str, right: ExpectedPathValue| {
        let path = Pointer(["s", "t", "n"].map(|name| Segment::Name(name.to_owned())).to_vec());
        let owned =
            OwnedValue { owner: "r".to_owned(), path, positions: vec![], right, on_write: OnWrite::Correct };
        let mut value = parse(body);
        let placed = put_owned_values(&mut value, None, &[owned]).expect("corrected");
        (value.to_json(), placed[0])
    };
    let one = || ExpectedPathValue::Value(Value::from(1));
    assert_eq!(put("{}", one()), (r#"{"s":{"t":{"n":1}}}"#.to_owned(), PutOutcome::Changed));
    assert_eq!(
        put(r#"{"s":{"a":2}}"#, one()),
        (r#"{"s":{"a":2,"t":{"n":1}}}"#.to_owned(), PutOutcome::Changed)
    );
    assert_eq!(put(r#"{"s":{"t":{"n":1.0}}}"#, one()).1, PutOutcome::Same);
    for blocked in [r#"{"s":7}"#, r#"{"s":null}"#, r#"{"s":{"t":[]}}"#] {
        assert_eq!(put(blocked, one()), (blocked.to_owned(), PutOutcome::Blocked));
    }
    assert_eq!(put("{}", ExpectedPathValue::Absent), ("{}".to_owned(), PutOutcome::Same));
    assert_eq!(
        put(r#"{"s":{"t":{"n":5}}}"#, ExpectedPathValue::Absent),
        (r#"{"s":{"t":{}}}"#.to_owned(), PutOutcome::Changed)
    );
}

#[test]
fn follow_is_dropped_where_links_are() {
    let rules = rules(COPY.replace("MISSING", "keep").replace("WRITE", "correct").as_str(), &containers());
    let dropped = |container: &str| {
        let mut value = parse(r#"{"id":"x","_follow":{"l":[]},"a":{"_follow":1}}"#);
        rules.drop_follow(container, &mut value);
        value.to_json()
    };
    assert_eq!(dropped("books"), r#"{"id":"x","a":{"_follow":1}}"#);
    assert_eq!(dropped("authors"), r#"{"id":"x","a":{"_follow":1}}"#);
    assert_eq!(dropped("shops"), r#"{"id":"x","_follow":{"l":[]},"a":{"_follow":1}}"#);
}

fn rollup(members: &str) -> String {
    format!(
        r#"{{"version":1,"links":[{{"name":"l","from":{{"container":"books","path":"/a/*/id"}},"to":{{"container":"authors"}}}}],
        "rollups":[{{"name":"r","link":"l","into":"/n",{members}}}]}}"#
    )
}

/// What a target `x` has after these items, changes merged from the last to the first.
fn rolled_up(members: &str, items: &[&str]) -> String {
    let rules = rules(&rollup(members), &containers());
    let x = TargetKey {
        value: "x".to_owned(),
        partition_key: Some(PartitionKey(vec![Component::String("x".to_owned())])),
    };
    let mut merged = RollupChange::default();
    for body in items.iter().rev() {
        let changes = rules.rollup_changes(&rules.rollups[0], None, Some(item(body).root())).expect("few");
        changes.iter().filter(|(target, _)| *target == x).for_each(|(_, change)| merged.merge(change));
    }
    let mut totals = RollupTotals::default();
    totals.apply(&merged);
    assert_eq!(RollupTotals::from_bytes(&totals.to_bytes()), Ok(totals.clone()));
    let extreme = match members.contains("\"min\"") {
        true => merged.keys.keys().next(),
        false => merged.keys.keys().next_back(),
    };
    match rules.rolled_up(&rules.rollups[0], &totals, extreme.map(Vec::as_slice)).right {
        ExpectedPathValue::Value(value) => value.to_json(),
        ExpectedPathValue::Absent => "absent".to_owned(),
    }
}

#[test]
fn rollups_over_items_and_references() {
    let items = [
        r#"{"id":"1","v":2,"a":[{"id":"x","n":1},{"id":"y","n":9},{"id":"x","n":2.5}]}"#,
        r#"{"id":"2","v":"s","a":[{"id":"x","n":"no"}]}"#,
        r#"{"id":"3","v":null,"a":[{"id":"y"}]}"#,
        r#"{"id":"4","v":true,"a":[{"id":"x","n":null}]}"#,
        r#"{"id":"5","v":[1],"a":[{"id":"x","n":[]}]}"#,
    ];
    for (members, expected, of_none) in [
        (r#""op":"count""#, "4", "0"),
        (r#""op":"count","of":"references""#, "5", "0"),
        (r#""op":"count","filter":"r.v = 2""#, "1", "0"),
        (r#""op":"count","filter":"r.v""#, "1", "0"),
        (r#""op":"count","of":"references","filter":"e.n > 1""#, "1", "0"),
        (r#""op":"sum","value":"r.v""#, "2", "0"),
        (r#""op":"sum","value":"e.n","of":"references""#, "3.5", "0"),
        (r#""op":"avg","value":"e.n","of":"references""#, "1.75", "absent"),
        (r#""op":"min","value":"r.v""#, "true", "absent"),
        (r#""op":"max","value":"r.v""#, r#""s""#, "absent"),
        (r#""op":"min","value":"e.n","of":"references""#, "null", "absent"),
        (r#""op":"max","value":"e.n","of":"references""#, r#""no""#, "absent"),
        (r#""op":"max","value":"e.n","of":"references","filter":"r.v = 2""#, "2.5", "absent"),
        (r#""op":"min","value":"r.missing""#, "absent", "absent"),
    ] {
        assert_eq!(rolled_up(members, &items), expected, "{members}");
        assert_eq!(rolled_up(members, &[]), of_none, "{members} of nothing");
    }
}

#[test]
fn a_write_is_the_difference_of_its_versions() {
    let rules = rules(&rollup(r#""op":"sum","value":"r.v""#), &containers());
    let (old, new) =
        (item(r#"{"v":3,"a":[{"id":"x"},{"id":"y"}]}"#), item(r#"{"v":5,"a":[{"id":"x"},{"id":"z"}]}"#));
    let changes = rules.rollup_changes(&rules.rollups[0], Some(old.root()), Some(new.root())).expect("few");
    let shown: Vec<String> = changes
        .iter()
        .map(|(target, change)| format!("{} {} {}", target.value, change.count, change.sum.to_number()))
        .collect();
    assert_eq!(shown, ["x 0 2", "y -1 -3", "z 1 5"]);
    let same = rules.rollup_changes(&rules.rollups[0], Some(old.root()), Some(old.root())).expect("few");
    assert_eq!(same, []);
}

#[test]
fn mirrors_refuse_or_cut_what_is_too_much() {
    let mirror = |when: &str, values: &[Value]| {
        let model = format!(
            r#"{{"version":1,"links":[{{"name":"l","from":{{"container":"books","path":"/a"}},"to":{{"container":"authors"}}}}],
            "mirrors":[{{"name":"m","link":"l","into":"/b","max":2,"whenFull":"{when}"}}]}}"#
        );
        let rules = rules(&model, &containers());
        rules.mirror_value(&rules.mirrors[0], values.to_vec()).map(|owned| match owned.right {
            ExpectedPathValue::Value(value) => value.to_json(),
            ExpectedPathValue::Absent => "absent".to_owned(),
        })
    };
    let three = [Value::from("a"), Value::Undefined, Value::from("b"), Value::from("c")];
    assert_eq!(mirror("refuse", &[]), Some("[]".to_owned()));
    assert_eq!(mirror("refuse", &three[..3]), Some(r#"["a","b"]"#.to_owned()));
    assert_eq!(mirror("refuse", &three), None);
    assert_eq!(mirror("cut", &three), Some(r#"["a","b"]"#.to_owned()));
}
