//! Running scripts: procedures, triggers with writes, functions in queries.

use std::time::Instant;

use expect_test::{Expect, expect};

use crate::client::{Answer, Client, sign, sign_link};

const KEY: (&str, &str) = ("x-ms-documentdb-partitionkey", "[\"p\"]");
const LOGGING: (&str, &str) = ("x-ms-documentdb-script-enable-logging", "True");
const PRE: &str = "x-ms-documentdb-pre-trigger-include";
const POST: &str = "x-ms-documentdb-post-trigger-include";
const ITEMS: &str = "/dbs/d/colls/c/docs";

fn quoted(text: &str) -> String {
    let mut out = Vec::new();
    quire_value::text::write_string(text, &mut out);
    String::from_utf8(out).expect("JSON is text")
}

fn store(client: &Client, kind: &str, id: &str, text: &str) {
    let words = match kind {
        "triggers" => r#","triggerType":"Pre","triggerOperation":"All""#,
        _ => "",
    };
    let body = format!(r#"{{"id":"{id}","body":{}{words}}}"#, quoted(text));
    client.must(201, "POST", &format!("/dbs/d/colls/c/{kind}"), &[], &body);
}

fn trigger(client: &Client, id: &str, kind: &str, operation: &str, text: &str) {
    let body = format!(
        r#"{{"id":"{id}","body":{},"triggerType":"{kind}","triggerOperation":"{operation}"}}"#,
        quoted(text)
    );
    client.must(201, "POST", "/dbs/d/colls/c/triggers", &[], &body);
}

fn run(client: &Client, id: &str, headers: &[(&str, &str)], parameters: &str) -> Answer {
    client.send("POST", &format!("/dbs/d/colls/c/sprocs/{id}"), headers, parameters)
}

/// Status, sub-status and message without what follows it.
fn status_and_message(answer: &Answer) -> String {
    let substatus = answer.header("x-ms-substatus").map_or(String::new(), |number| format!("/{number}"));
    let body = answer.body.split("\\r\\nActivityId").next().unwrap_or_default();
    format!("{}{substatus} {body}", answer.status)
}

#[test]
fn a_procedure_is_run() {
    let client = Client::with_container(1);
    let text = "function (id) { console.log('made %s, ü!\\n', id); \
                __.createDocument(__.getSelfLink(), { id: id, pk: 'p' }, (error, made) => { \
                if (error) throw error; __.response.setBody({ made: made.id }); }); }";
    store(&client, "sprocs", "s", text);
    let check = |headers: &[(&str, &str)], parameters: &str, expect: Expect| {
        expect.assert_eq(&run(&client, "s", headers, parameters).print());
    };
    check(
        &[KEY, LOGGING],
        r#"["one"]"#,
        expect![[r#"
        200
        content-length: 14
        content-type: application/json
        lsn: 1
        x-ms-alt-content-path: dbs/d/colls/c/sprocs/s
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-cosmos-internal-partition-id: 00000001-0000-0001-0000-000000000000
        x-ms-cosmos-llsn: 1
        x-ms-cosmos-quorum-acked-llsn: 1
        x-ms-documentdb-partitionkeyrangeid: 0
        x-ms-documentdb-script-log-results: made%20one%2C%20%C3%BC!%0A
        x-ms-global-committed-lsn: 1
        x-ms-quorum-acked-lsn: 1
        x-ms-request-charge: 6.7
        x-ms-session-token: 0:-1#1

        {"made":"one"}
    "#]],
    );
    check(
        &[KEY],
        r#"["two"]"#,
        expect![[r#"
        200
        content-length: 14
        content-type: application/json
        lsn: 2
        x-ms-alt-content-path: dbs/d/colls/c/sprocs/s
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-cosmos-internal-partition-id: 00000001-0000-0001-0000-000000000000
        x-ms-cosmos-llsn: 2
        x-ms-cosmos-quorum-acked-llsn: 2
        x-ms-documentdb-partitionkeyrangeid: 0
        x-ms-global-committed-lsn: 2
        x-ms-quorum-acked-lsn: 2
        x-ms-request-charge: 6.7
        x-ms-session-token: 0:-1#2

        {"made":"two"}
    "#]],
    );
    // It fails, and its log until then is in the answer.
    check(
        &[KEY, LOGGING],
        r#"["one"]"#,
        expect![[r#"
        400
        content-length: 390
        content-type: application/json
        lsn: 2
        x-ms-alt-content-path: dbs/d/colls/c/sprocs/s
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-cosmos-internal-partition-id: 00000001-0000-0001-0000-000000000000
        x-ms-cosmos-llsn: 2
        x-ms-cosmos-quorum-acked-llsn: 2
        x-ms-documentdb-partitionkeyrangeid: 0
        x-ms-documentdb-script-log-results: made%20one%2C%20%C3%BC!%0A
        x-ms-global-committed-lsn: 2
        x-ms-quorum-acked-lsn: 2
        x-ms-request-charge: 2
        x-ms-session-token: 0:-1#2
        x-ms-substatus: 409

        {"code":"BadRequest","message":"Message: {\"Errors\":[\"Encountered exception while executing function. Exception = Error: {\\\"Errors\\\":[\\\"Entity with the specified id already exists in the system.\\\"]}\\r\\nStack trace: Error: {\\\"Errors\\\":[\\\"Entity with the specified id already exists in the system.\\\"]}\"]}\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]],
    );
    client.must(200, "GET", "/dbs/d/colls/c/docs/two", &[KEY], "");
}

#[test]
fn procedures_that_cannot_run() {
    let client = Client::with_container(1);
    store(&client, "sprocs", "s", "function () {}");
    store(&client, "sprocs", "broken", "function () {\n  this is a sentence\n}");
    store(&client, "sprocs", "throws", "function f() { throw new Error('no'); }");
    store(&client, "sprocs", "number", "function f() { throw new Error(4444, 'no'); }");
    store(&client, "sprocs", "text", "function f() { throw 'no'; }");
    store(
        &client,
        "sprocs",
        "abort",
        "async function f() { await null; getContext().abort(new Error(7, 'no')); }",
    );
    store(&client, "sprocs", "body", "function f() { __.response.setBody('x'.repeat(5 << 20)); }");
    store(
        &client,
        "sprocs",
        "memory",
        "function f() { let a = []; for (;;) a.push('x'.repeat(1 << 20) + a.length); }",
    );
    store(
        &client,
        "sprocs",
        "elsewhere",
        "function f() { __.createDocument(__.getSelfLink(), { id: 'i', pk: 'other' }); }",
    );
    let large = format!("[\"{}\"]", "x".repeat(2 << 20));
    let mut out = String::new();
    for (id, headers, parameters) in [
        ("missing", vec![KEY], "[]"),
        ("s", vec![], "[]"),
        ("s", vec![("x-ms-documentdb-partitionkey", "[]")], "[]"),
        ("s", vec![("x-ms-documentdb-partitionkey", "[1, 2]")], "[]"),
        ("s", vec![KEY, (PRE, "t")], "[]"),
        ("s", vec![KEY, (POST, "t")], "[]"),
        ("s", vec![KEY], &large),
        ("broken", vec![KEY], "[]"),
        ("throws", vec![KEY], "[]"),
        ("number", vec![KEY], "[]"),
        ("text", vec![KEY], "[]"),
        ("abort", vec![KEY], "[]"),
        ("body", vec![KEY], "[]"),
        ("memory", vec![KEY], "[]"),
        ("elsewhere", vec![KEY], "[]"),
    ] {
        let shown = headers.iter().map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>();
        out.push_str(&format!(
            "{id} {shown:?}\n    {}\n",
            status_and_message(&run(&client, id, &headers, parameters))
        ));
    }
    expect![[r#"
        missing ["x-ms-documentdb-partitionkey: [\"p\"]"]
            404 {"code":"NotFound","message":"Resource Not Found. Entity with the specified id does not exist in the system.
        s []
            400 {"code":"BadRequest","message":"PartitionKey value must be supplied for this operation.
        s ["x-ms-documentdb-partitionkey: []"]
            400/1001 {"code":"BadRequest","message":"PartitionKey has fewer components than defined the collection resource.
        s ["x-ms-documentdb-partitionkey: [1, 2]"]
            400/1001 {"code":"BadRequest","message":"PartitionKey has more components than defined the collection resource.
        s ["x-ms-documentdb-partitionkey: [\"p\"]", "x-ms-documentdb-pre-trigger-include: t"]
            400 {"code":"BadRequest","message":"One of the specified inputs is invalid: triggers run with writes of single items only.
        s ["x-ms-documentdb-partitionkey: [\"p\"]", "x-ms-documentdb-post-trigger-include: t"]
            400 {"code":"BadRequest","message":"One of the specified inputs is invalid: triggers run with writes of single items only.
        s ["x-ms-documentdb-partitionkey: [\"p\"]"]
            413 {"code":"RequestEntityTooLarge","message":"Message: {\"Errors\":[\"Request size is too large\"]}
        broken ["x-ms-documentdb-partitionkey: [\"p\"]"]
            400/65535 {"code":"BadRequest","message":"Message: {\"Errors\":[\"Encountered exception while compiling Javascript. Exception = SyntaxError: expecting ';' (script.js:2:8)\"]}
        throws ["x-ms-documentdb-partitionkey: [\"p\"]"]
            400 {"code":"BadRequest","message":"Message: {\"Errors\":[\"Encountered exception while executing function. Exception = Error: no\\r\\nStack trace: Error: no\\n   at f (script.js:1:26)\"]}
        number ["x-ms-documentdb-partitionkey: [\"p\"]"]
            400/4444 {"code":"BadRequest","message":"Message: {\"Errors\":[\"Encountered exception while executing function. Exception = Error: no\\r\\nStack trace: Error: no\\n   at f (script.js:1:26)\"]}
        text ["x-ms-documentdb-partitionkey: [\"p\"]"]
            400 {"code":"BadRequest","message":"Message: {\"Errors\":[\"Encountered exception while executing function. Exception = no\\r\\nStack trace: no\"]}
        abort ["x-ms-documentdb-partitionkey: [\"p\"]"]
            400/7 {"code":"BadRequest","message":"Message: {\"Errors\":[\"Encountered exception while executing function. Exception = Error: no\\r\\nStack trace: Error: no\\n   at f (script.js:1:57)\"]}
        body ["x-ms-documentdb-partitionkey: [\"p\"]"]
            400/413 {"code":"BadRequest","message":"Message: {\"Errors\":[\"Encountered exception while executing function. Exception = Error: Resulting message would be too large because of \\\"Body\\\". The maximum is 4194304 characters.\\r\\nStack trace: Error: Resulting message would be too large because of \\\"Body\\\". The maximum is 4194304 characters.\\n   at f (script.js:1:51)\"]}
        memory ["x-ms-documentdb-partitionkey: [\"p\"]"]
            400 {"code":"BadRequest","message":"Message: {\"Errors\":[\"the script exceeded its memory limit of 67108864 bytes\"]}
        elsewhere ["x-ms-documentdb-partitionkey: [\"p\"]"]
            400/400 {"code":"BadRequest","message":"Message: {\"Errors\":[\"Encountered exception while executing function. Exception = Error: {\\\"Errors\\\":[\\\"Requests originating from scripts cannot reference partition keys other than the one for which client request was submitted.\\\"]}\\r\\nStack trace: Error: {\\\"Errors\\\":[\\\"Requests originating from scripts cannot reference partition keys other than the one for which client request was submitted.\\\"]}\"]}
    "#]].assert_eq(&out);
}

#[test]
fn a_procedure_that_takes_too_long() {
    let client = Client::with_container(1);
    store(
        &client,
        "sprocs",
        "s",
        "function () { __.createDocument(__.getSelfLink(), { id: 'i', pk: 'p' }, () => { for (;;); }); }",
    );
    expect![[r#"408 {"code":"RequestTimeout","message":"Message: {\"Errors\":[\"The requested operation exceeded maximum alloted time.\"]}"#]].assert_eq(&status_and_message(&run(&client, "s", &[KEY], "[]")));
    client.must(404, "GET", "/dbs/d/colls/c/docs/i", &[KEY], "");
}

/// The limit is five seconds, for functions as for procedures.
#[test]
fn runs_of_some_seconds_are_within_the_limit() {
    let client = Client::with_container(1);
    client.must(201, "POST", ITEMS, &[KEY], r#"{"id":"i","pk":"p"}"#);
    let waits = "function () { const end = Date.now() + 2500; while (Date.now() < end); return 7; }";
    store(&client, "udfs", "waits", waits);
    store(&client, "sprocs", "waits", waits);
    std::thread::scope(|scope| {
        let procedure = scope.spawn(|| run(&client, "waits", &[KEY], "[]"));
        let headers = [KEY, ("x-ms-documentdb-isquery", "True")];
        let rows = client.send("POST", ITEMS, &headers, r#"{"query":"SELECT VALUE udf.waits() FROM c"}"#);
        assert!(rows.status == 200 && rows.body.contains("[7]"), "{}", rows.body);
        let procedure = procedure.join().expect("no panic");
        assert_eq!(procedure.status, 200, "{}", procedure.body);
    });
}

#[test]
fn parameters_as_they_are_sent() {
    let client = Client::with_container(1);
    store(
        &client,
        "sprocs",
        "s",
        "function () { __.response.setBody([].slice.call(arguments).map(a => a === undefined ? 'none' : a)); }",
    );
    let mut out = String::new();
    for parameters in [
        r#"["one", 2, {"three": 3}]"#,
        "[]",
        "",
        "null",
        "{}",
        r#"{"param1":4}"#,
        r#"{"0":"a","2":"c","length":3}"#,
        r#"{"0":"a","length":"1.9"}"#,
        r#"{"length":600000}"#,
        r#"{"length":1e9}"#,
        r#""text""#,
        r#""""#,
        "0",
        "-1.25",
        "false",
        "undefined",
        "[1",
    ] {
        out.push_str(&format!(
            "{parameters}\n    {}\n",
            status_and_message(&run(&client, "s", &[KEY], parameters))
        ));
    }
    expect![[r#"
        ["one", 2, {"three": 3}]
            200 ["one",2,{"three":3}]
        []
            200 []

            200 []
        null
            200 []
        {}
            200 []
        {"param1":4}
            200 []
        {"0":"a","2":"c","length":3}
            200 ["a","none","c"]
        {"0":"a","length":"1.9"}
            200 ["a"]
        {"length":600000}
            400 {"code":"BadRequest","message":"Message: {\"Errors\":[\"the parameters of a stored procedure must be a JSON array of at most 65000 elements\"]}
        {"length":1e9}
            400 {"code":"BadRequest","message":"Message: {\"Errors\":[\"the parameters of a stored procedure must be a JSON array of at most 65000 elements\"]}
        "text"
            400 {"code":"BadRequest","message":"Message: {\"Errors\":[\"the parameters of a stored procedure must be a JSON array of at most 65000 elements\"]}
        ""
            400 {"code":"BadRequest","message":"Message: {\"Errors\":[\"the parameters of a stored procedure must be a JSON array of at most 65000 elements\"]}
        0
            400 {"code":"BadRequest","message":"Message: {\"Errors\":[\"the parameters of a stored procedure must be a JSON array of at most 65000 elements\"]}
        -1.25
            400 {"code":"BadRequest","message":"Message: {\"Errors\":[\"the parameters of a stored procedure must be a JSON array of at most 65000 elements\"]}
        false
            400 {"code":"BadRequest","message":"Message: {\"Errors\":[\"the parameters of a stored procedure must be a JSON array of at most 65000 elements\"]}
        undefined
            400 {"code":"BadRequest","message":"Message: {\"Errors\":[\"the parameters of a stored procedure must be a JSON array of at most 65000 elements\"]}
        [1
            400 {"code":"BadRequest","message":"Message: {\"Errors\":[\"the parameters of a stored procedure must be a JSON array of at most 65000 elements\"]}
    "#]].assert_eq(&out);
}

#[test]
fn bodies_that_are_no_text() {
    let client = Client::with_container(1);
    let path = "/dbs/d/colls/c/sprocs/__.sys.echo";
    for body in [&b"[\"\xff\"]"[..], b"\xff", b"\x80\xff", b"[\"\\ud800\"]"] {
        let answer = client.send_as(&sign("POST", path), "POST", path, &[KEY], body);
        let expected = if body.starts_with(b"[\"\\u") { 200 } else { 400 };
        assert_eq!(answer.status, expected, "{body:?}: {}", answer.body);
    }
}

#[test]
fn the_procedure_that_every_container_has() {
    let client = Client::with_container(1);
    let answer = run(&client, "__.sys.echo", &[KEY], r#"[{"a":[1]}]"#);
    assert_eq!((answer.status, answer.body.as_str()), (200, r#"{"a":[1]}"#));
    client.must(404, "GET", "/dbs/d/colls/c/sprocs/__.sys.echo", &[], "");
    client.must(404, "DELETE", "/dbs/d/colls/c/sprocs/__.sys.echo", &[], "");
}

#[test]
fn procedures_of_the_server_by_range() {
    let client = Client::with_container(3);
    let by_range = |id: &'static str| [("x-ms-documentdb-partitionkeyrangeid", id)];
    for range in ["0", "1", "2"] {
        let answer = run(&client, "__.sys.echo", &by_range(range), r#"[{"a":[1]}]"#);
        assert_eq!((answer.status, answer.body.as_str()), (200, r#"{"a":[1]}"#));
        assert_eq!(answer.header("x-ms-documentdb-partitionkeyrangeid"), Some(range));
    }
    assert_eq!(run(&client, "__.sys.echo", &by_range("77"), "[1]").status, 410);
    assert_eq!(run(&client, "__.sys.echo", &[], "[1]").status, 400);
    // Procedures of clients run in a logical partition.
    client.must(201, "POST", "/dbs/d/colls/c/sprocs", &[], r#"{"id":"s","body":"() => 1"}"#);
    assert_eq!(run(&client, "s", &by_range("0"), "[]").status, 400);
}

#[test]
fn a_bulk_insert_fills_a_range() {
    let client = Client::with_container(1);
    let insert = |body: &str| {
        run(&client, "__.sys.commonBulkInsert", &[("x-ms-documentdb-partitionkeyrangeid", "0")], body)
    };
    let items = |numbers: std::ops::Range<u32>| {
        // Clients send the items as texts.
        let texts: Vec<String> =
            numbers.map(|number| format!(r#""{{\"id\":\"i{number}\",\"pk\":{}}}""#, number % 7)).collect();
        texts.join(",")
    };
    let answer = insert(&format!("[[{}], {{}}, null]", items(0..250)));
    assert_eq!((answer.status, answer.body.as_str()), (200, r#"{"count":250,"errorCode":0}"#));
    // All or nothing where the client did not ask for a soft stop.
    let answer = insert(&format!("[[{}]]", items(240..260)));
    assert_eq!(answer.status, 409, "{}", answer.body);
    let soft = r#"{"softStopOnConflict":true}"#;
    let answer = insert(&format!("[[{},{}], {soft}]", items(300..320), items(5..6)));
    assert_eq!((answer.status, answer.body.as_str()), (200, r#"{"count":20,"errorCode":409}"#));
    let answer = insert(&format!(r#"[[{}], {{"enableUpsert":true}}]"#, items(0..10)));
    assert_eq!((answer.status, answer.body.as_str()), (200, r#"{"count":10,"errorCode":0}"#));
    // Without an id one is generated, unless the client forbids it.
    assert_eq!(insert(r#"[[{"pk":1}]]"#).body, r#"{"count":1,"errorCode":0}"#);
    assert_eq!(insert(r#"[[{"pk":1}],{"disableAutomaticIdGeneration":true}]"#).status, 400);
    assert_eq!(insert("[7]").status, 400);
    assert_eq!(insert("{}").status, 400);
    // By a key, items of that key.
    let answer = run(&client, "__.sys.commonBulkInsert", &[KEY], r#"[[{"id":"k","pk":"p"}]]"#);
    assert_eq!((answer.status, answer.body.as_str()), (200, r#"{"count":1,"errorCode":0}"#));
    assert_eq!(run(&client, "__.sys.commonBulkInsert", &[KEY], r#"[[{"id":"k2","pk":"q"}]]"#).status, 400);
    let query = [
        ("x-ms-documentdb-isquery", "True"),
        ("content-type", "application/query+json"),
        ("x-ms-documentdb-partitionkeyrangeid", "0"),
    ];
    let count = client.must(
        200,
        "POST",
        "/dbs/d/colls/c/docs",
        &query,
        r#"{"query":"SELECT VALUE COUNT(1) FROM c"}"#,
    );
    assert!(count.body.contains("[272]"), "{}", count.body);
}

/// A client groups the items of a bulk insert by the range of their key.
#[test]
fn a_bulk_insert_fills_each_of_several_ranges() {
    let client = Client::with_container(3);
    let item = |number: u32| format!(r#"{{"id":"i{number}","pk":"k{number}"}}"#);
    let range_of = |number: u32| {
        let key = format!(r#"["k{number}"]"#);
        let headers = [("x-ms-documentdb-partitionkey", key.as_str())];
        let found = client.must(404, "GET", &format!("{ITEMS}/i{number}"), &headers, "");
        found.header("x-ms-documentdb-partitionkeyrangeid").expect("a range").to_owned()
    };
    let mut by_range = std::collections::BTreeMap::<String, Vec<String>>::new();
    for number in 0..30 {
        by_range.entry(range_of(number)).or_default().push(item(number));
    }
    assert_eq!(by_range.keys().collect::<Vec<_>>(), ["0", "1", "2"]);
    let insert = |range: &str, items: &[String]| {
        let headers = [("x-ms-documentdb-partitionkeyrangeid", range)];
        run(&client, "__.sys.commonBulkInsert", &headers, &format!("[[{}]]", items.join(",")))
    };
    // An item of another range: nothing is written.
    let mixed = [by_range["0"][0].clone(), by_range["1"][0].clone()];
    let refused = insert("0", &mixed);
    assert_eq!(refused.status, 400, "{}", refused.body);
    assert!(refused.body.contains("another partition key range than '0'"), "{}", refused.body);
    for (range, items) in &by_range {
        let answer = insert(range, items);
        let expected = format!(r#"{{"count":{},"errorCode":0}}"#, items.len());
        assert_eq!((answer.status, answer.body.as_str()), (200, expected.as_str()));
    }
}

#[test]
fn a_procedure_named_by_its_rid() {
    let client = Client::with_container(1);
    let created = client.must(
        201,
        "POST",
        "/dbs/d/colls/c/sprocs",
        &[],
        r#"{"id":"ü s","body":"() => __.response.setBody(1)"}"#,
    );
    let link =
        created.body.split("\"_self\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a link");
    let rid = link.trim_end_matches('/').rsplit('/').next().expect("a rid").to_lowercase();
    let token = sign_link("POST", "sprocs", &rid);
    let answer = client.send_as(&token, "POST", &format!("/{link}"), &[KEY], b"[]");
    assert_eq!((answer.status, answer.body.as_str()), (200, "1"));
    assert_eq!(answer.header("x-ms-alt-content-path"), Some("dbs/d/colls/c/sprocs/%C3%BC%20s"));
}

#[test]
fn scripts_read_headers_but_not_the_signature() {
    let client = Client::with_container(1);
    store(
        &client,
        "sprocs",
        "s",
        "function () { const read = name => { try { return __.request.getValue(name) } catch (e) { return e.name } }; \
         __.response.setBody(['x-ms-version', 'x-ms-documentdb-partitionkey', 'authorization'].map(read)); }",
    );
    let answer = run(&client, "s", &[KEY], "[]");
    assert_eq!(answer.body, r#"["2020-07-15","[\"p\"]","TypeError"]"#);
}

#[test]
fn triggers_run_with_writes() {
    let client = Client::with_container(1);
    trigger(
        &client,
        "mark",
        "pre",
        "all",
        "function () { const r = __.request, b = r.getBody(); if (b) { b.mark = r.getOperationType(); r.setBody(b); } }",
    );
    trigger(
        &client,
        "copy",
        "Post",
        "All",
        "function () { const r = __.response, b = r.getBody(); if (b) { b.copied = __.request.getBody().mark; r.setBody(b); } }",
    );
    let both = [KEY, (PRE, "mark"), (POST, " copy ,")];
    let item = r#"{"id":"i","pk":"p"}"#;
    let one = "/dbs/d/colls/c/docs/i";
    let written = |answer: Answer| {
        let body = answer.body;
        (answer.status, body.contains("\"mark\":\"Create\""), body.contains("\"copied\":\"Create\""))
    };
    assert_eq!(written(client.send("POST", ITEMS, &both, item)), (201, true, true));
    let stored = client.must(200, "GET", one, &[KEY], "").body;
    assert!(stored.contains("\"mark\":\"Create\"") && !stored.contains("copied"), "{stored}");
    let replaced = client.must(200, "PUT", one, &both, item).body;
    assert!(replaced.contains("\"copied\":\"Replace\""), "{replaced}");
    let upsert = [KEY, (PRE, "mark"), (POST, "copy"), ("x-ms-documentdb-is-upsert", "True")];
    let upserted = client.must(200, "POST", ITEMS, &upsert, item).body;
    assert!(upserted.contains("\"copied\":\"Upsert\""), "{upserted}");
    let patch = r#"{"operations":[{"op":"set","path":"/n","value":1}]}"#;
    let patched = client.must(200, "PATCH", one, &[KEY, (POST, "copy")], patch).body;
    assert!(patched.contains("\"n\":1"), "{patched}");
    // A client that wants no body gets none.
    let minimal = [KEY, (PRE, "mark"), (POST, "copy"), ("prefer", "return=minimal")];
    assert_eq!(client.must(200, "PUT", one, &minimal, item).body, "");
    // A list runs no trigger, and the header is no error.
    client.must(200, "GET", ITEMS, &both, "");
    client.must(200, "GET", one, &both, "");
    assert_eq!(client.must(204, "DELETE", one, &both, "").body, "");
}

#[test]
fn triggers_that_do_not_fit() {
    let client = Client::with_container(1);
    for (id, kind, operation) in [
        ("create", "Pre", "Create"),
        ("update", "Pre", "Update"),
        ("all", "Pre", "All"),
        ("post", "Post", "Delete"),
    ] {
        trigger(&client, id, kind, operation, "function () {}");
    }
    trigger(&client, "throws", "Post", "All", "function f() { throw new Error(4444, 'no'); }");
    trigger(
        &client,
        "moves",
        "Pre",
        "All",
        "function () { __.request.setBody({ id: 'j', pk: 'elsewhere' }); }",
    );
    trigger(&client, "spoils", "Pre", "All", "function () { __.request.setBody({ pk: 'p' }); }");
    let item = r#"{"id":"i","pk":"p"}"#;
    let upsert = ("x-ms-documentdb-is-upsert", "True");
    let mut out = String::new();
    for (headers, what) in [
        (vec![KEY, (PRE, "missing")], "an unknown one"),
        (vec![KEY, (PRE, "create, all")], "two"),
        (vec![KEY, (PRE, "post")], "a post-trigger before"),
        (vec![KEY, (POST, "create")], "a pre-trigger after"),
        (vec![KEY, (POST, "post")], "for deletes"),
        (vec![KEY, (PRE, "update")], "for updates"),
        (vec![KEY, (PRE, "create"), upsert], "for creates, on upsert"),
        (vec![KEY, (POST, "throws")], "one that throws"),
        (vec![KEY, (PRE, "moves")], "one that changes the partition key"),
        (vec![KEY, (PRE, "spoils")], "one that takes the id away"),
    ] {
        out.push_str(&format!(
            "{what}\n    {}\n",
            status_and_message(&client.send("POST", ITEMS, &headers, item))
        ));
    }
    expect![[r#"
        an unknown one
            400 {"code":"BadRequest","message":"Trigger 'missing' does not exist in the container.
        two
            400 {"code":"BadRequest","message":"At most one trigger of a kind can run with a request, 'x-ms-documentdb-pre-trigger-include' names more.
        a post-trigger before
            400 {"code":"BadRequest","message":"Trigger 'post' was defined with type 'Post', and therefore is invalid for 'Pre'.
        a pre-trigger after
            400 {"code":"BadRequest","message":"Trigger 'create' was defined with type 'Pre', and therefore is invalid for 'Post'.
        for deletes
            400 {"code":"BadRequest","message":"Trigger 'post' was defined with operation type 'Delete', and therefore is invalid for 'Create'.
        for updates
            400 {"code":"BadRequest","message":"Trigger 'update' was defined with operation type 'Update', and therefore is invalid for 'Create'.
        for creates, on upsert
            400 {"code":"BadRequest","message":"Trigger 'create' was defined with operation type 'Create', and therefore is invalid for 'Upsert'.
        one that throws
            400/4444 {"code":"BadRequest","message":"Message: {\"Errors\":[\"Encountered exception while executing function. Exception = Error: no\\r\\nStack trace: Error: no\\n   at f (script.js:1:26)\"]}
        one that changes the partition key
            400/1001 {"code":"BadRequest","message":"PartitionKey extracted from document doesn't match the one specified in the header.
        one that takes the id away
            400 {"code":"BadRequest","message":"The input content is invalid because the required properties - 'id; ' - are missing
    "#]].assert_eq(&out);
    let feed = client.must(200, "GET", ITEMS, &[], "").body;
    assert!(feed.ends_with("\"_count\":0}"), "{feed}");
}

#[test]
fn functions_in_queries() {
    let client = Client::with_container(1);
    client.must(201, "POST", ITEMS, &[KEY], r#"{"id":"i","pk":"p","n":3}"#);
    store(&client, "udfs", "double", "function (x) { return 2 * x; }");
    store(&client, "udfs", "throws", "function f() { throw new Error(32766, 'no'); }");
    store(&client, "udfs", "slow", "function f() { for (;;); }");
    let headers = [KEY, ("content-type", "application/query+json"), ("x-ms-documentdb-isquery", "True")];
    let mut out = String::new();
    for query in [
        "SELECT VALUE udf.double(c.n) FROM c WHERE udf.double(c.n) = 6",
        "SELECT VALUE udf.throws() FROM c",
        "SELECT VALUE udf.slow() FROM c",
        "SELECT VALUE udf.missing() FROM c",
    ] {
        let answer = client.send("POST", ITEMS, &headers, &format!(r#"{{"query":"{query}"}}"#));
        out.push_str(&format!("{query}\n    {}\n", status_and_message(&answer)));
    }
    expect![[r#"
        SELECT VALUE udf.double(c.n) FROM c WHERE udf.double(c.n) = 6
            200 {"_rid":"AAAAAYAAAAE=","Documents":[6],"_count":1}
        SELECT VALUE udf.throws() FROM c
            400/32766 {"code":"BadRequest","message":"Message: {\"Errors\":[\"Encountered exception while executing function. Exception = Error: no\\r\\nStack trace: Error: no\\n   at f (script.js:1:26)\"]}
        SELECT VALUE udf.slow() FROM c
            408 {"code":"RequestTimeout","message":"Message: {\"Errors\":[\"The requested operation exceeded maximum alloted time.\"]}
        SELECT VALUE udf.missing() FROM c
            400 {"code":"BadRequest","message":"Message: {\"errors\":[{\"severity\":\"Error\",\"location\":{\"start\":17,\"end\":24},\"code\":\"SC2006\",\"message\":\"'udf.missing' is not a user-defined function of the container.\"}]}
    "#]].assert_eq(&out);
}

#[test]
fn slow_scripts_do_not_delay_other_requests() {
    let client = Client::with_container_and(1, |config| {
        config.limits.reads_max = 1;
        config.limits.writes_max = 1;
        config.limits.scripts_max = 2;
    });
    store(&client, "sprocs", "slow", "function () { for (;;); }");
    store(&client, "udfs", "slow", "function () { for (;;); }");
    trigger(&client, "slow", "Pre", "All", "function () { for (;;); }");
    let item = r#"{"id":"i","pk":"p"}"#;
    let query = [KEY, ("content-type", "application/query+json"), ("x-ms-documentdb-isquery", "True")];
    std::thread::scope(|scope| {
        // More than may run at once: some of them wait.
        let slow = [
            scope.spawn(|| run(&client, "slow", &[KEY], "[]").status),
            scope.spawn(|| {
                client.send("POST", ITEMS, &query, r#"{"query":"SELECT VALUE udf.slow()"}"#).status
            }),
            scope.spawn(|| client.send("POST", ITEMS, &[KEY, (PRE, "slow")], item).status),
        ];
        let started = Instant::now();
        let mut calls = 0;
        while !slow.iter().all(|call| call.is_finished()) {
            let other = format!(r#"{{"id":"other {calls}","pk":"q"}}"#);
            client.must(201, "POST", ITEMS, &[], &other);
            client.must(200, "GET", ITEMS, &[("x-ms-max-item-count", "1")], "");
            calls += 1;
        }
        // One that waited for a script would wait for seconds.
        assert!(calls > 20, "{calls} in {:?}", started.elapsed());
        // Those of one container have half of the places, and one that waits for longer than the time of a script is refused.
        let ends: Vec<u16> = slow.into_iter().map(|call| call.join().expect("no panic")).collect();
        assert!(ends.contains(&408) && ends.iter().all(|end| matches!(end, 408 | 429)), "{ends:?}");
    });
}
