//! Every query finishes or ends with an error within its limits: every built-in function with large and malicious
//! arguments, and every stage before a run with large texts. Time is the CPU time of the thread, relative to the time
//! of normal work in this build, so that neither other processes nor the build profile matter.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use quire_sql::functions::{self, Function};
use quire_sql::{Allowance, Cancellation, Environment, Parameters, Query, Schema, SqlError};
use quire_testkit::Random;
use quire_value::{Object, Value};

/// Step limit of one evaluation in these tests.
const STEPS: u64 = 3_000_000;
/// Maximum time, relative to normal work with the same number of steps.
const SLACK: u64 = 12;
const BYTES_MAX: usize = 64 << 20;

/// CPU time of this thread in nanoseconds.
fn thread_nanos() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    text.split_whitespace().next().and_then(|nanos| nanos.parse().ok()).expect("a number")
}

/// CPU time of [`STEPS`] steps of normal evaluation.
static NORMAL_NANOS: LazyLock<u64> = LazyLock::new(|| {
    let list: Value = (0..1_000).map(Value::from).collect();
    let parameters = Parameters(vec![("@l".to_owned(), list)]);
    let text = "SELECT VALUE COUNT(1) FROM a IN (SELECT VALUE @l) JOIN b IN (SELECT VALUE @l) JOIN d IN (SELECT VALUE @l) WHERE a < b AND b < d";
    let started = thread_nanos();
    let ended = run(text, &parameters, &Allowance::limited(STEPS, BYTES_MAX));
    assert!(matches!(ended, Err(SqlError::Budget { .. })), "{ended:?}");
    thread_nanos() - started
});

/// Steps of compilation are not limited per item, so only its time is checked.
fn run(text: &str, parameters: &Parameters, allowance: &Allowance) -> Result<Vec<Value>, SqlError> {
    let query = Query::compile_within(text, parameters, Schema::default(), allowance)?;
    let environment = Environment {
        now_ticks: Some(17_698_536_001_234_567),
        allowance: allowance.clone(),
        ..Environment::default()
    };
    let query = query.with_environment(environment);
    let _analysis = query.analysis();
    let _keys = query.partition_key_prefixes(&["/id".parse().expect("a path")]);
    let _plan = query.plan();
    query.rows([&Value::Object(Object::new())])
}

/// Runs the query and returns the relative time; a panic is reported with the text.
fn measured(text: &str, parameters: &Parameters) -> (f64, Result<Vec<Value>, SqlError>) {
    let normal = *NORMAL_NANOS;
    let started = thread_nanos();
    let ended = run(text, parameters, &Allowance::limited(STEPS, BYTES_MAX));
    ((thread_nanos() - started) as f64 / normal as f64, ended)
}

/// A failing run prints its seed, which repeats it.
fn seeded() -> Random {
    let given = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| std::process::id().into());
    println!("SEED={seed}");
    Random(seed)
}

const LONG: usize = 200_000;

fn object(members: impl IntoIterator<Item = (String, Value)>) -> Value {
    Value::Object(members.into_iter().collect())
}

fn geometry(kind: &str, coordinates: Value) -> Value {
    object([("type".to_owned(), Value::from(kind)), ("coordinates".to_owned(), coordinates)])
}

fn position(x: f64, y: f64) -> Value {
    Value::Array(vec![Value::from(x), Value::from(y)])
}

/// A polygon of three corners, far from its neighbours.
fn triangle(number: usize) -> Value {
    let (x, y) = ((number % 300) as f64 - 150.0, (number / 300) as f64 / 4.0 - 40.0);
    let corners = [position(x, y), position(x + 0.1, y), position(x, y + 0.1), position(x, y)];
    Value::Array(vec![Value::Array(corners.into())])
}

fn texts() -> Vec<Value> {
    let long = |piece: &str| Value::from(piece.repeat(LONG / piece.len()));
    vec![
        long("a"),
        long("["),
        long("\\"),
        long("y"),
        long("%a_"),
        long("ab "),
        long("é😀"),
        long("[1,"),
        Value::from(format!("[{}1]", "1,".repeat(LONG / 2))),
        Value::from(format!("{}!]", "[".repeat(LONG))),
        Value::from(format!("%[{}]x%", "abcdefgh".repeat(LONG / 8))),
        Value::from(format!("{} x", "the ".repeat(LONG / 4))),
        Value::from("a*b|a"),
        Value::from("(a*)*b"),
        Value::from("(a|aa|aaa)+$|a"),
        Value::from(r"\w{1,300}\s\w{1,300}"),
        Value::from(r"\b\w*?\bé|(\pL+)*x"),
        Value::from(r"\pL\pL".repeat(3_000)),
        Value::from("((a{40}){40}){40}"),
        Value::from("mi"),
        Value::from(""),
        Value::from("yyyy"),
        Value::from("2024-01-31T23:59:59.1234567Z"),
        Value::from("cosine"),
        Value::from("en-US"),
    ]
}

fn structures() -> Vec<Value> {
    let numbers: Value = (0..20_000).map(Value::from).collect();
    let strings: Value = (0..20_000).map(|n| Value::from(format!("text {n}"))).collect();
    let objects: Value =
        (0..5_000).map(|n| object((0..4).map(|m| (format!("n{m}"), Value::from(n + m))))).collect();
    let wide = object((0..10_000).map(|n| (format!("name{n}"), Value::from(n))));
    let reversed = object((0..10_000).rev().map(|n| (format!("name{n}"), Value::from(n))));
    let deep = (0..100).fold(Value::from(1), |inner, _| Value::Array(vec![inner]));
    let line: Value = (0..20_000)
        .map(|n| position(f64::from(n) / 200.0 - 50.0, if n % 2 == 0 { 10.0 } else { 10.5 }))
        .collect();
    let circle: Value = (0..=500)
        .map(|n| f64::from(n % 500) * std::f64::consts::TAU / 500.0)
        .map(|angle| position(20.0 * angle.cos(), 20.0 * angle.sin()))
        .collect();
    let term = object([("term".to_owned(), Value::from("x".repeat(120))), ("distance".to_owned(), 2.into())]);
    let words = object([("term".to_owned(), texts()[11].clone()), ("distance".to_owned(), 2.into())]);
    vec![
        numbers,
        strings,
        objects,
        wide,
        reversed,
        deep,
        geometry("LineString", line),
        geometry("Polygon", Value::Array(vec![circle])),
        geometry("MultiPolygon", (0..6_000).map(triangle).collect()),
        geometry("Point", position(1.0, 2.0)),
        term,
        words,
        Value::Array(vec![texts()[0].clone(), texts()[5].clone()]),
    ]
}

fn scalars() -> Vec<Value> {
    let doubles = [0.0, -0.0, 0.5, 1e308, -1e308, 5e-324, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e18];
    let integers = [0, 1, -1, 2, 7, 63, 64, 70_000, 4_294_967_296, i64::MAX, i64::MIN, i64::MIN + 1];
    let mut scalars: Vec<Value> = doubles.map(Value::from).into();
    scalars.extend(integers.map(Value::from));
    scalars.extend([
        Value::from(u64::MAX),
        Value::Null,
        Value::from(true),
        Value::from(false),
        Value::Undefined,
    ]);
    scalars
}

/// A query that calls the function with this many parameters.
fn call(function: &Function, count: usize) -> String {
    let arguments: Vec<String> = (0..count).map(|index| format!("@p{index}")).collect();
    match function.name() {
        "RRF" | "FullTextScore" => {
            format!("SELECT TOP 5 * FROM c ORDER BY RANK FullTextScore(c.t, {})", arguments.join(", "))
        }
        name => format!("SELECT VALUE {name}({})", arguments.join(", ")),
    }
}

fn parameters(values: Vec<Value>) -> Parameters {
    Parameters(values.into_iter().enumerate().map(|(index, value)| (format!("@p{index}"), value)).collect())
}

fn describe(parameters: &Parameters) -> String {
    let show = |value: &Value| {
        let json = if value.is_undefined() { "undefined".to_owned() } else { value.to_json() };
        let end = json.floor_char_boundary(40);
        format!("{}… ({} bytes)", &json[..end], json.len())
    };
    parameters.0.iter().map(|(_, value)| show(value)).collect::<Vec<_>>().join(", ")
}

fn counts(function: &Function) -> std::ops::RangeInclusive<usize> {
    let (min, max) = function.arity();
    min..=max.unwrap_or(min + 2).min(min + 2)
}

#[test]
fn every_function_ends_within_its_limits() {
    let large: Vec<Value> = texts().into_iter().chain(structures()).collect();
    let all: Vec<Value> = large.iter().cloned().chain(scalars()).collect();
    let mut random = seeded();
    let mut slow = Vec::new();
    for function in functions::all() {
        for count in counts(function).filter(|count| *count > 0) {
            // Each large value once as the first argument, with others beside it.
            for first in &large {
                let mut values = vec![first.clone()];
                values.extend((1..count).map(|_| all[random.below(all.len())].clone()));
                if random.below(3) == 0 {
                    let last = values.len() - 1;
                    values.swap(0, last);
                }
                let (text, parameters) = (call(function, count), parameters(values));
                let (units, ended) = measured(&text, &parameters);
                if units > SLACK as f64 {
                    slow.push(format!("{text} with {}: {units:.1} {:?}", describe(&parameters), ended.err()));
                }
            }
        }
    }
    assert!(slow.is_empty(), "{}", slow.join("\n"));
}

/// Pairs that random tests may miss: they took minutes before they were fixed.
#[test]
fn known_attacks_end_within_the_limits() {
    let long = |piece: &str| Value::from(piece.repeat(LONG / piece.len()));
    let regexes = [
        "a*b|a",
        "(a*)*b",
        "(a|aa|aaa)+$|a",
        r"\w{1,300}\s\w{1,300}",
        r"\b\w*?\bé|a",
        r"(?:a?){300}a{300}b|a",
        r"[^b]*b|\w",
        "a{1,1000}b|a",
        r"(\w+\s*)+$|a",
        "(?:é|a)*b|",
    ];
    let subjects = [long("a"), long("ab "), long("é"), long("aé"), long("xy\n")];
    let mut attacks = Vec::new();
    for subject in &subjects {
        for regex in regexes {
            for name in ["RegexMatch(@p0, @p1)", "RegexExtract(@p0, @p1, '', 1)", "RegexExtractAll(@p0, @p1)"]
            {
                attacks.push((name.to_owned(), vec![subject.clone(), Value::from(regex)]));
            }
            let groups = "RegexExtractAll(@p0, @p1, 'i', [0, 1])".to_owned();
            attacks.push((groups, vec![subject.clone(), Value::from(regex)]));
        }
    }
    for pattern in texts() {
        for expression in ["@p0 LIKE @p1", "@p0 NOT LIKE @p1 ESCAPE '!'", "@p0 LIKE @p1 ESCAPE '^'"] {
            attacks.push((expression.to_owned(), vec![long("a"), pattern.clone()]));
            attacks.push((
                expression.replace("@p0", "CONCAT(@p0, c.id ?? '')"),
                vec![long("["), pattern.clone()],
            ));
        }
    }
    let shapes = structures();
    for (one, two) in [(6, 6), (6, 8), (8, 8), (7, 8), (8, 7), (6, 7)] {
        for name in ["ST_DISTANCE", "ST_WITHIN", "ST_INTERSECTS"] {
            attacks.push((format!("{name}(@p0, @p1)"), vec![shapes[one].clone(), shapes[two].clone()]));
        }
    }
    let gap = Value::from(format!("x {}x", "the ".repeat(LONG / 8)));
    attacks.push(("FullTextContains(@p0, @p1)".to_owned(), vec![long("x "), gap]));
    attacks.push(("DateTimeFormat('2024-01-01', @p0)".to_owned(), vec![long("\\")]));
    attacks.push(("DateTimeFormat('2024-01-01', @p0)".to_owned(), vec![long("y")]));
    let mut slow = Vec::new();
    for (expression, values) in attacks {
        let text = format!("SELECT VALUE {expression} FROM c");
        let parameters = parameters(values);
        let (units, ended) = measured(&text, &parameters);
        if units > SLACK as f64 {
            slow.push(format!("{text} with {}: {units:.1} {:?}", describe(&parameters), ended.err()));
        }
    }
    assert!(slow.is_empty(), "{}", slow.join("\n"));
}

/// No arguments make a function panic: numbers at the limits, texts cut anywhere, wrong types.
#[test]
fn unusual_arguments_do_not_panic() {
    let mut random = seeded();
    let mut odd = scalars();
    odd.extend(
        [
            "",
            "a",
            "é",
            "😀",
            "a😀é",
            "\\",
            "yyyyyyyyyyyy",
            "fffffff",
            "FFFFFFFF",
            "[",
            "[a-",
            "9999-12-31",
            "0001-01-01",
            "2024-02-30",
            "2024-01-01T00:00:00.0000001Z",
            "year",
            "ns",
            "mcs",
            "(?i)",
            "(",
            "$",
            "{\"a\":1}",
            "[1,2]",
            "1e400",
            "-",
            "cosine",
            "en-US",
            "\u{0}",
            "\u{10FFFF}",
        ]
        .map(Value::from),
    );
    odd.push(Value::from("y".repeat(70_000)));
    odd.push(Value::Array(Vec::new()));
    odd.push(Value::Object(Object::new()));
    odd.push(scalars().into_iter().collect());
    odd.push(Value::Array(vec![Value::from("a"), Value::from(1), Value::Null, Value::Array(Vec::new())]));
    odd.push(geometry("Point", position(1e300, -90.0)));
    odd.push(geometry("LineString", Value::Array(vec![position(180.0, 90.0), position(-180.0, -90.0)])));
    odd.push(geometry("Polygon", Value::Array(vec![Value::Array(vec![position(0.0, 0.0); 4])])));
    for function in functions::all() {
        for count in counts(function).filter(|count| *count > 0) {
            for round in 0..odd.len() * if count == 1 { 1 } else { 8 } {
                let mut values: Vec<Value> =
                    (0..count).map(|_| odd[random.below(odd.len())].clone()).collect();
                values[0] = odd[round % odd.len()].clone();
                let (text, parameters) = (call(function, count), parameters(values));
                let ended = std::panic::catch_unwind(|| {
                    drop(run(&text, &parameters, &Allowance::limited(STEPS, BYTES_MAX)));
                });
                assert!(ended.is_ok(), "{text} with {} panics", describe(&parameters));
            }
        }
    }
}

/// Every stage before a run, with the largest texts and parameters.
#[test]
fn large_texts_compile_or_are_refused() {
    let repeat = |part: &str| part.repeat(400_000 / part.len());
    let each = |count: usize, part: &dyn Fn(usize) -> String| (0..count).map(part).collect::<String>();
    let long = Value::from("x".repeat(1 << 20));
    let one = || Parameters(vec![("@p".to_owned(), long.clone())]);
    let many = Parameters((0..40_000).map(|n| (format!("@p{n}"), Value::from(n))).collect());
    let mentions: Vec<String> = (0..40_000).map(|n| format!("@p{n}")).collect();
    let cases: Vec<(String, Parameters)> = vec![
        (format!("SELECT VALUE 1 FROM c WHERE c.a IN ({})", mentions.join(",")), many.clone()),
        (format!("SELECT VALUE [{}]", mentions.join(",")), many.clone()),
        (format!("SELECT VALUE 1 FROM c WHERE c.a IN (@p{})", ",@p".repeat(20_000)), one()),
        (format!("SELECT VALUE [@p{}]", ",@p".repeat(20_000)), one()),
        (format!("SELECT VALUE {{a: @p{}}}", each(20_000, &|n| format!(", a{n}: @p"))), one()),
        (format!("SELECT VALUE 1 FROM c WHERE c.a = @p{}", " OR c.a = @p".repeat(20_000)), one()),
        (format!("SELECT VALUE 1 FROM c WHERE c.a != @p{}", " AND c.a != @p".repeat(20_000)), one()),
        (format!("SELECT VALUE 1 FROM c WHERE c.id = @p{}", " OR c.id = @p".repeat(20_000)), one()),
        (format!("SELECT VALUE c[@p]{} FROM c", "[@p]".repeat(20_000)), one()),
        (format!("SELECT VALUE @p || @p{} FROM c", " || @p".repeat(20_000)), one()),
        (format!("SELECT VALUE CONCAT(@p{})", ",@p".repeat(20_000)), one()),
        (format!("SELECT VALUE ARRAY_CONCAT([@p]{})", ",[@p]".repeat(20_000)), one()),
        (
            format!("SELECT TOP 5 * FROM c ORDER BY RANK FullTextScore(c.t, @p{})", ",@p".repeat(20_000)),
            one(),
        ),
        (
            format!(
                "SELECT TOP 5 * FROM c ORDER BY RANK RRF(FullTextScore(c.t, 'a'){})",
                ",FullTextScore(c.t,'a')".repeat(15_000)
            ),
            one(),
        ),
        (
            format!(
                "SELECT VALUE 1 FROM c WHERE STARTSWITH(c.a, @p){}",
                " OR STARTSWITH(c.a, @p)".repeat(15_000)
            ),
            one(),
        ),
        (
            format!(
                "SELECT VALUE 1 FROM c WHERE ARRAY_CONTAINS(c.a, @p){}",
                " OR ARRAY_CONTAINS(c.a, @p)".repeat(12_000)
            ),
            one(),
        ),
        (format!("SELECT VALUE 1 FROM c WHERE c.a LIKE @p{}", " OR c.a LIKE @p".repeat(15_000)), one()),
        (format!("SELECT VALUE c.s LIKE '{}' FROM c", repeat("[")), one()),
        (format!("SELECT VALUE c.s LIKE '{}!]' ESCAPE '!' FROM c", repeat("[")), one()),
        (format!("SELECT VALUE REPLACE(@p, 'x', @p){}", " || REPLACE(@p, 'x', @p)".repeat(10_000)), one()),
        (
            format!(
                "SELECT VALUE 1 FROM c WHERE {}",
                each(9_000, &|n| format!("c.a = {n} OR c.b{n} = 1 OR ")) + "true"
            ),
            one(),
        ),
        (
            format!(
                "SELECT VALUE 1 FROM c WHERE {}",
                each(9_000, &|n| format!("c.a != {n} AND c.b{n} != 1 AND ")) + "true"
            ),
            one(),
        ),
        (
            format!(
                "SELECT VALUE 1 FROM c WHERE {}",
                each(6_000, &|n| format!("(c.a = {n} AND c.id = '{n}') OR ")) + "false"
            ),
            one(),
        ),
        (format!("SELECT {} COUNT(1) FROM c", each(20_000, &|n| format!("SUM(c.a{n}), "))), one()),
        (format!("SELECT {} 1 FROM c", repeat("COUNT(c.a), ")), one()),
        (
            format!(
                "SELECT {} 1 FROM c GROUP BY {} c.a",
                repeat("c.b + c.d, "),
                each(250, &|n| format!("c.a.x{n} + 1, "))
            ),
            one(),
        ),
        (format!("SELECT {} 1", repeat("x, ")), one()),
        (format!("SELECT VALUE {}1{}", "(1 = 1 ? ".repeat(120), " : 0)".repeat(120)), one()),
        (
            format!(
                "SELECT VALUE {}1{}",
                "ARRAY(SELECT VALUE x FROM x IN (SELECT VALUE [".repeat(40),
                "]))".repeat(40)
            ),
            one(),
        ),
        (format!("SELECT VALUE {}", repeat("-")), one()),
        (format!("SELECT VALUE {}true", repeat("NOT ")), one()),
        (format!("SELECT VALUE '{}'", repeat("\\u0041")), one()),
        (format!("SELECT VALUE 1 /*{}", repeat("/* ")), one()),
        (format!("SELECT VALUE 1 {}", repeat("-- \n")), one()),
        (format!("SELECT VALUE c{} FROM c", repeat(".a")), one()),
        (format!("SELECT * FROM c ORDER BY c.a{}", repeat(", c.a")), one()),
        (
            format!(
                "SELECT VALUE 1 FROM {}c AS x{}",
                "(SELECT x AS a, x AS b FROM ".repeat(60),
                ") AS x".repeat(60)
            ),
            one(),
        ),
        (
            format!(
                "SELECT VALUE x.a{} FROM {}c AS x{}",
                ".a".repeat(60),
                "(SELECT x AS a, x AS b FROM ".repeat(60),
                ") AS x".repeat(60)
            ),
            one(),
        ),
        (
            format!(
                "SELECT VALUE (LET x = c{} IN x.b{}) FROM c",
                ".a".repeat(90_000),
                " + x.b".repeat(40_000)
            ),
            one(),
        ),
        (
            format!(
                "SELECT VALUE (LET x = c['{}'] IN x.b{}) FROM c",
                "n".repeat(200_000),
                " + x.b".repeat(40_000)
            ),
            one(),
        ),
        (
            format!(
                "SELECT VALUE 1 FROM (SELECT {} 1 AS z FROM c) AS x WHERE {} true",
                each(9_000, &|n| format!("c.a AS a{n}, ")),
                each(9_000, &|n| format!("x.a{n} = 1 OR "))
            ),
            one(),
        ),
        (
            format!(
                "SELECT VALUE 1 FROM c WHERE {}1 = 1{}",
                "(c.a = 1 ? ".repeat(120),
                " : c.b = 2)".repeat(120)
            ),
            one(),
        ),
        (format!("SELECT VALUE 1 FROM c WHERE {}c.a{}", "(true = (".repeat(60), " = 1))".repeat(60)), one()),
        (
            format!(
                "SELECT VALUE 1 FROM c WHERE {}c.a = 1{}",
                "EXISTS(SELECT VALUE x FROM x IN c.l WHERE ".repeat(60),
                ")".repeat(60)
            ),
            one(),
        ),
        (format!("SELECT VALUE RegexMatch(c.a, '{}') FROM c", repeat("(a|b)*")), one()),
    ];
    let mut slow = Vec::new();
    for (text, parameters) in &cases {
        let (units, ended) = measured(text, parameters);
        if units > SLACK as f64 {
            slow.push(format!("{}…: {units:.1} {:?}", &text[..80], ended.err()));
        }
    }
    assert!(slow.is_empty(), "{}", slow.join("\n"));
}

/// A parameter is stored once, however often it is used, and a value that would be too large is refused before it is
/// built.
#[test]
fn memory_is_reserved_before_it_is_used() {
    let peak_kb = || {
        let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("a peak");
        line.split_whitespace().nth(1).and_then(|kb| kb.parse::<u64>().ok()).expect("a number")
    };
    let long = Value::from("a".repeat(1 << 20));
    let parameters = Parameters(vec![("@a".to_owned(), long.clone()), ("@b".to_owned(), long)]);
    for (text, is_refused) in [
        (format!("SELECT VALUE LENGTH(@a){}", " + LENGTH(@a)".repeat(20_000)), false),
        (format!("SELECT VALUE 1 FROM c WHERE c.x IN (@a{})", ", @a".repeat(20_000)), false),
        (format!("SELECT VALUE 1 FROM c WHERE c.x = @a{}", " OR c.x = @a".repeat(20_000)), false),
        (format!("SELECT VALUE [@a{}]", ", @a".repeat(20_000)), true),
        ("SELECT VALUE LENGTH(REPLACE(@a, 'a', @b))".to_owned(), true),
        ("SELECT VALUE LENGTH(StringJoin(StringSplit(@a, ''), @b)) + LENGTH(StringJoin(StringSplit(@a, 'a'), @b))".to_owned(), true),
        (format!("SELECT VALUE CONCAT(@a{})", ", @b".repeat(200)), true),
        (format!("SELECT VALUE @a{}", " || @b".repeat(1_000)), false),
        (format!("SELECT VALUE ARRAY_LENGTH(ARRAY_CONCAT([@a]{}))", ", [@b]".repeat(1_000)), true),
        ("SELECT VALUE ToString(StringSplit(@a, 'a'))".to_owned(), true),
        ("SELECT VALUE ARRAY(SELECT VALUE [@a, @b] FROM x IN StringSplit(REPLICATE('b', 1000), 'b'))".to_owned(), true),
    ] {
        let allowance = Allowance::limited(Allowance::ITEM_STEPS_MAX, 64 << 20);
        let ended = run(&text, &parameters, &allowance);
        let refused = matches!(ended, Err(SqlError::QueryMemory { .. }));
        assert_eq!(refused, is_refused, "{}: {:?}", &text[..40], ended.map(|rows| rows.len()));
        assert!(refused || is_expected_end(&ended), "{}", &text[..40]);
        assert!(peak_kb() < 1_500_000, "{}: {} KiB", &text[..40], peak_kb());
    }
}

/// Reading a megabyte twenty thousand times exceeds the step limit, which is a correct end.
fn is_expected_end(ended: &Result<Vec<Value>, SqlError>) -> bool {
    matches!(ended, Ok(_) | Err(SqlError::Budget { .. }))
}

/// Short-lived small values do not add up, for any number of rows.
#[test]
fn memory_is_released_between_rows() {
    let list: Value = (0..20_000).map(|n| Value::from(format!("{n}{}", "x".repeat(600)))).collect();
    let parameters = Parameters(vec![("@l".to_owned(), list)]);
    for text in [
        "SELECT VALUE COUNT(1) FROM x IN (SELECT VALUE @l) WHERE LENGTH(UPPER(x)) > LENGTH(CONCAT(x, x))",
        "SELECT VALUE MAX(LENGTH(x || 'y' || x)) FROM x IN (SELECT VALUE @l)",
        "SELECT VALUE (SELECT VALUE COUNT(1) FROM (SELECT DISTINCT VALUE LEFT(UPPER(x), 3) FROM x IN (SELECT VALUE @l)))",
        "SELECT VALUE COUNT(1) FROM x IN (SELECT VALUE @l)
         WHERE ARRAY_LENGTH(ARRAY(SELECT VALUE UPPER(x) FROM z IN (SELECT VALUE [1, 2, 3]))) > 9",
        "SELECT VALUE COUNT(1) FROM x IN (SELECT VALUE @l) WHERE EXISTS(SELECT VALUE y FROM y IN (SELECT VALUE [UPPER(x), LOWER(x)]) WHERE y = x)",
        "SELECT VALUE COUNT(1) FROM x IN (SELECT VALUE @l)
         WHERE EXISTS(SELECT COUNT(1) FROM y IN (SELECT VALUE [x, UPPER(x)]) GROUP BY y)",
    ] {
        let allowance = Allowance::limited(Allowance::ITEM_STEPS_MAX, 48 << 20);
        let rows = run(text, &parameters, &allowance);
        assert!(rows.is_ok(), "{text}: {rows:?}");
    }
}

/// Cancels after a number of checks.
struct StopAt {
    checks: AtomicU64,
    at: u64,
}

impl Cancellation for StopAt {
    fn check(&self) -> Result<(), SqlError> {
        let checks = self.checks.fetch_add(1, Ordering::Relaxed);
        if checks < self.at { Ok(()) } else { Err(SqlError::Cancelled) }
    }
}

/// All stages and loops check for cancellation, and end with its error.
#[test]
fn cancellation_ends_every_stage() {
    let list: Value = (0..2_000).map(Value::from).collect();
    let text = Value::from("ab ".repeat(100_000));
    let parameters = Parameters(vec![("@l".to_owned(), list), ("@s".to_owned(), text)]);
    for query in [
        "SELECT VALUE COUNT(1) FROM a IN (SELECT VALUE @l) JOIN b IN (SELECT VALUE @l) WHERE a < b"
            .to_owned(),
        "SELECT VALUE RegexExtractAll(@s, '[^x]*x|.')".to_owned(),
        "SELECT VALUE ARRAY_LENGTH(RegexExtractAll(@s, '\\\\w+')) FROM a IN (SELECT VALUE @l)".to_owned(),
        "SELECT VALUE 1 FROM a IN (SELECT VALUE @l) WHERE FullTextContains(@s, 'ab zz')".to_owned(),
        "SELECT VALUE 1 FROM a IN (SELECT VALUE @l) WHERE CONTAINS(UPPER(@s), 'x')".to_owned(),
        format!(
            "SELECT VALUE 1 FROM c WHERE c.a IN (1{}) OR c.b = 1{}",
            ", 2".repeat(30_000),
            " OR c.d = 2".repeat(20_000)
        ),
    ] {
        let cancellation = Arc::new(StopAt { checks: AtomicU64::new(0), at: 2 });
        let allowance = Allowance::default().with_cancellation(cancellation.clone());
        assert_eq!(run(&query, &parameters, &allowance), Err(SqlError::Cancelled), "{}", &query[..40]);
        let checks = cancellation.checks.load(Ordering::Relaxed);
        assert!(checks < 100_000, "{checks} checks after cancellation: {}", &query[..40]);
    }
}
