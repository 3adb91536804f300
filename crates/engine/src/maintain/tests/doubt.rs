//! Commits of unknown outcome: a write that depends on one waits until that is known.

use super::faulty_storage::{FaultyStorage, LATE, LOSE_ANSWER, LOSE_COMMIT};
use super::*;

fn is_overloaded<T>(result: Result<T, EngineError>) -> bool {
    matches!(result, Err(EngineError::Overloaded))
}

/// The target seems to be there, but its delete may still happen.
#[test]
fn a_target_whose_delete_is_in_doubt() {
    let model = r#"{"version":1,"links":[{"name":"l","from":{"container":"books","path":"/author"},
        "to":{"container":"authors"},"integrity":"enforced"}]}"#;
    for (fault, is_gone) in [(LATE, true), (LOSE_ANSWER, true), (LOSE_COMMIT, false)] {
        let storage = FaultyStorage::new();
        let bench = Bench::on(storage.clone(), 5, LIBRARY, model);
        bench.create("authors", r#"{"id":"a1"}"#).unwrap();
        storage.dark.store(true, Ordering::SeqCst);
        storage.fault.store(fault, Ordering::SeqCst);
        assert!(is_overloaded(bench.delete("authors", "a1", "[\"a1\"]")));
        let book = r#"{"id":"b1","author":"a1"}"#;
        assert!(is_overloaded(bench.create("books", book)), "nobody knows whether there is a target");
        storage.dark.store(false, Ordering::SeqCst);
        let created = bench.create("books", book);
        assert_eq!(created.is_err(), is_gone, "{fault}");
        assert_eq!(bench.get("authors", "a1").is_none(), is_gone);
        bench.verify("settled");
    }
}

/// A count that may or may not have changed.
#[test]
fn a_difference_in_doubt() {
    let model = r#"{"version":1,"links":[
        {"name":"l","from":{"container":"books","path":"/sequelOf"},"to":{"container":"books","key":"/isbn","partitionKey":"lookup"}},
        {"name":"a","from":{"container":"books","path":"/author"},"to":{"container":"authors"}}],
        "rollups":[{"name":"n","link":"l","op":"count","into":"/n"},{"name":"m","link":"a","op":"count","into":"/m"}]}"#;
    for (fault, count) in [(LATE, 2), (LOSE_ANSWER, 2), (LOSE_COMMIT, 1)] {
        let storage = FaultyStorage::new();
        let bench = Bench::on(storage.clone(), 5, LIBRARY, model);
        bench.create("authors", r#"{"id":"a1"}"#).unwrap();
        // Child ids are reserved with the first item, by a commit of their own.
        bench.create("books", r#"{"id":"b0"}"#).unwrap();
        storage.dark.store(true, Ordering::SeqCst);
        storage.fault.store(fault, Ordering::SeqCst);
        assert!(is_overloaded(bench.create("books", r#"{"id":"b1","sequelOf":"i","author":"a1"}"#)));
        storage.dark.store(false, Ordering::SeqCst);
        let target = bench.create("books", r#"{"id":"b2","isbn":"i","author":"a1"}"#).unwrap();
        assert_eq!(target.get("n"), Some(&Value::from(count - 1)), "{fault}");
        assert_eq!(bench.get("authors", "a1").unwrap().get("m"), Some(&Value::from(count)), "{fault}");
        bench.check("settled");
        bench.verify("settled");
    }
}
