//! Keys by which links find items, where they are being indexed or their items are invisible.

use super::*;
use crate::jobs::JobId;
use crate::model::BuildPhase;

const LOOKUP: &str = r#"{"version":1,"links":[{"name":"l","from":{"container":"books","path":"/sequelOf"},
    "to":{"container":"books","key":"/isbn","partitionKey":"lookup"},"integrity":"enforced"}]}"#;
const OTHER: &str = r#"{"version":1,"links":[{"name":"o","from":{"container":"books","path":"/author"},
    "to":{"container":"authors"}}]}"#;

/// Items that are there but not indexed yet are targets from the moment that the model is put.
#[test]
fn references_while_their_targets_are_being_indexed() {
    let bench = Bench::new(5, LIBRARY, LOOKUP);
    bench.set_states(&DeclarationState::Failed { error: "no".to_owned(), examples: Vec::new() });
    bench.create("books", r#"{"id":"b1","isbn":"x"}"#).unwrap();
    bench.create("books", r#"{"id":"b2","isbn":"gone","ttl":5}"#).unwrap();
    bench.engine.pause_sweep(true);
    bench.clock.advance(6);
    bench.set_states(&DeclarationState::Building { job: JobId(1), phase: BuildPhase::Index });
    bench.create("books", r#"{"id":"b3","sequelOf":"x"}"#).unwrap();
    for isbn in ["none", "gone"] {
        let book = format!(r#"{{"id":"b4","sequelOf":"{isbn}"}}"#);
        let refused =
            format!("400/6101 LinkTargetMissing: 'l' at /sequelOf names '{isbn}', which is not in 'books'.");
        assert_eq!(refusal(bench.create("books", &book)), refused);
    }
    // One that loses its key with the write is no target.
    let own = bench.upsert("books", r#"{"id":"b1","isbn":"y","sequelOf":"x"}"#);
    assert!(refusal(own).starts_with("400/6101"));
    // Too many to look at: nobody knows until they are indexed.
    for number in 0..20 {
        bench.create("books", &format!(r#"{{"id":"more{number}"}}"#)).unwrap();
    }
    let unknown = bench.create("books", r#"{"id":"b4","sequelOf":"none"}"#);
    assert!(matches!(unknown, Err(EngineError::Contended)), "{unknown:?}");
    bench.set_states(&DeclarationState::Building { job: JobId(1), phase: BuildPhase::Values });
    assert!(refusal(bench.create("books", r#"{"id":"b4","sequelOf":"none"}"#)).starts_with("400/6101"));
}

/// A build leaves alone what has expired, or was deleted with its partition key: a check of the store asks for no row of it, and
/// a restore gives the key to the one that clients see.
#[test]
fn a_link_is_built_over_invisible_items() {
    let mut bench = Bench::new(5, LIBRARY, OTHER);
    bench.create("books", r#"{"id":"older","isbn":"x"}"#).unwrap();
    bench.create("books", r#"{"id":"deleted","isbn":"y"}"#).unwrap();
    bench.clock.advance(1);
    for (id, isbn) in [("newer", "x"), ("alone", "z"), ("another", "z")] {
        bench.create("books", &format!(r#"{{"id":"{id}","isbn":"{isbn}","ttl":5}}"#)).unwrap();
    }
    bench.engine.pause_sweep(true);
    bench.clock.advance(6);
    let key = PartitionKey::from_header(r#"["deleted"]"#).unwrap();
    bench.engine.delete_partition_key(&bench.container("books", 0), key).result.unwrap();
    bench.put_model(LOOKUP);
    bench.model = LOOKUP.to_owned();
    bench.verify("built");
    let folder = tempfile::tempdir().unwrap();
    let backup = folder.path().join("backup");
    bench.engine.backup(&backup).unwrap();
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    crate::restore(&backup, &*storage).unwrap();
    let options = options(&bench.clock, 5);
    (bench.engine, bench.storage) = (Engine::open(Arc::clone(&storage), options).unwrap(), storage);
    bench.create("books", r#"{"id":"next","sequelOf":"x"}"#).unwrap();
    for isbn in ["y", "z"] {
        let book = format!(r#"{{"id":"none","sequelOf":"{isbn}"}}"#);
        assert!(refusal(bench.create("books", &book)).starts_with("400/6101"), "{isbn}");
    }
    super::paths::wait_until(|| bench.container("books", 0).usage().0 == 2);
    bench.verify("swept");
    bench.check("swept");
}
