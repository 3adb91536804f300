//! Demo data: six examples of data models, five of them in bad form, with a day of workload.
//!
//! Items are made here from word lists and a generator of numbers with a fixed seed, so every fill is the same. The workload is real:
//! every request is made through the engine, which observes it as it observes those of clients (charge, changed paths, sizes,
//! query shapes). Only its time is made up: a day is replayed in seconds, so each record gets the time at which it would have come.
//! Records made by hand would have to repeat what the engine observes; a clock of its own would move the time of the whole server.
//! [`Engine::record_at`] is not reachable from outside but through this.

mod books; // copies and counts that went stale
mod joined; // items that only join two others
mod people; // in good form
mod portfolios; // copies that change often
mod posts; // an array that grows without bound
mod publishers; // ids that collect on the "one" side
mod session; // requests, and when they would have come
mod words; // names and texts

use std::sync::Arc;

use quire_engine::{AnsweredRequest, Cancel, Clock, Container, Engine, EngineError};
use quire_value::{Object, Value};

use session::Session;

/// A container and its partition key.
type Definition = (&'static str, &'static str);
type Requests = Vec<(Arc<Container>, u64, AnsweredRequest)>;

/// One example: its containers, and what makes its items and requests.
struct Example {
    containers: &'static [Definition],
    run: fn(&mut Session<'_>) -> Result<(), EngineError>,
}

const EXAMPLES: &[Example] = &[
    Example { containers: &[("people", "/id")], run: people::run },
    Example { containers: &[("posts", "/id")], run: posts::run },
    Example { containers: &[("portfolios", "/id")], run: portfolios::run },
    Example { containers: &[("publishers", "/id"), ("titles", "/id")], run: publishers::run },
    Example { containers: &[("writers", "/id"), ("works", "/id"), ("bookWriters", "/id")], run: joined::run },
    Example { containers: &[("authors", "/id"), ("books", "/id")], run: books::run },
];

const DAY_MS: u64 = 24 * 3600 * 1000;

/// Fills a database that is empty.
pub fn fill(engine: &Engine, database: &str, now_ms: i64, cancel: &Cancel) -> Result<Value, EngineError> {
    for (id, key) in EXAMPLES.iter().flat_map(|example| example.containers) {
        engine.catalog().create_container(database, &definition(id, key), None)?;
    }
    let from_ms = u64::try_from(now_ms).unwrap_or(0).saturating_sub(DAY_MS);
    // Their commits share syncs.
    let parts: Vec<Result<Requests, EngineError>> = std::thread::scope(|threads| {
        let part = |example: &'static Example| {
            threads.spawn(move || run(engine, database, example, from_ms, cancel))
        };
        let parts: Vec<_> = EXAMPLES.iter().map(part).collect();
        parts.into_iter().map(|part| part.join().unwrap_or_else(|_| Err(panicked()))).collect()
    });
    let requests: Requests =
        parts.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
    let count = requests.len() as u64;
    engine.record_at(requests)?;
    summary(engine, database, count)
}

/// What [`Engine::fill_demo`] runs. The engine is not kept open by it.
pub fn set_up(engine: &Arc<Engine>, clock: &Arc<dyn Clock>) {
    let (filled, clock) = (Arc::downgrade(engine), Arc::clone(clock));
    engine.set_demo_fill(Arc::new(move |database, cancel| match filled.upgrade() {
        Some(engine) => fill(&engine, database, clock.now_ms(), cancel),
        None => Err(EngineError::Corrupt { what: "the engine is closed".to_owned() }),
    }));
}

fn run(
    engine: &Engine,
    database: &str,
    example: &Example,
    from_ms: u64,
    cancel: &Cancel,
) -> Result<Requests, EngineError> {
    let containers = example.containers.iter().map(|(id, _)| engine.catalog().container(database, id));
    let mut session = Session::new(engine, containers.collect::<Result<_, _>>()?, from_ms, cancel);
    (example.run)(&mut session)?;
    Ok(session.into_requests())
}

fn panicked() -> EngineError {
    EngineError::Corrupt { what: "making demo data panicked".to_owned() }
}

fn definition(id: &str, key: &str) -> Value {
    let mut partition_key = Object::new();
    partition_key.set("paths", vec![Value::from(key)]);
    partition_key.set("kind", "Hash");
    partition_key.set("version", 2);
    let mut body = Object::from_iter([("id", id)]);
    body.set("partitionKey", partition_key);
    Value::Object(body)
}

fn summary(engine: &Engine, database: &str, requests: u64) -> Result<Value, EngineError> {
    let mut containers = Object::new();
    for (id, _) in EXAMPLES.iter().flat_map(|example| example.containers) {
        containers.set(*id, engine.catalog().container(database, id)?.usage().0);
    }
    let mut json = Object::from_iter([("database", database)]);
    json.set("containers", containers);
    json.set("requests", requests);
    Ok(Value::Object(json))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use quire_engine::Options;
    use quire_storage::memory::MemoryStorage;

    use super::*;
    use crate::SystemClock;

    /// Looks at the cancellation before it comes.
    const LOOKS: usize = 3;

    #[test]
    fn a_fill_that_is_cancelled_ends_soon() {
        let options = Options {
            clock: Arc::new(SystemClock),
            partitions: 1,
            cache_bytes: 0,
            scripts: Default::default(),
            query_memory: Default::default(),
            query_temp: None,
        };
        let engine = Engine::open(Arc::new(MemoryStorage::new()), options).unwrap();
        let database = Value::Object(Object::from_iter([("id", "demo")]));
        engine.catalog().create_database(&database, None).unwrap();
        let looks = AtomicUsize::new(0);
        let cancel = Cancel::asking(move || looks.fetch_add(1, Ordering::Relaxed) >= LOOKS);
        let filled = fill(&engine, "demo", SystemClock.now_ms(), &cancel);
        assert!(matches!(filled, Err(EngineError::Cancelled)), "{filled:?}");
        engine.close().unwrap();
    }
}
