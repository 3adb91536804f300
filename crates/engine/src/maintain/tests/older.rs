//! A store from before there were models.

use quire_storage::{Commit, Op, Token};

use super::*;
use crate::catalog::keys::{COUNTERS, STORE};
use crate::catalog::row::ENGINE_FORMAT;
use crate::store::keys::CATALOG;
use crate::store::sealed::seal;

/// Engine format, checksum and format of the row come before; the declarations' number is the last of the counters.
const HEAD: usize = 5;
const NUMBER: usize = 8;
/// The last one without models.
const FORMAT_BEFORE: u32 = 5;

/// The rows that say which version made the store, as that version had them.
fn set_older_format(storage: &dyn Storage) {
    let snapshot = storage.snapshot().unwrap();
    let rest = |key: &[u8]| snapshot.get(CATALOG, key).unwrap().unwrap()[HEAD..].to_vec();
    let mut store = rest(&STORE);
    store[..4].copy_from_slice(&FORMAT_BEFORE.to_le_bytes());
    let mut counters = rest(&COUNTERS);
    counters.truncate(counters.len() - NUMBER);
    let ops = [(&STORE[..], store), (&COUNTERS[..], counters)].map(|(key, rest)| Op::Put {
        space: CATALOG,
        key: key.to_vec(),
        value: seal(key, &rest),
    });
    storage.commit(Commit { guards: Vec::new(), token: Token(7), ops: ops.to_vec() }).unwrap();
}

fn format_of(storage: &dyn Storage) -> u32 {
    let row = storage.snapshot().unwrap().get(CATALOG, &STORE).unwrap().unwrap();
    u32::from_le_bytes(*row[HEAD..].first_chunk().unwrap())
}

#[test]
fn a_store_without_models_opens_and_takes_one() {
    let model = r#"{"version":1,"links":[{"name":"l","from":{"container":"books","path":"/author/id"},"to":{"container":"authors"}}],
        "copies":[{"name":"c","link":"l","fields":{"name":"t.name"}}],
        "rollups":[{"name":"n","link":"l","op":"count","into":"/n"}]}"#;
    let memory = MemoryStorage::new();
    let mut bench = Bench::on(Arc::new(memory.reopen()), 5, LIBRARY, model);
    let any = ModelCondition { if_match: None, if_none_match: None };
    bench.engine.catalog().delete_model("d", &any).unwrap();
    // The numbers of its declarations are given out again: an older store has nothing to remove under them.
    while !bench.engine.catalog.state().jobs.is_empty() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    bench.wait_for_jobs();
    bench.create("authors", r#"{"id":"a1","name":"Ann"}"#).unwrap();
    bench.create("books", r#"{"id":"b1","author":{"id":"a1","name":"old"}}"#).unwrap();
    bench.engine.close().unwrap();
    set_older_format(&memory.reopen());
    assert_eq!(format_of(&memory.reopen()), FORMAT_BEFORE);
    bench.storage = Arc::new(memory.reopen());
    bench.engine = Engine::open(Arc::clone(&bench.storage), options(&bench.clock, 5)).unwrap();
    assert_eq!(format_of(&*bench.storage), ENGINE_FORMAT, "older versions refuse it from now on");
    bench.verify("opened");
    assert_eq!(
        bench.get("books", "b1").unwrap().to_json(),
        r#"{"author":{"id":"a1","name":"old"},"id":"b1"}"#
    );
    bench.put_model(model);
    bench.model = model.to_owned();
    bench.create("books", r#"{"id":"b2","author":{"id":"a1"}}"#).unwrap();
    let author = bench.get("authors", "a1").unwrap();
    assert_eq!(author.get("n"), Some(&Value::from(2)));
    bench.check("with a model");
    bench.verify("with a model");
}
