//! What belongs to a later version says so, by name.

use expect_test::expect;

use crate::client::Client;

#[test]
fn later_features() {
    let client = Client::with_container(1);
    let pk = ("x-ms-documentdb-partitionkey", "[\"p\"]");
    client.must(201, "POST", "/dbs/d/colls/c/docs", &[pk], r#"{"id":"i","pk":"p"}"#);
    let mut out = String::new();
    for (method, path, headers, body) in [("GET", "/dbs/d/colls/c/docs/i/attachments", vec![], "")] {
        let answer = client.send(method, path, &headers, body);
        let message = answer.body.split("\\r\\n").next().unwrap_or_default();
        out.push_str(&format!("{method} {path}\n    {} {message}\n", answer.status));
    }
    expect![[r#"
        GET /dbs/d/colls/c/docs/i/attachments
            405 {"code":"MethodNotAllowed","message":"The requested verb is not supported.
    "#]]
    .assert_eq(&out);
    // Nothing was written on the way.
    client.must(200, "GET", "/dbs/d/colls/c/docs/i", &[pk], "");
    client.must(404, "GET", "/dbs/d/colls/c/docs/j", &[pk], "");
}

#[test]
fn direct_mode() {
    let client = Client::start(1);
    let token = crate::client::sign_link("GET", "docs", "dbs/d/colls/c");
    let path = "//addresses/?$resolveFor=dbs%2fd%2fcolls%2fc%2fdocs&$filter=protocol%20eq%20rntbd";
    let answer = client.send_as(&token, "GET", path, &[], b"");
    expect![[r#"
        400
        content-length: 181
        content-type: application/json
        x-ms-request-charge: 1

        {"code":"BadRequest","message":"Direct mode is not supported by this version of Quire: use ConnectionMode.Gateway.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]].assert_eq(&answer.print());
}
