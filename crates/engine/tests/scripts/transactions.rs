//! One transaction per run: what it sees of itself, what others see of it, what becomes of it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::support::fixture::{json, number_of};
use crate::{Bench, failure, on_every_storage};

#[test]
fn own_writes_are_read_but_not_queried() {
    on_every_storage(|bench| {
        bench.0.create(r#"{"id":"old","pk":"p","name":0}"#).unwrap();
        let text = "
            c.createDocument(link, {id: 'new', pk: 'p', name: 1}, () =>
            c.deleteDocument(doc('old'), () =>
            c.readDocument(doc('new'), (e, read) =>
            c.readDocument(doc('old'), (gone) =>
            c.readDocuments(link, (e, all) =>
            c.queryDocuments(link, 'SELECT VALUE c.id FROM c', (e, queried) =>
            __.filter(d => true, (e, filtered) =>
                done([read.id, gone.number, all.map(d => d.id), queried, filtered.map(d => d.id)]))))))))";
        assert_eq!(bench.run(text).unwrap(), r#"["new",404,["new"],[],[]]"#);
        assert_eq!(bench.ids(), ["new"]);
    });
}

#[test]
fn queries_see_what_was_there_but_not_what_was_deleted() {
    on_every_storage(|bench| {
        for id in ["a", "b", "c"] {
            bench.0.create(&format!(r#"{{"id":"{id}","pk":"p","name":"{id}","n":1}}"#)).unwrap();
        }
        let text = "
            const ask = (query, then) => c.queryDocuments(link, query, (e, rows) => { if (e) throw e; then(rows) });
            c.replaceDocument(doc('a'), {id: 'a', pk: 'p', name: 'a', n: 2}, () =>
            c.deleteDocument(doc('b'), () =>
            c.deleteDocument(doc('c'), () =>
            c.createDocument(link, {id: 'c', pk: 'p', name: 'c', n: 3}, () =>
            ask('SELECT c.id, c.n FROM c', (rows) =>
            ask('SELECT VALUE COUNT(1) FROM c', (count) =>
            ask('SELECT VALUE c.id FROM c WHERE c.n = 1', (filtered) =>
            ask('SELECT VALUE c.id FROM c ORDER BY c.n DESC', (sorted) =>
            ask('SELECT DISTINCT VALUE c.n FROM c', (distinct) =>
                done([rows, count, filtered, sorted, distinct]))))))))))";
        let expected = r#"[[{"id":"a","n":1}],[1],["a"],["a"],[1]]"#;
        assert_eq!(bench.run(text).unwrap(), expected);
        assert_eq!(bench.ids(), ["a", "c"]);
    });
}

/// The bulk delete of Microsoft's samples asks the same query again until it finds nothing.
#[test]
fn deleting_what_a_query_finds_comes_to_an_end() {
    on_every_storage(|bench| {
        for number in 0..50 {
            bench.0.create(&format!(r#"{{"id":"i{number}","pk":"p","name":{number}}}"#)).unwrap();
        }
        let text = "
            let deleted = 0;
            const go = () => c.queryDocuments(link, 'SELECT * FROM c', {pageSize: 7}, (e, rows) => {
                if (e) throw e;
                if (rows.length === 0) return done(deleted);
                const next = () => {
                    if (rows.length === 0) return go();
                    deleted++;
                    c.deleteDocument(rows.pop()._self, (e) => { if (e) throw e; next(); });
                };
                next();
            });
            go();";
        assert_eq!(bench.run(text).unwrap(), "50");
        assert!(bench.ids().is_empty());
    });
}

#[test]
fn a_replace_with_another_id_renames() {
    on_every_storage(|bench| {
        for id in ["a", "b", "taken"] {
            bench.0.create(&format!(r#"{{"id":"{id}","pk":"p","name":"{id}"}}"#)).unwrap();
        }
        let text = "
            const ask = (then) => c.queryDocuments(link, 'SELECT VALUE c.id FROM c', (e, rows) => then(rows));
            c.replaceDocument(doc('a'), {id: 'taken', pk: 'p', name: 'a'}, (conflict) =>
            c.replaceDocument(doc('a'), {id: 'x', pk: 'other'}, (key) =>
            c.replaceDocument(doc('a'), {id: 'new', pk: 'p', name: 'a', n: 1}, (e, renamed) =>
            c.readDocument(doc('a'), (gone) =>
            c.readDocument(doc('new'), (e, read) =>
            ask((rows) =>
            c.replaceDocument(doc('b'), {id: 'c', pk: 'p', name: 'b'}, (e, second) =>
            c.deleteDocument(second._self, () =>
            ask((left) => done([conflict.number, key.number, renamed.id, gone.number, read.n, rows, left]))))))))))";
        let expected = r#"[409,400,"new",404,1,["a","b","taken"],["a","taken"]]"#;
        assert_eq!(bench.run(text).unwrap(), expected);
        assert_eq!(bench.ids(), ["new", "taken"]);
    });
}

#[test]
fn an_empty_continuation_is_the_beginning() {
    on_every_storage(|bench| {
        bench.0.create(r#"{"id":"a","pk":"p","name":0}"#).unwrap();
        let text = "
            c.readDocuments(link, {continuation: ''}, (e, listed) => { if (e) throw e;
            c.queryDocuments(link, 'SELECT * FROM c', {continuation: ''}, (e, queried) => { if (e) throw e;
                done([listed.length, queried.length]) }) })";
        assert_eq!(bench.run(text).unwrap(), "[1,1]");
    });
}

#[test]
fn several_writes_of_one_item_leave_the_last() {
    on_every_storage(|bench| {
        let before = bench.lsn();
        bench
            .run(
                "c.createDocument(link, {id: 'a', pk: 'p', n: 1}, (e, d) => { d.n = 2;
                 c.replaceDocument(d._self, d, (e, d) => { d.n = 3; c.upsertDocument(link, d); }) });
                 c.createDocument(link, {id: 'b', pk: 'p', name: 1}, (e, d) => c.deleteDocument(d._self));",
            )
            .unwrap();
        assert_eq!(bench.ids(), ["a"]);
        assert_eq!(number_of(&bench.item("a").unwrap(), "n"), 3);
        assert_eq!(bench.lsn(), before + 1, "one transaction is one commit");
    });
}

#[test]
fn a_failed_script_writes_nothing() {
    on_every_storage(|bench| {
        bench.0.create(r#"{"id":"old","pk":"p","name":0,"n":1}"#).unwrap();
        let before = bench.lsn();
        let writes = "c.createDocument(link, {id: 'new', pk: 'p', name: 1});
                      c.replaceDocument(doc('old'), {id: 'old', pk: 'p', name: 0, n: 2});";
        for end in [
            "throw new Error('x')",
            "c.readDocuments(link, () => { throw 'in a callback' })",
            "getContext().abort(new Error('x'))",
            "c.readDocuments(link, () => getContext().abort('text'))",
            "(async () => { throw new Error('x') })().catch(e => getContext().abort(e))",
            "c.createDocument(link, {id: 'new', pk: 'p'})",
            "c.readDocuments(link, () => done('x'.repeat(5e6)))",
            "done({toJSON() { throw new Error('x') }})",
            "null.x",
        ] {
            let result = bench.run(&format!("{writes} {end}"));
            assert_ne!(failure(result), "succeeded", "{end}");
            assert_eq!((bench.ids(), bench.lsn()), (vec!["old".to_owned()], before), "{end}");
            assert_eq!(number_of(&bench.item("old").unwrap(), "n"), 1, "{end}");
        }
    });
}

#[test]
fn a_caught_error_commits() {
    on_every_storage(|bench| {
        for (id, text) in [
            ("a", "c.readDocument(doc('none'), () => {});"),
            ("b", "Promise.reject(new Error('nobody looks'));"),
            ("c", "(async () => { await null; throw new Error('nobody looks'); })();"),
            ("d", "try { throw new Error('caught') } catch (e) {}"),
        ] {
            let write = format!("c.createDocument(link, {{id: '{id}', pk: 'p', name: '{id}'}});");
            bench.run(&format!("{write} {text}")).expect(text);
        }
        assert_eq!(bench.ids().len(), 4);
    });
}

#[test]
fn promises_are_awaited_before_the_commit() {
    let bench = Bench::new();
    let text = "
        const create = body => new Promise((yes, no) => c.createDocument(link, body, (e, d) => e ? no(e) : yes(d)));
        async function main() {
            const a = await create({id: 'a', pk: 'p', name: 1});
            const b = await create({id: 'b', pk: 'p', name: 2, of: a.id});
            done(b.of);
        }
        main().catch(e => getContext().abort(e));";
    assert_eq!(bench.run(text).unwrap(), r#""a""#);
    assert_eq!(bench.ids().len(), 2);
}

#[test]
fn many_writes_are_one_commit() {
    on_every_storage(|bench| {
        let before = bench.lsn();
        let text = "let n = 0; for (let i = 0; i < 300; i++) c.createDocument(link, {id: '' + i, pk: 'p', name: i}, () => done(++n));";
        assert_eq!(bench.run(text).unwrap(), "300");
        assert_eq!((bench.ids().len(), bench.lsn()), (300, before + 1));
    });
}

const INCREMENT: &str = "function () {
    var c = getContext().getCollection();
    c.readDocument(c.getAltLink() + '/docs/counter', function (e, d) {
        if (e) throw e;
        d.n += 1;
        c.replaceDocument(d._self, d, function (e, d) {
            if (e) throw e;
            getContext().getResponse().setBody(d.n);
        });
    });
}";

#[test]
fn concurrent_increments_lose_nothing() {
    const THREADS: u64 = 8;
    const EACH: u64 = 15;
    on_every_storage(|bench| {
        bench.0.create(r#"{"id":"counter","pk":"p","n":0}"#).unwrap();
        bench.procedure("increment", INCREMENT);
        let (done, refused) = (AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..EACH {
                        match bench.execute("increment", "") {
                            Ok(_) => done.fetch_add(1, Ordering::Relaxed),
                            Err(error) => {
                                assert!(error.to_string().contains("conflict"), "{error}");
                                refused.fetch_add(1, Ordering::Relaxed)
                            }
                        };
                    }
                });
            }
        });
        let counted = number_of(&bench.item("counter").unwrap(), "n") as u64;
        assert_eq!(counted, done.into_inner());
        assert_eq!(refused.into_inner(), 0, "the third try holds the partition");
        assert!(bench.statistic("script_runs") >= THREADS * EACH);
        assert_eq!(bench.statistic("script_retries"), bench.statistic("script_conflicts"));
    });
}

#[test]
fn plain_writes_in_between_are_not_lost() {
    on_every_storage(|bench| {
        bench.0.create(r#"{"id":"counter","pk":"p","n":0}"#).unwrap();
        bench.procedure(
            "sum",
            "function () {
                var c = getContext().getCollection(), link = c.getSelfLink();
                c.readDocuments(link, {pageSize: 1000}, function (e, all) {
                    var sum = all.filter(d => d.id != 'counter').length;
                    c.upsertDocument(link, {id: 'counter', pk: 'p', n: sum});
                    getContext().getResponse().setBody(sum);
                });
            }",
        );
        thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..100 {
                    bench.0.create(&format!(r#"{{"id":"i{number}","pk":"p","name":{number}}}"#)).unwrap();
                }
            });
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        bench.execute("sum", "").unwrap();
                    }
                });
            }
        });
        assert_eq!(bench.execute("sum", "").unwrap(), "100");
    });
}

/// Each procedure moves an amount between two of ten accounts: the sum stays, for every reader.
#[test]
fn readers_see_whole_transactions_only() {
    on_every_storage(|bench| {
        for number in 0..10 {
            bench.0.create(&format!(r#"{{"id":"{number}","pk":"p","name":{number},"n":100}}"#)).unwrap();
        }
        bench.procedure(
            "move",
            "function (from, to, amount) {
                var c = getContext().getCollection();
                function change(id, by, next) {
                    c.readDocument(c.getAltLink() + '/docs/' + id, function (e, d) {
                        if (e) throw e;
                        d.n += by;
                        c.replaceDocument(d._self, d, {etag: d._etag}, function (e) { if (e) throw e; next(); });
                    });
                }
                change(from, -amount, () => change(to, amount, () => {}));
            }",
        );
        bench.procedure(
            "total",
            "function () {
                var c = getContext().getCollection();
                c.readDocuments(c.getSelfLink(), function (e, all) {
                    getContext().getResponse().setBody(all.reduce((sum, d) => sum + d.n, 0));
                });
            }",
        );
        thread::scope(|scope| {
            for thread in 0..4u64 {
                scope.spawn(move || {
                    for round in 0..15u64 {
                        let (from, to) = ((thread + round) % 10, (thread * 3 + round * 7 + 1) % 10);
                        if from != to {
                            let parameters = format!(r#"["{from}", "{to}", {round}]"#);
                            bench.execute("move", &parameters).unwrap();
                        }
                    }
                });
            }
            scope.spawn(|| {
                for _ in 0..30 {
                    assert_eq!(bench.execute("total", "").unwrap(), "1000");
                    let rows = bench.0.all(Some("SELECT VALUE SUM(c.n) FROM c"), &Default::default(), 10);
                    assert_eq!(rows[0].to_json(), "1000");
                }
            });
        });
        assert_eq!(bench.execute("total", "").unwrap(), "1000");
    });
}

#[test]
fn what_was_written_is_there_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let open = || {
        let options = quire_storage_local::LocalOptions::default();
        std::sync::Arc::new(quire_storage_local::LocalStorage::open(directory.path(), options).unwrap())
    };
    let bench = Bench::on(open(), Default::default(), &crate::definition());
    bench.run("c.createDocument(link, {id: 'a', pk: 'p', n: 1})").unwrap();
    let before = bench.item("a").unwrap();
    let clock = std::sync::Arc::clone(&bench.0.clock);
    bench.0.engine.close().unwrap();
    drop(bench);
    let again = Bench(crate::support::fixture::Fixture::again(open(), clock));
    assert_eq!(again.item("a").unwrap().to_json(), before.to_json());
    assert_eq!(again.run("c.readDocument(doc('a'), (e, d) => done(d.n))").unwrap(), "1");
    assert_eq!(json(&again.run("done(1)").unwrap()).as_i64(), Some(1));
}
