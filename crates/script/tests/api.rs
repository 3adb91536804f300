//! Every method of the server-side API, by example.

mod support;

use quire_script::*;
use support::*;

fn check(text: &str, expected: &str) {
    check_on(&mut MemoryHost::with(ITEMS), text, expected);
}

fn check_on(host: &mut MemoryHost, text: &str, expected: &str) {
    assert_eq!(run_on(host, &body(text)), expected, "{text}");
}

const ITEMS: &[&str] = &[
    r#"{"id": "a", "n": 2, "tags": ["x", ["y"]], "authors": [{"name": "Ada"}, {"name": "Bo"}]}"#,
    r#"{"id": "b", "n": 1, "tags": ["z"]}"#,
    r#"{"id": "c", "n": "1"}"#,
];

#[test]
fn entry_points() {
    let set = "getContext().getResponse().setBody";
    for text in [
        format!("function () {{ {set}(1) }}"),
        format!("function named(a) {{ {set}(1) }}"),
        format!("() => {{ {set}(1) }}"),
        format!("  async () => {{ {set}(1) }} ;\n"),
        format!("// before\n/* and */ function () {{ {set}(1) }}; // after\n/* end */"),
        format!("function first() {{ second() }} function second() {{ {set}(1) }}"),
        format!("var x = 1; function first() {{ {set}(x) }}"),
        format!("\"use strict\"; function first() {{ {set}(1) }}"),
    ] {
        assert_eq!(run(&text), "1", "{text}");
    }
    assert_eq!(run("function () { undeclared = 3; getContext().getResponse().setBody(undeclared) }"), "3");
    assert!(run("1 + 1").contains("the script has no function"));
}

/// Twice each: compiled, and loaded from the cache. Most use no built-in, so their contexts have few.
#[test]
fn language() {
    let scripts = Scripts::new(Limits::default());
    for (text, expected) in [
        ("class A { #x = 1; static #n = 2; get x() { return this.#x + A.#n } } set(new A().x)", "3"),
        ("class A { static #n = 2; static m(o) { return #n in o } } set([A.m(A), A.m({})])", "[true,false]"),
        (
            "class A { constructor(n) { A.last = n } } class B extends A { constructor() { super(4) } } new B(); set(A.last)",
            "4",
        ),
        ("set('a-b'.replace(/-/g, '+'))", "\"a+b\""),
        ("set(/(?<y>\\d{4})-(\\d\\d)/u.exec('2024-05').groups.y)", "\"2024\""),
        ("set('x'.match('x').length + 'a,b'.split(',').length + 'abc'.search('c'))", "5"),
        ("set((10n ** 20n).toString())", "\"100000000000000000000\""),
        ("set(`${1 + 1} ${'ü'}\\n`)", "\"2 ü\\n\""),
        ("const tag = (s, v) => s.raw[0] + v; set(tag`a${1}`)", "\"a1\""),
        ("function* g() { yield* [1, 2]; return 3 } set([...g()])", "[1,2]"),
        ("const { a, b: [z = 5], ...rest } = { a: 1, b: [], d: 2 }; set([a, z, rest.d])", "[1,5,2]"),
        ("set([null?.x ?? 1, [3, 1, 2].toSorted()[0], Object.entries({ k: 1 })[0][0]])", "[1,1,\"k\"]"),
        (
            "outer: for (let i = 0; ; i++) { for (;;) { if (i > 2) { set(i); break outer } continue outer } }",
            "3",
        ),
        ("switch ('b') { case 'a': set(1); break; default: set(2) }", "2"),
        ("var o = { get v() { return 1 }, set v(x) { set(x) }, ['k' + 1]: 2 }; o.v = o.k1", "2"),
        (
            "set(typeof Map + typeof Set + typeof Date + typeof Promise + typeof Proxy + typeof Uint8Array + typeof RegExp)",
            "\"functionfunctionfunctionfunctionfunctionfunctionfunction\"",
        ),
        ("set(new Map([[1, new Set([2])]]).get(1).has(2))", "true"),
        ("set(new Date(0).toISOString())", "\"1970-01-01T00:00:00.000Z\""),
        ("set(Array.from(new Uint8Array([1, 2])))", "[1,2]"),
        ("set((function () { return typeof this['M' + 'ap'] })())", "\"function\""),
        ("set(0.1 + 0.2); set(1e400 === 1 / 0)", "true"),
        (
            "set([parseInt('12'), encodeURIComponent('ü'), Math.max(1, 2), Number.MAX_SAFE_INTEGER])",
            "[12,\"%C3%BC\",2,9007199254740991]",
        ),
        ("with ({ x: 7 }) { set(x) }", "7"),
        ("set(010 + (delete Object.prototype.nothing ? 1 : 0))", "9"),
        ("set((function f(n) { return n < 2 ? 1 : n * f(n - 1) })(10))", "3628800"),
        ("set((() => 1).toString())", "\"() => 1\""),
        ("let x = 0; { function x2() { return 1 } x = x2() } set(x)", "1"),
        (
            "try { throw new RangeError('r') } catch ({ name }) { set(name) } finally { c.getSelfLink() }",
            "\"RangeError\"",
        ),
        ("set(Object.groupBy([1, 2, 3], n => n % 2 ? 'odd' : 'even').odd)", "[1,3]"),
        ("set(JSON.stringify({ a: [1, { b: undefined }] }))", "\"{\\\"a\\\":[1,{}]}\""),
        (
            "function F(a, b) { return [a, b, typeof new.target] } set([F.bind(null, 1)(2), F.bind().name, F.bind(null, 1).length])",
            "[[1,2,\"undefined\"],\"bound F\",1]",
        ),
        (
            "function P(x) { this.x = x } const Q = P.bind(null, 3), q = new Q(); set([q.x, q instanceof P])",
            "[3,true]",
        ),
        ("var o = { n: 4, m() { return this.n } }; set(o.m.bind(o)())", "4"),
        ("set(structuredCloneMissing = typeof structuredClone)", "\"undefined\""),
    ] {
        for _ in 0..2 {
            let text = body(text);
            assert_eq!(
                show(scripts.run(&procedure(&text, "[]"), &mut MemoryHost::default())),
                expected,
                "{text}"
            );
        }
    }
}

#[test]
fn syntax_errors_have_a_place() {
    let failure = Scripts::new(Limits::default())
        .run(&procedure("function () {\n  this is prose\n}", "[]"), &mut MemoryHost::default())
        .unwrap_err();
    let ScriptError::Compile { message, position } = failure.error else { panic!("{failure:?}") };
    assert_eq!(position.map(|at| at.line), Some(2), "{message}");
    assert!(message.starts_with("SyntaxError") && message.contains("script.js:2:"), "{message}");
    assert!(
        run("serverScript() { var x = 10; }")
            .starts_with("Encountered exception while compiling Javascript.")
    );
    assert!(run("function () {}\0").contains("zero character"));
}

#[test]
fn errors_have_number_message_and_stack() {
    let failure = Scripts::new(Limits::default())
        .run(
            &procedure(
                "function main() {\n  inner();\n  function inner() { throw new Error(4444, 'no') } }",
                "[]",
            ),
            &mut MemoryHost::default(),
        )
        .unwrap_err();
    let ScriptError::Thrown { number, message, stack } = failure.error else { panic!("{failure:?}") };
    assert_eq!((number, message.as_str()), (Some(4444), "Error: no"));
    assert!(stack.starts_with("Error: no\n   at inner (script.js:3:"), "{stack}");
    assert!(stack.contains("at main (script.js:2:") && !stack.contains("prelude"), "{stack}");
    let one_line = Scripts::new(Limits::default())
        .run(&procedure("function main() { throw new Error('x') }", "[]"), &mut MemoryHost::default())
        .unwrap_err();
    let ScriptError::Thrown { stack, .. } = one_line.error else { panic!() };
    assert_eq!(stack, "Error: x\n   at main (script.js:1:29)");
    check("throw 'text'", "text");
    check("throw new TypeError(7, 'm')", "7 TypeError: m");
    check("throw {number: 5, message: 'plain'}", "5 plain");
    check("throw undefined", "undefined");
    check("throw Symbol('s')", "Symbol(s)");
    check("missing()", "ReferenceError: missing is not defined");
}

#[test]
fn error_constructor() {
    check(
        "var e = new Error(404, 'm'); set([e.number, e.message, e.description, e instanceof Error])",
        r#"[404,"m","m",true]"#,
    );
    check("var e = Error('m'); set([e.number === undefined, e.message])", r#"[true,"m"]"#);
    check("var e = new Error(404); set([e.number === undefined, e.message])", r#"[true,"404"]"#);
    check(
        "class Mine extends Error {} var e = new Mine(1, 'm'); set([e instanceof Mine, e instanceof Error, e.number])",
        "[true,true,1]",
    );
    check(
        "try { null.x } catch (e) { set([e instanceof TypeError, e instanceof Error, e.constructor === TypeError]) }",
        "[true,true,true]",
    );
    check("var e = new Error('m', {cause: 3}); set(e.cause)", "3");
    check("set(ErrorCodes.RetryWith); ErrorCodes.RetryWith = 1; set(ErrorCodes.RetryWith)", "449");
}

#[test]
fn parameters() {
    let echo = "function () { getContext().getResponse().setBody([].slice.call(arguments).map(a => a === undefined ? 'undefined' : a)) }";
    for (parameters, expected) in [
        (r#"["one", 2, {"a": [null]}]"#, r#"["one",2,{"a":[null]}]"#),
        ("null", "[]"),
        ("{}", "[]"),
        (r#"{"param1": 4}"#, "[]"),
        (r#"{"0": 4}"#, "[]"),
        ("", "[]"),
        (r#"{"0": "a", "2": "c", "length": 3}"#, r#"["a","undefined","c"]"#),
        (r#"{"0": "a", "length": "1.7"}"#, r#"["a"]"#),
    ] {
        assert_eq!(run_with(&mut MemoryHost::default(), echo, parameters), expected, "{parameters}");
    }
    for parameters in [
        r#"{"length": 600000}"#,
        r#"{"length": 1e9}"#,
        "\"text\"",
        "\"\"",
        "0",
        "-1.25",
        "false",
        "undefined",
        "[1",
    ] {
        let shown = run_with(&mut MemoryHost::default(), echo, parameters);
        assert!(shown.starts_with("the parameters of a stored procedure must be"), "{parameters}: {shown}");
    }
    assert_eq!(
        run_with(
            &mut MemoryHost::default(),
            "function () { getContext().getResponse().setBody(getContext().getRequest().getBody()) }",
            "[1]"
        ),
        "\"[1]\""
    );
}

#[test]
fn response_body() {
    check("", "\"\"");
    check("set(undefined)", "\"\"");
    check("set('onetwothree')", "\"onetwothree\"");
    check(r#"set('{"a":1}')"#, r#""{\"a\":1}""#);
    check("set([1, true, null, {a: 1}])", r#"[1,true,null,{"a":1}]"#);
    check("var r = __.response; for (var i = 0; i < 10; i++) r.appendValue('Body', i)", "\"0123456789\"");
    check("set(1); __.response.appendBody(2)", "3");
    check("set(null); __.response.appendBody('x')", "\"x\"");
    check("set('a'); set(__.response.getBody() + __.response.getValue('Body'))", "\"aa\"");
    check("set(__.response.getValue(undefined) === undefined)", "true");
    check("try { __.response.getValue('nothing') } catch (e) { set(e instanceof TypeError) }", "true");
    check("__.response.setValue('new', 1)", "400 Error: Cannot set new values: new");
    check(
        "set(new Array(5e6).join('x'))",
        "413 Error: Resulting message would be too large because of \"Body\". The maximum is 4194304 characters.",
    );
    check(
        "__.response.setValue('x-ms-documentdb-script-log-results', 'x')",
        "403 Error: Not a writable property: x-ms-documentdb-script-log-results",
    );
    check("set(['ü'.repeat(4e6)])", &format!("[\"{}\"]", "ü".repeat(4_000_000)));
    check("return 5", "\"\"");
    check(
        "var o = {a: 1}; set(o); o.b = 2; c.readDocument(doc('a'), (e, d) => { o.n = d.n })",
        r#"{"a":1,"b":2,"n":2}"#,
    );
    check("var o = {}; o.o = o; set(o)", "TypeError: circular reference");
    check("var o = {}; set(o); o.o = o;", "TypeError: circular reference");
}

#[test]
fn context_and_short_name() {
    check("set(getContext() === getContext() && getContext().getCollection() === c)", "true");
    check("set([__.getSelfLink(), __.getAltLink()])", &format!("[{SELF_LINK:?},{ALT_LINK:?}]"));
    check("set(Object.getPrototypeOf(__) === c && __.request === getContext().getRequest())", "true");
    check("set(__.request.getValue('x-ms-documentdb-script-enable-logging'))", "\"True\"");
    check(
        "set([typeof setTimeout, typeof fetch, typeof require, typeof process, typeof WeakRef, typeof Atomics])",
        r#"["undefined","undefined","undefined","undefined","undefined","undefined"]"#,
    );
    check("set(Object.getOwnPropertyNames(__.request).indexOf('setBody'))", "-1");
}

#[test]
fn abort_rolls_back() {
    check("getContext().abort(new Error(7, 'stop'))", "7 Error: stop");
    check("getContext().abort('stop')", "stop");
    check("try { getContext().abort('first') } catch (e) {} set(1)", "first");
    check("(async () => { await null; getContext().abort(new Error(9, 'later')) })()", "9 Error: later");
    check(
        "var f = async () => { throw new Error('in a promise') }; f().catch(e => getContext().abort(e))",
        "Error: in a promise",
    );
}

#[test]
fn reads() {
    check(
        "c.readDocument(doc('a'), (e, d, r) => set([d.id, d.n, r.statusCode, r.maxCollectionSizeInMB.length > 0]))",
        r#"["a",2,200,true]"#,
    );
    check("c.readDocument(link + 'docs/ridb/', {}, (e, d) => set(d.id))", "\"b\"");
    check(
        "c.readDocument(doc('zz'), (e, d) => set([e.number, e.message, e.body === e.message, e instanceof Error, d === undefined]))",
        r#"[404,"{\"Errors\":[\"Resource Not Found.\"]}",true,true,true]"#,
    );
    check("c.readDocument(doc('zz'))", "404 Error: {\"Errors\":[\"Resource Not Found.\"]}");
    check("c.readDocument(doc('zz'), e => { throw e })", "404 Error: {\"Errors\":[\"Resource Not Found.\"]}");
    check(
        "c.readDocument(doc('a'), {ifNoneMatch: 'etag1'}, (e, d, r) => set([d === undefined, r.notModified]))",
        "[true,true]",
    );
    check(
        "c.readDocument(doc('a'), {ifNoneMatch: 'other'}, (e, d, r) => set([d.id, r.notModified === undefined]))",
        r#"["a",true]"#,
    );
    check("c.readDocuments(link, {pageSize: 2}, (e, d, r) => set([d.length, r.continuation]))", r#"[2,"2"]"#);
    check(
        "c.readDocuments(link, {pageSize: 2, continuation: '2'}, (e, d, r) => set([d.length, r.continuation === undefined]))",
        "[1,true]",
    );
    check("c.readDocuments(c.getAltLink(), (e, d) => set(d.length))", "3");
}

#[test]
fn queries() {
    check("set(c.queryDocuments(link, 'SELECT * FROM c', (e, d, r) => set([d.length])))", "[3]");
    check(
        "c.queryDocuments(link, {query: 'SELECT VALUE COUNT(1) FROM c', parameters: [{name: '@a', value: 1}]}, {pageSize: 5, enableScan: true}, (e, d) => set(d))",
        "[3]",
    );
    check("c.queryDocuments(link, 'nonsense', (e, d) => set(e.number))", "400");
    check("c.queryDocuments(link, 'nonsense')", "400 Error: {\"Errors\":[\"Syntax error\"]}");
    check(
        "c.queryDocuments(link, 5)",
        "400 Error: The \"filterQuery\" parameter must be a string or an object with the properties \"query\" and \"parameters\".",
    );
    let mut host = MemoryHost::with(ITEMS);
    check_on(
        &mut host,
        "c.queryDocuments(link, {query: 'q', parameters: [{name: '@a', value: [1]}]}, {pageSize: -1, continuation: 't'}, () => {})",
        "\"\"",
    );
    let expected = Request::Query {
        text: "q".to_owned(),
        parameters: Some(r#"[{"name":"@a","value":[1]}]"#.to_owned()),
        page_size: 1000,
        continuation: Some("t".to_owned()),
    };
    assert_eq!(host.requests, [expected]);
}

#[test]
fn writes() {
    check(
        "c.createDocument(link, {id: 'new', v: 1}, (e, d, r) => set([d.id, d._etag, r.statusCode]))",
        r#"["new","etag4",201]"#,
    );
    check("c.createDocument(link, '{\"id\": \"new\"}', {}, (e, d) => set(d.id))", "\"new\"");
    check("c.createDocument(link, {id: 'a'}, (e) => set(e.number))", "409");
    check(
        "c.createDocument(link, {id: 'a'})",
        "409 Error: {\"Errors\":[\"Resource with specified id already exists.\"]}",
    );
    check(
        "var o = {v: 1}; c.createDocument(link, o, (e, d) => set([/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(d.id), o.id === undefined]))",
        "[true,true]",
    );
    check(
        "c.createDocument(link, {v: 1}, {disableAutomaticIdGeneration: true}, (e) => set(e.number))",
        "400",
    );
    for wrong in ["null", "5", "'prose'", "undefined"] {
        check(
            &format!("c.createDocument(link, {wrong})"),
            "400 Error: The document body must be an object or a string representing a JSON-serialized object.",
        );
    }
    check("c.upsertDocument(link, {id: 'a', v: 5}, (e, d, r) => set([d.v, r.statusCode]))", "[5,200]");
    check("c.upsertDocument(link, {id: 'q'}, {etag: 'x'}, (e, d, r) => set(r.statusCode))", "201");
    check("c.upsertDocument(link, {id: 'a'}, {etag: 'x'}, (e) => set(e.number))", "412");
    check(
        "c.readDocument(doc('a'), (e, d) => { d.n++; c.replaceDocument(d._self, d, {etag: d._etag}, (e, d) => set(d.n)) })",
        "3",
    );
    check("c.replaceDocument(doc('a'), '{\"id\": \"a\", \"n\": 9}', (e, d) => set(d.n))", "9");
    check("c.replaceDocument(doc('a'), {id: 'a'}, {etag: 'x'}, (e) => set(e.number))", "412");
    check("c.deleteDocument(doc('a'), (e, r) => set([e === undefined, r.statusCode]))", "[true,204]");
    check("c.deleteDocument(doc('zz'), {}, (e, r) => set(e.number))", "404");
    check("c.deleteDocument(doc('a'), {etag: 'x'}, (e) => set(e.number))", "412");
    check(
        "c.createDocument(link, {id: 'new'}, {indexAction: 'sometimes'})",
        "400 Error: The option \"indexAction\" must be \"default\", \"include\" or \"exclude\".",
    );
    let mut host = MemoryHost::with(ITEMS);
    check_on(
        &mut host,
        "c.deleteDocument(doc('a'), {partitionKeyContent: '[1]'}); c.createDocument(link, {id: 'x'}, {indexAction: 'exclude'})",
        "\"\"",
    );
    assert_eq!(
        host.requests,
        [
            Request::Delete {
                item: ItemLink::Id("a".to_owned()),
                if_match: None,
                partition_key: Some("[1]".to_owned())
            },
            Request::Create { body: r#"{"id":"x"}"#.to_owned(), index_action: IndexAction::Exclude },
        ]
    );
    assert_eq!(host.ids(), ["b", "c", "x"]);
}

#[test]
fn arguments_are_checked() {
    check(
        "c.createDocument(link)",
        "400 Error: The function \"createDocument\" requires at least 2 argument(s) but was called with 1 argument(s).",
    );
    check(
        "c.readDocument(doc('a'), 5)",
        "400 Error: The \"options\" parameter of the function \"readDocument\" must be an object.",
    );
    check(
        "c.readDocument(doc('a'), {}, 5)",
        "400 Error: The \"callback\" parameter of the function \"readDocument\" must be a function.",
    );
    check(
        "c.readDocuments(link, {pageSize: 0})",
        "400 Error: The option \"pageSize\" must be a positive integer or -1.",
    );
    check(
        "c.readDocuments(link, {continuation: 5})",
        "400 Error: The option \"continuation\" must be a string.",
    );
    check("c.readDocuments('dbs/x')", "400 Error: Invalid collection link: \"dbs/x\".");
    check(
        "c.readDocuments('dbs/x/colls/y')",
        "400 Error: Function is not allowed to operate on resources outside current collection. Make sure that the link provided, \"dbs/x/colls/y\", belongs to the current collection.",
    );
    check("c.readDocument(link)", &format!("400 Error: Invalid document link: \"{SELF_LINK}\"."));
    check("c.readDocument({})", "400 Error: Invalid document link: \"object\".");
    check(
        "try { c.readDocument('dbs/x/colls/y/docs/z') } catch (e) { set([e.number, e.message.indexOf('Function is not allowed')]) }",
        "[400,0]",
    );
    check("c.readAttachment('x')", "400 Error: Attachments are not supported: \"readAttachment\".");
    check(
        "c.createAttachment('x')",
        "400 Error: The function \"createAttachment\" requires at least 2 argument(s) but was called with 1 argument(s).",
    );
}

#[test]
fn partition_key_definition() {
    check("set(c.getPartitionKeyDefinition())", r#"[["name","first"]]"#);
    check("set(__['getPartition' + 'KeyDefinition']().length)", "1");
}

/// Returns its arguments.
fn echo(
    function: SpatialFunction,
    arguments: &[quire_value::Value],
    planar: bool,
) -> Option<quire_value::Value> {
    let shown = format!("{function:?} {planar} {}", quire_value::Value::Array(arguments.to_vec()).to_json());
    (function != SpatialFunction::Within).then(|| shown.into())
}

#[test]
fn spatial() {
    let mut scripts = Scripts::new(Limits::default());
    let run = |scripts: &Scripts, text: &str| {
        show(scripts.run(&procedure(&body(text), "[]"), &mut MemoryHost::default()))
    };
    let refused =
        "400 Error: \"spatial.distance\" is not supported: use the ST_ functions in queryDocuments.";
    assert_eq!(run(&scripts, "__.spatial.distance({}, {})"), refused);
    scripts.set_spatial(Some(echo));
    for (text, expected) in [
        ("set(__.spatial.distance({a: 1}, {b: 2}))", r#""Distance false [{\"a\":1},{\"b\":2}]""#),
        ("set(c.spatial.intersects([], {}))", r#""Intersects false [[],{}]""#),
        ("set(c.spatial.within({}, {}) === undefined)", "true"),
        ("set(c.spatial.isValid({}))", r#""IsValid false [{},null]""#),
        ("set(c.spatial.isValidDetailed({}))", r#""IsValidDetailed false [{},null]""#),
        (
            "c.spatial.distance({}, 5)",
            "400 Error: The function \"spatial.distance\" requires GeoJSON objects.",
        ),
        (
            "c.spatial.distance({})",
            "400 Error: The function \"spatial.distance\" requires at least 2 argument(s) but was called with 1 argument(s).",
        ),
    ] {
        assert_eq!(run(&scripts, text), expected, "{text}");
    }
}

#[test]
fn callbacks_run_later_and_in_order() {
    check("var s = ''; c.readDocument(doc('a'), () => { s += 1; c.readDocument(doc('a'), () => s += 3) });
        c.readDocument(doc('b'), () => { s += 2 }); s += 0; c.readDocument(doc('c'), () => { s += '.'; c.readDocument(doc('c'), () => set(s)) })", "\"012.3\"");
    check("c.createDocument(link, {id: 'x'}, () => { throw new Error(3, 'late') })", "3 Error: late");
    check("c.createDocument(link, {id: 'a'}, e => {}); set('ignored')", "\"ignored\"");
    let mut host = MemoryHost::with(ITEMS);
    assert_eq!(
        run_on(&mut host, &body("c.createDocument(link, {id: 'x'}); throw new Error('no')")),
        "Error: no"
    );
    assert!(host.requests.is_empty());
}

#[test]
fn own_writes_are_read_but_not_queried() {
    check("c.createDocument(link, {id: 'x'}); c.readDocuments(link, (e, d) => { var n = d.length;
        c.queryDocuments(link, 'SELECT VALUE COUNT(1) FROM c', (e, q) => c.filter(d => true, (e, f) => set([n, q[0], f.length]))) })", "[4,3,3]");
}

#[test]
fn operations_are_refused_when_the_host_asks() {
    let mut host = MemoryHost { accepted_max: Some(3), ..MemoryHost::with(ITEMS) };
    let text = "var n = 0, go = () => { n++; if (!c.readDocument(doc('a'), go)) set(n) }; go()";
    check_on(&mut host, text, "4");
    assert_eq!(host.requests.len(), 3);
    let mut host = MemoryHost { stop_at: Some(2), ..MemoryHost::with(ITEMS) };
    check_on(
        &mut host,
        "c.readDocument(doc('a')); try { c.readDocument(doc('a'), () => set(1)) } catch (e) {}",
        "the host stopped the script",
    );
}

#[test]
fn promises() {
    check(
        "var read = id => new Promise((ok, no) => c.readDocument(doc(id), (e, d) => e ? no(e) : ok(d)));
        (async () => { var a = await read('a'), b = await read('b'); set(a.n + b.n) })()",
        "3",
    );
    check("Promise.resolve(1).then(v => set(v + 1))", "2");
    let swallowed = Scripts::new(Limits::default())
        .run(
            &procedure(&body("(async () => { throw new Error('nobody looks') })()"), "[]"),
            &mut MemoryHost::default(),
        )
        .unwrap();
    assert_eq!((swallowed.body.as_deref(), swallowed.unhandled_rejections), (Some("\"\""), 1));
    assert_eq!(swallowed.log.as_deref(), Some("warning: 1 promise(s) were rejected and nobody handled it"));
    let handled = Scripts::new(Limits::default())
        .run(
            &procedure(&body("var p = Promise.reject(1); p.catch(() => {})"), "[]"),
            &mut MemoryHost::default(),
        )
        .unwrap();
    assert_eq!(handled.unhandled_rejections, 0);
    assert_eq!(
        run("async function main() { await null; getContext().getResponse().setBody('later') }"),
        "\"later\""
    );
}

#[test]
fn log() {
    let scripts = Scripts::new(Limits::default());
    let log = |text: &str| match scripts.run(&procedure(&body(text), "[]"), &mut MemoryHost::default()) {
        Ok(outcome) => outcome.log.unwrap(),
        Err(failure) => {
            format!("{} / {}", failure.log.unwrap(), show(Err(Failure { error: failure.error, log: None })))
        }
    };
    assert_eq!(
        log("console.log('a %s and %s, 100%%, %s', 1, {b: 2}); console.log('!')"),
        r#"a 1 and {"b":2}, 100%, %s!"#
    );
    assert_eq!(log("console.log({a: 1}); console.log(5)"), r#"{"a":1}5"#);
    assert_eq!(log("console.log('before'); throw 'x'"), "before / x");
    assert_eq!(
        log("console.log(1, 2)"),
        " / 400 Error: First argument to console.log should be a string containing zero or more substitution strings."
    );
    assert_eq!(log("console.log()"), " / 400 Error: console.log requires at least one argument.");
    assert!(log("for (;;) console.log('0123456789')").ends_with(
        "413 Error: Resulting message would be too large because of \"x-ms-documentdb-script-log-results\"."
    ));
    assert_eq!(log("console.log('\\ud800')"), "\u{fffd}");
    assert_eq!(
        log("console.log('a'); console.log(__.response.getValue('x-ms-documentdb-script-log-results'))"),
        "aa"
    );
    let text = body("console.log(); console.log(1, 2); set(1)");
    let quiet = scripts
        .run(&ScriptRun { logging: false, ..procedure(&text, "[]") }, &mut MemoryHost::default())
        .unwrap();
    assert_eq!((quiet.log, quiet.body.as_deref()), (None, Some("1")));
}

#[test]
fn javascript_queries() {
    check("set(c.filter(d => d.n === 1, (e, d) => set(d.map(d => d.id))).isAccepted)", r#"["b"]"#);
    check("c.map(d => d.n, (e, d) => set(d))", r#"[2,1,"1"]"#);
    check("__.map(__, d => d.id, (e, d) => set(d))", r#"["a","b","c"]"#);
    check("c.pluck('id', {pageSize: 2}, (e, d, r) => set([d, r.continuation]))", r#"[["a","b"],"2"]"#);
    check("c.pluck('')", "400 Error: The property name must be a string and cannot be empty.");
    check("c.filter()", "400 Error: The predicate/transform function must be provided.");
    check(
        "c.chain().pluck('tags').flatten().value((e, d) => set(d.map(d => d === undefined ? '-' : d)))",
        r#"["x","y","z","-"]"#,
    );
    check("c.chain().pluck('tags').flatten(true).value((e, d) => set(d.length))", "4");
    check(
        "c.chain().unwind(d => d.authors, (d, a) => d.id + a.name).value((e, d) => set(d))",
        r#"["aAda","aBo"]"#,
    );
    check("c.unwind(d => d.authors || [], (e, d, r) => set(d.length))", "2");
    check("c.unwind(d => d.authors, (d, a) => a.name, (e, d) => set(d))", r#"["Ada","Bo"]"#);
    check(
        "c.unwind((d, x) => 1)",
        "400 Error: The collection selector function must have exactly one parameter.",
    );
    check(
        "c.chain().unwind(d => d.authors, d => 1)",
        "400 Error: The result selector function must have at least two parameters.",
    );
    check("c.sortBy(d => d.n, (e, d) => set(d.map(d => d.id)))", r#"["b","a","c"]"#);
    check(
        "c.chain().sortByDescending(d => d.n).map(d => d.id).value({pageSize: 2}, (e, d, r) => set([d, r.continuation]))",
        r#"[["c","a"],"sorted:2"]"#,
    );
    check(
        "c.chain().sortByDescending(d => d.n).map(d => d.id).value({pageSize: 2, continuation: 'sorted:2'}, (e, d, r) => set([d, r.continuation === undefined]))",
        r#"[["b"],true]"#,
    );
    check(
        "c.sortBy(d => d.n, {continuation: '1'}, () => {})",
        "400 Error: The continuation does not belong to this query.",
    );
    check(
        "c.chain().filter(d => true, {})",
        "400 Error: When using \"chain\", options can only be provided on the call to the \"value\" function.",
    );
    check(
        "c.chain().filter(d => true, () => 1)",
        "400 Error: When using \"chain\", the callback can only be provided on the call to the \"value\" function.",
    );
    check(
        "c.chain().map(d => d.id).value((e, d, r) => set([d.length, r.continuation === undefined]), {pageSize: 1})",
        "[3,true]",
    );
    check("c.map(d => d.id); c.pluck('n')", r#""[\"a\",\"b\",\"c\"][2,1,\"1\"]""#);
    check("c.filter(d => { throw new Error(8, 'in it') }, () => {})", "8 Error: in it");
    check("var wanted = 'b'; c.filter(d => d.id === wanted, (e, d) => set(d.length))", "1");
    let mut host = MemoryHost { accepted_max: Some(1), ..MemoryHost::with(ITEMS) };
    check_on(
        &mut host,
        "c.readDocument(doc('a'), () => { var q = c.chain(); set([q.isAccepted, q.map(1) === q, q.value() === q, c.filter(d => d).isAccepted]) })",
        "[false,true,true,false]",
    );
    let many: Vec<String> =
        (0..2500).map(|n| format!(r#"{{"id": "{n}", "n": {}}}"#, (n * 7) % 2500)).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let mut host = MemoryHost::with(&many);
    check_on(
        &mut host,
        "c.chain().sortBy(d => d.n).map(d => d.n).value({pageSize: 3}, (e, d) => set(d))",
        "[0,1,2]",
    );
    assert_eq!(host.requests.len(), 3);
}

fn trigger(call: Call<'_>, text: &str) -> String {
    let run = ScriptRun { call, ..procedure(text, "") };
    show(Scripts::new(Limits::default()).run(&run, &mut MemoryHost::with(ITEMS)))
}

#[test]
fn pre_triggers() {
    let pre = |text: &str| {
        trigger(
            Call::PreTrigger { operation: TriggerOperation::Create, body: Some(r#"{"id": "i", "v": 1}"#) },
            &format!("function () {{ var r = getContext().getRequest(); {text} }}"),
        )
    };
    assert_eq!(pre(""), r#"{"id":"i","v":1}"#);
    assert_eq!(pre("var d = r.getBody(); d.v = 2; d.id = 'j'; r.setBody(d)"), r#"{"id":"j","v":2}"#);
    assert_eq!(pre("r.getBody().v = 3"), r#"{"id":"i","v":3}"#);
    assert_eq!(
        pre(
            "var d = r.getBody(); r.setBody(d); __.queryDocuments(__.getSelfLink(), 'SELECT VALUE COUNT(1) FROM c', (e, n) => { d.v = n[0] })"
        ),
        r#"{"id":"i","v":3}"#
    );
    assert_eq!(
        pre("r.setBody({op: r.getOperationType(), none: typeof getContext().getResponse})"),
        r#"{"op":"Create","none":"undefined"}"#
    );
    assert_eq!(pre("getContext().getResponse()"), "TypeError: not a function");
    assert_eq!(pre("r.setValue('OperationType', 1)"), "403 Error: Not a writable property: OperationType");
    assert_eq!(
        pre("__.filter(d => true)"),
        "400 Error: The callback function must be provided for scenarios, such as pre-trigger, when response object is not available."
    );
    assert_eq!(
        trigger(Call::PreTrigger { operation: TriggerOperation::Delete, body: None }, "function () {}"),
        "(none)"
    );
}

#[test]
fn post_triggers() {
    let post = |text: &str| {
        let call = Call::PostTrigger {
            operation: TriggerOperation::Replace,
            request_body: Some(r#"{"id": "i"}"#),
            response_body: Some(r#"{"id": "i", "_ts": 5}"#),
        };
        trigger(
            call,
            &format!(
                "function () {{ var q = getContext().getRequest(), r = getContext().getResponse(); {text} }}"
            ),
        )
    };
    assert_eq!(post(""), r#"{"id":"i","_ts":5}"#);
    assert_eq!(
        post("r.setBody({in: q.getBody(), out: r.getBody()._ts, op: q.getOperationType()})"),
        r#"{"in":{"id":"i"},"out":5,"op":"Replace"}"#
    );
    assert_eq!(
        post(
            "r.setBody([/collectionSize/.test(r.getResourceQuotaCurrentUsage()), /collectionSize/.test(r.getMaxResourceQuota()), r.getCurrentResourceQuotaUsage().length > 0])"
        ),
        "[true,true,true]"
    );
    assert_eq!(post("try { q.setBody(1) } catch (e) { r.setBody('caught') }"), "\"caught\"");
    assert_eq!(
        post("__.deleteDocument(__.getAltLink() + '/docs/a', (e, o) => r.setBody(o.statusCode))"),
        "204"
    );
    assert_eq!(post("throw new Error(4444, 'no')"), "4444 Error: no");
    assert_eq!(
        trigger(
            Call::PostTrigger {
                operation: TriggerOperation::Delete,
                request_body: None,
                response_body: None
            },
            "function () {}"
        ),
        "(none)"
    );
}
