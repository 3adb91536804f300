//! Scripts that try to leave something for the next one, which may belong to another client, and scripts that work only if it is
//! left alone. Every case runs with the same runtimes, one script after the other.

mod support;

use std::time::Duration;

use quire_script::*;
use support::*;

/// What a script does to the runs after it, and a script that says `good` if it finds nothing of it.
const ATTACKS: &[(&str, &str)] = &[
    // Variables of the program around the expression.
    ("function () {}); let leak = 1; (function () {}", "typeof leak === 'undefined'"),
    ("function () {}); const leak = 1; (function () {}", "typeof leak === 'undefined'"),
    ("a) => 1); let leak = 1; ((b) => 2", "typeof leak === 'undefined'"),
    ("function () {}); let __ = { leak: 1 }; (function () {}", "__.leak === undefined"),
    ("function () {}); function leak() {} (function () {}", "typeof leak === 'undefined'"),
    ("function () {}); function getContext() {} (function () {}", "true"),
    ("function () {}); var leak = 1; (function () {}", "typeof leak === 'undefined'"),
    ("function () {}); using leak = null; (function () {}", "typeof leak === 'undefined'"),
    // As many globals as before.
    ("function () { delete __; leak = 1 }", "typeof leak === 'undefined'"),
    ("function () { __ = null; delete __; __ = { leak: 1 } }", "__.leak === undefined"),
    // Prototypes that no global leads to.
    (
        "function () { Iterator.from({ next() { return {} } })['__pro' + 'to__'].leak = 1 }",
        "Iterator.from({ next() { return {} } }).leak === undefined",
    ),
    (
        "function () { [].values().drop(1)['__pro' + 'to__'].leak = 1 }",
        "[].values().drop(1).leak === undefined",
    ),
    // The global object, named where a slash divides or begins a pattern.
    (
        "function () { var of = 1; of / Object.setPrototypeOf((function () { return this })(), { leak: 1 }) / 1 }",
        "typeof leak === 'undefined'",
    ),
    (
        "function () { var o = { in: 1 }; o.in / Object.setPrototypeOf((function () { return this })(), { leak: 1 }) / 1 }",
        "typeof leak === 'undefined'",
    ),
    (
        "function () { var x\n/'/.x; Object.setPrototypeOf((function () { return this })(), { leak: 1 }) // '\n }",
        "typeof leak === 'undefined'",
    ),
    (
        "function () { var i = [1]; ++/'/.x; Object.setPrototypeOf((function () { return this })(), { leak: 1 }) // '\n }",
        "typeof leak === 'undefined'",
    ),
    (
        "function () { L: { if (0) break L\n/'/.x; (function () { return this })().__proto = 1 // '\n } }",
        "typeof __proto === 'undefined'",
    ),
    (
        "function () { var of = 1; of / Object.preventExtensions((function () { return this })()) / 1 }",
        "(leak = 1) === leak",
    ),
    (
        "function () { var of = 1; of / Object.defineProperty((function () { return this })(), '__', { writable: false }) / 1 }",
        "typeof __.createDocument === 'function'",
    ),
    (
        "function () { var x\n/'/.x; var g = (function () { return this })(), c = g.getContext, n = 0, bad = () => c().getResponse().setBody(0);
        Object.defineProperty(g, \"getContext\", { get() { return n++ ? bad : c } }) // '\n }",
        "true",
    ),
    // What the engine keeps in objects, frozen or not.
    (
        "function () { try { throw Error['proto' + 'type'] } catch (e) {} throw Error['proto' + 'type'] }",
        "Error['proto' + 'type'].stack === undefined",
    ),
    (
        "function () { var e = Object.entries(AggregateError['__pro' + 'to__']); AggregateError['__pro' + 'to__'].stackTraceLimit = 0 }",
        "new Error('x').stack.length > 0",
    ),
    (
        "function () { AggregateError['__pro' + 'to__']['prepare' + 'StackTrace'] = () => 'leak' }",
        "new Error('x').stack !== 'leak'",
    ),
    // Work for later. The third is no function, but ends with one as a program.
    (
        "function () { (async () => { for (;;) { await 1; getContext().getResponse().setBody('bad') } })(); throw new Error('x') }",
        "true",
    ),
    (
        "function () { __.createDocument(__.getSelfLink(), { id: 'leak' }, () => getContext().getResponse().setBody('bad')); throw 1 }",
        "__.getSelfLink().length > 0",
    ),
    (
        "{ a: (Promise.resolve().then(() => { leak = 1 }), function () {}) }",
        "typeof leak === 'undefined'",
    ),
];

fn probe(condition: &str) -> String {
    format!(
        "function () {{ var good = {condition}; getContext().getResponse().setBody(good ? 'good' : 'bad') }}"
    )
}

fn run_in(scripts: &Scripts, body: &str) -> String {
    show(scripts.run(&procedure(body, "[]"), &mut MemoryHost::with(&[r#"{"id": "a"}"#])))
}

#[test]
fn nothing_is_left_for_the_next_script() {
    let mut found = Vec::new();
    for (attack, condition) in ATTACKS {
        let scripts = Scripts::new(Limits { time: Duration::from_secs(2), ..Limits::default() });
        let probe = probe(condition);
        assert_eq!(run_in(&scripts, &probe), "\"good\"", "{condition}");
        for _ in 0..2 {
            run_in(&scripts, attack);
            for probe in [&probe, &format!("{probe} // again")] {
                let answer = run_in(&scripts, probe);
                if answer != "\"good\"" {
                    found.push((attack, answer));
                }
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// The engine's generator has 64 bits of state and shows 52 of them: the others are guessed.
fn next_of_engine(numbers: &[f64]) -> Option<f64> {
    const FACTOR: u64 = 0x2545_f491_4f6c_dd1d;
    let inverse = (0..6).fold(1u64, |x, _| x.wrapping_mul(2u64.wrapping_sub(FACTOR.wrapping_mul(x))));
    let shown = |state: u64| (state.wrapping_mul(FACTOR) >> 12) as f64 / (1u64 << 52) as f64;
    let next = |mut x: u64| {
        x ^= x >> 12;
        x ^= x << 25;
        x ^ x >> 27
    };
    let first = (numbers[0] * (1u64 << 52) as f64) as u64;
    let states = (0..1 << 12).map(|guess| (first << 12 | guess).wrapping_mul(inverse));
    let mut states = states.filter(|state| {
        numbers[1..]
            .iter()
            .try_fold(*state, |at, number| {
                let at = next(at);
                (shown(at) == *number).then_some(at)
            })
            .is_some()
    });
    let first = states.next()?;
    Some(shown(numbers.iter().fold(first, |at, _| next(at))))
}

/// Who has seen the random numbers of one run must not know those of the next, which may belong to another client.
#[test]
fn random_numbers_of_two_runs_are_unrelated() {
    let scripts = Scripts::new(Limits::default());
    let text = "function () { var l = []; for (var i = 0; i < 4; i++) l.push(Math.random()); getContext().getResponse().setBody(l) }";
    let numbers = || -> Vec<f64> {
        let text = run_in(&scripts, text);
        text.trim_matches(['[', ']']).split(',').map(|number| number.parse().unwrap()).collect()
    };
    let (first, second) = (numbers(), numbers());
    assert!(first.iter().chain(&second).all(|number| (0.0..1.0).contains(number)), "{first:?} {second:?}");
    assert_ne!(next_of_engine(&first), Some(second[0]));
    let mut all = [first, second].concat();
    all.dedup();
    assert_eq!(all.len(), 8);
}
