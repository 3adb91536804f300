use expect_test::expect;

use crate::client::{Client, sign_link};

#[test]
fn create_read_delete_a_database() {
    let client = Client::start(1);
    let created = client.check("POST", "/dbs", &[], r#"{"id":"d"}"#, expect![[r#"
        201
        content-length: 156
        content-type: application/json
        etag: "ETAG"
        x-ms-request-charge: 5
        x-ms-resource-quota: databases=1000;
        x-ms-resource-usage: databases=1;

        {"id":"d","_rid":"AAAAAQ==","_self":"dbs/AAAAAQ==/","_etag":"\"ETAG\"","_ts":1794767524,"_colls":"colls/","_users":"users/"}
    "#]]);
    client.check("POST", "/dbs/", &[], r#"{"id":"d"}"#, expect![[r#"
        409
        content-length: 155
        content-type: application/json
        x-ms-request-charge: 1

        {"code":"Conflict","message":"Entity with the specified id already exists in the system.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    client.check("GET", "/dbs/d/", &[], "", expect![[r#"
        200
        content-length: 156
        content-type: application/json
        etag: "ETAG"
        x-ms-request-charge: 1

        {"id":"d","_rid":"AAAAAQ==","_self":"dbs/AAAAAQ==/","_etag":"\"ETAG\"","_ts":1794767524,"_colls":"colls/","_users":"users/"}
    "#]]);
    client.check(
        "HEAD",
        "/dbs/d",
        &[],
        "",
        expect![[r#"
            200
            content-length: 156
            content-type: application/json
            etag: "ETAG"
            x-ms-request-charge: 1
        "#]],
    );
    let etag = created.header("etag").expect("an etag").to_owned();
    client.check(
        "GET",
        "/dbs/d",
        &[("if-none-match", &etag)],
        "",
        expect![[r#"
        304
        etag: "ETAG"
        x-ms-request-charge: 1
    "#]],
    );
    client.check("GET", "/dbs", &[], "", expect![[r#"
        200
        content-length: 193
        content-type: application/json
        x-ms-item-count: 1
        x-ms-request-charge: 1

        {"_rid":"","Databases":[{"id":"d","_rid":"AAAAAQ==","_self":"dbs/AAAAAQ==/","_etag":"\"ETAG\"","_ts":1794767524,"_colls":"colls/","_users":"users/"}],"_count":1}
    "#]]);
    client.check("DELETE", "/dbs/d", &[("if-match", "\"stale\"")], "", expect![[r#"
        412
        content-length: 237
        content-type: application/json
        x-ms-request-charge: 1

        {"code":"PreconditionFailed","message":"One of the specified pre-condition is not met. Operation cannot be performed because one of the specified precondition is not met.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    client.check(
        "DELETE",
        "/dbs/d",
        &[],
        "",
        expect![[r#"
        204
        x-ms-request-charge: 5
    "#]],
    );
    client.check("GET", "/dbs/d", &[], "", expect![[r#"
        404
        content-length: 175
        content-type: application/json
        x-ms-request-charge: 1

        {"code":"NotFound","message":"Resource Not Found. Entity with the specified id does not exist in the system.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    client.check("GET", "/dbs/d/colls", &[], "", expect![[r#"
        404
        content-length: 146
        content-type: application/json
        x-ms-request-charge: 1
        x-ms-substatus: 1003

        {"code":"NotFound","message":"Resource Not Found. Owner resource does not exist\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
}

#[test]
fn bad_bodies() {
    let client = Client::start(1);
    client.check("POST", "/dbs", &[], "{", expect![[r#"
        400
        content-length: 243
        content-type: application/json
        x-ms-request-charge: 1

        {"code":"BadRequest","message":"The request payload is invalid. Ensure to provide a valid request payload. (malformed JSON at byte 1: expected a property name in double quotes)\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    client.check("POST", "/dbs", &[], "[]", expect![[r#"
        400
        content-length: 137
        content-type: application/json
        x-ms-request-charge: 1

        {"code":"BadRequest","message":"One of the specified inputs is invalid\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    client.check("POST", "/dbs", &[], r#"{"id":7}"#, expect![[r#"
        400
        content-length: 137
        content-type: application/json
        x-ms-request-charge: 1

        {"code":"BadRequest","message":"One of the specified inputs is invalid\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    client.check("POST", "/dbs", &[], r#"{"name":"d"}"#, expect![[r#"
        400
        content-length: 182
        content-type: application/json
        x-ms-request-charge: 1

        {"code":"BadRequest","message":"The input content is invalid because the required properties - 'id; ' - are missing\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    client.check("POST", "/dbs", &[], r#"{"id":"a/b"}"#, expect![[r#"
        400
        content-length: 208
        content-type: application/json
        x-ms-request-charge: 1

        {"code":"BadRequest","message":"The input name 'a/b' is invalid. It cannot contain the characters '/', '\\', '?' or '#', or end with a space.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    client.check("POST", "/dbs", &[], r#"{"id":"d","id":"d"}"#, expect![[r#"
        400
        content-length: 206
        content-type: application/json
        x-ms-request-charge: 1

        {"code":"BadRequest","message":"The request payload is invalid. Ensure to provide a valid request payload. (duplicate property name \"id\")\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    client.check(
        "GET",
        "/dbs",
        &[],
        "",
        expect![[r#"
        200
        content-length: 37
        content-type: application/json
        x-ms-item-count: 0
        x-ms-request-charge: 1

        {"_rid":"","Databases":[],"_count":0}
    "#]],
    );
}

#[test]
fn pages_and_queries() {
    let client = Client::start(1);
    for id in ["a", "b", "c"] {
        client.must(201, "POST", "/dbs", &[], &format!("{{\"id\":\"{id}\"}}"));
    }
    let page = client.check("GET", "/dbs", &[("x-ms-max-item-count", "2")], "", expect![[r#"
        200
        content-length: 350
        content-type: application/json
        x-ms-continuation: AAAAAg==
        x-ms-item-count: 2
        x-ms-request-charge: 1

        {"_rid":"","Databases":[{"id":"a","_rid":"AAAAAQ==","_self":"dbs/AAAAAQ==/","_etag":"\"ETAG\"","_ts":1794767524,"_colls":"colls/","_users":"users/"},{"id":"b","_rid":"AAAAAg==","_self":"dbs/AAAAAg==/","_etag":"\"ETAG\"","_ts":1794767524,"_colls":"colls/","_users":"users/"}],"_count":2}
    "#]]);
    let continuation = page.header("x-ms-continuation").expect("a next page").to_owned();
    // Neither deleting the last database of a page nor creating one disturbs the next page.
    client.must(204, "DELETE", "/dbs/b", &[], "");
    let next = [("x-ms-max-item-count", "2"), ("x-ms-continuation", continuation.as_str())];
    client.check("GET", "/dbs", &next, "", expect![[r#"
        200
        content-length: 193
        content-type: application/json
        x-ms-item-count: 1
        x-ms-request-charge: 1

        {"_rid":"","Databases":[{"id":"c","_rid":"AAAAAw==","_self":"dbs/AAAAAw==/","_etag":"\"ETAG\"","_ts":1794767524,"_colls":"colls/","_users":"users/"}],"_count":1}
    "#]]);
    client.check("GET", "/dbs", &[("x-ms-continuation", "nonsense")], "", expect![[r#"
        400
        content-length: 125
        content-type: application/json
        x-ms-request-charge: 1

        {"code":"BadRequest","message":"Invalid Continuation Token\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    client.check("GET", "/dbs", &[("x-ms-max-item-count", "abc")], "", expect![[r#"
        400
        content-length: 229
        content-type: application/json
        x-ms-request-charge: 1

        {"code":"BadRequest","message":"The input PageSize abc is invalid. Ensure to pass a valid page size which must be a positive integer or -1 for a dynamic page size\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    let all = client.must(200, "GET", "/dbs", &[("x-ms-max-item-count", "-1")], "");
    assert!(all.body.ends_with("\"_count\":2}"), "{}", all.body);

    let query =
        r#"{"query":"SELECT * FROM root r WHERE r.id=@id","parameters":[{"name":"@id","value":"c"}]}"#;
    client.check("POST", "/dbs", &[("x-ms-documentdb-isquery", "True")], query, expect![[r#"
        200
        content-length: 193
        content-type: application/json
        x-ms-item-count: 1
        x-ms-request-charge: 2.5

        {"_rid":"","Databases":[{"id":"c","_rid":"AAAAAw==","_self":"dbs/AAAAAw==/","_etag":"\"ETAG\"","_ts":1794767524,"_colls":"colls/","_users":"users/"}],"_count":1}
    "#]]);
    let bad = r#"{"query":"SELECT FROM c"}"#;
    client.check("POST", "/dbs", &[("content-type", "application/query+json; charset=utf-8")], bad, expect![[r#"
        400
        content-length: 265
        content-type: application/json
        x-ms-request-charge: 2.5

        {"code":"BadRequest","message":"Message: {\"errors\":[{\"severity\":\"Error\",\"location\":{\"start\":7,\"end\":11},\"code\":\"SC1001\",\"message\":\"Syntax error, incorrect syntax near 'FROM'.\"}]}\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
}

#[test]
fn by_rid() {
    let client = Client::start(1);
    let created = client.must(201, "POST", "/dbs", &[], r#"{"id":"d"}"#).body;
    let rid = created.split("\"_rid\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a rid");
    let token = sign_link("GET", "dbs", &rid.to_ascii_lowercase());
    let answer = client.send_as(&token, "GET", &format!("/dbs/{rid}/"), &[], b"");
    assert_eq!((answer.status, answer.body), (200, created));
}

#[test]
fn paths_and_verbs() {
    let client = Client::start(1);
    client.check("PUT", "/dbs/d", &[], r#"{"id":"e"}"#, expect![[r#"
        405
        allow: GET, HEAD, DELETE
        content-length: 141
        content-type: application/json
        x-ms-request-charge: 0

        {"code":"MethodNotAllowed","message":"The requested verb is not supported.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    client.check("GET", "/nowhere", &[], "", expect![[r#"
        400
        content-length: 122
        content-type: application/json
        x-ms-request-charge: 0

        {"code":"BadRequest","message":"Request url is invalid.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
}
