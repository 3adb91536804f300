//! PATCH over HTTP: whole answers, and every kind of refusal.

use expect_test::expect;

use crate::client::Client;

const ITEM: &str = "/dbs/d/colls/c/docs/i";
const PK: (&str, &str) = ("x-ms-documentdb-partitionkey", "[\"p\"]");

fn client() -> Client {
    let client = Client::with_container(1);
    client.must(201, "POST", "/dbs/d/colls/c/docs", &[PK], r#"{"id":"i","pk":"p","n":1}"#);
    client
}

#[test]
fn a_patched_item_is_returned() {
    let client = client();
    let patch = r#"{"operations":[{"op":"incr","path":"/n","value":2}]}"#;
    client.check(
        "PATCH",
        ITEM,
        &[PK, ("content-type", "application/json-patch+json")],
        patch,
        expect![[r#"
            200
            content-length: 230
            content-type: application/json
            etag: "ETAG"
            lsn: 2
            x-ms-alt-content-path: dbs/d/colls/c
            x-ms-content-path: AAAAAYAAAAE=
            x-ms-cosmos-internal-partition-id: 00000001-0000-0001-0000-000000000000
            x-ms-cosmos-item-llsn: 2
            x-ms-cosmos-llsn: 2
            x-ms-cosmos-quorum-acked-llsn: 2
            x-ms-documentdb-partitionkeyrangeid: 0
            x-ms-global-committed-lsn: 2
            x-ms-item-lsn: 2
            x-ms-quorum-acked-lsn: 2
            x-ms-request-charge: 12.1
            x-ms-resource-quota: documentSize=10240;documentsSize=10485760;documentsCount=-1;collectionSize=10485760;
            x-ms-resource-usage: documentSize=0;documentsSize=1;documentsCount=1;collectionSize=1;
            x-ms-session-token: 0:-1#2

            {"id":"i","pk":"p","n":3,"_rid":"AAAAAYAAAAEBAAAA8CVHBw==","_self":"dbs/AAAAAQ==/colls/AAAAAYAAAAE=/docs/AAAAAYAAAAEBAAAA8CVHBw==/","_etag":"\"ETAG\"","_attachments":"attachments/","_ts":1794767524}
        "#]],
    );
    let minimal = [PK, ("prefer", "return=minimal")];
    client.check("PATCH", ITEM, &minimal, r#"[{"op":"add","path":"/t","value":[null]}]"#, expect![[r#"
        200
        content-length: 0
        etag: "ETAG"
        lsn: 3
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-cosmos-internal-partition-id: 00000001-0000-0001-0000-000000000000
        x-ms-cosmos-item-llsn: 3
        x-ms-cosmos-llsn: 3
        x-ms-cosmos-quorum-acked-llsn: 3
        x-ms-documentdb-partitionkeyrangeid: 0
        x-ms-global-committed-lsn: 3
        x-ms-item-lsn: 3
        x-ms-quorum-acked-lsn: 3
        x-ms-request-charge: 12.8
        x-ms-resource-quota: documentSize=10240;documentsSize=10485760;documentsCount=-1;collectionSize=10485760;
        x-ms-resource-usage: documentSize=0;documentsSize=1;documentsCount=1;collectionSize=1;
        x-ms-session-token: 0:-1#3
    "#]]);
    let read = client.must(200, "GET", ITEM, &[PK], "");
    assert!(read.body.starts_with(r#"{"id":"i","pk":"p","n":3,"t":[null],"#), "{}", read.body);
}

#[test]
fn refusals() {
    let client = client();
    let mut out = String::new();
    let add = r#"[{"op":"add","path":"/x/y","value":1}]"#;
    for (path, headers, body) in [
        (ITEM, vec![PK], add),
        (ITEM, vec![PK], r#"{"operations":[{"op":"test","path":"/n","value":1}]}"#),
        (
            ITEM,
            vec![PK],
            r#"{"operations":[{"op":"set","path":"/n","value":1}],"condition":"FROM c WHERE c.n = 7"}"#,
        ),
        (ITEM, vec![PK], r#"{"operations":[{"op":"set","path":"/n","value":1}],"condition":"FROM c WHERE"}"#),
        (ITEM, vec![PK, ("if-match", "\"stale\"")], add),
        (ITEM, vec![PK, ("if-none-match", "*")], add),
        (ITEM, vec![], add),
        (ITEM, vec![PK], "{"),
        (ITEM, vec![PK], ""),
        ("/dbs/d/colls/c/docs/other", vec![PK], add),
        ("/dbs/d/colls/other/docs/i", vec![PK], add),
    ] {
        let answer = client.send("PATCH", path, &headers, body);
        let substatus = answer.header("x-ms-substatus").map(|code| format!("/{code}")).unwrap_or_default();
        let message = answer.body.split("\\r\\n").next().unwrap_or_default();
        out.push_str(&format!("{body}\n    {}{substatus} {message}\n", answer.status));
    }
    expect![[r#"
        [{"op":"add","path":"/x/y","value":1}]
            400 {"code":"BadRequest","message":"For Operation(1): Add Operation can only create a child object of an existing node(array or object) and cannot create path recursively, no path found beyond: 'x'. Learn more: https://aka.ms/cosmosdbpatchdocs
        {"operations":[{"op":"test","path":"/n","value":1}]}
            400 {"code":"BadRequest","message":"For Operation(1): The operation 'test' is not supported. Learn more: https://aka.ms/cosmosdbpatchdocs
        {"operations":[{"op":"set","path":"/n","value":1}],"condition":"FROM c WHERE c.n = 7"}
            412/1110 {"code":"PreconditionFailed","message":"One of the specified pre-condition is not met. Operation cannot be performed because one of the specified precondition is not met.
        {"operations":[{"op":"set","path":"/n","value":1}],"condition":"FROM c WHERE"}
            400 {"code":"BadRequest","message":"Message: {\"errors\":[{\"severity\":\"Error\",\"location\":{\"start\":12,\"end\":12},\"code\":\"SC1002\",\"message\":\"Syntax error, unexpected end-of-file.\"}]}
        [{"op":"add","path":"/x/y","value":1}]
            412 {"code":"PreconditionFailed","message":"One of the specified pre-condition is not met. Operation cannot be performed because one of the specified precondition is not met.
        [{"op":"add","path":"/x/y","value":1}]
            412 {"code":"PreconditionFailed","message":"One of the specified pre-condition is not met. Operation cannot be performed because one of the specified precondition is not met.
        [{"op":"add","path":"/x/y","value":1}]
            400 {"code":"BadRequest","message":"PartitionKey value must be supplied for this operation.
        {
            400 {"code":"BadRequest","message":"The request payload is invalid. Ensure to provide a valid request payload. (malformed JSON at byte 1: expected a property name in double quotes)

            400 {"code":"BadRequest","message":"The request payload is invalid. Ensure to provide a valid request payload. (malformed JSON at byte 0: the text ends where a value is expected)
        [{"op":"add","path":"/x/y","value":1}]
            404 {"code":"NotFound","message":"Resource Not Found. Entity with the specified id does not exist in the system.
        [{"op":"add","path":"/x/y","value":1}]
            404 {"code":"NotFound","message":"Resource Not Found. Entity with the specified id does not exist in the system.
    "#]].assert_eq(&out);
}
