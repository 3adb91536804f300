//! Writes of referrers and targets in modelled containers of several partitions, beside a build and jobs that visit the same items:
//! afterwards every total, mirror and copy is what a recount of the items says.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use bytes::Bytes;
use quire_storage::Snapshot;
use quire_storage::memory::MemoryStorage;
use shuttle::rand::rngs::ThreadRng;
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread::yield_now;

use super::recount::{Library, stored_items};
use super::world::{World, json, key, prepared, write};
use super::{Program, together};
use crate::api::{Cancel, CheckModel, EngineError, IndexingDirective, ModelCondition, WriteItem, WriteKind};
use crate::background::checks::CheckPayload;
use crate::background::repairs::REPAIR;
use crate::background::split::Splitter;
use crate::background::{Builds, FanOuts, Repairs};
use crate::catalog::{Catalog, Container, open_store};
use crate::engine::after_split::on_current;
use crate::jobs::ClaimedJob;
use crate::maintain;
use crate::store::{keys, scan};
use crate::sync::races::Race;
use crate::transactions::across::{TransactionRun, TransactionTarget};
use crate::transactions::{TransactionOperation, TransactionVerb};

pub(super) const PROGRAM: Program = Program {
    name: "maintained",
    races: &[Race::TargetNotLocked, Race::DifferenceTwice, Race::CountedWithoutMark, Race::KeyTakenFromOther],
    run,
};

/// Writes that are under way when a build begins.
pub(super) const BUILD: Program =
    Program { name: "build", races: &[Race::CountBesideOlderWrites], run: run_build };

/// Transactions beside single writes of the same items, with many faults.
pub(super) const TRANSACTED: Program =
    Program { name: "transacted", races: &[Race::DoubtBehindView], run: run_transacted };

const PARTITIONS: u32 = 2;
const FAULT_ONE_IN: u32 = 12;
/// Where there are few commits.
const FAULT_ONE_IN_FEW: u32 = 4;
const WRITERS: usize = 3;
const WRITES: usize = 2;
/// Steps of jobs beside the writers; the others come afterwards.
const STEPS: usize = 20;
/// No run needs as many.
const STEPS_MAX: usize = 1_000;
/// An item that expires does not come back.
const CLOCK_STEPS: std::ops::Range<i64> = 0..500;
/// The first of them is there at the beginning, as are the first books.
const AUTHORS: [&str; 2] = ["x", "y"];
const BOOKS: [&str; 4] = ["a", "b", "c", "d"];
const CONTAINERS: [&str; 2] = ["authors", "books"];

/// More than one referrer is left to a job.
const BEFORE: &str = r#"{"version":1,"fanOutMax":1,
  "links":[{"name":"l","from":{"container":"books","path":"/author/id"},"to":{"container":"authors"}}],
  "copies":[{"name":"c","link":"l","fields":{"name":"t.name"}}]}"#;
const AFTER: &str = r#"{"version":1,"fanOutMax":1,
  "links":[{"name":"l","from":{"container":"books","path":"/author/id"},"to":{"container":"authors"}},
    {"name":"s","from":{"container":"books","path":"/cites"},"to":{"container":"books","key":"/isbn","partitionKey":"lookup"}}],
  "copies":[{"name":"c","link":"l","fields":{"name":"t.name"}}],
  "rollups":[{"name":"n","link":"l","op":"count","into":"/n"},
    {"name":"last","link":"l","op":"max","value":"r.year","into":"/last"},
    {"name":"cited","link":"s","op":"count","into":"/cited"}],
  "mirrors":[{"name":"m","link":"l","into":"/books"}]}"#;

static PREPARED: OnceLock<MemoryStorage> = OnceLock::new();

struct MaintainedProgram {
    world: World,
    catalog: Arc<Catalog>,
}

pub(super) fn prepare() {
    PREPARED.get_or_init(|| prepared(fill));
}

fn fill(store: MemoryStorage) {
    open_store(&store).expect("a new store");
    let maintained = MaintainedProgram::on(store);
    let catalog = &maintained.catalog;
    catalog.create_database(&json(r#"{"id":"d"}"#), None).expect("a new database");
    for name in CONTAINERS {
        let body = format!(
            r#"{{"id":"{name}","defaultTtl":-1,"partitionKey":{{"paths":["/id"]}},"indexingPolicy":{{"indexingMode":"none","automatic":false}}}}"#
        );
        catalog.create_container("d", &json(&body), None).expect("a new container");
    }
    maintained.put_model(BEFORE).expect("a valid model");
    maintained.finish_jobs();
    maintained.write_author("x", "Ann").expect("it is new");
    // No link finds books by this key yet.
    for id in &BOOKS[..2] {
        maintained.upsert("books", id, &book(id, "x", r#","isbn":"i""#)).expect("it is new");
    }
    maintained.check();
}

fn run() {
    let maintained = MaintainedProgram::prepared(FAULT_ONE_IN);
    let mut threads: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
    threads.push(maintained.thread(MaintainedProgram::build));
    threads.push(maintained.thread(MaintainedProgram::repair));
    for _ in 0..WRITERS {
        threads.push(maintained.thread(|own| (0..WRITES).for_each(|_| own.done(own.write_something()))));
    }
    together(threads);
    maintained.finish();
}

fn run_build() {
    let maintained = MaintainedProgram::prepared(0);
    // No two of them have one key: the build goes over them once.
    maintained.upsert("books", "b", &book("b", "x", "")).expect("there is no fault");
    maintained.world.storage.set_faults(FAULT_ONE_IN_FEW);
    let mut threads: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
    threads.push(maintained.thread(|own| own.done(own.put_model(AFTER))));
    threads.push(maintained.thread(|own| own.run_jobs(STEPS)));
    for id in &BOOKS[2..] {
        let own = Arc::clone(&maintained);
        threads.push(Box::new(move || own.done(own.upsert("books", id, &book(id, "x", "")))));
    }
    together(threads);
    maintained.finish();
}

fn run_transacted() {
    let maintained = MaintainedProgram::prepared(FAULT_ONE_IN_FEW);
    let mut threads: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
    for _ in 0..2 {
        threads.push(maintained.thread(|own| (0..WRITES).for_each(|_| own.done(own.transact(["c", "d"])))));
    }
    threads.push(maintained.thread(|own| {
        own.done(own.upsert("books", "c", &book("c", "x", "")));
        own.done(own.delete("books", "c"));
        own.done(own.upsert("books", "d", &book("d", "x", "")));
    }));
    together(threads);
    maintained.finish();
}

impl MaintainedProgram {
    fn prepared(fault_one_in: u32) -> Arc<MaintainedProgram> {
        let store = PREPARED.get().expect("the explorer has prepared it");
        let maintained = Arc::new(MaintainedProgram::on(store.duplicate()));
        maintained.world.storage.set_faults(fault_one_in);
        maintained
    }

    fn on(store: MemoryStorage) -> MaintainedProgram {
        let (world, catalog) = World::on(store, PARTITIONS, CLOCK_STEPS).with_catalog();
        let shared = &world.shared;
        shared.jobs.load().expect("it is open");
        let (builds, fan_outs) = (Builds::new(shared, &catalog), FanOuts::new(shared, &catalog));
        let repairs = Repairs::new(shared, &catalog);
        shared.jobs.serve(vec![Arc::new(builds), Arc::new(fan_outs), Arc::new(repairs)], || {});
        MaintainedProgram { world, catalog }
    }

    fn thread(self: &Arc<MaintainedProgram>, run: fn(&MaintainedProgram)) -> Box<dyn FnOnce() + Send> {
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
        let job = CheckPayload { check, is_dry_run: false }.job(REPAIR, database, 1);
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
        let Ok(ClaimedJob { mut claim, kind, .. }) = jobs.claim(|_| true) else { return false };
        self.done(claim.run(&*kind, Instant::now(), || false, &Cancel::default()));
        true
    }

    fn finish_jobs(&self) {
        let steps = (0..STEPS_MAX).take_while(|_| self.run_step()).count();
        let left = ["build", "fan-out", "repair"].map(|kind| self.world.shared.jobs.unfinished(kind).len());
        assert!(steps < STEPS_MAX, "jobs do not end: {left:?} builds, fan-outs, repairs");
    }

    /// Done, or something was in the way.
    fn done(&self, result: Result<(), EngineError>) {
        match result {
            Ok(())
            | Err(
                EngineError::Overloaded
                | EngineError::Unresolved
                | EngineError::Contended
                | EngineError::TransactionConflict
                | EngineError::PartitionMoved
                | EngineError::PartitionGone { .. }
                | EngineError::CannotSplit { .. }
                | EngineError::RefusedByModel(_)
                | EngineError::ItemNotFound { .. },
            ) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn write_something(&self) -> Result<(), EngineError> {
        let mut random = thread_rng();
        let author = one_of(&mut random, &AUTHORS);
        let at = random.gen_range(0..BOOKS.len());
        let (id, other) = (BOOKS[at], BOOKS[(at + 1) % BOOKS.len()]);
        match random.gen_range(0..16) {
            0 | 1 => self.delete("authors", author),
            2 | 3 => self.write_author(author, one_of(&mut random, &["Bo", "Cy"])),
            4 | 5 => self.delete("books", id),
            6 | 7 => self.transact([id, other]),
            8 => self.remove_expired(),
            9 => self.split(one_of(&mut random, &CONTAINERS)),
            _ => self.upsert("books", id, &some_book(&mut random, id)),
        }
    }

    fn write_author(&self, id: &str, name: &str) -> Result<(), EngineError> {
        self.upsert("authors", id, &format!(r#"{{"id":"{id}","name":"{name}"}}"#))
    }

    fn upsert(&self, container: &str, id: &str, body: &str) -> Result<(), EngineError> {
        self.send(container, &write(WriteKind::Upsert, id, body))
    }

    fn delete(&self, container: &str, id: &str) -> Result<(), EngineError> {
        self.send(container, &write(WriteKind::Delete { id: id.to_owned() }, id, ""))
    }

    fn send(&self, container: &str, write: &WriteItem) -> Result<(), EngineError> {
        let answer = on_current(&self.catalog, &self.container(container), |container| {
            maintain::write::write_item(&self.world.shared, container, write)
        });
        answer.result.map(drop)
    }

    /// Two books, all or nothing. Not twice the same.
    fn transact(&self, ids: [&str; 2]) -> Result<(), EngineError> {
        let random = &mut thread_rng();
        let steps: Vec<(usize, TransactionOperation)> = ids
            .iter()
            .enumerate()
            .map(|(at, id)| {
                let (verb, body) = match random.gen_ratio(1, 3) {
                    true => (TransactionVerb::Delete { id: (*id).to_owned() }, String::new()),
                    false => (TransactionVerb::Upsert, some_book(random, id)),
                };
                (at, operation(id, verb, body))
            })
            .collect();
        let targets = ids.map(|id| TransactionTarget { container: 0, key: key(id) });
        let (shared, containers, cancel) =
            (&self.world.shared, [self.container("books")], &Cancel::default());
        TransactionRun { shared, containers: &containers, targets: &targets, steps: &steps, cancel }
            .run()
            .map(drop)
    }

    /// As the sweep does.
    fn remove_expired(&self) -> Result<(), EngineError> {
        let container = self.container("books");
        let items = scan(keys::ITEMS, keys::items_from(container.number, 0));
        let items = self.world.shared.storage.snapshot()?.scan(&items)?.rows;
        let rids: Vec<u64> = items.iter().filter_map(|(key, _)| keys::rid_of_item_key(key)).collect();
        let removal = maintain::remove::remove_invisible_items(&self.world.shared, &container, &rids)?;
        removal.unreadable.into_iter().for_each(|(_, error)| self.done(Err(error)));
        Ok(())
    }

    fn split(&self, container: &str) -> Result<(), EngineError> {
        let splitter = Splitter {
            shared: Arc::clone(&self.world.shared),
            catalog: Arc::clone(&self.catalog),
            watched: Arc::clone(&self.world.watched),
        };
        splitter.split(&self.container(container), "0").map(drop)
    }

    /// When everything that could still happen has happened.
    fn finish(&self) {
        self.world.storage.settle();
        self.catalog.settle_unresolved().expect("the storage answers again");
        for container in CONTAINERS.map(|name| self.container(name)) {
            container.partitions.wait_for_barrier().expect("the storage answers again");
        }
        self.world.shared.jobs.doubt();
        self.finish_jobs();
        self.check();
    }

    fn check(&self) {
        let snapshot: Box<dyn Snapshot> = self.world.storage.now();
        let items = |name: &str| stored_items(&*snapshot, self.container(name).number);
        let (authors, books) = (items("authors"), items("books"));
        let report = self.world.storage.verify();
        assert!(report.is_sound(), "{:?} {authors:?} {books:?}", report.problems);
        let model = self.container("books").partitions.model().expect("it was put");
        let is_active = |name: &str| {
            let declaration = model.database.declarations.named(name);
            declaration.is_some_and(|declaration| declaration.state.is_active())
        };
        let was_put = model.database.declarations.named("n").is_some();
        assert_eq!(["n", "last", "m"].map(is_active), [was_put; 3], "nothing is in the way of them");
        // Two books have one key at first: while they have, these cannot be built.
        let has_citations = is_active("s") && is_active("cited");
        Library { authors, books, has_totals: was_put, has_citations }.check();
    }
}

fn one_of<'a>(random: &mut ThreadRng, all: &[&'a str]) -> &'a str {
    all[random.gen_range(0..all.len())]
}

/// Which may refer to another one by its key, and has a key itself or expires.
fn some_book(random: &mut ThreadRng, id: &str) -> String {
    let mut others = format!(r#","year":{}"#, random.gen_range(1..4));
    if random.gen_ratio(1, 2) {
        others += &format!(r#","cites":"{}""#, one_of(random, &["i", "j"]));
    }
    match random.gen_range(0..6) {
        0 => others += r#","ttl":1"#,
        1 | 2 => others += &format!(r#","isbn":"{}""#, one_of(random, &["i", "j"])),
        _ => {}
    }
    book(id, one_of(random, &AUTHORS), &others)
}

fn book(id: &str, author: &str, others: &str) -> String {
    format!(r#"{{"id":"{id}","author":{{"id":"{author}"}}{others}}}"#)
}

fn operation(id: &str, verb: TransactionVerb, body: String) -> TransactionOperation {
    TransactionOperation {
        container: "books".to_owned(),
        partition_key: Some(key(id)),
        verb,
        body: Bytes::from(body),
        if_match: None,
        if_none_match: None,
        indexing: IndexingDirective::Default,
        want_body: false,
    }
}
