//! Stored procedures, triggers and user-defined functions as resources.

use expect_test::{Expect, expect};

use crate::client::{Client, sign_link};

const SPROCS: &str = "/dbs/d/colls/c/sprocs";
const TRIGGERS: &str = "/dbs/d/colls/c/triggers";
const UDFS: &str = "/dbs/d/colls/c/udfs";

#[test]
fn create_read_replace_delete_a_stored_procedure() {
    let client = Client::with_container(1);
    let body = r#"{"id":"s","body":"function () { /* é */ }  \n"}"#;
    client.check("POST", SPROCS, &[], body, expect![[r#"
        201
        content-length: 225
        content-type: application/json
        etag: "ETAG"
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-documentdb-partitionkeyrangeid: 0
        x-ms-request-charge: 5
        x-ms-resource-quota: documentSize=10240;documentsSize=10485760;documentsCount=-1;collectionSize=10485760;
        x-ms-resource-usage: documentSize=0;documentsSize=0;documentsCount=0;collectionSize=0;
        x-ms-session-token: 0:-1#0

        {"id":"s","body":"function () { /* é */ }  \n","_rid":"AAAAAYAAAAEBAAAAAAAAgA==","_self":"dbs/AAAAAQ==/colls/AAAAAYAAAAE=/sprocs/AAAAAYAAAAEBAAAAAAAAgA==/","_etag":"\"ETAG\"","_ts":1794767524}
    "#]]);
    client.check("POST", SPROCS, &[], body, expect![[r#"
        409
        content-length: 155
        content-type: application/json
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-documentdb-partitionkeyrangeid: 0
        x-ms-request-charge: 1
        x-ms-resource-quota: documentSize=10240;documentsSize=10485760;documentsCount=-1;collectionSize=10485760;
        x-ms-resource-usage: documentSize=0;documentsSize=0;documentsCount=0;collectionSize=0;
        x-ms-session-token: 0:-1#0

        {"code":"Conflict","message":"Entity with the specified id already exists in the system.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    client.check("GET", "/dbs/d/colls/c/sprocs/s", &[], "", expect![[r#"
        200
        content-length: 225
        content-type: application/json
        etag: "ETAG"
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-documentdb-partitionkeyrangeid: 0
        x-ms-request-charge: 1
        x-ms-session-token: 0:-1#0

        {"id":"s","body":"function () { /* é */ }  \n","_rid":"AAAAAYAAAAEBAAAAAAAAgA==","_self":"dbs/AAAAAQ==/colls/AAAAAYAAAAE=/sprocs/AAAAAYAAAAEBAAAAAAAAgA==/","_etag":"\"ETAG\"","_ts":1794767524}
    "#]]);
    client.check("PUT", "/dbs/d/colls/c/sprocs/s", &[], r#"{"id":"s","body":"not JavaScript"}"#, expect![[r#"
        200
        content-length: 211
        content-type: application/json
        etag: "ETAG"
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-documentdb-partitionkeyrangeid: 0
        x-ms-request-charge: 10
        x-ms-resource-quota: documentSize=10240;documentsSize=10485760;documentsCount=-1;collectionSize=10485760;
        x-ms-resource-usage: documentSize=0;documentsSize=0;documentsCount=0;collectionSize=0;
        x-ms-session-token: 0:-1#0

        {"id":"s","body":"not JavaScript","_rid":"AAAAAYAAAAEBAAAAAAAAgA==","_self":"dbs/AAAAAQ==/colls/AAAAAYAAAAE=/sprocs/AAAAAYAAAAEBAAAAAAAAgA==/","_etag":"\"ETAG\"","_ts":1794767524}
    "#]]);
    client.check("PUT", "/dbs/d/colls/c/sprocs/s", &[], r#"{"id":"t","body":"x"}"#, expect![[r#"
        400
        content-length: 164
        content-type: application/json
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-documentdb-partitionkeyrangeid: 0
        x-ms-request-charge: 1
        x-ms-resource-quota: documentSize=10240;documentsSize=10485760;documentsCount=-1;collectionSize=10485760;
        x-ms-resource-usage: documentSize=0;documentsSize=0;documentsCount=0;collectionSize=0;
        x-ms-session-token: 0:-1#0

        {"code":"BadRequest","message":"The id in the body 't' does not match the id of the resource 's'.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    client.check("GET", SPROCS, &[], "", expect![[r#"
        200
        content-length: 267
        content-type: application/json
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-documentdb-partitionkeyrangeid: 0
        x-ms-item-count: 1
        x-ms-request-charge: 1
        x-ms-session-token: 0:-1#0

        {"_rid":"AAAAAYAAAAE=","StoredProcedures":[{"id":"s","body":"not JavaScript","_rid":"AAAAAYAAAAEBAAAAAAAAgA==","_self":"dbs/AAAAAQ==/colls/AAAAAYAAAAE=/sprocs/AAAAAYAAAAEBAAAAAAAAgA==/","_etag":"\"ETAG\"","_ts":1794767524}],"_count":1}
    "#]]);
    client.check(
        "DELETE",
        "/dbs/d/colls/c/sprocs/s",
        &[],
        "",
        expect![[r#"
            204
            x-ms-alt-content-path: dbs/d/colls/c
            x-ms-content-path: AAAAAYAAAAE=
            x-ms-documentdb-partitionkeyrangeid: 0
            x-ms-request-charge: 5
            x-ms-resource-quota: documentSize=10240;documentsSize=10485760;documentsCount=-1;collectionSize=10485760;
            x-ms-resource-usage: documentSize=0;documentsSize=0;documentsCount=0;collectionSize=0;
            x-ms-session-token: 0:-1#0
        "#]],
    );
    client.check("DELETE", "/dbs/d/colls/c/sprocs/s", &[], "", expect![[r#"
        404
        content-length: 175
        content-type: application/json
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-documentdb-partitionkeyrangeid: 0
        x-ms-request-charge: 1
        x-ms-resource-quota: documentSize=10240;documentsSize=10485760;documentsCount=-1;collectionSize=10485760;
        x-ms-resource-usage: documentSize=0;documentsSize=0;documentsCount=0;collectionSize=0;
        x-ms-session-token: 0:-1#0

        {"code":"NotFound","message":"Resource Not Found. Entity with the specified id does not exist in the system.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    client.check("GET", "/dbs/d/colls/nothing/sprocs", &[], "", expect![[r#"
        404
        content-length: 146
        content-type: application/json
        x-ms-request-charge: 1
        x-ms-substatus: 1003

        {"code":"NotFound","message":"Resource Not Found. Owner resource does not exist\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
}

#[test]
fn create_read_replace_delete_triggers_and_functions() {
    let client = Client::with_container(5);
    let trigger =
        r#"{"id":"t","body":"serverScript() { var x = 10; }","triggerType":"pre","triggerOperation":"ALL"}"#;
    client.check("POST", TRIGGERS, &[], trigger, expect![[r#"
        201
        content-length: 274
        content-type: application/json
        etag: "ETAG"
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-documentdb-partitionkeyrangeid: 0
        x-ms-request-charge: 5
        x-ms-resource-quota: documentSize=10240;documentsSize=10485760;documentsCount=-1;collectionSize=10485760;
        x-ms-resource-usage: documentSize=0;documentsSize=0;documentsCount=0;collectionSize=0;
        x-ms-session-token: 0:-1#0

        {"id":"t","body":"serverScript() { var x = 10; }","triggerType":"pre","triggerOperation":"ALL","_rid":"AAAAAYAAAAEBAAAAAAAAcA==","_self":"dbs/AAAAAQ==/colls/AAAAAYAAAAE=/triggers/AAAAAYAAAAEBAAAAAAAAcA==/","_etag":"\"ETAG\"","_ts":1794767524}
    "#]]);
    client.check("POST", UDFS, &[], r#"{"id":"u","body":"function (x) { return x; }"}"#, expect![[r#"
        201
        content-length: 221
        content-type: application/json
        etag: "ETAG"
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-documentdb-partitionkeyrangeid: 0
        x-ms-request-charge: 5
        x-ms-resource-quota: documentSize=10240;documentsSize=10485760;documentsCount=-1;collectionSize=10485760;
        x-ms-resource-usage: documentSize=0;documentsSize=0;documentsCount=0;collectionSize=0;
        x-ms-session-token: 0:-1#0

        {"id":"u","body":"function (x) { return x; }","_rid":"AAAAAYAAAAECAAAAAAAAYA==","_self":"dbs/AAAAAQ==/colls/AAAAAYAAAAE=/udfs/AAAAAYAAAAECAAAAAAAAYA==/","_etag":"\"ETAG\"","_ts":1794767524}
    "#]]);
    for (path, id, body) in [(TRIGGERS, "t", trigger), (UDFS, "u", r#"{"id":"u","body":"other"}"#)] {
        client.must(409, "POST", path, &[], body);
        client.must(200, "POST", path, &[("x-ms-documentdb-is-upsert", "True")], body);
        let one = format!("{path}/{id}");
        client.must(200, "PUT", &one, &[], body);
        // Nothing but a stored procedure can be run.
        client.must(405, "POST", &one, &[], "[]");
        client.must(204, "DELETE", &one, &[], "");
        client.must(404, "GET", &one, &[], "");
        client.must(404, "PUT", &one, &[], body);
    }
}

#[test]
fn preconditions() {
    let client = Client::with_container(1);
    let created = client.must(201, "POST", UDFS, &[], r#"{"id":"u","body":"1"}"#);
    let etag = created.header("etag").expect("an etag").to_owned();
    let (current, stale) = ([("if-match", etag.as_str())], [("if-match", "\"stale\"")]);
    let one = "/dbs/d/colls/c/udfs/u";
    client.must(304, "GET", one, &[("if-none-match", etag.as_str())], "");
    client.must(412, "PUT", one, &stale, r#"{"id":"u","body":"2"}"#);
    client.must(412, "DELETE", one, &stale, "");
    client.must(200, "PUT", one, &current, r#"{"id":"u","body":"2"}"#);
    client.must(412, "DELETE", one, &current, "");
    client.must(204, "DELETE", one, &[("if-match", "*")], "");
}

#[test]
fn an_upsert_honours_if_match() {
    let client = Client::with_container(1);
    let trigger = r#","triggerType":"Pre","triggerOperation":"All""#;
    for (path, rest) in [(SPROCS, ""), (TRIGGERS, trigger), (UDFS, "")] {
        let body = format!(r#"{{"id":"s","body":"1"{rest}}}"#);
        let upsert = ("x-ms-documentdb-is-upsert", "True");
        let created = client.must(201, "POST", path, &[upsert, ("if-match", "\"none\"")], &body);
        let etag = created.header("etag").expect("an etag").to_owned();
        client.must(412, "POST", path, &[upsert, ("if-match", "\"stale\"")], &body);
        client.must(200, "POST", path, &[upsert, ("if-match", etag.as_str())], &body);
        client.must(412, "POST", path, &[upsert, ("if-match", etag.as_str())], &body);
        client.must(200, "POST", path, &[upsert, ("if-match", "*")], &body);
    }
}

/// Clients accept a token of one range in an answer, and refuse one of several.
#[test]
fn answers_about_scripts_name_one_range() {
    let client = Client::with_container(3);
    let one = format!("{SPROCS}/s");
    let body = r#"{"id":"s","body":"() => 1"}"#;
    let upsert = [("x-ms-documentdb-is-upsert", "True")];
    for (status, method, path, headers, body) in [
        (201, "POST", SPROCS, &[][..], body),
        (409, "POST", SPROCS, &[], body),
        (200, "POST", SPROCS, &upsert, body),
        (200, "PUT", &one, &[], body),
        (200, "GET", &one, &[], ""),
        (200, "GET", SPROCS, &[], ""),
        (204, "DELETE", &one, &[], ""),
    ] {
        let answer = client.must(status, method, path, headers, body);
        assert_eq!(answer.header("x-ms-session-token"), Some("0:-1#0"), "{method} {path}");
        assert_eq!(answer.header("x-ms-documentdb-partitionkeyrangeid"), Some("0"), "{method} {path}");
        let is_write = method != "GET";
        assert_eq!(answer.header("x-ms-resource-quota").is_some(), is_write, "{method} {path}");
        assert_eq!(answer.header("x-ms-resource-usage").is_some(), is_write, "{method} {path}");
    }
}

#[test]
fn invalid_scripts_are_refused() {
    let client = Client::with_container(1);
    let long_id = format!(r#"{{"id":"{}","body":""}}"#, "x".repeat(256));
    let mut out = String::new();
    for (path, body) in [
        (SPROCS, r#"{"id":"a"}"#),
        (SPROCS, r#"{"body":"function () {}"}"#),
        (SPROCS, r#"{"id":"a","body":7}"#),
        (SPROCS, r#"{"id":"a/b","body":""}"#),
        (SPROCS, r#"{"id":"__.sys.mine","body":""}"#),
        (SPROCS, "function () {}"),
        (SPROCS, long_id.as_str()),
        (TRIGGERS, r#"{"id":"a","body":"","triggerOperation":"All"}"#),
        (TRIGGERS, r#"{"id":"a","body":"","triggerType":"Pre"}"#),
        (TRIGGERS, r#"{"id":"a","triggerType":"Pre","triggerOperation":"All"}"#),
        (TRIGGERS, r#"{"id":"a","body":"","triggerType":"During","triggerOperation":"All"}"#),
        (TRIGGERS, r#"{"id":"a","body":"","triggerType":"Pre","triggerOperation":"Read"}"#),
        (UDFS, r#"{"id":"a"}"#),
    ] {
        let answer = client.send("POST", path, &[], body);
        let message = answer.body.split("\\r\\n").next().unwrap_or_default();
        let shown: String = body.chars().take(80).collect();
        out.push_str(&format!("{path} {shown}\n    {} {message}\n", answer.status));
    }
    expect![[r#"
        /dbs/d/colls/c/sprocs {"id":"a"}
            400 {"code":"BadRequest","message":"The input content is invalid because the required properties - 'body; ' - are missing
        /dbs/d/colls/c/sprocs {"body":"function () {}"}
            400 {"code":"BadRequest","message":"The input content is invalid because the required properties - 'id; ' - are missing
        /dbs/d/colls/c/sprocs {"id":"a","body":7}
            400 {"code":"BadRequest","message":"One of the specified inputs is invalid
        /dbs/d/colls/c/sprocs {"id":"a/b","body":""}
            400 {"code":"BadRequest","message":"The input name 'a/b' is invalid. It cannot contain the characters '/', '\\', '?' or '#', or end with a space.
        /dbs/d/colls/c/sprocs {"id":"__.sys.mine","body":""}
            400 {"code":"BadRequest","message":"Ids that begin with '__.sys.' are reserved.
        /dbs/d/colls/c/sprocs function () {}
            400 {"code":"BadRequest","message":"The request payload is invalid. Ensure to provide a valid request payload. (malformed JSON at byte 0: expected a value)
        /dbs/d/colls/c/sprocs {"id":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
            400 {"code":"BadRequest","message":"The input name 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' is invalid. Ensure to provide a unique non-empty string less than '255' characters.
        /dbs/d/colls/c/triggers {"id":"a","body":"","triggerOperation":"All"}
            400 {"code":"BadRequest","message":"The input content is invalid because the required properties - 'triggerType; ' - are missing
        /dbs/d/colls/c/triggers {"id":"a","body":"","triggerType":"Pre"}
            400 {"code":"BadRequest","message":"The input content is invalid because the required properties - 'triggerOperation; ' - are missing
        /dbs/d/colls/c/triggers {"id":"a","triggerType":"Pre","triggerOperation":"All"}
            400 {"code":"BadRequest","message":"The input content is invalid because the required properties - 'body; ' - are missing
        /dbs/d/colls/c/triggers {"id":"a","body":"","triggerType":"During","triggerOperation":"All"}
            400 {"code":"BadRequest","message":"The value 'During' of 'triggerType' is invalid: it must be one of Pre, Post.
        /dbs/d/colls/c/triggers {"id":"a","body":"","triggerType":"Pre","triggerOperation":"Read"}
            400 {"code":"BadRequest","message":"The value 'Read' of 'triggerOperation' is invalid: it must be one of All, Create, Replace, Update, Delete, Upsert.
        /dbs/d/colls/c/udfs {"id":"a"}
            400 {"code":"BadRequest","message":"The input content is invalid because the required properties - 'body; ' - are missing
    "#]].assert_eq(&out);
    let text = " ".repeat((2 << 20) + 1);
    client.must(413, "POST", SPROCS, &[], &format!(r#"{{"id":"large","body":"{text}"}}"#));
    client.must(201, "POST", SPROCS, &[], &format!(r#"{{"id":"large","body":"{}"}}"#, &text[1..]));
}

#[test]
fn feeds_and_queries() {
    let client = Client::with_container(1);
    for id in ["a", "b", "c"] {
        for (path, rest) in
            [(SPROCS, ""), (UDFS, ""), (TRIGGERS, r#","triggerType":"Post","triggerOperation":"Delete""#)]
        {
            let body = format!(r#"{{"id":"{id}","body":"function {id}() {{}}"{rest}}}"#);
            client.must(201, "POST", path, &[], &body);
        }
    }
    let query = [("content-type", "application/query+json"), ("x-ms-documentdb-isquery", "True")];
    let check = |path: &str, text: &str, expect: Expect| {
        client.check("POST", path, &query, text, expect);
    };
    check(
        SPROCS,
        r#"{"query":"SELECT VALUE r.body FROM root r WHERE r.id = @id","parameters":[{"name":"@id","value":"b"}]}"#,
        expect![[r#"
        200
        content-length: 73
        content-type: application/json
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-documentdb-partitionkeyrangeid: 0
        x-ms-item-count: 1
        x-ms-request-charge: 2.5
        x-ms-session-token: 0:-1#0

        {"_rid":"AAAAAYAAAAE=","StoredProcedures":["function b() {}"],"_count":1}
    "#]],
    );
    check(
        TRIGGERS,
        r#"{"query":"SELECT r.id, r.triggerType FROM r ORDER BY r.id DESC"}"#,
        expect![[r#"
        200
        content-length: 143
        content-type: application/json
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-documentdb-partitionkeyrangeid: 0
        x-ms-item-count: 3
        x-ms-request-charge: 2.5
        x-ms-session-token: 0:-1#0

        {"_rid":"AAAAAYAAAAE=","Triggers":[{"id":"c","triggerType":"Post"},{"id":"b","triggerType":"Post"},{"id":"a","triggerType":"Post"}],"_count":3}
    "#]],
    );
    check(
        UDFS,
        r#"{"query":"SELECT VALUE COUNT(1) FROM r"}"#,
        expect![[r#"
        200
        content-length: 61
        content-type: application/json
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-documentdb-partitionkeyrangeid: 0
        x-ms-item-count: 1
        x-ms-request-charge: 2.5
        x-ms-session-token: 0:-1#0

        {"_rid":"AAAAAYAAAAE=","UserDefinedFunctions":[3],"_count":1}
    "#]],
    );
    check(
        UDFS,
        r#"{"query":"SELECT"}"#,
        expect![[r#"
        400
        content-length: 258
        content-type: application/json
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-documentdb-partitionkeyrangeid: 0
        x-ms-request-charge: 2.5
        x-ms-session-token: 0:-1#0

        {"code":"BadRequest","message":"Message: {\"errors\":[{\"severity\":\"Error\",\"location\":{\"start\":6,\"end\":6},\"code\":\"SC1002\",\"message\":\"Syntax error, unexpected end-of-file.\"}]}\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]],
    );
    // In pages.
    let first = client.must(200, "GET", UDFS, &[("x-ms-max-item-count", "2")], "");
    let continuation = first.header("x-ms-continuation").expect("more").to_owned();
    let rest = [("x-ms-max-item-count", "2"), ("x-ms-continuation", continuation.as_str())];
    client.check("GET", UDFS, &rest, "", expect![[r#"
        200
        content-length: 270
        content-type: application/json
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-documentdb-partitionkeyrangeid: 0
        x-ms-item-count: 1
        x-ms-request-charge: 1
        x-ms-session-token: 0:-1#0

        {"_rid":"AAAAAYAAAAE=","UserDefinedFunctions":[{"id":"c","body":"function c() {}","_rid":"AAAAAYAAAAEIAAAAAAAAYA==","_self":"dbs/AAAAAQ==/colls/AAAAAYAAAAE=/udfs/AAAAAYAAAAEIAAAAAAAAYA==/","_etag":"\"ETAG\"","_ts":1794767524}],"_count":1}
    "#]]);
}

#[test]
fn a_page_of_large_scripts_ends_early() {
    let client = Client::with_container(1);
    let text = " ".repeat(1 << 20);
    for id in 0..10 {
        client.must(201, "POST", UDFS, &[], &format!(r#"{{"id":"{id}","body":"{text}"}}"#));
    }
    let mut counts = Vec::new();
    let mut continuation = String::new();
    loop {
        let headers = [("x-ms-max-item-count", "-1"), ("x-ms-continuation", continuation.as_str())];
        let page = client.must(200, "GET", UDFS, &headers, "");
        counts.push(page.header("x-ms-item-count").expect("a count").to_owned());
        match page.header("x-ms-continuation") {
            Some(next) => continuation = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(counts, ["4", "4", "2"]);
}

#[test]
fn links_made_of_rids() {
    let client = Client::with_container(1);
    let created = client.must(201, "POST", SPROCS, &[], r#"{"id":"s","body":"x"}"#);
    let link =
        created.body.split("\"_self\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a link");
    let rid = link.trim_end_matches('/').rsplit('/').next().expect("a rid").to_lowercase();
    let path = format!("/{link}");
    let send = |method: &str, body: &str| {
        client.send_as(&sign_link(method, "sprocs", &rid), method, &path, &[], body.as_bytes()).status
    };
    assert_eq!(send("GET", ""), 200);
    assert_eq!(send("PUT", r#"{"id":"s","body":"y"}"#), 200);
    assert_eq!(send("DELETE", ""), 204);
    assert_eq!(send("GET", ""), 404);
}
