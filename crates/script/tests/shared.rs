//! Scripts that work in a context of their own work the same in one that runs share: built-ins are frozen there, and no script may notice.

mod support;

use quire_script::*;
use support::*;

/// What scripts do, above all to built-ins and to names that prototypes have.
const BODIES: &[&str] = &[
    r#"var o = {}; (o.toString) = function () { return 'mine' }; set('' + o)"#,
    r#"var o = {}; (o.toString) = () => 'mine'; set(`${o}`)"#,
    r#"var o = {}; [o.toString] = [() => 'mine']; set('' + o)"#,
    r#"var o = {}; ({ a: o.toString } = { a: () => 'mine' }); set('' + o)"#,
    r#"var o = {}; for (o.toString of [() => 'mine']); set('' + o)"#,
    r#"var o = {}; for ((o.toString) of [() => 'mine']); set('' + o)"#,
    r#"var o = {}; [[o.toString] = [() => 'mine']] = [[() => 'm2']]; set('' + o)"#,
    r#"var o = {}; ({ a: [o.toString] } = { a: [() => 'mine'] }); set('' + o)"#,
    r#"var o = {}; ({ ...o.toString } = { a: 1 }); set(typeof o.toString)"#,
    r#"var o = {}; [...o.valueOf] = [1, 2]; set(o.valueOf)"#,
    r#"var o = {}; var f = () => o; ++f().toString; set('' + o.toString)"#,
    r#"var o = {}; var f = () => o; f().toString++; set('' + o.toString)"#,
    r#"var o = { a: {} }; ++o.a.toString; set('' + o.a.toString)"#,
    r#"var o = {}; ++(o).toString; set('' + o.toString)"#,
    r#"var o = {}; --[o][0].toString; set('' + o.toString)"#,
    r#"var o = {}; o.toString ||= 1; set(typeof o.toString)"#,
    r#"var o = {}; o.toString &&= 1; set(typeof o.toString)"#,
    r#"var o = {}; (o).toString = () => 'mine'; set('' + o)"#,
    r#"var o = {}; (0, o).toString = () => 'mine'; set('' + o)"#,
    r#"var o = {}; o?.a; o.toString
= () => 'mine'; set('' + o)"#,
    r#"var o = {}; o . toString /* x */ = () => 'mine'; set('' + o)"#,
    r#"var o = {}; o.toString // x
 = () => 'mine'; set('' + o)"#,
    r#"var o = {}; Object.defineProperty(o, 'toString', { value: () => 'mine' }); set('' + o)"#,
    r#"var o = {}; o['to' + 'String'] = () => 'mine'; set('' + o)"#,
    r#"var k = 'toString', o = {}; o[k] = () => 'mine'; set('' + o)"#,
    r#"var e = new Error('a'); e.message = 'b'; e.name = 'N'; set('' + e)"#,
    r#"var e = new Error('a'); e.stack = 's'; set(e.stack)"#,
    r#"var e = new TypeError('a'); e.code = 7; set([e.code, e.message, e.name])"#,
    r#"try { null.x } catch (e) { e.message = 'm'; set(e.message) }"#,
    r#"function F() { this.name = 'x' } F.prototype.toString = function () { return this.name }; set('' + new F())"#,
    r#"class A { constructor() { this.name = 'a' } toString() { return this.name } } set('' + new A())"#,
    r#"class A extends Error { constructor(m) { super(m); this.name = 'A' } } try { throw new A('q') } catch (e) { set('' + e) }"#,
    r#"String.prototype.format = function () { return 'f' + this }; set('x'.format())"#,
    r#"if (!String.prototype.zzz) String.prototype.zzz = function () { return 'p' }; set('x'.zzz())"#,
    r#"Array.prototype.last = function () { return this[this.length - 1] }; set([1, 2].last())"#,
    r#"Array.prototype.x = 1; var n = 0; for (var i in []) n++; set(n)"#,
    r#"Object.prototype.leak = 1; set({}.leak)"#,
    r#"if (!Array.isArray) Array.isArray = function () {}; set(Array.isArray([]))"#,
    r#"if (typeof Array.from !== 'function') { Array.from = 1 } set(typeof Array.from)"#,
    r#"Math.foo = function () { return 3 }; set(Math.foo())"#,
    r#"JSON.stringify2 = JSON.stringify; set(JSON.stringify2({ a: 1 }))"#,
    r#"Date.now = function () { return 5 }; set(Date.now())"#,
    r#"console.log = function () {}; console.log('a'); set(1)"#,
    r#"console.table = function () { return 9 }; set(console.table())"#,
    r#"__.foo = 1; set(__.foo)"#,
    r#"__.createDocument = function () { return 'mine' }; set(__.createDocument())"#,
    r#"var c = getContext().getCollection(); c.queryDocuments = () => 'mine'; set(c.queryDocuments())"#,
    r#"var c = getContext(); c.getRequest = () => 'mine'; set(c.getRequest())"#,
    r#"getContext.foo = 1; set(getContext.foo)"#,
    r#"JSON = { stringify: () => 'x' }; set(JSON.stringify())"#,
    r#"var JSON = { stringify: () => 'x' }; set(JSON.stringify())"#,
    r#"x = 1; y = x + 1; set([x, y])"#,
    r#"undefined = 1; set(typeof undefined)"#,
    r#"'use strict'; try { undefinedVar = 1 } catch (e) { set(e.name) }"#,
    r#"'use strict'; var o = {}; o.toString = 1; set(o.toString)"#,
    r#"'use strict'; try { Math.PI = 3 } catch (e) { set(e.name) }"#,
    r#"'use strict'; try { Math.newProp = 3; set(Math.newProp) } catch (e) { set(e.name) }"#,
    r#"var a = []; a.length = 3; set(a)"#,
    r#"var a = [3, 1, 2]; a.sort(); a.reverse(); a.splice(1, 1, 9); a.fill(0, 0, 1); a.copyWithin(0, 1); set(a)"#,
    r#"var a = [1, 2, 3]; a.name = 'q'; set([a.name, a.length])"#,
    r#"var a = [1]; a.constructor = 5; set(a.constructor)"#,
    r#"var a = [1]; a.map = () => 'mine'; set(a.map())"#,
    r#"var f = function () {}; f.call = 1; set(f.call)"#,
    r#"var f = function () {}; f.x = 1; f.bind = 2; set([f.x, f.bind])"#,
    r#"var p = [].values(); p.next2 = 1; set(p.next2)"#,
    r#"var m = new Map(); m.size2 = 1; m.set('a', 1); m.get = () => 7; set([m.size, m.size2, m.get()])"#,
    r#"var m = new Map([[1, 2]]); set([...m.entries()])"#,
    r#"var d = new Date(0); d.foo = 1; d.toJSON = () => 'j'; set(d)"#,
    r#"var d = new Date(0); d.setFullYear(2001); set(d)"#,
    r#"var r = /a/g; r.lastIndex = 1; r.exec = () => null; set(r.test('aaa'))"#,
    r#"var r = /a/g; set(['aab'.replace(r, 'x'), r.lastIndex, r.exec('a') && 1])"#,
    r#"var o = Object.create({ name: 1 }); o.name = 2; set(o)"#,
    r#"var o = Object.create(null); o.toString = 1; set(o)"#,
    r#"var o = Object.assign({}, { toString: 1, name: 2 }); set(o)"#,
    r#"var o = { ...{ toString: 1 } }; set(o)"#,
    r#"var o = Object.fromEntries([['toString', 1]]); set(o)"#,
    r#"var o = JSON.parse('{"toString":1,"__proto__":2,"constructor":3}'); set(o)"#,
    r#"var o = JSON.parse('{"a":1}', (k, v) => { if (v && v.a) v.toString = 1; return v }); set(o)"#,
    r#"var o = {}; o.hasOwnProperty = 1; set(o)"#,
    r#"var o = {}; with (o) { toString = 1 } set(o)"#,
    r#"var o = { toString: 1 }; with (o) { toString = 2 } set(o)"#,
    r#"var o = { get name() { return this.n }, set name(v) { this.n = v } }; o.name = 4; set(o)"#,
    r#"var name = 'x'; name = 'y'; var toString = 1; toString = 2; set([name, toString])"#,
    r#"function valueOf() { return 1 } var length = 3; length++; set([valueOf(), length])"#,
    r#"var t = (s, ...v) => s.raw.length + v.length; set(t`a${1}b${2}c`)"#,
    r#"var t = s => s; set(t`a` === t`a`)"#,
    r#"var f = () => (s => s)`a`; set(f() === f())"#,
    r#"set([...'abc'].map(c => c.toUpperCase()).join())"#,
    r#"function* g() { yield 1; yield* [2, 3] } set([...g()])"#,
    r#"function* g() { yield 1 } g.foo = 1; var i = g(); i.toString = () => 'gen'; set('' + i)"#,
    r#"(async () => { await null; set('later') })()"#,
    r#"Promise.resolve(1).then(v => set(v))"#,
    r#"var p = Promise.resolve(1); p.then = f => f(9); (async () => set(await p))()"#,
    r#"Promise.all([1, 2]).then(set)"#,
    r#"new Promise((_, n) => n(new Error('x'))).catch(e => set(e.message))"#,
    r#"var s = Symbol('q'); var o = { [s]: 1 }; set(o[s])"#,
    r#"var o = { [Symbol.iterator]: function* () { yield 1 } }; set([...o])"#,
    r#"set(Object.isFrozen(Array.prototype))"#,
    r#"set([Object.isFrozen(Math), Object.isExtensible(JSON)])"#,
    r#"set(Object.getOwnPropertyDescriptor(Math, 'max').writable)"#,
    r#"set(typeof globalThis.getContext)"#,
    r#"set(Object.keys(this).length)"#,
    r#"set(Reflect.ownKeys(globalThis).includes('__'))"#,
    r#"set(Math.random.name + Math.random.length + typeof Math.random())"#,
    r#"set(Math.random.toString())"#,
    r#"set(Object.getOwnPropertyNames(Math.random).sort())"#,
    r#"try { new Math.random() } catch (e) { set(e.message) }"#,
    r#"set([typeof Math.random.prototype, Object.keys(Math)])"#,
    r#"set(arguments.length + arguments[0].id)"#,
    r#"arguments[0].tags.push('z'); set(arguments[0])"#,
    r#"var d = arguments[0]; d.type = 'book'; d.count = (d.count || 0) + 1; set(d)"#,
    r#"var d = arguments[0]; d.name = 'n'; d.value = 2; d.size = 3; d.link = 4; d.at = 5; d.search = 6; set(d)"#,
    r#"var d = arguments[0]; delete d.id; d.id = 7; set(d)"#,
    r#"var d = arguments[0]; d.tags.forEach((t, i) => { d['k' + i] = t }); set(d)"#,
    r#"var q = __.filter(d => d.n > 1); set(typeof q.isAccepted)"#,
    r#"__.filter(d => d.n > 1, (e, items) => set(items.length))"#,
    r#"__.chain().filter(d => d.n > 0).map(d => d.n).value((e, i) => set(i))"#,
    r#"var acc = []; __.queryDocuments(__.getSelfLink(), 'SELECT * FROM c', function (e, i, o) { acc = acc.concat(i.map(x => x.id)); set(acc) })"#,
    r#"__.createDocument(__.getSelfLink(), { id: 'n', name: 1 }, function (e, d) { if (e) throw e; set(d.id) })"#,
    r#"__.createDocument(__.getSelfLink(), { id: 'a' }, function (e, d) { set([e.number, typeof e.body]) })"#,
    r#"__.readDocument(__.getAltLink() + '/docs/zz', function (e) { e.message = 'changed'; throw e })"#,
    r#"throw new Error(409, 'boom')"#,
    r#"throw { message: 'obj', number: 3 }"#,
    r#"var e = new Error('x'); e.number = 5; throw e"#,
    r#"getContext().abort(new Error('ab'))"#,
    r#"console.log('a %s', { b: 1 }); set(1)"#,
    r#"set(function f(n) { return n ? 1 + f(n - 1) : 0 }(100))"#,
    r#"var f = function () { return f() }; try { f() } catch (e) { set(e.name) }"#,
    r#"set((function () { return typeof this })())"#,
    r#"set((function () { return this === globalThis })())"#,
    r#"var x = 10 / 2 / 5; set(x)"#,
    r#"var a = [4], i = 0; set(a[i] / 2 / 1)"#,
    r#"var a = [4], i = 0; set(a[i++] / 2)"#,
    r#"var g = 2, i = 3; set(i++ / g)"#,
    r#"var b = 4
/2/1; set(b)"#,
    r#"set('a/b'.split('/').length)"#,
    r#"if (true) ++x1; var x1; set(isNaN(x1))"#,
    r#"var o = { n: 1 }; if (o) ++o.n; set(o)"#,
    r#"var o = { n: 1 }; o.n++
++o.n; set(o)"#,
    r#"var { a, b: { c } = { c: 3 }, ...rest } = { a: 1, z: 2 }; set([a, c, rest])"#,
    r#"var a = 1, b = 2; [a, b] = [b, a]; set([a, b])"#,
    r#"var a, b; ({ a, b = 5 } = { a: 1 }); set([a, b])"#,
    r#"label: for (var i = 0; i < 3; i++) { for (;;) { continue label } } set(i)"#,
    r#"switch (1) { case 1: set('one'); break; default: set('d') }"#,
    r#"set(typeof undeclared)"#,
    r#"set(Math.max.apply(null, [1, 2, 3]))"#,
    r#"set([].concat.apply([], [[1], [2]]))"#,
    r#"set(Array.prototype.slice.call(arguments).length)"#,
    r#"set([1, 2, 3].map(String))"#,
    r#"set(['1', '2'].map(Number).reduce((a, b) => a + b, 0))"#,
    r#"set(new Date(0).toISOString() + parseInt('12px') + encodeURIComponent('a b') + escape('ü'))"#,
    r#"set([0.1 + 0.2, 1 / 3, 1e21, -0, NaN, Infinity])"#,
    r#"set(BigInt(5).toString())"#,
    r#"var w = new WeakMap(), k = {}; w.set(k, 1); set(w.get(k))"#,
    r#"set(new Uint8Array([1, 2]).join())"#,
    r#"var u = new Uint8Array(2); u[0] = 5; u.foo = 1; set([u[0], u.foo])"#,
    r#"set(Object.entries({ a: 1 }).flat())"#,
    r#"set(Object.groupBy([1, 2, 3], x => x % 2 ? 'o' : 'e'))"#,
    r#"var o = Object.groupBy([1], x => 'a'); o.toString = 1; set(o)"#,
    r#"set(Iterator.from([1, 2]).map(x => x + 1).toArray())"#,
    r#"var it = [1, 2].values(); it.next = () => ({ done: true }); set([...it])"#,
    r#"for (var Math2 = 0; Math2 < 2; Math2++); set(Math2)"#,
    r#"try { throw 1 } catch { set('c') } finally { __.z = 1 }"#,
    r#"var o = {}; o.a = o; try { JSON.stringify(o) } catch (e) { set(e.name + e.message) }"#,
];

const PARAMETERS: &str = r#"[{"id": "x", "tags": ["p", "q"]}, 5, "s"]"#;

fn outcome(scripts: &Scripts, text: &str) -> String {
    let mut host = MemoryHost::with(&[r#"{"id": "a", "n": 1}"#, r#"{"id": "b", "n": 2}"#]);
    let result = scripts.run(&procedure(text, PARAMETERS), &mut host);
    format!("{result:?} {:?}", host.requests)
}

/// A text with the word `prototype` never shares a context.
#[test]
fn scripts_work_as_in_a_context_of_their_own() {
    let scripts = Scripts::new(Limits::default());
    let mut different = Vec::new();
    for text in BODIES {
        let text = body(text);
        let alone = outcome(&Scripts::new(Limits::default()), &format!("{text} /* prototype */"));
        for _ in 0..2 {
            let shared = outcome(&scripts, &text);
            if shared != alone {
                different.push(format!("{text}\n{shared}\n{alone}"));
            }
        }
    }
    assert!(different.is_empty(), "{different:#?}");
}

/// What a run can see of itself, for every kind of run.
const LOOK: &str = "function () {
    var context = getContext(), request = context.getRequest(), out = context.getResponse ? context.getResponse() : request;
    var seen = [typeof context.getResponse, typeof __.response, typeof request.setBody, typeof request.getOperationType, request.getBody(),
        __.getSelfLink(), __.getAltLink(), typeof request.getHeader, typeof request.getOther, typeof __.kept, typeof context.kept];
    if (request.getOperationType) seen.push(request.getOperationType());
    if (context.getResponse) seen.push(out.getBody());
    __.kept = context.kept = request.kept = out.kept = seen;
    out.setBody({ id: 'x', seen: seen });
}";

/// One after the other in the same context, of different containers and with different headers.
#[test]
fn kinds_of_runs_take_turns_in_one_context() {
    let (header, other) = (&[("Header", "1")][..], &[("Other", "2")][..]);
    let body = Some(r#"{"id": "body"}"#);
    let elsewhere =
        Collection { self_link: "dbs/x/colls/y/", alt_link: "dbs/other/colls/other", ..COLLECTION };
    let runs = [
        (Call::Procedure { parameters: "[1]" }, COLLECTION, header),
        (Call::PreTrigger { operation: TriggerOperation::Create, body }, elsewhere, other),
        (
            Call::PostTrigger {
                operation: TriggerOperation::Replace,
                request_body: body,
                response_body: body,
            },
            COLLECTION,
            &[][..],
        ),
        (Call::PreTrigger { operation: TriggerOperation::Delete, body: None }, COLLECTION, header),
        (Call::Procedure { parameters: "[]" }, elsewhere, &[][..]),
    ];
    let scripts = Scripts::new(Limits::default());
    for (call, collection, headers) in runs.iter().chain(&runs) {
        let run = ScriptRun { call: *call, collection: *collection, headers, ..procedure(LOOK, "[]") };
        let alone = Scripts::new(Limits::default()).run(&run, &mut MemoryHost::default());
        assert_eq!(scripts.run(&run, &mut MemoryHost::default()), alone, "{call:?}");
        assert!(
            alone.is_ok_and(|outcome| outcome.body.is_some_and(|body| body.contains("seen"))),
            "{call:?}"
        );
    }
}

/// A context keeps the program of a script for its next run, and nothing that a run did to it.
#[test]
fn a_script_that_runs_again_begins_anew() {
    let scripts = Scripts::new(Limits::default());
    let set = "getContext().getResponse().setBody";
    for text in [
        format!("function f() {{ f.count = (f.count || 0) + 1; {set}(f.count) }}"),
        format!("(function () {{ var n = 0; return function () {{ {set}(++n) }} }})()"),
        format!(
            "(() => {{ const seen = [], inner = () => {{ seen.push(1); inner.x = (inner.x || 0) + 1; return seen.length * inner.x }};
                return () => {set}(inner()) }})()"
        ),
        format!("function () {{ class A {{ static n = 0 }} {set}(++A.n) }}"),
        format!("function () {{ var r = /a/g; r.test('aa'); {set}(r.lastIndex) }}"),
        format!(
            "function () {{ const tag = s => {{ var n = s.length; try {{ s.length = 9 }} catch {{}} try {{ s.raw.length = 9 }} catch {{}} return n }};
                {set}(tag`a`) }}"
        ),
    ] {
        for _ in 0..3 {
            let result = scripts.run(&procedure(&text, "[]"), &mut MemoryHost::default());
            assert_eq!(show(result), "1", "{text}");
        }
    }
}

/// More scripts than a context keeps, in turn: each runs its own program.
#[test]
fn scripts_in_turn_run_their_own_programs() {
    let scripts = Scripts::new(Limits::default());
    let text = |number: usize| format!("function () {{ getContext().getResponse().setBody({number}) }}");
    let long = |number: usize| {
        format!(
            "function () {{ var a = '{}'; getContext().getResponse().setBody({number}) }}",
            "x".repeat(90_000)
        )
    };
    for round in 0..3 {
        for number in 0..100 {
            let text = if number % 10 == round { long(number) } else { text(number) };
            let result = scripts.run(&procedure(&text, "[]"), &mut MemoryHost::default());
            assert_eq!(show(result), number.to_string());
        }
    }
}
