//! Many writers of one target: one version for a whole commit, exact in every one.

use std::sync::atomic::AtomicU64;

use quire_storage::layer::StorageLayer;
use quire_storage::{Commit, CommitError, Committed};

use super::*;

/// Counts commits, and makes each as slow as a sync.
pub struct Slow {
    pub inner: MemoryStorage,
    pub commits: AtomicU64,
}

impl StorageLayer for Slow {
    fn below(&self) -> &dyn Storage {
        &self.inner
    }
    fn commit(&self, commit: Commit) -> Result<Committed, CommitError> {
        self.commits.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(std::time::Duration::from_millis(2));
        self.inner.commit(commit)
    }
}

const THREADS: usize = 16;
const BOOKS: usize = 40;
const MODEL: &str = r#"{"version":1,"links":[{"name":"l","from":{"container":"books","path":"/author"},
    "to":{"container":"authors"},"integrity":"enforced"}],
    "rollups":[{"name":"n","link":"l","op":"count","into":"/n"},{"name":"s","link":"l","op":"sum","value":"r.pages","into":"/pages"}],
    "mirrors":[{"name":"m","link":"l","into":"/books","max":10000}]}"#;

#[test]
fn one_author_of_many_writers() {
    let storage = Arc::new(Slow { inner: MemoryStorage::new(), commits: AtomicU64::new(0) });
    let bench = Bench::on(storage.clone(), 5, LIBRARY, MODEL);
    bench.create("authors", r#"{"id":"a1"}"#).unwrap();
    let before = storage.commits.load(Ordering::Relaxed);
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let bench = &bench;
                scope.spawn(move || {
                    for book in 0..BOOKS {
                        let id = format!("b{thread}-{book}");
                        bench
                            .create("books", &format!(r#"{{"id":"{id}","author":"a1","pages":{book}}}"#))
                            .unwrap();
                        if book % 4 == 3 {
                            bench.delete("books", &id, &format!("[{id:?}]")).unwrap();
                        }
                        if book % 10 == 0 && thread == 0 {
                            bench
                                .upsert("authors", &format!(r#"{{"id":"a1","name":"{book}","n":-1}}"#))
                                .unwrap();
                        }
                    }
                })
            })
            .collect();
        let reader = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let author = bench.get("authors", "a1").unwrap();
                let count = author.get("n").and_then(Value::as_i64).unwrap();
                let books = author.get("books").and_then(Value::as_array).unwrap();
                assert_eq!(count, books.len() as i64, "every version agrees with itself");
            }
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        done.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
    let commits = storage.commits.load(Ordering::Relaxed) - before;
    let writes = (THREADS * (BOOKS + BOOKS / 4)) as u64;
    bench.check("all written");
    bench.verify("all written");
    // Every write has one LSN, and there are no others; the author has far fewer versions than books.
    let lsns =
        |container: &str| bench.container(container, 0).partitions().iter().map(|own| own.lsn).sum::<u64>();
    assert_eq!(lsns("books"), writes);
    assert!(
        lsns("authors") <= commits + 1,
        "{} versions of the author in {commits} commits",
        lsns("authors")
    );
    let author = bench.get("authors", "a1").unwrap();
    assert_eq!(author.get("n"), Some(&Value::from((THREADS * BOOKS / 4 * 3) as i64)));
    assert!(commits * 3 < writes, "{commits} commits of {writes} writes");
}

/// Items that refer to each other, written from both sides: nobody waits for ever, and everything is right.
#[test]
fn references_both_ways_do_not_block() {
    let model = r#"{"version":1,"links":[
        {"name":"l","from":{"container":"books","path":"/author"},"to":{"container":"authors"}},
        {"name":"f","from":{"container":"authors","path":"/favourite"},"to":{"container":"books"}}],
        "copies":[{"name":"c","link":"f","fields":{"title":"t.title"}}],
        "rollups":[{"name":"n","link":"l","op":"count","into":"/n"},{"name":"liked","link":"f","op":"count","into":"/liked"}]}"#;
    for partitions in [1, 5] {
        let bench = Bench::new(partitions, LIBRARY, model);
        std::thread::scope(|scope| {
            for thread in 0..8usize {
                let bench = &bench;
                scope.spawn(move || {
                    for round in 0..60usize {
                        let (one, two) = ((thread + round) % 3, (thread * 7 + round * 5) % 3);
                        if (thread + round) % 2 == 0 {
                            let body =
                                format!(r#"{{"id":"b{one}","author":"a{two}","title":"{thread}-{round}"}}"#);
                            bench.upsert("books", &body).unwrap();
                        } else {
                            bench
                                .upsert("authors", &format!(r#"{{"id":"a{one}","favourite":"b{two}"}}"#))
                                .unwrap();
                        }
                    }
                });
            }
        });
        bench.check("both ways");
        bench.verify("both ways");
    }
}

/// A referrer's create and its target's delete at once: exactly one of them succeeds.
#[test]
fn a_reference_and_a_delete_at_once() {
    let model = r#"{"version":1,"links":[{"name":"l","from":{"container":"books","path":"/author"},
        "to":{"container":"authors"},"integrity":"enforced"}]}"#;
    let bench = Bench::new(5, LIBRARY, model);
    for round in 0..60 {
        bench.create("authors", r#"{"id":"a1"}"#).unwrap();
        let barrier = std::sync::Barrier::new(2);
        let (created, deleted) = std::thread::scope(|scope| {
            let create = scope.spawn(|| {
                barrier.wait();
                bench.create("books", &format!(r#"{{"id":"b{round}","author":"a1"}}"#)).is_ok()
            });
            barrier.wait();
            let deleted = bench.delete("authors", "a1", "[\"a1\"]").is_ok();
            (create.join().unwrap(), deleted)
        });
        assert_ne!(created, deleted, "round {round}");
        if created {
            bench.delete("books", &format!("b{round}"), &format!("[\"b{round}\"]")).unwrap();
            bench.delete("authors", "a1", "[\"a1\"]").unwrap();
        }
    }
}
