//! What is not supported is refused with a clear answer.

use expect_test::expect;

use crate::client::Client;

#[test]
fn attachments() {
    let client = Client::with_container(1);
    let pk = ("x-ms-documentdb-partitionkey", "[\"p\"]");
    client.must(201, "POST", "/dbs/d/colls/c/docs", &[pk], r#"{"id":"i","pk":"p"}"#);
    let answer = client.must(405, "GET", "/dbs/d/colls/c/docs/i/attachments", &[pk], "");
    assert!(answer.body.contains("The requested verb is not supported."), "{}", answer.body);
}

#[test]
fn direct_mode() {
    let client = Client::start(1);
    let token = crate::client::sign_link("GET", "docs", "dbs/d/colls/c");
    let path = "//addresses/?$resolveFor=dbs%2fd%2fcolls%2fc%2fdocs&$filter=protocol%20eq%20rntbd";
    let answer = client.send_as(&token, "GET", path, &[], b"");
    expect![[r#"
        400
        content-length: 212
        content-type: application/json
        x-ms-request-charge: 1

        {"code":"BadRequest","message":"Direct mode is not supported by this version of Quire: use ConnectionMode.Gateway (.NET) or gatewayMode() (Java).\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]].assert_eq(&answer.print());
}
