//! What is recorded, stored and forgotten.

use quire_storage::fault::{FaultStorage, ReadFault};
use quire_storage::memory::MemoryStorage;

use super::*;

pub(super) fn place(database: u32, container: u32) -> RecordedContainer {
    RecordedContainer { database, container, name: Arc::from("c"), key_paths: Arc::from([]) }
}

pub(super) fn request(action: u64) -> AnsweredRequest {
    AnsweredRequest {
        operation: Operation::Read,
        status: 200,
        sub_status: 0,
        charge: 1.0,
        bytes: 10,
        micros: 5,
        action: Some((action, ActionSource::Header)),
        if_match: false,
        observed: ObservedRequest::default(),
    }
}

pub(super) fn reads(recorder: &Recorder, storage: &dyn Storage, database: u32) -> u64 {
    let record = recorder.current(storage, database).expect("a record");
    let totals = record.lock().workload.container("c");
    totals.operations.get(&Operation::Read).map_or(0, |totals| totals.count)
}

#[test]
fn what_is_dropped_is_counted_and_the_rest_stands_for_it() {
    let (recorder, storage) = (Recorder::new(&[1; 32]), MemoryStorage::new());
    recorder.one_in.store(4, Ordering::Relaxed);
    (0..4_000).for_each(|action| recorder.add(&place(1, 1), 1_000, request(action)));
    let counted = reads(&recorder, &storage, 1);
    assert!((3_200..=4_800).contains(&counted), "{counted}");
    let record = recorder.current(&storage, 1).expect("a record");
    let kept = record.lock().workload.records().count() as u64;
    assert_eq!(counted, 4 * kept);
    let json = record.lock().workload.to_json(true, &|_| String::new());
    assert_eq!(json.get("dropped").and_then(|dropped| dropped.as_u64()), Some(4_000 - kept));
}

#[test]
fn it_is_stored_read_again_and_forgotten() {
    let (recorder, storage) = (Recorder::new(&[1; 32]), MemoryStorage::new());
    (0..5_000).for_each(|action| recorder.add(&place(1, 1), 1_000, request(action)));
    recorder.add(&place(2, 1), 1_000, request(1));
    recorder.store(&storage, &|_| true).expect("stores");
    let again = Recorder::new(&[1; 32]);
    assert_eq!((reads(&again, &storage, 1), reads(&again, &storage, 2)), (5_000, 1));
    again.remove_recorded(&storage, 1).expect("forgets");
    assert_eq!(reads(&Recorder::new(&[1; 32]), &storage, 1), 0);
    assert_eq!(reads(&Recorder::new(&[1; 32]), &storage, 2), 1);
}

#[test]
fn a_container_that_is_made_again_begins_anew() {
    let (recorder, storage) = (Recorder::new(&[1; 32]), MemoryStorage::new());
    (0..3).for_each(|action| recorder.add(&place(1, 1), 1_000, request(action)));
    assert_eq!(reads(&recorder, &storage, 1), 3);
    recorder.add(&place(1, 2), 2_000, request(9));
    assert_eq!(reads(&recorder, &storage, 1), 1);
    // Also after the server was started again.
    recorder.store(&storage, &|_| true).expect("stores");
    let again = Recorder::new(&[1; 32]);
    again.add(&place(1, 2), 3_000, request(10));
    assert_eq!(reads(&again, &storage, 1), 2);
    let again = Recorder::new(&[1; 32]);
    again.add(&place(1, 3), 3_000, request(10));
    assert_eq!(reads(&again, &storage, 1), 1);
}

#[test]
fn shapes_of_a_container_that_is_forgotten_or_made_again_come_again() {
    let (recorder, storage) = (Recorder::new(&[1; 32]), MemoryStorage::new());
    let none = Parameters(Vec::new());
    let ask = |container: u32| {
        let shape = recorder.shape(&place(1, container), ("SELECT * FROM c", &none), false);
        recorder.add(&place(1, container), 1_000, request(1));
        let record = recorder.current(&storage, 1).expect("a record");
        record.lock().workload.shape(shape.expect("a shape")).is_some()
    };
    assert!(ask(1));
    recorder.forget_container(&storage, 1, "c").expect("forgets");
    assert!(ask(1));
    assert!(ask(2));
}

#[test]
fn what_is_forgotten_is_not_stored_by_a_store_under_way() {
    let (recorder, storage) = (Recorder::new(&[1; 32]), FaultStorage::new(MemoryStorage::new()));
    recorder.add(&place(1, 1), 1_000, request(1));
    recorder.drain(&storage).expect("takes in");
    // The store has the bytes, and reads slowly what is stored.
    storage.script_reads([ReadFault::Delay(std::time::Duration::from_millis(500))]);
    std::thread::scope(|threads| {
        let store = threads.spawn(|| recorder.store(&storage, &|_| true));
        while storage.injected() == 0 {
            std::thread::yield_now();
        }
        recorder.remove_recorded(&storage, 1).expect("forgets");
        store.join().expect("a thread").expect("stores");
    });
    assert_eq!(reads(&Recorder::new(&[1; 32]), &storage, 1), 0);
}

#[test]
fn a_record_above_the_limit_of_a_commit_is_stored_and_others_too() {
    let (recorder, storage) = (Recorder::new(&[1; 32]), MemoryStorage::new());
    for hour in 0..30 {
        for number in 0..200 {
            let mut request = request(number);
            let paths = (0..8).map(|path| format!("/{number}-{path}-{}", "n".repeat(1_000))).collect();
            let (size_before, size_after) = (Some(1), Some(1));
            let change = quire_profile::ItemChange { paths, size_before, size_after, ..Default::default() };
            request.observed.change = Some(change);
            recorder.add(&place(1, 1), hour * 3_600_000, request);
        }
        recorder.drain(&storage).expect("takes in");
    }
    recorder.add(&place(2, 1), 1_000, request(1));
    let record = recorder.current(&storage, 1).expect("a record");
    assert!(record.lock().workload.to_bytes().len() > storage.caps().commit_bytes_max);
    recorder.store(&storage, &|_| true).expect("stores");
    let again = Recorder::new(&[1; 32]);
    assert!(reads(&again, &storage, 1) > 0);
    assert_eq!(reads(&again, &storage, 2), 1);
}

#[test]
fn a_database_that_cannot_be_stored_holds_up_no_other_one() {
    let (recorder, storage) = (Recorder::new(&[1; 32]), FaultStorage::new(MemoryStorage::new()));
    (1..=2).for_each(|database| recorder.add(&place(database, 1), 1_000, request(1)));
    recorder.drain(&storage).expect("takes in");
    storage.script_reads([ReadFault::Fail]);
    assert!(recorder.store(&storage, &|_| true).is_err());
    let stored = |database| reads(&Recorder::new(&[1; 32]), &storage, database);
    assert_eq!(stored(1) + stored(2), 1);
    recorder.store(&storage, &|_| true).expect("stores");
    assert_eq!((stored(1), stored(2)), (1, 1));
}

#[test]
fn an_error_of_one_database_neither_loses_shapes_nor_holds_up_others() {
    let (recorder, storage) = (Recorder::new(&[1; 32]), FaultStorage::new(MemoryStorage::new()));
    let none = Parameters(Vec::new());
    let ask = || recorder.shape(&place(1, 1), ("SELECT * FROM c", &none), false).expect("a shape");
    let shape = ask();
    recorder.add(&place(2, 1), 1_000, request(1));
    storage.script_reads([ReadFault::Fail]);
    assert!(recorder.drain(&storage).is_err());
    assert_eq!(reads(&recorder, &storage, 2), 1);
    ask();
    let record = recorder.current(&storage, 1).expect("a record");
    assert!(record.lock().workload.shape(shape).is_some());
}

#[test]
fn memory_of_what_waits_is_bounded() {
    let recorder = Recorder::new(&[1; 32]);
    for action in 0..WAITING_MAX as u64 {
        let mut request = request(action);
        let paths = vec!["n".repeat(1_000); 8];
        request.observed.change = Some(quire_profile::ItemChange { paths, ..Default::default() });
        recorder.add(&place(1, 1), 1_000, request);
    }
    let bytes: usize = recorder
        .shards
        .iter()
        .flat_map(|shard| {
            shard.lock().records.iter().map(|waiting| waiting.record.memory()).collect::<Vec<_>>()
        })
        .sum();
    assert!(bytes < WAITING_BYTES_MAX + 10_000, "{bytes}");
}
