//! Users, permissions, client encryption keys and conflicts.

use expect_test::expect;

use crate::client::Client;

#[test]
fn create_read_replace_delete_a_user() {
    let client = Client::with_container(1);
    client.check("POST", "/dbs/d/users", &[], r#"{"id":"u"}"#, expect![[r#"
        201
        content-length: 173
        content-type: application/json
        etag: "ETAG"
        x-ms-alt-content-path: dbs/d
        x-ms-content-path: AAAAAQ==
        x-ms-request-charge: 5

        {"id":"u","_rid":"AAAAAQAAAAE=","_self":"dbs/AAAAAQ==/users/AAAAAQAAAAE=/","_etag":"\"ETAG\"","_ts":1794767524,"_permissions":"permissions/"}
    "#]]);
    client.check("POST", "/dbs/d/users", &[], r#"{"id":"u"}"#, expect![[r#"
        409
        content-length: 155
        content-type: application/json
        x-ms-request-charge: 1

        {"code":"Conflict","message":"Entity with the specified id already exists in the system.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    let upsert = [("x-ms-documentdb-is-upsert", "True")];
    client.check("POST", "/dbs/d/users", &upsert, r#"{"id":"u"}"#, expect![[r#"
        200
        content-length: 173
        content-type: application/json
        etag: "ETAG"
        x-ms-alt-content-path: dbs/d
        x-ms-content-path: AAAAAQ==
        x-ms-request-charge: 10

        {"id":"u","_rid":"AAAAAQAAAAE=","_self":"dbs/AAAAAQ==/users/AAAAAQAAAAE=/","_etag":"\"ETAG\"","_ts":1794767524,"_permissions":"permissions/"}
    "#]]);
    client.check("GET", "/dbs/d/users/u", &[], "", expect![[r#"
        200
        content-length: 173
        content-type: application/json
        etag: "ETAG"
        x-ms-alt-content-path: dbs/d
        x-ms-content-path: AAAAAQ==
        x-ms-request-charge: 1

        {"id":"u","_rid":"AAAAAQAAAAE=","_self":"dbs/AAAAAQ==/users/AAAAAQAAAAE=/","_etag":"\"ETAG\"","_ts":1794767524,"_permissions":"permissions/"}
    "#]]);
    client.check("PUT", "/dbs/d/users/u", &[], r#"{"id":"v"}"#, expect![[r#"
        200
        content-length: 173
        content-type: application/json
        etag: "ETAG"
        x-ms-alt-content-path: dbs/d
        x-ms-content-path: AAAAAQ==
        x-ms-request-charge: 10

        {"id":"v","_rid":"AAAAAQAAAAE=","_self":"dbs/AAAAAQ==/users/AAAAAQAAAAE=/","_etag":"\"ETAG\"","_ts":1794767524,"_permissions":"permissions/"}
    "#]]);
    client.check("GET", "/dbs/d/users", &[], "", expect![[r#"
        200
        content-length: 214
        content-type: application/json
        x-ms-alt-content-path: dbs/d
        x-ms-content-path: AAAAAQ==
        x-ms-item-count: 1
        x-ms-request-charge: 1

        {"_rid":"AAAAAQ==","Users":[{"id":"v","_rid":"AAAAAQAAAAE=","_self":"dbs/AAAAAQ==/users/AAAAAQAAAAE=/","_etag":"\"ETAG\"","_ts":1794767524,"_permissions":"permissions/"}],"_count":1}
    "#]]);
    let query = r#"{"query":"SELECT VALUE r.id FROM r"}"#;
    client.check(
        "POST",
        "/dbs/d/users",
        &[("x-ms-documentdb-isquery", "True")],
        query,
        expect![[r#"
        200
        content-length: 44
        content-type: application/json
        x-ms-alt-content-path: dbs/d
        x-ms-content-path: AAAAAQ==
        x-ms-item-count: 1
        x-ms-request-charge: 2.5

        {"_rid":"AAAAAQ==","Users":["v"],"_count":1}
    "#]],
    );
    client.check(
        "DELETE",
        "/dbs/d/users/v",
        &[],
        "",
        expect![[r#"
        204
        x-ms-alt-content-path: dbs/d
        x-ms-content-path: AAAAAQ==
        x-ms-request-charge: 5
    "#]],
    );
    client.check("GET", "/dbs/d/users/v", &[], "", expect![[r#"
        404
        content-length: 175
        content-type: application/json
        x-ms-request-charge: 1

        {"code":"NotFound","message":"Resource Not Found. Entity with the specified id does not exist in the system.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    client.check("GET", "/dbs/missing/users", &[], "", expect![[r#"
        404
        content-length: 146
        content-type: application/json
        x-ms-request-charge: 1
        x-ms-substatus: 1003

        {"code":"NotFound","message":"Resource Not Found. Owner resource does not exist\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
}

#[test]
fn permissions_carry_fresh_tokens() {
    let client = Client::with_container(1);
    client.must(201, "POST", "/dbs/d/users", &[], r#"{"id":"u"}"#);
    let permissions = "/dbs/d/users/u/permissions";
    let body = r#"{"id":"p","permissionMode":"Read","resource":"dbs/d/colls/c"}"#;
    let bad = [("x-ms-documentdb-expiry-seconds", "soon")];
    client.check("POST", permissions, &bad, body, expect![[r#"
        400
        content-length: 218
        content-type: application/json
        x-ms-request-charge: 1

        {"code":"BadRequest","message":"The value 'soon' specified for the header 'x-ms-documentdb-expiry-seconds' is invalid: it must lie between 1 and 86400.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    let created = client.must(201, "POST", permissions, &[("x-ms-documentdb-expiry-seconds", "600")], body);
    assert_eq!(created.header("x-ms-alt-content-path"), Some("dbs/d/users/u"));
    assert!(created.header("etag").is_some());
    let token = token_of(&created.body);
    let read = client.must(200, "GET", "/dbs/d/users/u/permissions/p", &[], "");
    let listed = client.must(200, "GET", permissions, &[], "");
    assert!(token_of(&listed.body).starts_with("type=resource&ver=1"), "{}", listed.body);
    let replaced = client.must(200, "PUT", "/dbs/d/users/u/permissions/p", &[], body);
    let query = r#"{"query":"SELECT * FROM r WHERE r.id = 'p'"}"#;
    let queried = client.must(200, "POST", permissions, &[("x-ms-documentdb-isquery", "True")], query);
    for body in [&read.body, &replaced.body, &queried.body] {
        assert!(token_of(body).starts_with("type=resource&ver=1"), "{body}");
    }

    // The token gives access by the permission as it is now.
    let container = "/dbs/d/colls/c";
    let fresh = token_of(&replaced.body);
    assert_eq!(client.send_as(&fresh, "GET", container, &[], b"").status, 200);
    assert_eq!(client.send_as(&fresh, "GET", "/dbs/d/users", &[], b"").status, 403);
    let pk = [("x-ms-documentdb-partitionkey", "[\"p\"]")];
    let docs = "/dbs/d/colls/c/docs";
    assert_eq!(client.send_as(&fresh, "POST", docs, &pk, br#"{"id":"i","pk":"p"}"#).status, 403);
    let everywhere = ("x-ms-documentdb-query-enablecrosspartition", "True");
    let query = [("x-ms-documentdb-isquery", "True"), everywhere];
    assert_eq!(client.send_as(&fresh, "POST", docs, &query, br#"{"query":"SELECT * FROM c"}"#).status, 200);
    client.must(204, "DELETE", "/dbs/d/users/u/permissions/p", &[], "");
    assert!(client.send_as(&fresh, "GET", container, &[], b"").status >= 401);
    assert!(client.send_as(&token, "GET", container, &[], b"").status >= 401);
    client.check("GET", "/dbs/d/users/missing/permissions", &[], "", expect![[r#"
        404
        content-length: 146
        content-type: application/json
        x-ms-request-charge: 1
        x-ms-substatus: 1003

        {"code":"NotFound","message":"Resource Not Found. Owner resource does not exist\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
}

fn token_of(body: &str) -> String {
    let token = body.split("\"_token\":\"").nth(1).and_then(|rest| rest.split('"').next());
    token.unwrap_or_else(|| panic!("no token in {body}")).to_owned()
}

#[test]
fn client_encryption_keys() {
    let client = Client::with_container(1);
    let key = r#"{"id":"k","encryptionAlgorithm":"AEAD_AES_256_CBC_HMAC_SHA256","wrappedDataEncryptionKey":"AAAA","keyWrapMetadata":{"type":"AKV","name":"n","value":"v","algorithm":"RSA-OAEP"}}"#;
    let created = client.check("POST", "/dbs/d/clientencryptionkeys", &[], key, expect![[r#"
        201
        content-length: 366
        content-type: application/json
        etag: "ETAG"
        x-ms-alt-content-path: dbs/d
        x-ms-content-path: AAAAAQ==
        x-ms-request-charge: 5

        {"id":"k","encryptionAlgorithm":"AEAD_AES_256_CBC_HMAC_SHA256","wrappedDataEncryptionKey":"AAAA","keyWrapMetadata":{"type":"AKV","name":"n","value":"v","algorithm":"RSA-OAEP"},"_cts":1794767524,"_rid":"AAAAAQAAAAAAAAABAgAAAA==","_self":"dbs/AAAAAQ==/clientencryptionkeys/AAAAAQAAAAAAAAABAgAAAA==/","_etag":"\"ETAG\"","_ts":1794767524}
    "#]]);
    let etag = created.header("etag").expect("an etag").to_owned();
    let known = [("if-none-match", etag.as_str())];
    client.check(
        "GET",
        "/dbs/d/clientencryptionkeys/k",
        &known,
        "",
        expect![[r#"
        304
        etag: "ETAG"
        x-ms-alt-content-path: dbs/d
        x-ms-content-path: AAAAAQ==
        x-ms-request-charge: 1
    "#]],
    );
    client.check("PUT", "/dbs/d/clientencryptionkeys/k", &[], &key.replace("AAAA", "BBBB"), expect![[r#"
        200
        content-length: 366
        content-type: application/json
        etag: "ETAG"
        x-ms-alt-content-path: dbs/d
        x-ms-content-path: AAAAAQ==
        x-ms-request-charge: 10

        {"id":"k","encryptionAlgorithm":"AEAD_AES_256_CBC_HMAC_SHA256","wrappedDataEncryptionKey":"BBBB","keyWrapMetadata":{"type":"AKV","name":"n","value":"v","algorithm":"RSA-OAEP"},"_cts":1794767524,"_rid":"AAAAAQAAAAAAAAABAgAAAA==","_self":"dbs/AAAAAQ==/clientencryptionkeys/AAAAAQAAAAAAAAABAgAAAA==/","_etag":"\"ETAG\"","_ts":1794767524}
    "#]]);
    client.check("GET", "/dbs/d/clientencryptionkeys", &[], "", expect![[r#"
        200
        content-length: 422
        content-type: application/json
        x-ms-alt-content-path: dbs/d
        x-ms-content-path: AAAAAQ==
        x-ms-item-count: 1
        x-ms-request-charge: 1

        {"_rid":"AAAAAQ==","ClientEncryptionKeys":[{"id":"k","encryptionAlgorithm":"AEAD_AES_256_CBC_HMAC_SHA256","wrappedDataEncryptionKey":"BBBB","keyWrapMetadata":{"type":"AKV","name":"n","value":"v","algorithm":"RSA-OAEP"},"_cts":1794767524,"_rid":"AAAAAQAAAAAAAAABAgAAAA==","_self":"dbs/AAAAAQ==/clientencryptionkeys/AAAAAQAAAAAAAAABAgAAAA==/","_etag":"\"ETAG\"","_ts":1794767524}],"_count":1}
    "#]]);
    client.check("DELETE", "/dbs/d/clientencryptionkeys/k", &[], "", expect![[r#"
        405
        allow: GET, HEAD, PUT
        content-length: 141
        content-type: application/json
        x-ms-request-charge: 0

        {"code":"MethodNotAllowed","message":"The requested verb is not supported.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
}

#[test]
fn conflicts_are_always_empty() {
    let client = Client::with_container(1);
    client.check(
        "GET",
        "/dbs/d/colls/c/conflicts",
        &[],
        "",
        expect![[r#"
        200
        content-length: 49
        content-type: application/json
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-item-count: 0
        x-ms-request-charge: 1
        x-ms-session-token: 0:-1#0

        {"_rid":"AAAAAYAAAAE=","Conflicts":[],"_count":0}
    "#]],
    );
    client.check("GET", "/dbs/d/colls/c/conflicts/x", &[], "", expect![[r#"
        404
        content-length: 175
        content-type: application/json
        x-ms-request-charge: 1

        {"code":"NotFound","message":"Resource Not Found. Entity with the specified id does not exist in the system.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    client.check("DELETE", "/dbs/d/colls/c/conflicts/x", &[], "", expect![[r#"
        404
        content-length: 175
        content-type: application/json
        x-ms-request-charge: 1

        {"code":"NotFound","message":"Resource Not Found. Entity with the specified id does not exist in the system.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    let query = r#"{"query":"SELECT * FROM c"}"#;
    client.check(
        "POST",
        "/dbs/d/colls/c/conflicts",
        &[("x-ms-documentdb-isquery", "True")],
        query,
        expect![[r#"
            400
            content-length: 293
            content-type: application/json
            x-ms-request-charge: 1

            {"code":"BadRequest","message":"Cross partition query is required but disabled. Please set x-ms-documentdb-query-enablecrosspartition to true, specify x-ms-documentdb-partitionkey, or revise your query to avoid this exception.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
        "#]],
    );
}
