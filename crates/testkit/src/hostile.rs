//! Scripts that mean harm, and how each must end: with the service's error or an ordinary result, everything undone that
//! should be, and nobody else the worse for it.

/// The body of a stored procedure; see [`HostileScript::procedure`].
#[derive(Clone, Copy, Debug)]
pub struct HostileScript {
    body: &'static str,
    pub expected: ExpectedEnd,
    /// Whether the engine may outlast its deadline in it, so that only a process around it can be ended in time: it does
    /// not look at the clock inside of some built-ins, and an interruption that finds no memory for its error becomes a
    /// `null` that a script can catch.
    pub needs_a_process: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedEnd {
    /// It is interrupted: 408.
    Time,
    /// It needs more memory than it may have: 400.
    Memory,
    /// It throws: 400. What the number, if it has one, and the message begin with.
    Error(&'static str),
    /// It succeeds. What the body begins with.
    Value(&'static str),
    /// Which one depends on how fast the machine is, or on who runs it: a host in a test has no limits of its own.
    OneOf(&'static [ExpectedEnd]),
}

use ExpectedEnd::{Error, Memory, OneOf, Time, Value};

/// It must not get through: one limit or the other ends it.
const LIMIT: ExpectedEnd = OneOf(&[Time, Memory]);

impl ExpectedEnd {
    /// Whether it may have to be interrupted, for which nobody wants to wait long.
    pub fn may_time_out(&self) -> bool {
        match self {
            Time => true,
            OneOf(all) => all.iter().any(ExpectedEnd::may_time_out),
            Memory | Error(_) | Value(_) => false,
        }
    }
}

impl HostileScript {
    /// With `c` the collection, `link` to it, `doc(id)` a link to an item and `set` for the response body.
    pub fn procedure(&self) -> String {
        procedure(self.body)
    }
}

/// A procedure of this body, with the same names.
pub fn procedure(body: &str) -> String {
    format!(
        "function () {{ var c = getContext().getCollection(), set = v => getContext().getResponse().setBody(v); \
         var link = c.getSelfLink(), doc = id => c.getAltLink() + '/docs/' + id; {body} }}"
    )
}

/// Finds an item `{"id": "a", "n": 1}` and what the run before should not have left; [`UNHARMED`] is its result.
pub const NEXT: &str = "c.readDocument(doc('a'), (e, d) => set([JSON.parse('[1]')[0], [1].map(x => x)[0], d.n, typeof leak, typeof kept]))";
pub const UNHARMED: &str = r#"[1,1,1,"undefined","undefined"]"#;

/// A user-defined function of one argument, and how a query that calls it must end.
#[derive(Clone, Copy, Debug)]
pub struct HostileFunction {
    pub body: &'static str,
    pub expected: ExpectedEnd,
    /// See [`HostileScript::needs_a_process`].
    pub needs_a_process: bool,
}

const fn function(body: &'static str, expected: ExpectedEnd) -> HostileFunction {
    HostileFunction { body, expected, needs_a_process: false }
}

/// The engine does not look at the clock in there: it is ended with its process.
const fn stuck_function(body: &'static str) -> HostileFunction {
    HostileFunction { body, expected: Time, needs_a_process: true }
}

#[rustfmt::skip]
pub const FUNCTION_CORPUS: &[HostileFunction] = &[
    function("x => { for (;;); }", Time),
    function("x => { while (true) { try { for (;;); } catch (e) {} finally { continue } } }", Time),
    function("function f(x) { return f(x) + f(x) }", Error("RangeError")),
    function("x => { var s = 'x'; for (;;) s += s }", Memory),
    function("x => { var a = []; for (;;) a.push(new Array(1000).fill(a)) }", Memory),
    function("x => 'x'.repeat(1e9)", Memory),
    function("x => /(a+)+$/.test('a'.repeat(40) + 'b')", Time),
    function("x => ({toJSON() { for (;;); }})", Time),
    function("x => ({get a() { for (;;); }})", Time),
    function("x => new Proxy({}, {ownKeys() { for (;;); }})", Time),
    function("x => { Object.prototype.toJSON = () => { for (;;); }; return {a: x} }", Time),
    function("x => { Array.prototype.push = JSON.stringify = null; return [x] }", Value("[1]")),
    function("x => { var o = {}; o.o = o; return o }", Error("TypeError: circular reference")),
    function("x => { var s = Symbol(), w = new WeakMap(); w.set(s, { s, w }); return x }", Error("TypeError: invalid value used as weak key")),
    function("x => { var a = []; for (var i = 0; i < 1e5; i++) a = [a]; return a }", Error("")),
    function("x => { throw {toString() { for (;;); }} }", Error("{}")),
    function("x => { throw new Error('x'.repeat(5e6)) }", Error("Error: xxx")),
    function("x => getContext()", Error("ReferenceError: getContext is not defined")),
    function("x => eval('1')", Error("")),
    function("x => require('fs')", Error("ReferenceError: require is not defined")),
    function("x => { globalThis.leak = x; return typeof kept }", Value("\"undefined\"")),
    function("x => { Promise.resolve().then(function go() { return Promise.resolve().then(go) }); return 1 }", Value("1")),
    function("x => new Date(8.64e15 + x).toISOString()", Error("RangeError")),
    stuck_function("x => new Array(4294967295).join()"),
    stuck_function("x => new Array(4294967295).flat()"),
    stuck_function("x => [].concat(new Array(4294967295), new Array(4294967295))"),
    stuck_function("x => Array.prototype.reverse.call({length: 2 ** 53 - 1})"),
    stuck_function("x => Array.prototype.shift.call({length: 2 ** 53 - 1})"),
    stuck_function("x => String.raw({raw: {length: 2 ** 53 - 1}})"),
    stuck_function("x => JSON.stringify([1], new Array(4294967295))"),
];

const fn here(body: &'static str, expected: ExpectedEnd) -> HostileScript {
    HostileScript { body, expected, needs_a_process: false }
}

const fn elsewhere(body: &'static str) -> HostileScript {
    HostileScript { body, expected: LIMIT, needs_a_process: true }
}

#[rustfmt::skip]
pub const CORPUS: &[HostileScript] = &[
    // Endless.
    here("for (;;);", Time),
    here("while (true) { try { for (;;); } catch (e) {} finally { for (;;); } }", Time),
    here("do { var x = () => x() } while (1)", Time),
    here("Promise.resolve().then(function f() { return Promise.resolve().then(f) })", Memory),
    here("(async () => { for (;;) await null })()", Time),
    here("var g = (function* () { for (;;) yield 1 })(); for (var x of g);", Time),
    here("set({toJSON() { for (;;); }})", Time),
    here("set({get a() { for (;;); }})", Time),
    here("throw {get message() { for (;;); }}", Time),
    here("throw {toString() { for (;;); }, toJSON() { for (;;); }}", Time),
    here("throw new Proxy({}, {get() { for (;;); }})", Time),
    here("[1, 2, 3].sort(() => { for (;;); })", Time),
    here("[3, 2, 1].map(function f() { return [1, 2].map(f) })", Error("RangeError: Maximum call stack size exceeded")),
    here("getContext().abort({get message() { for (;;); }})", Time),
    here("c.readDocument({toString() { for (;;); }})", Error("400 Error: Invalid document link")),
    here("c.readDocuments(link, {get pageSize() { for (;;); }})", Time),
    here("var go = () => c.readDocuments(link, go); go()", Value("\"\"")),
    here("var go = () => { c.readDocuments(link, go); c.readDocuments(link, go) }; go()", Value("\"\"")),
    here("var n = 0, go = () => { n++; set(n > 10) ; c.createDocument(link, {}, go) }; go()", Value("true")),
    // Regular expressions.
    here("/(a+)+$/.test('a'.repeat(40) + 'b')", Time),
    here("/(x+x+)+y/.exec('x'.repeat(40))", Time),
    here("/^(([a-z])+.)+[A-Z]([a-z])+$/.test('a'.repeat(60))", Time),
    here("new RegExp('(?:a?){50}' + 'a{50}').test('a'.repeat(49))", Time),
    here("new RegExp('('.repeat(100000))", Error("SyntaxError: too many captures")),
    here("'a'.repeat(100000).replace(/a*?a*?a*?b/g, '')", Time),
    // Memory.
    here("var a = []; for (;;) a.push(new Array(1000).fill(1))", Memory),
    here("var s = 'x'; for (;;) s += s", OneOf(&[Error("InternalError: string too long"), Memory])),
    here("'x'.repeat(1 << 29)", Memory),
    here("'x'.padEnd(1e9)", Memory),
    here("new Array(1e9).fill(0)", LIMIT),
    here("new ArrayBuffer(1e10)", Error("RangeError: invalid array buffer length")),
    here("new Uint8Array(1e9)", Memory),
    here("var o = {}; for (var i = 0; ; i++) o['k' + i] = i", Memory),
    here("var m = new Map(); for (var i = 0; ; i++) m.set(i, {})", LIMIT),
    here("var a = []; try { for (;;) a.push('x'.repeat(1e5) + a.length) } catch (e) { a = null; set('caught') }", Value("\"caught\"")),
    here("var a = []; for (;;) { try { for (;;) a.push({}) } catch (e) {} }", LIMIT),
    here("var a = []; for (;;) a.push(() => a)", Memory),
    here("var a = []; for (;;) a.push(Symbol('x'.repeat(1000) + a.length))", Memory),
    here("for (;;) c.createDocument(link, {id: 'x', pad: 'y'.repeat(1e5)}, () => {})", LIMIT),
    here("var p = []; for (;;) p.push(new Promise(() => {}))", Memory),
    here("JSON.parse('['.repeat(1e6))", Error("RangeError: Maximum call stack size exceeded")),
    here("var a = []; a.length = 4294967295; a.push(1)", Error("RangeError: invalid array length")),
    here("set('x'.repeat(5e6))", Error("413 Error: Resulting message would be too large")),
    here("var o = []; set(o); for (var i = 0; i < 5e5; i++) o.push('0123456789')", Error("413 Resulting message would be too large")),
    here("for (;;) __.response.appendBody('0123456789'.repeat(10000))", Error("413 Error: Resulting message would be too large")),
    // Recursion.
    here("(function f() { f() })()", Error("RangeError: Maximum call stack size exceeded")),
    here("(function f() { try { f() } finally { f() } })()", Time),
    here("var a = []; for (var i = 0; i < 1e5; i++) a = [a]; set(a)", Error("RangeError: Maximum call stack size exceeded")),
    here("var a = []; for (var i = 0; i < 1e5; i++) a = [a]; a.toString()", Error("RangeError: Maximum call stack size exceeded")),
    here("var o = {}; o.toString = () => '' + o; '' + o", Error("RangeError: Maximum call stack size exceeded")),
    here("var p = {}; for (var i = 0; i < 1e5; i++) p = new Proxy(p, {}); p.x", OneOf(&[Memory, Error("RangeError")])),
    here("var f = () => 1; for (var i = 0; i < 1e5; i++) f = f.bind(null); f()", OneOf(&[Memory, Error("RangeError")])),
    here("class A { get x() { return this.x } } new A().x", Error("RangeError: Maximum call stack size exceeded")),
    here("c.map(d => d, function f() { f() })", Error("RangeError: Maximum call stack size exceeded")),
    here("var f = () => 1; for (;;) f = f.bind(null)", Memory),
    here("var a = [], f = () => 1; for (;;) a.push(f['bi' + 'nd'](null, 1, 2))", Memory),
    // Numbers.
    here("var b = 2n; for (;;) b = b * b", OneOf(&[Error("RangeError: BigInt is too large"), Time])),
    here("2n ** 100000000n", Error("RangeError: BigInt is too large")),
    here("(1n << 10000000n).toString().length", Error("RangeError: BigInt is too large")),
    here("new Array(3e7) + ''", OneOf(&[Time, Memory, Value("\"\"")])),
    here("BigInt('9'.repeat(5000000))", Error("RangeError: BigInt is too large")),
    here("var b = 3n ** 5000000n; for (;;) b / 7n", OneOf(&[Error("RangeError: BigInt is too large"), Time])),
    here("Array.prototype.indexOf.call({length: 2 ** 53}, 1)", Time),
    here("Array.prototype.every.call({length: 2 ** 53 - 1}, () => true)", Time),
    here("Array.from({length: 2 ** 32 - 1})", LIMIT),
    here("Math.max.apply(null, {length: 2 ** 31})", Error("RangeError")),
    here("Object.groupBy({[Symbol.iterator]() { return {next: () => ({})} }}, x => x)", LIMIT),
    here("new RegExp('(((a{1,1000}){1,1000}){1,1000}){1,1000}').test('a'.repeat(1e5))", Value("\"\"")),
    // Odd throws and results.
    here("throw null", Error("null (or the script needed more than")),
    here("throw Object.create(null)", Error("{}")),
    here("throw function () {}", Error("function () ")),
    here("var e = new Error('x'); e.number = NaN; throw e", Error("Error: x")),
    here("var e = new Error('x'); Object.defineProperty(e, 'stack', {get() { throw 1 }}); throw e", Error("an object that cannot be shown")),
    here("throw new Proxy(function () {}, {get() { throw 1 }})", Error("an object that cannot be shown")),
    here("set(new Proxy({}, {ownKeys() { throw new Error(6, 'keys') }}))", Error("6 Error: keys")),
    here("set(1n)", Error("TypeError: BigInt are forbidden in JSON.stringify")),
    here("set({a: 1n})", Error("TypeError: BigInt are forbidden in JSON.stringify")),
    here("set(() => 1)", Value("\"\"")),
    here("set(Symbol())", Value("\"\"")),
    // No way to code from text.
    here("eval('1')", Error("TypeError: eval is not supported")),
    here("(0, eval)('1')", Error("TypeError: eval is not supported")),
    here("new Function('return 1')", Error("TypeError: eval is not supported")),
    here("(() => {}).constructor('return 1')()", Error("TypeError: eval is not supported")),
    here("(async () => {}).constructor('return 1')()", Error("TypeError: eval is not supported")),
    here("(function* () {}).constructor('return 1')()", Error("TypeError: eval is not supported")),
    here("import('x')", Value("\"\"")),
    // Tampering.
    here("Array.prototype.push = JSON.parse = JSON.stringify = String.prototype.split = () => { throw 1 }; c.map(d => d.id, (e, d) => set(d))", Value(r#"["a"]"#)),
    here("Object.defineProperty(Array.prototype, '0', {set() { throw 1 }}); c.pluck('id', (e, d) => set(d))", Error("1")),
    here("Object.prototype.toJSON = () => 'gone'; c.createDocument(link, '{\"id\": \"z\"}', (e, d) => { delete Object.prototype.toJSON; set(d.id) })", Value("\"z\"")),
    here("Object.defineProperty(Object.prototype, 'callback', {set() { throw 1 }}); c.readDocument(doc('a'), (e, d) => set(d.id))", Value("\"a\"")),
    here("Object.prototype.value = Object.prototype.get = 1; c.readDocument(doc('a'), (e, d) => set(d.id))", Value("\"a\"")),
    here("Object.prototype.kind = 'delete'; Object.prototype.rid = 'rida'; c.readDocument(doc('a'), (e, d) => set(d.id))", Value("\"a\"")),
    here("Array.prototype[Symbol.iterator] = () => { throw 1 }; c.readDocument(doc('a'), (e, d) => set(d.id))", Value("\"a\"")),
    here("Function.prototype.call = Function.prototype.apply = () => { throw 1 }; c.readDocument(doc('a'), (e, d) => set(d.id))", Value("\"a\"")),
    here("Error = TypeError = null; c.readDocument('x')", Error("400 Error: Invalid document link")),
    here("Error.prototype.name = {toString() { throw 2 }}; throw new Error(5, 'x')", Error("5 ")),
    here("Error.prepareStackTrace = () => { for (;;); }; throw new Error('x')", Error("Error: x")),
    here("Promise.prototype.then = () => { throw 1 }; (async () => { await null; set(1) })()", Value("1")),
    here("getContext = null; __ = null; console = null; set(1)", Error("TypeError: not a function")),
    here("for (var n of Object.getOwnPropertyNames(globalThis)) { try { delete globalThis[n]; globalThis[n] = null } catch (e) {} } set(1)", Value("1")),
    here("Object.freeze(Object.prototype); Object.freeze(Array.prototype); Object.freeze(globalThis); set(1)", Value("1")),
    here("globalThis.kept = []; c.readDocument(doc('a'), function f() { kept.push(f); set(kept.length) })", Value("1")),
    // Promises and callbacks without end.
    here("(async function f() { await Promise.all([f(), f()]) })()", LIMIT),
    here("for (;;) Promise.resolve().then(() => {})", LIMIT),
    here("var go = () => Promise.resolve().then(go); go(); go(); go()", LIMIT),
    here("(async () => { for (;;) { await new Promise(done => c.readDocument(doc('a'), () => done())) } })()", OneOf(&[Value("\"\""), Time])),
    here("new Promise(() => { throw new Error('nobody') }); set('swallowed')", Value("\"swallowed\"")),
    here("({then(done) { for (;;); }}).then(); await0 = async () => { await {then() { for (;;); }} }; await0()", Time),
    here("(async () => { await {get then() { for (;;); }} })()", Time),
    here("var g = async function* () { for (;;) yield 1 }; (async () => { for await (var x of g()); })()", Time),
    here("var f = () => { setBody = f; c.createDocument(link, {id: '' + Math.random()}, f); c.createDocument(link, {id: '' + Math.random()}, f) }; f()", OneOf(&[Value("\"\""), Time])),
    here("var all = []; for (var i = 0; i < 1000; i++) c.readDocument(doc('a'), (e, d) => all.push(d)); c.readDocument(doc('a'), () => set(all.length))", Value("1000")),
    // Proxies, getters and symbols.
    here("c.createDocument(link, new Proxy({id: 'p'}, {ownKeys() { for (;;); }}))", Time),
    here("c.createDocument(link, {id: 'p', get x() { throw new Error(77, 'getter') }})", Error("77 Error: getter")),
    here("c.createDocument(link, {id: 'p', toJSON() { return this }}, (e, d) => set(d.id))", Value("\"p\"")),
    here("var o = {id: 'o'}; o.o = o; c.createDocument(link, o)", Error("TypeError: circular reference")),
    here("c.createDocument(link, {id: 'o', n: 1n})", Error("TypeError")),
    here("c.readDocuments(link, new Proxy({}, {get() { throw new Error(5, 'trap') }}))", Error("5 Error: trap")),
    here("c.readDocument(new Proxy({}, {}))", Error("400 Error: Invalid document link")),
    here("class A { static [Symbol.hasInstance]() { for (;;); } } ({}) instanceof A", Time),
    here("({[Symbol.toPrimitive]() { for (;;); }}) + ''", Time),
    here("Object.defineProperty(Array, Symbol.species, {value: function () { for (;;); }}); [1].map(x => x)", Time),
    here("Symbol.prototype.toString = null; throw Symbol('x')", Error("Symbol(x)")),
    here("throw {[Symbol.toStringTag]: {toString() { throw 1 }}}", Error("{}")),
    here("throw new Proxy(new Error('x'), {})", Error("x")),
    here("var revoked = Proxy.revocable({}, {}); revoked.revoke(); throw revoked.proxy", Error("an object that cannot be shown")),
    here("var revoked = Proxy.revocable({}, {}); revoked.revoke(); set(revoked.proxy)", Error("TypeError")),
    here("set({toJSON() { throw {toString() { throw 1 }} }})", Error("{}")),
    here("var s = new Set(); s.add(1); s.forEach(x => { s.delete(x); s.add(x) })", Time),
    here("var m = new Map([[1, 1]]); for (var [k] of m) { m.delete(k); m.set(k, 1) }", Time),
    // Much text.
    here("console.log('x'.repeat(1e6))", Error("413 Error: Resulting message would be too large")),
    here("for (;;) { try { console.log('0123456789'.repeat(100)) } catch (e) {} }", Time),
    here("console.log({toJSON() { for (;;); }})", Time),
    here("console.log('%s'.repeat(1e5), 1)", Error("413 Error: Resulting message would be too large")),
    here("c.createDocument(link, {id: 'big', pad: 'x'.repeat(3e6)}, e => set(e.number))", OneOf(&[Value("413"), Error("TypeError")])),
    here("c.createDocument(link, {id: 'x'.repeat(1e6)}, e => set(typeof e))", OneOf(&[Value("\"object\""), Value("\"undefined\"")])),
    here("throw new Error('x'.repeat(5e6))", Error("Error: xxx")),
    here("c.queryDocuments(link, 'SELECT ' + 'x'.repeat(1e6) + ' FROM c', e => set(e.number))", Value("400")),
    here("c.queryDocuments(link, {query: 'SELECT 1', parameters: new Array(1e6).fill({name: '@a', value: 1})}, () => set(1))", OneOf(&[Memory, Value("1")])),
    here("c.readDocuments(link, {continuation: '\\ud800'.repeat(1000)}, e => set(typeof e))", Value("\"object\"")),
    here("set('\\ud800')", Value("\"\\ud800\"")),
    here("var e = new Error('\\ud800'); throw e", Error("Error: ")),
    // What a run must not leave behind.
    here("Object.prototype.leak = 1; Array.prototype.leak = 2; globalThis.leak = 3; JSON.parse = null; set(1)", Value("1")),
    here("Symbol.for('leak').leak = 1; set(1)", Value("1")),
    // Values that are kept under symbols and lead back to them.
    here("var s = Symbol(), w = new WeakMap(); w.set(s, { s, w })", Error("TypeError: invalid value used as weak key")),
    here("var w = new WeakMap(); w.getOrInsert(Symbol.iterator, { w })", Error("TypeError: invalid value used as weak key")),
    here("var w = new WeakMap(); w.getOrInsertComputed(Symbol.iterator, () => ({ w }))", Error("TypeError: invalid value used as weak key")),
    here("new WeakMap([[Symbol.iterator, {}]])", Error("TypeError: invalid value used as weak key")),
    here("new WeakSet([Symbol()])", Error("TypeError: invalid value used as weak key")),
    here("var w = new globalThis['We' + 'akMap'](); w.set(Symbol.iterator, { w })", Error("TypeError: invalid value used as weak key")),
    here("var k = {}, w = new WeakMap([[k, 5]]); w.set(w, w); set([w.get(k), w.has(w), WeakMap.prototype.set.length, w.set.name])", Value("[5,true,2,\"set\"]")),
    // To be left in a context that the next run may share.
    here("set(1) }); let leak = 1, kept = 1; (function () { getContext().getResponse().setBody(1)", Value("1")),
    here("delete __; leak = 1; set(1)", Value("1")),
    here("var of = 1; of / Object.setPrototypeOf((function () { return this })(), { leak: 1, kept: 1 }) / 1; set(1)", Value("1")),
    here("var x\n/'/.x; Object.setPrototypeOf((function () { return this })(), { leak: 1, kept: 1 }); // '\n set(1)", Value("1")),
    here("Object.defineProperty(globalThis, 'JSON', { get() { return { parse: () => [7] } } }); set(1)", Value("1")),
    here("var late; getContext().getCollection().readDocument(doc('a'), () => { late = () => set(9) }); set(1)", Value("1")),
    here("getContext().abort({toJSON() { for (;;); }})", Time),
    here("try { getContext().abort(new Error(3, 'x')) } catch (e) { for (;;); }", Time),
    here("c.createDocument(link, {id: 'half'}); c.readDocument(doc('a'), () => { throw new Error(12, 'undone') })", Error("12 Error: undone")),
    here("c.createDocument(link, {id: 'half'}, () => { for (;;); })", Time),
    here("new WeakRef({})", Error("ReferenceError: WeakRef is not defined")),
    here("new FinalizationRegistry(() => { for (;;); })", Error("ReferenceError: FinalizationRegistry is not defined")),
    here("queueMicrotask(() => 1)", Error("ReferenceError: queueMicrotask is not defined")),
    here("new SharedArrayBuffer(8)", Error("ReferenceError: SharedArrayBuffer is not defined")),
    here("require('fs')", Error("ReferenceError: require is not defined")),
    here("setTimeout(() => 1, 0)", Error("ReferenceError: setTimeout is not defined")),
    // The engine does not look at the clock in there, or has no memory left to say so.
    elsewhere("new Array(4294967295).join()"),
    elsewhere("new Array(4294967295).flat()"),
    elsewhere("[].concat(new Array(4294967295), new Array(4294967295))"),
    elsewhere("Array.prototype.reverse.call({length: 2 ** 53 - 1})"),
    elsewhere("Array.prototype.sort.call({length: 2 ** 53 - 1})"),
    elsewhere("Array.prototype.copyWithin.call({length: 2 ** 53 - 1}, 0, 5)"),
    elsewhere("Array.prototype.splice.call({length: 2 ** 53 - 1}, 0, 1)"),
    elsewhere("Array.prototype.shift.call({length: 2 ** 53 - 1})"),
    elsewhere("Array.prototype.slice.call({length: 2 ** 32 - 1})"),
    elsewhere("String.raw({raw: {length: 2 ** 53 - 1}})"),
    elsewhere("JSON.stringify([1], new Array(4294967295))"),
    elsewhere("var a = []; try { for (;;) a.push([]) } catch (e) { for (;;) { try { JSON.parse('{}') } catch (e) {} } }"),
];
