//! Operations that a script starts before one of them is answered go to the host in one message.

use quire_script::*;

use crate::support::*;
use crate::{Killer, check, scripts, workers};

/// Reads and writes of the only worker so far: system calls, each for a message of it.
#[cfg(target_os = "linux")]
fn worker_system_calls() -> (u64, u64) {
    let workers = workers();
    assert_eq!(workers.len(), 1);
    let counters = std::fs::read_to_string(format!("/proc/{}/io", workers[0])).unwrap();
    let counter = |name: &str| {
        let line = counters.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().parse::<u64>().unwrap()
    };
    (counter("syscr:"), counter("syscw:"))
}

/// Round trips of a run are one, and one more for each time that it waits for answers.
#[cfg(target_os = "linux")]
pub fn operations_of_one_turn_share_a_message() {
    const RUN_COUNT: u64 = 100;
    let scripts = scripts(Limits::default());
    for (text, round_trips) in [
        ("set(1)", 1),
        ("c.readDocument(doc('a'), (e, d) => set(d.n))", 2),
        (
            "var n = 0; for (let i = 0; i < 20; i++) c.upsertDocument(link, {id: 'b' + i}, () => { if (++n == 20) set(1) })",
            2,
        ),
        // As the procedure of the comparison with PostgreSQL.
        (
            "c.readDocument(doc('a'), (e, d) => {
                d.n++;
                c.replaceDocument(d._self, d);
                c.upsertDocument(link, {id: 'b'}, (e, d) => set(1));
            })",
            3,
        ),
    ] {
        check(&scripts, text, "1");
        let (reads, writes) = worker_system_calls();
        for _ in 0..RUN_COUNT {
            check(&scripts, text, "1");
        }
        let (later_reads, later_writes) = worker_system_calls();
        assert_eq!(later_writes - writes, RUN_COUNT * round_trips, "{text}");
        assert_eq!(later_reads - reads, RUN_COUNT * round_trips, "{text}");
    }
}

#[cfg(not(target_os = "linux"))]
pub fn operations_of_one_turn_share_a_message() {}

/// In this process every operation is answered before the next is served.
pub fn a_message_changes_nothing_but_the_cost() {
    let (here, elsewhere) = (Scripts::new(Limits::default()), scripts(Limits::default()));
    for text in [
        // In the order in which they were started, callbacks in between.
        "var log = []; for (let i = 0; i < 5; i++) c.createDocument(link, {id: 'b' + i}, (e, d) => { log.push(d.id);
            if (i < 2) c.readDocument(d._self, (e, d) => { log.push('read ' + d.id); set(log) }) })",
        // An error is the callback's, and the others go on.
        "var log = []; for (const id of ['b', 'a', 'b', 'd']) c.createDocument(link, {id}, (e, d) => { log.push(e ? e.number : d.id); set(log) })",
        // Without a callback it ends the run, and nothing behind it is served.
        "c.createDocument(link, {id: 'b'}); c.createDocument(link, {id: 'a'}); c.createDocument(link, {id: 'd'})",
        "c.deleteDocument(doc('a'), {}, () => set(1)); c.deleteDocument(doc('a')); c.createDocument(link, {id: 'd'})",
        // Jobs run between two callbacks.
        "var log = []; for (let i = 0; i < 3; i++) c.readDocument(doc('a'), () => { log.push(i);
            Promise.resolve().then(() => { log.push('job ' + i); set(log) }) })",
        // What sorts reads all its pages before what was started later.
        "var log = []; for (let i = 0; i < 3; i++) c.upsertDocument(link, {id: 'x' + i});
            c.sortBy(d => d.id, {pageSize: 2}, (e, found) => { log.push(found.length); set(log) });
            c.deleteDocument(doc('a'), () => { log.push('deleted'); set(log) });
            c.readDocuments(link, (e, found) => { log.push(found.map(d => d.id)); set(log) })",
        // What is not accepted any more.
        "var log = []; function next(i) { if (!c.createDocument(link, {id: 'b' + i}, () => { log.push(i); next(i + 10); set(log) }))
            { log.push('refused ' + i); set(log) } } next(0); next(1); next(2)",
        "c.readDocument(doc('a'), () => { throw new Error(4444, 'mine') }); c.deleteDocument(doc('a'))",
        "c.readDocument(doc('a'), () => getContext().abort(new Error('over'))); c.deleteDocument(doc('a'))",
        "c.createDocument(link, {id: 'b'}); c.replaceDocument(doc('b'), {id: 'b', n: 2}); c.readDocument(doc('b'), (e, d) => set(d.n))",
    ] {
        let text = body(text);
        let run = |scripts: &Scripts| {
            let items: Vec<String> = (0..2500).map(|i| format!(r#"{{"id":"i{i}"}}"#)).collect();
            let mut items: Vec<&str> = items.iter().map(String::as_str).collect();
            items.push(r#"{"id": "a", "n": 1}"#);
            let mut host = MemoryHost { accepted_max: Some(9), ..MemoryHost::with(&items) };
            let result = scripts.run(&procedure(&text, "[]"), &mut host);
            let fails_in_callback = matches!(&result, Err(failure) if !failure.error.to_string().contains("Errors"));
            (show(result), (!fails_in_callback).then_some(host.requests))
        };
        assert_eq!(run(&elsewhere), run(&here), "{text}");
    }
}

/// A script that starts thousands of operations at once, with large bodies and large answers, needs neither one large message nor
/// much memory.
pub fn a_long_queue_goes_in_bounded_messages() {
    const COUNT: usize = 5000;
    let scripts = scripts(Limits::default());
    let text = body(&format!(
        "var n = 0, t = 'x'.repeat(1000);
         for (let i = 0; i < {COUNT}; i++) c.createDocument(link, {{id: 'b' + i, t}}, (e, d) => {{ if (d.id == 'b' + n) set(++n) }})"
    ));
    let mut host = MemoryHost::default();
    // The host looks for the id among all items.
    host.items.reserve(COUNT);
    assert_eq!(show(scripts.run(&procedure(&text, "[]"), &mut host)), COUNT.to_string());
    assert_eq!(host.items.len(), COUNT);
    let large = format!(r#"{{"id": "a", "n": 1, "t": "{}"}}"#, "y".repeat(1 << 20));
    let text = body(
        "var n = 0; for (let i = 0; i < 200; i++) c.readDocument(doc('a'), (e, d) => { n += d.t.length; set(n) })",
    );
    let mut host = MemoryHost::with(&[&large]);
    assert_eq!(show(scripts.run(&procedure(&text, "[]"), &mut host)), (200 << 20).to_string());
    #[cfg(target_os = "linux")]
    {
        let status = std::fs::read_to_string(format!("/proc/{}/status", workers()[0])).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        let kilobytes: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
        println!("peak of a worker with a long queue: {kilobytes} kB");
        assert!(kilobytes < 160 << 10, "{kilobytes}");
    }
}

/// Kills its worker while it serves the second operation of a message.
struct KillerInside(usize);

impl Host for KillerInside {
    fn call(&mut self, request: Request) -> Answer {
        self.0 += 1;
        if self.0 == 2 {
            return Killer.call(request);
        }
        Reply::Item { status: 201, body: "{}".to_owned() }.into()
    }
}

/// The caller commits what a run did only if the run succeeds.
pub fn a_worker_that_dies_inside_a_message_fails_its_run() {
    let scripts = scripts(Limits::default());
    let text = body("for (let i = 0; i < 4; i++) c.createDocument(link, {id: 'b' + i})");
    let mut host = KillerInside(0);
    let failure = scripts.run(&procedure(&text, "[]"), &mut host).unwrap_err();
    assert!(
        matches!(&failure.error, ScriptError::Engine { message } if message.contains("worker process ended")),
        "{failure:?}"
    );
    assert_eq!(host.0, 4, "they came in one message");
    check(&scripts, "set(1)", "1");
}
