//! Random windows over containers with keys of all forms, and everything that can happen to their items and pages: after every
//! step, pages and window have every element once, in order of arrival.

use quire_testkit::Random;
use quire_testkit::model::random::with_window;

use super::paths::wait_until;
use super::*;
use crate::transactions::TransactionVerb;

/// Keys of the items' container, and of the pages'.
const SHAPES: &[[&[&str]; 2]] = &[
    [&["/id"], &["/postId"]],
    [&["/tenant"], &["/tenant", "/postId"]],
    [&["/tenant"], &["/tenant"]],
    [&["/tenant", "/id"], &["/postId", "/tenant"]],
];
/// The pages of one of them begin like a page of another one.
const IDS: &[&str] = &["p", "p", "q", "p:00000001"];

fn random_window(random: &mut Random) -> String {
    let (keep, size) = (1 + random.below(4), 10 + random.below(3));
    let slack = random.below(4);
    let more =
        ["", r#""key":"/id","#, r#""newest":"first","#, r#""by":"/at","#, r#""key":"/id","newest":"first","#];
    let (more, count) =
        (random.pick(&more), random.pick(&[r#""count":"/n","#, r#""count":"/stats/n","#, ""]));
    format!(
        r#"{{"version":1,"windows":[{{"name":"w","container":"posts","path":"/win","keep":{keep},"slack":{slack},{more}{count}
        "pages":{{"container":"pages","path":"/all","parent":"/postId","number":"/page","size":{size}}}}}]}}"#
    )
}

struct Run {
    bench: Bench,
    random: Random,
    keys: &'static [&'static str],
    next: i64,
    compared: usize,
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut random = Random(seed);
        let [posts, pages] = random.pick(SHAPES);
        let model = random_window(&mut random);
        let partitions = if seed.is_multiple_of(2) { 1 } else { 5 };
        let bench = Bench::new(partitions, &[("posts", posts), ("pages", pages)], &model);
        Run { bench, random, keys: posts, next: 0, compared: 0 }
    }

    /// A body without its window.
    fn body(&mut self) -> Value {
        let mut body = Object::new();
        body.set("id", *self.random.pick(IDS));
        match self.random.below(4) {
            0 => {}
            1 => body.set("tenant", 7),
            _ => body.set("tenant", "t"),
        }
        if self.random.one_in(4) {
            body.set("stats", self.random.below(9) as i64);
            body.set("n", "garbage");
        }
        Value::Object(body)
    }

    fn stored(&self, body: &Value) -> Option<Value> {
        let id = body.get("id").and_then(Value::as_str).unwrap();
        self.bench.read("posts", id, &self.bench.key_of("posts", body).to_header())
    }

    /// The elements of an item's pages, and of its window.
    fn elements(&self, item: Option<&Value>) -> (Vec<Vec<Json>>, Vec<Json>) {
        let item = item.and_then(|item| self.stored(item)).and_then(|item| Json::of(&item));
        let (oracle, items) = (self.bench.oracle(), self.bench.all_items());
        item.map_or_else(Default::default, |item| oracle.window_elements("w", &item, &items))
    }

    /// What a write of `body` over the item `old` has made.
    fn compare(&mut self, old: (Vec<Vec<Json>>, Vec<Json>), body: &Value) {
        let expected =
            self.bench.oracle().elements_after_write("w", &old.0, &old.1, &Json::of(body).unwrap());
        let (pages, window) = self.elements(Some(body));
        let texts = |elements: &[Json]| {
            let mut texts: Vec<String> = elements.iter().map(Json::to_text).collect();
            if self.bench.model.contains(r#""by""#) {
                texts.sort();
            }
            texts
        };
        assert_eq!(texts(&[pages.concat(), window].concat()), texts(&expected), "{}", self.bench.model);
        self.compared += 1;
    }

    fn step(&mut self) {
        match self.random.below(16) {
            0 => self.delete(),
            1 => self.rename(),
            2 | 3 => self.change_page(),
            4 => self.transact(),
            5 if self.random.one_in(2) => self.expire(),
            6 if self.random.one_in(2) => self.declare(),
            7..=9 => self.add(),
            _ => self.upsert(),
        }
    }

    fn upsert(&mut self) {
        let body = self.body();
        let old = self.elements(Some(&body));
        let stored = self.stored(&body);
        let body = with_window(&mut self.random, body, stored.as_ref(), &mut self.next);
        if self.bench.upsert("posts", &body.to_json()).is_ok() {
            self.compare(old, &body);
        }
    }

    /// Adds an element by a patch.
    fn add(&mut self) {
        let body = self.body();
        let Some(stored) = self.stored(&body) else { return };
        let Some(array) = stored.get("win").and_then(Value::as_array) else { return };
        self.next += 1;
        let element = Object::from_iter([("id", self.next), ("at", self.random.below(9) as i64)]);
        let is_first = self.bench.model.contains(r#""first""#);
        let (place, at) = if is_first { ("0", 0) } else { ("-", array.len()) };
        let old = self.elements(Some(&stored));
        let patch = format!(
            r#"{{"operations":[{{"op":"add","path":"/win/{place}","value":{}}}]}}"#,
            Value::Object(element.clone()).to_json()
        );
        let id = body.get("id").and_then(Value::as_str).unwrap();
        self.bench.patch("posts", id, &self.bench.key_of("posts", &body).to_header(), &patch).unwrap();
        let mut array = array.to_vec();
        array.insert(at, Value::Object(element));
        let mut sent = stored;
        sent.as_object_mut().unwrap().set("win", array);
        self.compare(old, &sent);
    }

    fn delete(&mut self) {
        let body = self.body();
        let id = body.get("id").and_then(Value::as_str).unwrap();
        let _ = self.bench.delete("posts", id, &self.bench.key_of("posts", &body).to_header());
    }

    fn rename(&mut self) {
        let body = self.body();
        let Some(stored) = self.stored(&body).filter(|_| !self.keys.contains(&"/id")) else { return };
        let old = self.elements(Some(&stored));
        let id = body.get("id").and_then(Value::as_str).unwrap().to_owned();
        let mut renamed = stored;
        renamed.as_object_mut().unwrap().set("id", *self.random.pick(IDS));
        let renamed = with_window(&mut self.random, renamed.clone(), Some(&renamed), &mut self.next);
        let kind = WriteKind::Replace { id };
        if self.bench.write("posts", request(kind, None, &renamed.to_json())).result.is_ok() {
            self.compare(old, &renamed);
        }
    }

    fn random_page(&mut self) -> Option<Value> {
        let mut pages = self.bench.items();
        pages.retain(|(name, _)| name == "pages");
        if pages.is_empty() { None } else { Some(self.random.pick(&pages).1.clone()) }
    }

    /// With some elements fewer.
    fn shorter(&mut self, mut page: Value) -> Value {
        let elements = page.as_object_mut().and_then(|page| page.get_mut("all"));
        if let Some(Value::Array(elements)) = elements {
            while !elements.is_empty() && !self.random.one_in(3) {
                elements.remove(self.random.below(elements.len()));
            }
        }
        page
    }

    fn change_page(&mut self) {
        let Some(page) = self.random_page() else { return };
        let page = self.shorter(page);
        self.bench.replace_page(&page).unwrap();
    }

    /// An item and one of its pages, or that of another one.
    fn transact(&mut self) {
        let Some(page) = self.random_page() else { return };
        let page = self.shorter(page);
        let body = self.body();
        let stored = self.stored(&body);
        let body = with_window(&mut self.random, body, stored.as_ref(), &mut self.next);
        let keys = ["posts", "pages"].map(|name| {
            let item = if name == "posts" { &body } else { &page };
            self.bench.key_of(name, item).to_header()
        });
        let id = page.get("id").and_then(Value::as_str).unwrap().to_owned();
        let (item, page) = (body.to_json(), page.to_json());
        let _ = self.bench.transact(&[
            ("pages", TransactionVerb::Replace { id }, &keys[1], &page),
            ("posts", TransactionVerb::Upsert, &keys[0], &item),
        ]);
    }

    /// An item expires; it may be written again before the sweep comes.
    fn expire(&mut self) {
        let mut body = self.body();
        body.as_object_mut().unwrap().set("ttl", 5);
        self.bench.engine.pause_sweep(true);
        self.bench.upsert("posts", &body.to_json()).unwrap();
        self.bench.clock.advance(6);
        if self.random.one_in(2) {
            body.as_object_mut().unwrap().remove("ttl");
            let body = with_window(&mut self.random, body, None, &mut self.next);
            if self.bench.upsert("posts", &body.to_json()).is_ok() {
                self.compare(Default::default(), &body);
            }
        }
        self.bench.engine.pause_sweep(false);
        wait_until(|| self.bench.engine.model_status("d").unwrap().unswept == Some(0));
    }

    /// Another window, over what there is.
    fn declare(&mut self) {
        let model = random_window(&mut self.random);
        self.bench.put_model(&model);
        self.bench.model = model;
    }
}

#[test]
fn pages_and_window_have_every_element_once() {
    let mut compared = 0;
    for seed in 0..40 {
        let mut run = Run::new(seed);
        for at in 0..60 {
            run.step();
            run.bench.check(&format!("seed {seed}, step {at}"));
        }
        run.bench.verify(&format!("seed {seed}"));
        compared += run.compared;
    }
    assert!(compared > 400, "{compared} writes were compared");
}
