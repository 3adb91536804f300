//! Random models and random writes: what is kept by differences equals what is recomputed from scratch, after every step.

use std::collections::BTreeSet;

use quire_model::{Database, Model, ModelRules};
use quire_resource::ContainerDefinition;
use quire_testkit::Random;
use quire_testkit::interpreter::Json;
use quire_testkit::model::ModelOracle;
use quire_testkit::model::random::{KEYS, random_item, random_model, with_window};
use quire_value::Value;

use crate::library::{container, parse};
use crate::store::{ItemKey, Store};

fn containers() -> Vec<ContainerDefinition> {
    KEYS.iter().map(|(id, keys)| container(id, keys)).collect()
}

fn items(store: &Store) -> Vec<(String, Json)> {
    let items = store.state.items.iter();
    items.map(|(key, item)| (key.0.clone(), Json::of(item).expect("an item"))).collect()
}

struct Run {
    seed: u64,
    random: Random,
    model: String,
    oracle: ModelOracle,
    store: Store,
    has_window: bool,
    /// Writes that were accepted, and that were refused.
    counts: (usize, BTreeSet<u16>),
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut random = Random(seed);
        let containers = containers();
        let database = Database::new("random", &containers);
        let body = random_model(&mut random, |body| Model::parse(body, &database).is_ok());
        let (model, _) = Model::parse(&body, &database).expect("built to be valid");
        let rules = ModelRules::new(&model, &database).expect("valid");
        let has_window = !model.windows.is_empty();
        let oracle = ModelOracle::new(&body.to_json(), KEYS);
        let store = Store::new(rules, &containers);
        Run { seed, random, model: body.to_json(), oracle, store, has_window, counts: (0, BTreeSet::new()) }
    }

    fn step(&mut self, next: &mut i64) {
        let container = *self.random.pick(&["a", "a", "b", "b", "c"]);
        let mut body = random_item(&mut self.random, container);
        let action = self.random.below(10);
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
                let body = with_window(&mut self.random, body, stored.as_ref(), next);
                self.upsert(&key, body);
            }
            _ => self.upsert(&key, body),
        }
        if self.random.one_in(2) {
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
        let key = self.random.pick(&pages).clone();
        self.store.delete(&key).expect_err("pages are removed by the window");
        let mut page = self.store.state.items[&key].clone();
        if let Some(Value::Array(elements)) = page.as_object_mut().and_then(|page| page.get_mut("all"))
            && !elements.is_empty()
        {
            elements.remove(self.random.below(elements.len()));
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
