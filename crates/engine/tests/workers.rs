//! Background work goes on after panics and failures, and says when it does not.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use quire_engine::{Precondition, WorkerState, WorkerStatus};
use quire_storage::memory::MemoryStorage;
use support::fixture::{Fixture, json};
use support::hooked_storage::{Call, HookedStorage};
use support::wait_until;

const HASH: &str = r#"{"paths":["/pk"],"kind":"Hash","version":2}"#;
const ITEMS: u8 = 1;

fn status(fixture: &Fixture, name: &str) -> WorkerStatus {
    fixture.engine.workers().into_iter().find(|worker| worker.name == name).expect("a worker")
}

/// The number of a container, as its rows begin with it.
fn prefix(container: &quire_engine::Container) -> [u8; 4] {
    match container.resource.rid {
        quire_resource::ResourceId::Container { container, .. } => container.to_be_bytes(),
        other => panic!("{other:?} is not a container"),
    }
}

/// Breaks scans of one container's items by the worker with this name, while it is switched on.
fn break_scans(
    calls: &support::hooked_storage::Calls,
    container: [u8; 4],
    thread: &'static str,
    is_broken: Arc<AtomicBool>,
) {
    calls.set_hook(move |call| {
        let is_worker = std::thread::current().name() == Some(thread);
        if let Call::Visit(scan) = call
            && is_worker
            && is_broken.load(Ordering::SeqCst)
            && scan.space.0 == ITEMS
            && matches!(&scan.range.start, std::ops::Bound::Included(key) if key.starts_with(&container))
        {
            panic!("by design");
        }
    });
}

#[test]
fn an_index_build_that_panics_is_tried_again_and_holds_up_no_other() {
    let storage = HookedStorage::new(Arc::new(MemoryStorage::new()));
    let calls = storage.calls();
    let fixture = Fixture::on(
        Arc::new(storage),
        HASH,
        r#""indexingPolicy":{"indexingMode":"none","automatic":false}"#,
        1,
    );
    let other = format!(
        r#"{{"id":"other","partitionKey":{HASH},"indexingPolicy":{{"indexingMode":"none","automatic":false}}}}"#
    );
    fixture.engine.catalog().create_container("db", &json(&other), None).expect("created");
    fixture.create(r#"{"id":"1","pk":"p"}"#).expect("created");
    let is_broken = Arc::new(AtomicBool::new(true));
    break_scans(&calls, prefix(&fixture.container), "quire-jobs", Arc::clone(&is_broken));
    let progress = |id: &str| fixture.engine.catalog().container("db", id).expect("there").index_progress();
    for id in ["c", "other"] {
        let definition = json(&format!(r#"{{"id":"{id}","partitionKey":{HASH}}}"#));
        fixture
            .engine
            .catalog()
            .replace_container("db", id, &definition, &Precondition::default())
            .expect("replaced");
    }
    wait_until("the other container has its indexes", || progress("other") == 100);
    wait_until("the build has panicked twice", || status(&fixture, "jobs").panics >= 2);
    let failing = status(&fixture, "jobs");
    assert_eq!((failing.state, failing.failing_parts), (WorkerState::Running, 1));
    assert!(failing.last_error.is_some_and(|error| error.contains("by design")));
    assert!(progress("c") < 100);
    is_broken.store(false, Ordering::SeqCst);
    wait_until("the container has its indexes", || progress("c") == 100);
    wait_until("nothing fails any more", || status(&fixture, "jobs").failing_parts == 0);
}

#[test]
fn every_worker_is_listed_and_runs() {
    let fixture = Fixture::new("");
    let workers = fixture.engine.workers();
    let names: Vec<_> = workers.iter().map(|worker| worker.name).collect();
    assert_eq!(
        names,
        [
            "catalog",
            "jobs",
            "vector-indexes",
            "sweep",
            "views",
            "split",
            "recording",
            "refactorings",
            "rekeys"
        ]
    );
    assert!(workers.iter().all(|worker| worker.state == WorkerState::Running && worker.failures == 0));
}
