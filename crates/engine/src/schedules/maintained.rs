//! Writes of referrers and targets in modelled containers of several partitions, beside a build and jobs that visit the same items:
//! afterwards every total, mirror and copy is what a recount of the items says.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use quire_storage::memory::MemoryStorage;
use quire_value::Value;
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread::yield_now;

use super::world::{World, json, prepared, write};
use super::{Program, together};
use crate::api::{CheckModel, EngineError, ModelCondition, WriteKind};
use crate::background::checks::CheckOrder;
use crate::background::repairs::REPAIR;
use crate::background::{Builds, FanOuts, Repairs};
use crate::catalog::{Catalog, Container, open_store};
use crate::maintain;
use crate::store::item_row::Row;
use crate::store::{for_each_row, keys};
use crate::sync::races::Race;

pub(super) const PROGRAM: Program = Program {
    name: "maintained",
    races: &[Race::TargetNotLocked, Race::DifferenceTwice, Race::CountedWithoutMark],
    run,
};

/// Writes that are under way when a build begins.
pub(super) const BUILD: Program =
    Program { name: "build", races: &[Race::CountBesideOlderWrites], run: run_build };

const PARTITIONS: u32 = 2;
const FAULT_ONE_IN: u32 = 12;
/// Where there are few commits.
const FAULT_ONE_IN_FEW: u32 = 4;
const WRITERS: usize = 3;
const WRITES: usize = 2;
/// Steps of jobs beside the writers; the others come afterwards.
const STEPS: usize = 12;
/// No run needs as many.
const STEPS_MAX: usize = 1_000;
/// Only the first of them is there at the beginning.
const AUTHORS: [&str; 2] = ["x", "y"];
const BOOKS: [&str; 4] = ["a", "b", "c", "d"];
const CONTAINERS: [&str; 2] = ["authors", "books"];

/// More than one referrer is left to a job.
const BEFORE: &str = r#"{"version":1,"fanOutMax":1,
  "links":[{"name":"l","from":{"container":"books","path":"/author/id"},"to":{"container":"authors"}}],
  "copies":[{"name":"c","link":"l","fields":{"name":"t.name"}}]}"#;
const AFTER: &str = r#"{"version":1,"fanOutMax":1,
  "links":[{"name":"l","from":{"container":"books","path":"/author/id"},"to":{"container":"authors"}}],
  "copies":[{"name":"c","link":"l","fields":{"name":"t.name"}}],
  "rollups":[{"name":"n","link":"l","op":"count","into":"/n"},
    {"name":"last","link":"l","op":"max","value":"r.year","into":"/last"}],
  "mirrors":[{"name":"m","link":"l","into":"/books"}]}"#;

static PREPARED: OnceLock<MemoryStorage> = OnceLock::new();

struct Maintained {
    world: World,
    catalog: Arc<Catalog>,
}

/// What a recount says of an author.
#[derive(Debug, Default, PartialEq)]
struct Recount {
    books: Vec<String>,
    last: Option<i64>,
}

pub(super) fn prepare() {
    PREPARED.get_or_init(|| prepared(fill));
}

fn fill(store: MemoryStorage) {
    open_store(&store).expect("a new store");
    let maintained = Maintained::on(store);
    let catalog = &maintained.catalog;
    catalog.create_database(&json(r#"{"id":"d"}"#), None).expect("a new database");
    for name in CONTAINERS {
        let body = format!(
            r#"{{"id":"{name}","partitionKey":{{"paths":["/id"]}},"indexingPolicy":{{"indexingMode":"none","automatic":false}}}}"#
        );
        catalog.create_container("d", &json(&body), None).expect("a new container");
    }
    maintained.put_model(BEFORE).expect("a valid model");
    maintained.finish_jobs();
    maintained.write_author("x", "Ann").expect("it is new");
    for id in &BOOKS[..2] {
        maintained.write_book(id, "x", 1).expect("it is new");
    }
    maintained.check();
}

fn run() {
    let store = PREPARED.get().expect("the explorer has prepared it");
    let maintained = Arc::new(Maintained::on(store.duplicate()));
    maintained.world.storage.set_faults(FAULT_ONE_IN);
    let mut threads: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
    threads.push(maintained.thread(Maintained::build));
    threads.push(maintained.thread(Maintained::repair));
    for _ in 0..WRITERS {
        threads.push(maintained.thread(Maintained::write));
    }
    together(threads);
    maintained.settle();
    maintained.finish_jobs();
    maintained.check();
}

fn run_build() {
    let store = PREPARED.get().expect("the explorer has prepared it");
    let maintained = Arc::new(Maintained::on(store.duplicate()));
    maintained.world.storage.set_faults(FAULT_ONE_IN_FEW);
    let mut threads: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
    threads.push(maintained.thread(|own| own.done(own.put_model(AFTER))));
    threads.push(maintained.thread(|own| own.run_jobs(STEPS)));
    for id in &BOOKS[2..] {
        let own = Arc::clone(&maintained);
        threads.push(Box::new(move || own.done(own.write_book(id, "x", 2))));
    }
    together(threads);
    maintained.settle();
    maintained.finish_jobs();
    maintained.check();
}

impl Maintained {
    fn on(store: MemoryStorage) -> Maintained {
        let (world, catalog) = World::on(store, PARTITIONS).with_catalog();
        let shared = &world.shared;
        shared.jobs.load().expect("it is open");
        let (builds, fan_outs) = (Builds::new(shared, &catalog), FanOuts::new(shared, &catalog));
        let repairs = Repairs::new(shared, &catalog);
        shared.jobs.serve(vec![Arc::new(builds), Arc::new(fan_outs), Arc::new(repairs)], || {});
        Maintained { world, catalog }
    }

    fn thread(self: &Arc<Maintained>, run: fn(&Maintained)) -> Box<dyn FnOnce() + Send> {
        let maintained = Arc::clone(self);
        Box::new(move || run(&maintained))
    }

    fn container(&self, name: &str) -> Arc<Container> {
        self.catalog.container("d", name).expect("it was prepared")
    }

    fn put_model(&self, model: &str) -> Result<(), EngineError> {
        let condition = ModelCondition { if_match: None, if_none_match: None };
        self.catalog.put_model("d", &json(model), &condition).map(drop)
    }

    fn build(&self) {
        self.done(self.put_model(AFTER));
        self.run_jobs(STEPS);
    }

    /// Another job that visits the books, and others that it finds.
    fn repair(&self) {
        let [database, _] = self.container("books").job_owners();
        let declarations = Some(vec!["c".to_owned()]);
        let check = CheckModel { declarations, examples_max: 0, model: None, remove_dangling: false };
        let job = CheckOrder { check, is_dry_run: false }.job(REPAIR, database, 1);
        self.done(self.world.shared.jobs.create(job).map(drop));
        self.run_jobs(STEPS);
    }

    /// So many steps of the jobs whose turn it is.
    fn run_jobs(&self, steps: usize) {
        for _ in 0..steps {
            self.run_step();
            yield_now();
        }
    }

    /// False: no job can run.
    fn run_step(&self) -> bool {
        let jobs = &self.world.shared.jobs;
        if jobs.refresh().is_err() {
            return true;
        }
        let Some((mut claim, kind, _)) = jobs.claim(|_| true) else { return false };
        self.done(claim.run(&*kind, Instant::now(), || false));
        true
    }

    /// Done, or something else was in the way.
    fn done(&self, result: Result<(), EngineError>) {
        match result {
            Ok(())
            | Err(
                EngineError::Overloaded
                | EngineError::Unresolved
                | EngineError::Contended
                | EngineError::TransactionConflict
                | EngineError::ItemNotFound { .. },
            ) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn finish_jobs(&self) {
        let steps = (0..STEPS_MAX).take_while(|_| self.run_step()).count();
        assert!(steps < STEPS_MAX, "a job does not end");
    }

    fn write(&self) {
        for _ in 0..WRITES {
            self.done(self.write_something());
        }
    }

    fn write_something(&self) -> Result<(), EngineError> {
        let mut random = thread_rng();
        let author = AUTHORS[random.gen_range(0..AUTHORS.len())];
        let (book, year) = (BOOKS[random.gen_range(0..BOOKS.len())], random.gen_range(1..4));
        match random.gen_range(0..8) {
            0 => self.delete("authors", author),
            1 => self.write_author(author, "Bo"),
            2 => self.write_author(author, "Cy"),
            3 => self.delete("books", book),
            _ => self.write_book(book, author, year),
        }
    }

    fn write_author(&self, id: &str, name: &str) -> Result<(), EngineError> {
        self.upsert("authors", id, &format!(r#"{{"id":"{id}","name":"{name}"}}"#))
    }

    fn write_book(&self, id: &str, author: &str, year: i64) -> Result<(), EngineError> {
        self.upsert("books", id, &format!(r#"{{"id":"{id}","year":{year},"author":{{"id":"{author}"}}}}"#))
    }

    fn upsert(&self, container: &str, id: &str, body: &str) -> Result<(), EngineError> {
        let write = write(WriteKind::Upsert, id, body);
        let container = self.container(container);
        maintain::write::write_item(&self.world.shared, &container, write).result.map(drop)
    }

    fn delete(&self, container: &str, id: &str) -> Result<(), EngineError> {
        let write = write(WriteKind::Delete { id: id.to_owned() }, id, "");
        let container = self.container(container);
        maintain::write::write_item(&self.world.shared, &container, write).result.map(drop)
    }

    /// Everything that could still happen has happened.
    fn settle(&self) {
        self.world.storage.settle();
        self.catalog.settle_unresolved().expect("the storage answers again");
        for container in CONTAINERS.map(|name| self.container(name)) {
            container.partitions.pass_barrier().expect("the storage answers again");
        }
        self.world.shared.jobs.doubt();
    }

    fn check(&self) {
        self.world.verify();
        let (authors, books) = (self.items("authors"), self.items("books"));
        let mut recounts: BTreeMap<String, Recount> = BTreeMap::new();
        for book in books.values() {
            let author = book.get("author").expect("every book has one");
            let id = text(author, "id").expect("a reference");
            let name = authors.get(&id).and_then(|author| text(author, "name"));
            assert_eq!(text(author, "name"), name, "a copy is wrong: {book:?}");
            let recount = recounts.entry(id).or_default();
            recount.books.extend(text(book, "id"));
            recount.last = recount.last.max(number(book, "year"));
        }
        let Some(model) = self.container("books").partitions.model() else { panic!("it was put") };
        if model.database.rules.rollups.is_empty() {
            return;
        }
        for (id, author) in &authors {
            let expected = recounts.remove(id).unwrap_or_default();
            let listed = author.get("books").and_then(Value::as_array).expect("a mirror");
            let books = listed.iter().map(|id| id.as_str().expect("an id").to_owned()).collect();
            let found = Recount { books, last: number(author, "last") };
            assert_eq!(found, expected, "of {author:?}");
            assert_eq!(number(author, "n"), Some(expected.books.len() as i64), "of {author:?}");
        }
    }

    /// By id.
    fn items(&self, container: &str) -> BTreeMap<String, Value> {
        let (mut items, number) = (BTreeMap::new(), self.container(container).number);
        let snapshot = self.world.storage.now();
        let read = for_each_row(&*snapshot, keys::ITEMS, &keys::container_prefix(number), |_, row| {
            let row = Row::parse(row)?;
            items.insert(row.id()?.to_owned(), row.node()?.to_value());
            Ok(())
        });
        read.expect("it is open");
        items
    }
}

fn text(value: &Value, member: &str) -> Option<String> {
    value.get(member).and_then(Value::as_str).map(str::to_owned)
}

fn number(value: &Value, member: &str) -> Option<i64> {
    value.get(member).and_then(Value::as_i64)
}
