//! What tests of refactorings of structure share: containers, items as text, writers, and kills at every commit.

use std::collections::BTreeMap;

use quire_engine::{Engine, EngineError, WriteKind};
use quire_storage::memory::MemoryStorage;
use quire_value::Value;

use crate::SYSTEM;
use crate::support::{
    check_sound, database, items, json, kill_after, open, open_on, open_with_faults, wait_until,
    wait_until_idle, write,
};

/// Items by container and id, as text without what the server adds.
pub type Items = BTreeMap<(String, String), String>;

pub fn engine_with(storage: &MemoryStorage, containers: &[(&str, &str)]) -> Engine {
    let engine = open(storage);
    database(&engine, "d");
    containers.iter().for_each(|(name, key)| create(&engine, name, key));
    engine
}

pub fn create(engine: &Engine, name: &str, key: &str) {
    let body = format!(r#"{{"id":"{name}","partitionKey":{{"paths":["{key}"],"kind":"Hash","version":2}}}}"#);
    engine.catalog().create_container("d", &json(&body), None).unwrap();
}

pub fn put(engine: &Engine, container: &str, body: &str) -> Result<(), EngineError> {
    let container = engine.catalog().container("d", container)?;
    write(engine, &container, WriteKind::Upsert, body)
}

pub fn stored(engine: &Engine) -> Items {
    let mut found = Items::new();
    for container in engine.catalog().containers("d").unwrap() {
        for (id, text) in items(engine, &container) {
            let mut item = json(&text);
            SYSTEM.iter().for_each(|name| drop(item.as_object_mut().unwrap().remove(name)));
            found.insert((container.definition.id.clone(), id), item.to_json());
        }
    }
    found
}

/// The same, whatever the order of members is.
pub fn values(all: &Items) -> BTreeMap<&(String, String), Value> {
    all.iter().map(|(name, text)| (name, json(text))).collect()
}

pub fn assert_same(found: &Items, expected: &Items, what: &str) {
    let (found, expected) = (values(found), values(expected));
    for (name, item) in &expected {
        let own = found.get(name);
        let text = own.map(Value::to_json).unwrap_or_default();
        assert!(own == Some(item), "{what}: {name:?}\nfound    {text}\nexpected {}", item.to_json());
    }
    let more: Vec<_> = found.keys().filter(|name| !expected.contains_key(*name)).collect();
    assert!(more.is_empty(), "{what}: {more:?}");
}

pub fn start(engine: &Engine, body: &str) -> Result<(), EngineError> {
    engine.start_refactoring("d", json(body)).map(drop)
}

pub fn state(engine: &Engine) -> Option<String> {
    let found = engine.refactoring("d", "r-1").ok()?;
    found.get("state").and_then(Value::as_str).map(str::to_owned)
}

pub fn wait_for(engine: &Engine, wanted: &str) -> Value {
    let now = || state(engine).unwrap_or_default();
    wait_until(wanted, || now() == wanted || now() == "blocked");
    if wanted != "blocked" {
        wait_until_idle(engine);
    }
    let found = engine.refactoring("d", "r-1").unwrap();
    assert_eq!(found.get("state").and_then(Value::as_str), Some(wanted), "{}", found.to_json());
    found
}

pub fn finish(engine: &Engine) {
    engine.finish_refactoring("d", "r-1").unwrap();
    wait_for(engine, "finished");
}

pub fn undo(engine: &Engine) -> Value {
    engine.undo_refactoring("d", "r-1").unwrap();
    wait_for(engine, "undone")
}

/// Everything that the model declares is true.
pub fn check_model(engine: &Engine) {
    let request = quire_engine::CheckModel { examples_max: 10, ..Default::default() };
    let job = engine.check_model("d", request).unwrap();
    wait_until("checked", || engine.job(&job.id).unwrap().state.is_finished());
    let found = engine.job(&job.id).unwrap();
    let result = found.result.to_json();
    assert!(result.contains(r#""clean":true"#), "{result} {:?}", found.error);
}

/// Runs a refactoring to its end with a kill after every number of commits of a step. `step` asks for it, `is_asked` says
/// whether it was; `writes` are sent while it runs, and again after the kill where they were not answered.
pub struct Kills<'a> {
    pub fill: &'a dyn Fn(&MemoryStorage),
    pub writes: &'a [(&'a str, String)],
    /// What is asked for before the step that is killed, and the state it comes to.
    pub before: &'a [(&'a str, &'a str)],
    pub step: (&'a str, &'a str),
    pub body: &'a str,
    pub check: &'a dyn Fn(&Engine, usize),
}

/// Kills the undo of an expanded refactoring, then that of a finished one, at every commit.
pub fn kill_every_undo(fill: &dyn Fn(&MemoryStorage), body: &str, check: &dyn Fn(&Engine, usize)) {
    let expanded = [("start", "expanded")];
    let finished = [("start", "expanded"), ("finish", "finished")];
    for before in [&expanded[..], &finished[..]] {
        Kills { fill, writes: &[], before, step: ("undo", "undone"), body, check }.run();
    }
}

impl Kills<'_> {
    pub fn run(&self) {
        for commits in 0..400 {
            let memory = MemoryStorage::new();
            (self.fill)(&memory);
            let engine = open(&memory);
            for (verb, wanted) in self.before {
                self.change_state(&engine, verb).unwrap();
                wait_for(&engine, wanted);
            }
            engine.close().unwrap();
            let is_over = self.killed_after(&memory, commits);
            if is_over {
                assert!(commits > 3, "nothing was killed");
                return;
            }
        }
        panic!("it never comes to an end");
    }

    fn change_state(&self, engine: &Engine, verb: &str) -> Result<(), EngineError> {
        match verb {
            "start" => start(engine, self.body),
            "finish" => engine.finish_refactoring("d", "r-1").map(drop),
            _ => engine.undo_refactoring("d", "r-1").map(drop),
        }
    }

    /// Whether it was done before so many commits.
    fn killed_after(&self, memory: &MemoryStorage, commits: usize) -> bool {
        let (faults, engine) = open_with_faults(memory, open_on);
        let before = state(&engine);
        kill_after(&faults, commits);
        let mut unanswered: Vec<&(&str, String)> = Vec::new();
        let (verb, wanted) = self.step;
        if self.change_state(&engine, verb).is_ok() {
            let is_answered = |own: &&(&str, String)| put(&engine, own.0, &own.1).is_ok();
            unanswered = self.writes.iter().filter(|own| !is_answered(own)).collect();
            let is_settled = || state(&engine).as_deref() == Some(wanted);
            wait_until("it is killed, or done", || faults.injected() > 0 || is_settled());
        } else {
            unanswered.extend(self.writes);
        }
        let is_over = faults.injected() == 0;
        drop(engine);
        faults.reopen_on(memory.reopen()).unwrap();
        let engine = open(memory);
        // A request that was not answered may have been done or not.
        if state(&engine) == before {
            self.change_state(&engine, verb).unwrap();
        }
        unanswered.iter().for_each(|(container, body)| put(&engine, container, body).unwrap());
        wait_for(&engine, wanted);
        (self.check)(&engine, commits);
        engine.close().unwrap();
        check_sound(&memory.reopen());
        is_over
    }
}
