//! Random models and random items for them: the same seed, the same ones.
//!
//! Containers are [`KEYS`]. Few ids and few values, so that items meet: references dangle and find targets, keys are taken,
//! numbers are large, small and no numbers at all.

use quire_value::{Limits, Object, Value, text};

use crate::Random;

/// Containers and their key paths.
pub const KEYS: &[(&str, &[&str])] =
    &[("a", &["/id"]), ("b", &["/pk"]), ("c", &["/t", "/u"]), ("pages", &["/post"])];

const LINKS: &[(&str, &str)] = &[
    ("a", r#""path":"/refs/*/id"},"to":{"container":"b","key":"/code","partitionKey":"lookup"}"#),
    ("a", r#""path":"/one/id"},"to":{"container":"a"}"#),
    ("b", r#""path":"/x"},"to":{"container":"a","convert":"string"}"#),
    ("b", r#""path":"/list/*"},"to":{"container":"c","partitionKey":[{"path":"/pk"},{"value":"u"}]}"#),
    ("a", r#""path":"/deep/*/in/*/id"},"to":{"container":"b","partitionKey":[{"path":"/deep/*/pk"}]}"#),
    ("c", r#""path":"/y"},"to":{"container":"b","partitionKey":[{"path":"/t"}]}"#),
    ("c", r#""path":"/z"},"to":{"container":"a","partitionKey":[{"reference":true}]}"#),
    ("b", r#""path":"/near/id"},"to":{"container":"b","key":"/code","partitionKey":[{"path":"/pk"}]}"#),
];

const FIELDS: &[&str] = &[
    r#"{"name":"t.name"}"#,
    r#"{"twice":"t.n * 2","deep/er":"t.name"}"#,
    r#"{"all":"t"}"#,
    r#"{"text":"CONCAT(t.name, '!')","some":"{n: t.n, none: t.none}"}"#,
];
const VALUES: &[&str] = &["r.id", "r.name", "r", "{id: r.id, n: r.n}", "r.n"];
const ROLLUPS: &[&str] = &[
    r#""op":"count""#,
    r#""op":"count","of":"references""#,
    r#""op":"count","filter":"r.n > 1""#,
    r#""op":"sum","value":"r.n""#,
    r#""op":"sum","value":"e.n","of":"references""#,
    r#""op":"avg","value":"r.n""#,
    r#""op":"avg","value":"e.n","of":"references","filter":"e.n > 0 OR IS_DEFINED(r.name)""#,
    r#""op":"min","value":"r.n""#,
    r#""op":"max","value":"r.n","of":"references""#,
    r#""op":"max","value":"r.name""#,
    r#""op":"min","value":"r""#,
];

/// Declarations are added one by one; what does not fit the others is left out.
pub fn random_model(random: &mut Random, mut is_valid: impl FnMut(&Value) -> bool) -> Value {
    let mut body = parse(r#"{"version":1,"links":[],"copies":[],"mirrors":[],"rollups":[],"windows":[]}"#);
    for number in 0..16 {
        let (list, declaration) = random_declaration(random, number);
        let mut longer = body.clone();
        if let Some(Value::Array(entries)) = longer.as_object_mut().and_then(|body| body.get_mut(list)) {
            entries.push(parse(&declaration));
        }
        if is_valid(&longer) {
            body = longer;
        }
    }
    body
}

fn random_declaration(random: &mut Random, number: usize) -> (&'static str, String) {
    let link = format!("l{}", random.below(5));
    let on_write = if random.one_in(8) { r#","onWrite":"refuse""# } else { "" };
    match (number, random.below(3)) {
        (0..5, _) => {
            let (from, rest) = random.pick(LINKS);
            let integrity = *random.pick(&["", "", r#","integrity":"enforced""#]);
            let on_delete = *random.pick(&["", "allow", "restrict", "cascade", "remove", "remove"]);
            let on_delete =
                if on_delete.is_empty() { String::new() } else { format!(r#","onDelete":"{on_delete}""#) };
            let link = format!(
                r#"{{"name":"l{number}","from":{{"container":"{from}",{rest}{integrity}{on_delete}}}"#
            );
            ("links", link)
        }
        (5, _) => {
            let key = *random.pick(&["", r#""key":"/id","#]);
            let more = *random.pick(&["", r#""newest":"first","#, r#""slack":3,"#, r#""by":"/at","#]);
            let window = format!(
                r#"{{"name":"w","container":"a","path":"/win","keep":2,{key}{more}"count":"/count",
                "pages":{{"container":"pages","path":"/all","parent":"/post","number":"/page","size":10}}{on_write}}}"#
            );
            ("windows", window)
        }
        (_, 0) => {
            let (fields, missing) = (random.pick(FIELDS), random.pick(&["remove", "keep"]));
            let copy = format!(
                r#"{{"name":"d{number}","link":"{link}","fields":{fields},"onMissing":"{missing}"{on_write}}}"#
            );
            ("copies", copy)
        }
        (_, 1) => {
            let (value, full) = (
                random.pick(VALUES),
                random.pick(&[r#""max":2,"whenFull":"cut""#, r#""max":1"#, r#""max":50"#]),
            );
            (
                "mirrors",
                format!(
                    r#"{{"name":"d{number}","link":"{link}","into":"/m{number}","value":"{value}",{full}{on_write}}}"#
                ),
            )
        }
        (_, _) => {
            let (rollup, parent) = (random.pick(ROLLUPS), random.pick(&["", "/stats"]));
            (
                "rollups",
                format!(
                    r#"{{"name":"d{number}","link":"{link}",{rollup},"into":"{parent}/r{number}"{on_write}}}"#
                ),
            )
        }
    }
}

pub const IDS: &[&str] = &["1", "2", "3", "4"];

fn random_scalar(random: &mut Random) -> Value {
    match random.below(9) {
        0 => Value::Null,
        1 => true.into(),
        2 => "x".into(),
        3 => 0.1.into(),
        4 => 1e300.into(),
        5 => (-1e300).into(),
        6 => i64::MAX.into(),
        7 => f64::from_bits(random.next_u64() & !(1 << 62)).into(),
        _ => (random.below(5) as i64).into(),
    }
}

fn random_reference(random: &mut Random) -> Value {
    match random.below(8) {
        0 => random_scalar(random),
        1 => (random.below(5) as i64).into(),
        _ => (*random.pick(IDS)).into(),
    }
}

fn object(members: Vec<(&str, Value)>) -> Value {
    Value::Object(members.into_iter().collect::<Object>())
}

fn list(random: &mut Random, max: usize, mut element: impl FnMut(&mut Random) -> Value) -> Value {
    let count = random.below(max + 1);
    (0..count).map(|_| element(random)).collect()
}

fn holder(random: &mut Random) -> Value {
    let mut members = vec![("n", random_scalar(random))];
    if !random.one_in(6) {
        members.push(("id", random_reference(random)));
    }
    if random.one_in(6) {
        members.push(("name", "garbage".into()));
        members.push(("deep", random_scalar(random)));
    }
    object(members)
}

pub fn random_item(random: &mut Random, container: &str) -> Value {
    let mut members = vec![("id", Value::from(*random.pick(IDS)))];
    let mut maybe = |random: &mut Random, name: &'static str, value: &mut dyn FnMut(&mut Random) -> Value| {
        if !random.one_in(4) {
            let value = value(random);
            members.push((name, value));
        }
    };
    maybe(random, "name", &mut |random| (*random.pick(&["Ann", "Bob", "Cid"])).into());
    maybe(random, "n", &mut random_scalar);
    match container {
        "a" => {
            maybe(random, "refs", &mut |random| list(random, 3, holder));
            maybe(random, "one", &mut holder);
            maybe(random, "deep", &mut |random| {
                list(random, 2, |random| {
                    let pk = *random.pick(&["p", "q"]);
                    object(vec![("pk", pk.into()), ("in", list(random, 2, holder))])
                })
            });
        }
        "b" => {
            maybe(random, "pk", &mut |random| (*random.pick(&["p", "q"])).into());
            maybe(random, "code", &mut |random| (*random.pick(IDS)).into());
            maybe(random, "x", &mut random_reference);
            maybe(random, "list", &mut |random| list(random, 3, random_reference));
            maybe(random, "near", &mut holder);
        }
        _ => {
            maybe(random, "t", &mut |random| (*random.pick(&["p", "q"])).into());
            maybe(random, "u", &mut |random| (*random.pick(&["u", "v"])).into());
            maybe(random, "y", &mut random_reference);
            maybe(random, "z", &mut random_reference);
        }
    }
    if random.one_in(5) {
        members.push(("stats", random_scalar(random)));
        members.push(("m9", "garbage".into()));
        members.push(("r8", random_scalar(random)));
        members.push(("_follow", "garbage".into()));
    }
    if container == "a" && random.one_in(10) {
        members.push(("win", random_scalar(random)));
        members.push(("count", random_scalar(random)));
    }
    object(members)
}

/// The stored item with one more element in its window, or some fewer.
pub fn with_window(random: &mut Random, mut body: Value, stored: Option<&Value>, next: &mut i64) -> Value {
    let array = stored.and_then(|stored| stored.get("win")).and_then(Value::as_array);
    let mut array = array.map(<[Value]>::to_vec).unwrap_or_default();
    for _ in 0..random.below(9) {
        *next += 1;
        let element = object(vec![("id", (*next).into()), ("at", (random.below(9) as i64).into())]);
        let place = random.below(array.len() + 1);
        array.insert(place, element);
    }
    while !array.is_empty() && random.one_in(3) {
        let place = random.below(array.len());
        array.remove(place);
    }
    if let Some(Value::Object(element)) = array.first_mut() {
        element.set("changed", *next);
    }
    // An element that may be in a page by now.
    if random.one_in(3) {
        let known = (*next - random.below(40) as i64).max(0);
        if !array.iter().any(|element| element.get("id") == Some(&known.into())) {
            array.push(object(vec![("id", known.into())]));
        }
    }
    if let Value::Object(body) = &mut body {
        body.set("win", array);
    }
    body
}

fn parse(json: &str) -> Value {
    text::parse(json.as_bytes(), Limits::default()).unwrap_or_else(|error| panic!("{error}: {json}"))
}
