//! Malicious scripts: each ends with a clear error within its limits, and the next run on the same thread is not
//! affected.

mod support;

use std::time::{Duration, Instant};

use quire_script::*;
use quire_testkit::hostile::{self, CORPUS, ExpectedEnd, NEXT, UNHARMED};
use support::*;

const LIMITS: Limits = Limits {
    soft_time: Duration::from_millis(200),
    time: Duration::from_millis(400),
    function_time: Duration::from_millis(400),
    soft_memory_bytes: 12 << 20,
    memory_bytes: 16 << 20,
    stack_bytes: 512 << 10,
    script_bytes: 2 << 20,
    body_length: 1 << 20,
    log_bytes: 12 << 10,
};
/// For machines under load; without a limit these would run for minutes or forever.
const LONG_TIME: Duration = Duration::from_secs(20);

const TIME: &str = "The requested operation exceeded maximum alloted time.";
/// The engine had no memory even for an error.
const OUT_OF_MEMORY: &str = "null (or the script needed more than";
const MEMORY: &str = "the script exceeded its memory limit";

fn fits(expected: ExpectedEnd, shown: &str) -> bool {
    match expected {
        ExpectedEnd::Time => shown.starts_with(TIME),
        ExpectedEnd::Memory => shown.starts_with(MEMORY) || shown.starts_with(OUT_OF_MEMORY),
        ExpectedEnd::Error(text) | ExpectedEnd::Value(text) => shown.starts_with(text),
        ExpectedEnd::OneOf(all) => all.iter().any(|expected| fits(*expected, shown)),
    }
}

#[test]
fn every_script_ends_within_its_limits() {
    let short_limits = Scripts::new(LIMITS);
    // A script that must end for another reason has time for it, also on a machine under load.
    let with_long_time = Scripts::new(Limits { time: LONG_TIME, ..LIMITS });
    let mut wrong = Vec::new();
    for hostile in CORPUS.iter().filter(|hostile| !hostile.needs_a_process) {
        let text = hostile.procedure();
        if std::env::var_os("SHOW_HOSTILE").is_some() {
            eprintln!("{text}");
        }
        let scripts = if hostile.expected.may_time_out() { &short_limits } else { &with_long_time };
        let mut host = MemoryHost::with(&[r#"{"id": "a", "n": 1}"#]);
        let started = Instant::now();
        let shown = show(scripts.run(&procedure(&text, "[]"), &mut host));
        let took = started.elapsed();
        if !fits(hostile.expected, &shown) || took > LONG_TIME * 2 {
            wrong.push(format!("{text}\n  {took:?} {}", shown.chars().take(200).collect::<String>()));
        }
        let mut host = MemoryHost::with(&[r#"{"id": "a", "n": 1}"#]);
        let next = show(with_long_time.run(&procedure(&hostile::procedure(NEXT), "[]"), &mut host));
        if next != UNHARMED {
            wrong.push(format!("after {text}\n  {next}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_run_with_endless_requests_ends_well_before_its_deadline() {
    let started = Instant::now();
    let text = body("var n = 0, go = () => { n++; if (!c.readDocuments(link, go)) set('stopped') }; go()");
    let shown = show(Scripts::new(LIMITS).run(&procedure(&text, "[]"), &mut MemoryHost::with(&[])));
    assert_eq!(shown, "\"stopped\"");
    assert!(started.elapsed() >= LIMITS.soft_time);
}

#[test]
fn operations_are_refused_when_memory_is_short() {
    let item = format!(r#"{{"id": "a", "pad": "{}"}}"#, "x".repeat(200_000));
    let text = body(
        "var all = [], go = (e, d) => { all.push(d); if (!c.readDocument(doc('a'), go)) set('refused') }; go()",
    );
    let limits = Limits { soft_time: LONG_TIME, time: LONG_TIME, ..LIMITS };
    assert_eq!(
        show(Scripts::new(limits).run(&procedure(&text, "[]"), &mut MemoryHost::with(&[&item]))),
        "\"refused\""
    );
}

#[test]
fn long_text_is_refused() {
    let text = format!("function () {{ /* {} */ }}", "x".repeat(3 << 20));
    assert!(run(&text).contains("is longer than 2097152"));
}

/// Before the engine sees a text, no time limit holds: what is done with it then takes time in proportion to its length.
#[test]
fn a_text_that_ends_with_many_comments_is_compiled_in_time() {
    for end in [";//", "/**/", "\n//", "\n;"] {
        let text = format!("function () {{}}{}", end.repeat(1_000_000 / end.len()));
        let started = Instant::now();
        let _ = Scripts::new(Limits::default()).run(&procedure(&text, "[]"), &mut MemoryHost::default());
        assert!(started.elapsed() < Duration::from_secs(10), "{end:?} {:?}", started.elapsed());
    }
}

#[test]
fn threads_run_side_by_side() {
    let scripts = Scripts::new(LIMITS);
    std::thread::scope(|scope| {
        for number in 0..4 {
            let scripts = &scripts;
            scope.spawn(move || {
                for round in 0..20 {
                    let parameters = format!("[{number}, {round}]");
                    let text = "function (a, b) { getContext().getResponse().setBody(a * 100 + b) }";
                    let shown = show(scripts.run(&procedure(text, &parameters), &mut MemoryHost::default()));
                    assert_eq!(shown, (number * 100 + round).to_string());
                }
            });
        }
    });
}

#[test]
fn a_run_has_the_time_that_earlier_runs_left() {
    let scripts = Scripts::new(LIMITS);
    let text = body("c.readDocuments(link, () => {}) ? set('accepted') : set('refused')");
    let run = |time_used| {
        show(scripts.run(&ScriptRun { time_used, ..procedure(&text, "[]") }, &mut MemoryHost::with(&[])))
    };
    assert_eq!(run(Duration::ZERO), "\"accepted\"");
    assert_eq!(run(LIMITS.soft_time), "\"refused\"");
    assert!(run(LIMITS.time).contains("maximum alloted time"), "{}", run(LIMITS.time));
}
