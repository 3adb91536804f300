//! What scripts may use: time, places, and how often they may offend.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use quire_engine::{EngineError, ScriptError, ScriptOptions};

use crate::{Bench, short_limits};

/// What has a limit is over long before.
const PATIENCE: Duration = Duration::from_secs(20);

fn is_timed_out<T: std::fmt::Debug>(result: &Result<T, EngineError>) -> bool {
    matches!(result, Err(EngineError::Script(failure)) if failure.error == ScriptError::TimedOut)
}

#[test]
fn a_script_that_times_out_writes_nothing() {
    let bench = Bench::short_limits();
    let before = bench.lsn();
    for text in [
        "c.createDocument(link, {id: 'a', pk: 'p'}, () => { for (;;) {} })",
        "c.createDocument(link, {id: 'a', pk: 'p'}); c.readDocuments(link, () => { while (true); })",
        "for (;;) {}",
    ] {
        let started = Instant::now();
        let result = bench.run(text);
        assert!(is_timed_out(&result), "{text}: {result:?}");
        assert!(started.elapsed() < PATIENCE);
        assert_eq!((bench.ids().len(), bench.lsn()), (0, before), "{text}");
    }
    assert_eq!(bench.statistic("script_timeouts"), 3);
    assert_eq!(bench.run("done(1)").unwrap(), "1", "others go on");
}

#[test]
fn a_script_that_is_asked_to_finish_commits() {
    let bench = Bench::short_limits();
    let text = "
        let n = 0;
        function next() {
            const accepted = c.upsertDocument(link, {id: 'a', pk: 'p', n: ++n}, next);
            done({n, accepted});
        }
        next();";
    let done = crate::json(&bench.run(text).unwrap());
    assert_eq!(done.get("accepted").unwrap().to_json(), "false");
    let (last, stored) = (crate::support::fixture::number_of(&done, "n"), bench.item("a").unwrap());
    assert_eq!(
        crate::support::fixture::number_of(&stored, "n"),
        last - 1,
        "what was not accepted was not done"
    );
}

#[test]
fn spent_throughput_asks_a_script_to_finish() {
    let bench = Bench::new();
    bench.procedure(
        "spend",
        "function () {
            var c = getContext().getCollection(), n = 0;
            (function next() {
                if (c.upsertDocument(c.getSelfLink(), {id: '' + n, pk: 'p', name: n}, next)) n++;
                getContext().getResponse().setBody(n);
            })();
        }",
    );
    let answer = bench.execute_for(Some(50.0), crate::KEY, "spend", "");
    assert_eq!(answer.result.unwrap().body, bench.ids().len().to_string());
    assert!((5..10).contains(&bench.ids().len()), "{}", bench.ids().len());
    assert!((50.0..65.0).contains(&answer.charge), "{}", answer.charge);
}

#[test]
fn a_script_that_ignores_it_ends_by_itself() {
    let bench = Bench::short_limits();
    let text = "(function again() { c.readDocuments(link, again); })(); done('finished')";
    assert_eq!(bench.run(text).unwrap(), r#""finished""#);
}

#[test]
fn a_query_of_a_script_ends_with_it() {
    let bench = Bench::short_limits();
    // Without a limit it takes twice the time that it gets here.
    for number in 0..2 * PATIENCE.as_millis() / 20 {
        bench.0.create(&format!(r#"{{"id":"{number}","pk":"p","name":{number}}}"#)).unwrap();
    }
    bench.function("slow", "function () { var end = Date.now() + 20; while (Date.now() < end); return 1; }");
    let started = Instant::now();
    let result =
        bench.run("c.queryDocuments(link, 'SELECT VALUE SUM(udf.slow()) FROM c', (e, r) => done(r))");
    assert!(is_timed_out(&result), "{result:?}");
    assert!(started.elapsed() < PATIENCE, "{:?}", started.elapsed());
}

#[test]
fn slow_scripts_are_blocked_if_configured() {
    let bench = Bench::with(ScriptOptions {
        limits: short_limits(),
        block_slow_scripts: true,
        ..ScriptOptions::default()
    });
    bench.procedure("slow", "function () { for (;;) {} }");
    bench.procedure("other", "function () {}");
    for _ in 0..3 {
        assert!(is_timed_out(&bench.execute("slow", "")));
    }
    assert!(matches!(bench.execute("slow", ""), Err(EngineError::ScriptBlocked { .. })));
    bench.execute("other", "").unwrap();
    bench.procedure("slow", "function () { /* better now */ }");
    bench.execute("slow", "").unwrap();
}

#[test]
fn by_default_no_script_is_blocked() {
    let bench = Bench::short_limits();
    bench.procedure("slow", "function () { for (;;) {} }");
    for _ in 0..4 {
        assert!(is_timed_out(&bench.execute("slow", "")));
    }
}

/// Slow scripts of one logical partition keep their share of the places; others, and plain writes, go on meanwhile.
#[test]
fn a_slow_partition_does_not_stop_others() {
    let limits = quire_engine::ScriptLimits { time: Duration::from_secs(4), ..short_limits() };
    let bench = Bench::with(ScriptOptions { limits, running_max: Some(8), ..ScriptOptions::default() });
    bench.procedure("slow", "function () { for (;;) {} }");
    bench.procedure("fast", "function () { getContext().getResponse().setBody(1); }");
    thread::scope(|scope| {
        let slow: Vec<_> = (0..4).map(|_| scope.spawn(|| bench.execute("slow", "").is_err())).collect();
        while bench.statistic("script_waits") < 2 {
            thread::sleep(Duration::from_millis(5));
        }
        let started = Instant::now();
        for number in 0..5 {
            bench.0.create(&format!(r#"{{"id":"{number}","pk":"p","name":{number}}}"#)).unwrap();
            assert_eq!(bench.execute_in(r#"["q"]"#, "fast", "").result.unwrap().body, "1");
        }
        let is_waiting = slow.iter().any(|slow| !slow.is_finished());
        assert!(is_waiting, "nobody waited for the slow ones: {:?}", started.elapsed());
        assert!(slow.into_iter().all(|slow| slow.join().unwrap()));
    });
}

/// Queries whose functions take long have places of their own and do not stop procedures, nor plain queries.
#[test]
fn slow_functions_do_not_stop_others() {
    let limits = quire_engine::ScriptLimits { function_time: Duration::from_millis(1500), ..short_limits() };
    let bench = Bench::with(ScriptOptions { limits, running_max: Some(2), ..ScriptOptions::default() });
    bench.function("slow", "function () { for (;;) {} }");
    bench.function("fast", "function () { return 1; }");
    bench.procedure("fast", "function () { getContext().getResponse().setBody(1); }");
    let query = |text: &str| bench.0.page(Some(text), &Default::default());
    thread::scope(|scope| {
        let slow: Vec<_> =
            (0..2).map(|_| scope.spawn(|| query("SELECT VALUE udf.slow()").is_err())).collect();
        while bench.statistic("script_waits") < 1 {
            thread::sleep(Duration::from_millis(5));
        }
        for _ in 0..5 {
            assert_eq!(bench.execute("fast", "").unwrap(), "1");
            assert_eq!(query("SELECT VALUE 1").unwrap().rows, b"[1]");
        }
        assert!(slow.iter().any(|slow| !slow.is_finished()));
        assert_eq!(query("SELECT VALUE udf.fast()").unwrap().rows, b"[1]", "in its turn");
        assert!(slow.into_iter().all(|slow| slow.join().unwrap()));
    });
}

/// A transaction holds 16 MB: before that a script is asked to finish, and what it queued beyond is refused.
#[test]
fn too_large_a_transaction_is_not_begun() {
    let bench = Bench::new();
    let item = |id: &str| format!("{{id: {id}, pk: 'p', name: {id}, text: 'x'.repeat(1000000)}}");
    let text = format!(
        "let n = 0; (function next() {{ if (c.createDocument(link, {}, next)) n++; done(n); }})()",
        item("'' + n")
    );
    let created: usize = bench.run(&text).unwrap().parse().unwrap();
    assert_eq!(bench.ids().len(), created);
    assert!((8..17).contains(&created), "{created}");
    let text = format!(
        "const told = []; for (let i = 0; i < 18; i++) c.createDocument(link, {}, e => {{ told.push(e ? e.number : 0); done(told); }})",
        item("'more' + i")
    );
    let told = crate::json(&bench.run(&text).unwrap());
    let told: Vec<i64> = told.as_array().unwrap().iter().filter_map(|number| number.as_i64()).collect();
    assert!(told.contains(&413) && told.iter().all(|number| [0, 413].contains(number)), "{told:?}");
    assert_eq!(bench.ids().len(), created + told.iter().filter(|number| **number == 0).count());
}

#[test]
fn a_transaction_that_others_keep_disturbing_holds_its_partition_at_last() {
    let bench = Bench::new();
    bench.0.create(r#"{"id":"a","pk":"p","name":1,"n":0}"#).unwrap();
    bench.procedure(
        "slow",
        "function () {
            var c = getContext().getCollection();
            c.readDocument(c.getAltLink() + '/docs/a', function (e, d) {
                var end = Date.now() + 100;
                while (Date.now() < end);
                d.seen = d.n;
                c.replaceDocument(d._self, d);
            });
        }",
    );
    thread::scope(|scope| {
        let (stop, stopped) = mpsc::channel::<()>();
        let bench = &bench;
        scope.spawn(move || {
            let mut number = 0;
            while stopped.try_recv().is_err() {
                number += 1;
                let _waited = bench.0.upsert(&format!(r#"{{"id":"b","pk":"p","name":2,"n":{number}}}"#));
            }
        });
        bench.execute("slow", "").unwrap();
        stop.send(()).unwrap();
    });
    assert_eq!(bench.statistic("script_conflicts"), 2, "two tries without a lock, one with");
    assert_eq!(bench.statistic("script_runs"), 3);
}
