//! Random models and random writes: what is kept by differences equals what is recomputed from scratch, after every step.

use std::collections::BTreeSet;

use quire_model::{Database, Model, ModelRules};
use quire_resource::ContainerDefinition;
use quire_testkit::interpreter::Json;
use quire_testkit::model::Oracle;
use quire_value::{Object, Value};

use crate::library::{container, parse};
use crate::store::{ItemKey, Store};

const KEYS: &[(&str, &[&str])] =
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

/// A small generator: the same seed, the same run.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
    fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
    fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        let place = self.below(choices.len());
        &choices[place]
    }
}

fn containers() -> Vec<ContainerDefinition> {
    KEYS.iter().map(|(id, keys)| container(id, keys)).collect()
}

/// Declarations are added one by one; what does not fit the others is left out.
fn random_model(chance: &mut Chance, database: &Database<'_>) -> Value {
    let mut body = parse(r#"{"version":1,"links":[],"copies":[],"mirrors":[],"rollups":[],"windows":[]}"#);
    for number in 0..16 {
        let (list, declaration) = random_declaration(chance, number);
        let mut longer = body.clone();
        if let Some(Value::Array(entries)) = longer.as_object_mut().and_then(|body| body.get_mut(list)) {
            entries.push(parse(&declaration));
        }
        if Model::parse(&longer, database).is_ok() {
            body = longer;
        }
    }
    body
}

fn random_declaration(chance: &mut Chance, number: usize) -> (&'static str, String) {
    let link = format!("l{}", chance.below(5));
    let on_write = if chance.one_in(8) { r#","onWrite":"refuse""# } else { "" };
    match (number, chance.below(3)) {
        (0..5, _) => {
            let (from, rest) = chance.pick(LINKS);
            let integrity = *chance.pick(&["", "", r#","integrity":"enforced""#]);
            let on_delete = *chance.pick(&["", "allow", "restrict", "cascade", "remove", "remove"]);
            let on_delete =
                if on_delete.is_empty() { String::new() } else { format!(r#","onDelete":"{on_delete}""#) };
            let link = format!(
                r#"{{"name":"l{number}","from":{{"container":"{from}",{rest}{integrity}{on_delete}}}"#
            );
            ("links", link)
        }
        (5, _) => {
            let key = *chance.pick(&["", r#""key":"/id","#]);
            let more = *chance.pick(&["", r#""newest":"first","#, r#""slack":3,"#, r#""by":"/at","#]);
            let window = format!(
                r#"{{"name":"w","container":"a","path":"/win","keep":2,{key}{more}"count":"/count",
                "pages":{{"container":"pages","path":"/all","parent":"/post","number":"/page","size":10}}}}"#
            );
            ("windows", window)
        }
        (_, 0) => {
            let (fields, missing) = (chance.pick(FIELDS), chance.pick(&["remove", "keep"]));
            let copy = format!(
                r#"{{"name":"d{number}","link":"{link}","fields":{fields},"onMissing":"{missing}"{on_write}}}"#
            );
            ("copies", copy)
        }
        (_, 1) => {
            let (value, full) = (
                chance.pick(VALUES),
                chance.pick(&[r#""max":2,"whenFull":"cut""#, r#""max":1"#, r#""max":50"#]),
            );
            (
                "mirrors",
                format!(
                    r#"{{"name":"d{number}","link":"{link}","into":"/m{number}","value":"{value}",{full}{on_write}}}"#
                ),
            )
        }
        (_, _) => {
            let (rollup, parent) = (chance.pick(ROLLUPS), chance.pick(&["", "/stats"]));
            (
                "rollups",
                format!(
                    r#"{{"name":"d{number}","link":"{link}",{rollup},"into":"{parent}/r{number}"{on_write}}}"#
                ),
            )
        }
    }
}

const IDS: &[&str] = &["1", "2", "3", "4"];

fn random_scalar(chance: &mut Chance) -> Value {
    match chance.below(9) {
        0 => Value::Null,
        1 => true.into(),
        2 => "x".into(),
        3 => 0.1.into(),
        4 => 1e300.into(),
        5 => (-1e300).into(),
        6 => i64::MAX.into(),
        7 => f64::from_bits(chance.next() & !(1 << 62)).into(),
        _ => (chance.below(5) as i64).into(),
    }
}

fn random_reference(chance: &mut Chance) -> Value {
    match chance.below(8) {
        0 => random_scalar(chance),
        1 => (chance.below(5) as i64).into(),
        _ => (*chance.pick(IDS)).into(),
    }
}

fn object(members: Vec<(&str, Value)>) -> Value {
    Value::Object(members.into_iter().collect::<Object>())
}

fn list(chance: &mut Chance, max: usize, mut element: impl FnMut(&mut Chance) -> Value) -> Value {
    let count = chance.below(max + 1);
    (0..count).map(|_| element(chance)).collect()
}

fn holder(chance: &mut Chance) -> Value {
    let mut members = vec![("n", random_scalar(chance))];
    if !chance.one_in(6) {
        members.push(("id", random_reference(chance)));
    }
    if chance.one_in(6) {
        members.push(("name", "garbage".into()));
        members.push(("deep", random_scalar(chance)));
    }
    object(members)
}

fn random_item(chance: &mut Chance, container: &str) -> Value {
    let mut members = vec![("id", Value::from(*chance.pick(IDS)))];
    let mut maybe = |chance: &mut Chance, name: &'static str, value: &mut dyn FnMut(&mut Chance) -> Value| {
        if !chance.one_in(4) {
            let value = value(chance);
            members.push((name, value));
        }
    };
    maybe(chance, "name", &mut |chance| (*chance.pick(&["Ann", "Bob", "Cid"])).into());
    maybe(chance, "n", &mut random_scalar);
    match container {
        "a" => {
            maybe(chance, "refs", &mut |chance| list(chance, 3, holder));
            maybe(chance, "one", &mut holder);
            maybe(chance, "deep", &mut |chance| {
                list(chance, 2, |chance| {
                    let pk = *chance.pick(&["p", "q"]);
                    object(vec![("pk", pk.into()), ("in", list(chance, 2, holder))])
                })
            });
        }
        "b" => {
            maybe(chance, "pk", &mut |chance| (*chance.pick(&["p", "q"])).into());
            maybe(chance, "code", &mut |chance| (*chance.pick(IDS)).into());
            maybe(chance, "x", &mut random_reference);
            maybe(chance, "list", &mut |chance| list(chance, 3, random_reference));
            maybe(chance, "near", &mut holder);
        }
        _ => {
            maybe(chance, "t", &mut |chance| (*chance.pick(&["p", "q"])).into());
            maybe(chance, "u", &mut |chance| (*chance.pick(&["u", "v"])).into());
            maybe(chance, "y", &mut random_reference);
            maybe(chance, "z", &mut random_reference);
        }
    }
    if chance.one_in(5) {
        members.push(("stats", random_scalar(chance)));
        members.push(("m9", "garbage".into()));
        members.push(("r8", random_scalar(chance)));
        members.push(("_follow", "garbage".into()));
    }
    if container == "a" && chance.one_in(10) {
        members.push(("win", random_scalar(chance)));
        members.push(("count", random_scalar(chance)));
    }
    object(members)
}

/// The stored item with one more element in its window, or some fewer.
fn with_window(chance: &mut Chance, mut body: Value, stored: Option<&Value>, next: &mut i64) -> Value {
    let array = stored.and_then(|stored| stored.get("win")).and_then(Value::as_array);
    let mut array = array.map(<[Value]>::to_vec).unwrap_or_default();
    for _ in 0..chance.below(9) {
        *next += 1;
        let element = object(vec![("id", (*next).into()), ("at", (chance.below(9) as i64).into())]);
        let place = chance.below(array.len() + 1);
        array.insert(place, element);
    }
    while !array.is_empty() && chance.one_in(3) {
        let place = chance.below(array.len());
        array.remove(place);
    }
    if let Some(Value::Object(element)) = array.first_mut() {
        element.set("changed", *next);
    }
    // An element that may be in a page by now.
    if chance.one_in(3) {
        let known = (*next - chance.below(40) as i64).max(0);
        if !array.iter().any(|element| element.get("id") == Some(&known.into())) {
            array.push(object(vec![("id", known.into())]));
        }
    }
    if let Value::Object(body) = &mut body {
        body.set("win", array);
    }
    body
}

fn items(store: &Store) -> Vec<(String, Json)> {
    let items = store.state.items.iter();
    items.map(|(key, item)| (key.0.clone(), Json::of(item).expect("an item"))).collect()
}

struct Run {
    seed: u64,
    chance: Chance,
    model: String,
    oracle: Oracle,
    store: Store,
    has_window: bool,
    /// Writes that were accepted, and that were refused.
    counts: (usize, BTreeSet<u16>),
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut chance = Chance(seed);
        let containers = containers();
        let database = Database::new("random", &containers);
        let body = random_model(&mut chance, &database);
        let (model, _) = Model::parse(&body, &database).expect("built to be valid");
        let rules = ModelRules::new(&model, &database).expect("valid");
        let has_window = !model.windows.is_empty();
        let oracle = Oracle::new(&body.to_json(), KEYS);
        let store = Store::new(rules, &containers);
        Run { seed, chance, model: body.to_json(), oracle, store, has_window, counts: (0, BTreeSet::new()) }
    }

    fn step(&mut self, next: &mut i64) {
        let container = *self.chance.pick(&["a", "a", "b", "b", "c"]);
        let mut body = random_item(&mut self.chance, container);
        let action = self.chance.below(10);
        // Few items get all windows, so that there are several pages.
        if let (4..8, "a", true, Value::Object(body)) = (action, container, self.has_window, &mut body) {
            body.set("id", "1");
        }
        let key = self.store.key(container, &body);
        let stored = self.store.state.items.get(&key).cloned();
        match action {
            0..2 => self.delete(&key),
            2 if self.has_window => self.change_page(),
            4..8 if container == "a" && self.has_window => {
                let body = with_window(&mut self.chance, body, stored.as_ref(), next);
                self.upsert(&key, body);
            }
            _ => self.upsert(&key, body),
        }
        if self.chance.one_in(2) {
            self.compare();
        }
    }

    fn delete(&mut self, key: &ItemKey) {
        let result = self.store.delete(key);
        self.note(result.err().map(|error| error.status().1));
    }

    fn upsert(&mut self, key: &ItemKey, body: Value) {
        let stored = self.store.state.items.get(key).and_then(Json::of);
        let before = items(&self.store);
        let result = self.store.upsert(&key.0, body.clone());
        if key.0 == "a" && self.has_window && result.is_ok() {
            self.compare_window(key, stored, &before, &body);
        }
        self.note(result.err().map(|error| error.status().1));
    }

    /// Takes an element out of a page, and tries what clients may not do.
    fn change_page(&mut self) {
        let pages: Vec<ItemKey> =
            self.store.state.items.keys().filter(|(container, _)| container == "pages").cloned().collect();
        if pages.is_empty() {
            return;
        }
        let key = self.chance.pick(&pages).clone();
        self.store.delete(&key).expect_err("pages are removed by the window");
        let mut page = self.store.state.items[&key].clone();
        if let Some(Value::Array(elements)) = page.as_object_mut().and_then(|page| page.get_mut("all"))
            && !elements.is_empty()
        {
            elements.remove(self.chance.below(elements.len()));
        }
        self.store.upsert("pages", page).expect("elements may be taken away");
    }

    fn compare_window(&self, key: &ItemKey, stored: Option<Json>, before: &[(String, Json)], body: &Value) {
        let (pages, window) = stored
            .map_or((Vec::new(), Vec::new()), |stored| self.oracle.window_elements("w", &stored, before));
        let body = Json::of(body).expect("a body");
        let expected = self.oracle.elements_after_write("w", &pages, &window, &body);
        let item = Json::of(&self.store.state.items[key]).expect("an item");
        let (pages, window) = self.oracle.window_elements("w", &item, &items(&self.store));
        let found = [pages.concat(), window].concat();
        let shown = |elements: &[Json], by_value: bool| {
            let mut texts: Vec<String> = elements.iter().map(Json::to_text).collect();
            if by_value {
                texts.sort();
            }
            texts
        };
        let has_by = self.model.contains("\"by\"");
        assert_eq!(shown(&found, has_by), shown(&expected, has_by), "seed {}: {}", self.seed, self.model);
    }

    fn note(&mut self, refused: Option<u16>) {
        match refused {
            Some(sub_status) => _ = self.counts.1.insert(sub_status),
            None => self.counts.0 += 1,
        }
    }

    fn compare(&mut self) {
        self.store.flush();
        let items = items(&self.store);
        let problems = self.oracle.problems(&items);
        assert_eq!(problems, [""; 0], "seed {}: {}", self.seed, self.model);
        let expected = self.oracle.dangling(&items).into_iter();
        let expected: BTreeSet<_> = expected.map(|own| (own.link, own.container, own.id, own.path)).collect();
        assert_eq!(self.store.dangling(), expected, "seed {}: {}", self.seed, self.model);
    }
}

const RUNS: u64 = 100;
const STEPS: usize = 60;

#[test]
fn differences_equal_a_recomputation() {
    let (mut accepted, mut refusals, mut declared) = (0, BTreeSet::new(), BTreeSet::new());
    for seed in 0..RUNS {
        let mut run = Run::new(seed);
        let mut next = 0;
        for _ in 0..STEPS {
            run.step(&mut next);
        }
        run.compare();
        accepted += run.counts.0;
        refusals.extend(run.counts.1);
        let model = parse(&run.model);
        let lists = model.as_object().expect("a model").iter();
        declared.extend(lists.filter(|(_, list)| list.at(0).is_some()).map(|(name, _)| name.to_owned()));
    }
    // The runs say something: most writes are accepted, every kind is declared, every refusal that can be met is met.
    assert!(accepted > RUNS as usize * STEPS / 2, "{accepted} writes were accepted");
    let kinds = ["copies", "links", "mirrors", "rollups", "windows"];
    assert_eq!(declared.iter().map(String::as_str).collect::<Vec<_>>(), kinds);
    assert_eq!(refusals.into_iter().collect::<Vec<_>>(), [6101, 6102, 6103, 6104, 6107]);
}
