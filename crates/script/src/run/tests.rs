//! What runs leave in the runtimes that are kept for the next ones.

use super::*;

/// One item for everything that is asked.
struct OneItem;

impl Host for OneItem {
    fn call(&mut self, request: Request) -> Answer {
        match request {
            Request::Query { .. } | Request::ReadFeed { .. } => {
                Reply::Page { items: r#"[{"id":"a","n":1}]"#.to_owned(), continuation: None }.into()
            }
            Request::Read { .. } => Reply::Error { status: 404, message: "none".to_owned() }.into(),
            _ => Reply::Item { status: 200, body: r#"{"id":"a","n":1}"#.to_owned() }.into(),
        }
    }
}

/// `NUMBER` is another one in each run of a text, so that every run has names and texts of its own.
const TEXTS: &[&str] = &[
    "function (a) { getContext().getResponse().setBody(a) }",
    "function (a) { var o = {}; o.keyNUMBER = a; o.self = o; var f = () => o; f.g = f; __.kept = [f, o] }",
    "function () { throw new Error(400, 'numberNUMBER') }",
    "function () { (async () => { await 1; __.last = new Promise(() => {}) })() }",
    "function () { __.createDocument(__.getSelfLink(), { id: 'NUMBER' }, (e, d) => { __.d = d; d.c = __ }) }",
    "function () { __.readDocument(__.getAltLink() + '/docs/NUMBER', e => { throw e }) }",
    "function () { __.chain().filter(d => d.n > 0).map(d => d.n).value((e, list) => console.log(list)) }",
    "function () { function* g() { yield g } var i = g(); i.i = i; [...i]; return /aNUMBER(b)/.exec('aNUMBERb') }",
    "function () { var l = []; for (var i = 0; i < 2000; i++) l.push({ l, i }); return l }",
    "function () { leakNUMBER = 1 }",
    "function () { Array.prototype.leakNUMBER = 1 }",
    "function () { return Symbol.for('NUMBER') + '' }",
    "function () { var f = () => f(); try { f() } catch (e) { e.e = e } }",
    "function () { getContext().abort(new Error('x')) }",
    "function () { var w = new WeakMap(), k = { w }; w.set(k, { k, l: new Array(5000).fill(0) }) }",
    "function () { var p = new Promise(() => {}), q = p.then(() => q); (async () => { await q; return p })() }",
    "async function () { for await (var x of (async function* () { yield 1; await new Promise(() => {}) })()); }",
    "function () { syntax error }",
    "var programNUMBER = 1; function main() { return programNUMBER }",
];

/// Memory of the idle runtime and its number of names.
fn left(scripts: &Scripts) -> (usize, i64) {
    let sandbox = scripts.pool.take().unwrap();
    sandbox.runtime.run_gc();
    let left = (sandbox.memory_bytes(), sandbox.runtime.memory_usage().atom_count);
    scripts.pool.return_to_pool(sandbox);
    left
}

fn run_text(scripts: &Scripts, text: &str, parameters: &str) {
    let collection = Collection {
        self_link: "dbs/a/colls/b/",
        alt_link: "dbs/c/colls/d",
        usage: "",
        quota: "",
        partition_key: "[]",
        planar: false,
    };
    let run = ScriptRun {
        script: Script { version: text, body: text },
        call: Call::Procedure { parameters },
        collection,
        headers: &[],
        logging: true,
        time_used: Duration::ZERO,
    };
    let _ = scripts.run(&run, &mut OneItem);
}

fn run_some(scripts: &Scripts, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let text = TEXTS[number % TEXTS.len()].replace("NUMBER", &number.to_string());
        run_text(scripts, &text, &format!(r#"[{{"key{number}": {number}}}]"#));
    }
}

#[test]
fn runs_leave_no_memory_in_use() {
    let scripts = Scripts::new(Limits::default());
    run_some(&scripts, 0..TEXTS.len() * 10);
    let (bytes, names) = left(&scripts);
    println!("{bytes} bytes, {names} names");
    run_some(&scripts, TEXTS.len() * 10..TEXTS.len() * 60);
    let (later_bytes, later_names) = left(&scripts);
    assert!(later_bytes < bytes + (64 << 10), "{bytes} {later_bytes}");
    assert!(later_names < names + 20, "{names} {later_names}");
}

/// An idle context does not hold what the last run put into the objects of the API.
#[test]
fn a_run_gives_up_what_it_had_at_its_end() {
    let scripts = Scripts::new(Limits::default());
    for text in [
        "function () { __.kept = new ArrayBuffer(3000000) }",
        "function () { getContext().kept = new ArrayBuffer(3000000); throw new Error('x') }",
        "function () { __ = { kept: new ArrayBuffer(3000000) } }",
    ] {
        run_text(&scripts, text, "[]");
        let sandbox = scripts.pool.take().unwrap();
        assert!(sandbox.memory_bytes() < 2 << 20, "{text} {}", sandbox.memory_bytes());
        scripts.pool.return_to_pool(sandbox);
    }
}

/// What the engine does not free, because a built-in of the shared context leads to it, ends with the runtime. The first run takes
/// next to no time, because nobody writes to its memory.
#[test]
fn a_runtime_that_holds_much_memory_is_not_used_again() {
    let scripts = Scripts::new(Limits::default());
    for (length, count) in [(50_000_000, 1), (300_000, 40)] {
        let text = format!(
            "function () {{ var w = new WeakMap(); w.set([].push, {{ w, b: new ArrayBuffer({length}) }}) }}"
        );
        for _ in 0..count {
            run_text(&scripts, &text, "[]");
        }
        assert!(left(&scripts).0 < 5 << 20, "{length} {:?}", left(&scripts));
    }
}

/// Runs that fail for a plain reason do not cost the next one a new context.
#[test]
fn a_failed_run_leaves_the_shared_context_to_the_next() {
    let scripts = Scripts::new(Limits::default());
    for (text, parameters) in [
        ("function () { throw 1 }", "[]"),
        ("(function () { throw 1 })()", "[]"),
        ("(function () { return 5 })()", "[]"),
        ("function () {}", "5"),
        ("function ( {", "[]"),
        ("function () { getContext().abort('x') }", "[]"),
        ("function () { return String.prototype }", "[]"),
    ] {
        run_text(&scripts, "function () {}", "[]");
        for _ in 0..2 {
            run_text(&scripts, text, parameters);
            let sandbox = scripts.pool.take().unwrap();
            assert!(sandbox.has_shared_realm(), "{text}");
            scripts.pool.return_to_pool(sandbox);
        }
    }
}
