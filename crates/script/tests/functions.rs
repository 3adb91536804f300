//! User-defined functions.

use std::time::{Duration, Instant};

use quire_script::*;
use quire_value::{Value, text};

fn call(body: &str, arguments: &str) -> Result<Value, ScriptError> {
    let arguments = text::parse(arguments.as_bytes(), text::Limits::default())
        .expect("JSON")
        .into_array()
        .expect("an array");
    let limits = Limits { function_time: Duration::from_millis(300), ..Limits::default() };
    Scripts::new(limits).functions(&[Script { version: "1", body }], &Caller::default())?.call(0, &arguments)
}

fn check(body: &str, arguments: &str, expected: &str) {
    let shown = call(body, arguments).map_or_else(|error| error.to_string(), |value| value.to_json());
    assert!(shown.starts_with(expected), "{body}: {shown}");
}

#[test]
fn values() {
    check("function (a, b) { return a + b }", "[1, 2.5]", "3.5");
    check("function tax(i) { return i * 2 }", "[9007199254740992]", "18014398509481984");
    check("a => a", r#"["text ü"]"#, "\"text ü\"");
    check("a => a", r#"[{"a": [1, null, {"b": false}]}]"#, r#"{"a":[1,null,{"b":false}]}"#);
    check("(...a) => a.length", "[1, 2, 3]", "3");
    check("function f(a) { return g(a) } function g(a) { return [a] }", "[null]", "[null]");
    check("() => new Date(0)", "[]", r#""1970-01-01T00:00:00.000Z""#);
    for body in ["() => undefined", "() => {}", "() => NaN", "() => 1 / 0"] {
        assert!(call(body, "[]").unwrap().is_undefined(), "{body}");
    }
    let given = Scripts::new(Limits::default())
        .functions(&[Script { version: "1", body: "a => typeof a" }], &Caller::default())
        .unwrap()
        .call(0, &[Value::Undefined]);
    assert_eq!(given.unwrap(), Value::from("undefined"));
}

#[test]
fn failures() {
    check("() => () => 1", "[]", "the user-defined function returned a function");
    check("() => Symbol()", "[]", "the user-defined function returned a symbol");
    check("() => 1n", "[]", "the user-defined function returned a BigInt");
    check("() => '\\ud800'", "[]", "the user-defined function returned text with half a character");
    check(
        "() => { var o = {}; o.o = o; return o }",
        "[]",
        "Encountered exception while executing function. Exception = TypeError: circular reference",
    );
    check(
        "() => getContext()",
        "[]",
        "Encountered exception while executing function. Exception = ReferenceError: getContext is not defined",
    );
    check("prose here", "[]", "Encountered exception while compiling Javascript.");
    check("() => { for (;;); }", "[]", "The requested operation exceeded maximum alloted time.");
    check("() => 'x'.repeat(1e8)", "[]", "the script exceeded its memory limit");
    let error = call("() => { throw new Error(32766, 'odd') }", "[]").unwrap_err();
    assert!(matches!(error, ScriptError::Thrown { number: Some(32766), .. }), "{error:?}");
}

#[test]
fn several_do_not_see_each_other_and_survive_errors() {
    let scripts = Scripts::new(Limits::default());
    let of = |body| Script { version: body, body };
    let texts = [
        of("function one(x) { if (x) throw x; return typeof two }"),
        of("function two() { return typeof one }"),
    ];
    let mut functions = scripts.functions(&texts, &Caller::default()).unwrap();
    assert_eq!(functions.call(0, &[Value::Bool(false)]).unwrap(), Value::from("undefined"));
    assert!(functions.call(0, &[Value::Bool(true)]).is_err());
    assert_eq!(functions.call(1, &[]).unwrap(), Value::from("undefined"));
    assert_eq!(functions.call(0, &[]).unwrap(), Value::from("undefined"));
}

/// The bound is far above the real cost, so that only a change of kind fails; run with `--nocapture` for the figure.
#[test]
fn a_call_with_scalars_is_cheap() {
    const CALL_COUNT: u32 = 50_000;
    let scripts = Scripts::new(Limits { function_time: Duration::from_secs(60), ..Limits::default() });
    let mut functions = scripts
        .functions(&[Script { version: "1", body: "(a, b) => a * 2 + b" }], &Caller::default())
        .unwrap();
    let arguments = [Value::from(3), Value::from(0.5)];
    let started = Instant::now();
    for _ in 0..CALL_COUNT {
        assert_eq!(functions.call(0, &arguments).unwrap(), Value::from(6.5));
    }
    let each = started.elapsed() / CALL_COUNT;
    println!("one call: {each:?}");
    assert!(each < Duration::from_micros(100), "{each:?}");
}
