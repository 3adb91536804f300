use expect_test::expect;

use crate::client::Client;

const DOCS: &str = "/dbs/d/colls/c/docs";
const PK: (&str, &str) = ("x-ms-documentdb-partitionkey", "[\"p\"]");

#[test]
fn create_read_replace_delete_an_item() {
    let client = Client::with_container(1);
    let created = client.check("POST", DOCS, &[PK], r#"{"id":"i","pk":"p","n":1}"#, expect![[r#"
        201
        content-length: 230
        content-type: application/json
        etag: "ETAG"
        lsn: 1
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-cosmos-internal-partition-id: 00000001-0000-0001-0000-000000000000
        x-ms-cosmos-item-llsn: 1
        x-ms-cosmos-llsn: 1
        x-ms-cosmos-quorum-acked-llsn: 1
        x-ms-documentdb-partitionkeyrangeid: 0
        x-ms-global-committed-lsn: 1
        x-ms-item-lsn: 1
        x-ms-quorum-acked-lsn: 1
        x-ms-request-charge: 6.05
        x-ms-resource-quota: documentSize=10240;documentsSize=10485760;documentsCount=-1;collectionSize=10485760;
        x-ms-resource-usage: documentSize=0;documentsSize=1;documentsCount=1;collectionSize=1;
        x-ms-session-token: 0:-1#1

        {"id":"i","pk":"p","n":1,"_rid":"AAAAAYAAAAEBAAAA8CVHBw==","_self":"dbs/AAAAAQ==/colls/AAAAAYAAAAE=/docs/AAAAAYAAAAEBAAAA8CVHBw==/","_etag":"\"ETAG\"","_attachments":"attachments/","_ts":1794767524}
    "#]]);
    let etag = created.header("etag").expect("an etag").to_owned();
    client.check("POST", DOCS, &[PK], r#"{"id":"i","pk":"p"}"#, expect![[r#"
        409
        content-length: 155
        content-type: application/json
        lsn: 1
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-cosmos-internal-partition-id: 00000001-0000-0001-0000-000000000000
        x-ms-cosmos-llsn: 1
        x-ms-cosmos-quorum-acked-llsn: 1
        x-ms-documentdb-partitionkeyrangeid: 0
        x-ms-global-committed-lsn: 1
        x-ms-quorum-acked-lsn: 1
        x-ms-request-charge: 1
        x-ms-session-token: 0:-1#1

        {"code":"Conflict","message":"Entity with the specified id already exists in the system.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    client.check("GET", "/dbs/d/colls/c/docs/i", &[PK], "", expect![[r#"
        200
        content-length: 230
        content-type: application/json
        etag: "ETAG"
        lsn: 1
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-cosmos-internal-partition-id: 00000001-0000-0001-0000-000000000000
        x-ms-cosmos-item-llsn: 1
        x-ms-cosmos-llsn: 1
        x-ms-cosmos-quorum-acked-llsn: 1
        x-ms-documentdb-partitionkeyrangeid: 0
        x-ms-global-committed-lsn: 1
        x-ms-item-count: 1
        x-ms-item-lsn: 1
        x-ms-quorum-acked-lsn: 1
        x-ms-request-charge: 1
        x-ms-resource-quota: documentSize=10240;documentsSize=10485760;documentsCount=-1;collectionSize=10485760;
        x-ms-resource-usage: documentSize=0;documentsSize=1;documentsCount=1;collectionSize=1;
        x-ms-session-token: 0:-1#1

        {"id":"i","pk":"p","n":1,"_rid":"AAAAAYAAAAEBAAAA8CVHBw==","_self":"dbs/AAAAAQ==/colls/AAAAAYAAAAE=/docs/AAAAAYAAAAEBAAAA8CVHBw==/","_etag":"\"ETAG\"","_attachments":"attachments/","_ts":1794767524}
    "#]]);
    // Again, from the cache.
    client.check("GET", "/dbs/d/colls/c/docs/i/", &[PK], "", expect![[r#"
        200
        content-length: 230
        content-type: application/json
        etag: "ETAG"
        lsn: 1
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-cosmos-internal-partition-id: 00000001-0000-0001-0000-000000000000
        x-ms-cosmos-item-llsn: 1
        x-ms-cosmos-llsn: 1
        x-ms-cosmos-quorum-acked-llsn: 1
        x-ms-documentdb-partitionkeyrangeid: 0
        x-ms-global-committed-lsn: 1
        x-ms-item-count: 1
        x-ms-item-lsn: 1
        x-ms-quorum-acked-lsn: 1
        x-ms-request-charge: 1
        x-ms-resource-quota: documentSize=10240;documentsSize=10485760;documentsCount=-1;collectionSize=10485760;
        x-ms-resource-usage: documentSize=0;documentsSize=1;documentsCount=1;collectionSize=1;
        x-ms-session-token: 0:-1#1

        {"id":"i","pk":"p","n":1,"_rid":"AAAAAYAAAAEBAAAA8CVHBw==","_self":"dbs/AAAAAQ==/colls/AAAAAYAAAAE=/docs/AAAAAYAAAAEBAAAA8CVHBw==/","_etag":"\"ETAG\"","_attachments":"attachments/","_ts":1794767524}
    "#]]);
    client.check(
        "GET",
        "/dbs/d/colls/c/docs/i",
        &[PK, ("if-none-match", &etag)],
        "",
        expect![[r#"
        304
        etag: "ETAG"
        lsn: 1
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-cosmos-internal-partition-id: 00000001-0000-0001-0000-000000000000
        x-ms-cosmos-item-llsn: 1
        x-ms-cosmos-llsn: 1
        x-ms-cosmos-quorum-acked-llsn: 1
        x-ms-documentdb-partitionkeyrangeid: 0
        x-ms-global-committed-lsn: 1
        x-ms-item-lsn: 1
        x-ms-quorum-acked-lsn: 1
        x-ms-request-charge: 1
        x-ms-session-token: 0:-1#1
    "#]],
    );
    client.check("GET", DOCS, &[], "", expect![[r#"
        200
        content-length: 279
        content-type: application/json
        lsn: 1
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-cosmos-internal-partition-id: 00000001-0000-0001-0000-000000000000
        x-ms-cosmos-llsn: 1
        x-ms-cosmos-quorum-acked-llsn: 1
        x-ms-documentdb-partitionkeyrangeid: 0
        x-ms-global-committed-lsn: 1
        x-ms-item-count: 1
        x-ms-quorum-acked-lsn: 1
        x-ms-request-charge: 2.67
        x-ms-session-token: 0:-1#1

        {"_rid":"AAAAAYAAAAE=","Documents":[{"id":"i","pk":"p","n":1,"_rid":"AAAAAYAAAAEBAAAA8CVHBw==","_self":"dbs/AAAAAQ==/colls/AAAAAYAAAAE=/docs/AAAAAYAAAAEBAAAA8CVHBw==/","_etag":"\"ETAG\"","_attachments":"attachments/","_ts":1794767524}],"_count":1}
    "#]]);
    let stale = [PK, ("if-match", "\"stale\"")];
    client.check("PUT", "/dbs/d/colls/c/docs/i", &stale, r#"{"id":"i","pk":"p"}"#, expect![[r#"
        412
        content-length: 237
        content-type: application/json
        lsn: 1
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-cosmos-internal-partition-id: 00000001-0000-0001-0000-000000000000
        x-ms-cosmos-llsn: 1
        x-ms-cosmos-quorum-acked-llsn: 1
        x-ms-documentdb-partitionkeyrangeid: 0
        x-ms-global-committed-lsn: 1
        x-ms-quorum-acked-lsn: 1
        x-ms-request-charge: 1
        x-ms-session-token: 0:-1#1

        {"code":"PreconditionFailed","message":"One of the specified pre-condition is not met. Operation cannot be performed because one of the specified precondition is not met.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    client.check("PUT", "/dbs/d/colls/c/docs/i", &[PK], r#"{"id":"i","pk":"p","n":2}"#, expect![[r#"
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

        {"id":"i","pk":"p","n":2,"_rid":"AAAAAYAAAAEBAAAA8CVHBw==","_self":"dbs/AAAAAQ==/colls/AAAAAYAAAAE=/docs/AAAAAYAAAAEBAAAA8CVHBw==/","_etag":"\"ETAG\"","_attachments":"attachments/","_ts":1794767524}
    "#]]);
    let upsert = [PK, ("x-ms-documentdb-is-upsert", "True")];
    client.check("POST", DOCS, &upsert, r#"{"id":"i","pk":"p","n":3}"#, expect![[r#"
        200
        content-length: 230
        content-type: application/json
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
        x-ms-request-charge: 12.1
        x-ms-resource-quota: documentSize=10240;documentsSize=10485760;documentsCount=-1;collectionSize=10485760;
        x-ms-resource-usage: documentSize=0;documentsSize=1;documentsCount=1;collectionSize=1;
        x-ms-session-token: 0:-1#3

        {"id":"i","pk":"p","n":3,"_rid":"AAAAAYAAAAEBAAAA8CVHBw==","_self":"dbs/AAAAAQ==/colls/AAAAAYAAAAE=/docs/AAAAAYAAAAEBAAAA8CVHBw==/","_etag":"\"ETAG\"","_attachments":"attachments/","_ts":1794767524}
    "#]]);
    client.check("POST", DOCS, &upsert, r#"{"id":"j","pk":"p","n":3}"#, expect![[r#"
        201
        content-length: 230
        content-type: application/json
        etag: "ETAG"
        lsn: 4
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-cosmos-internal-partition-id: 00000001-0000-0001-0000-000000000000
        x-ms-cosmos-item-llsn: 4
        x-ms-cosmos-llsn: 4
        x-ms-cosmos-quorum-acked-llsn: 4
        x-ms-documentdb-partitionkeyrangeid: 0
        x-ms-global-committed-lsn: 4
        x-ms-item-lsn: 4
        x-ms-quorum-acked-lsn: 4
        x-ms-request-charge: 6.05
        x-ms-resource-quota: documentSize=10240;documentsSize=10485760;documentsCount=-1;collectionSize=10485760;
        x-ms-resource-usage: documentSize=0;documentsSize=1;documentsCount=2;collectionSize=1;
        x-ms-session-token: 0:-1#4

        {"id":"j","pk":"p","n":3,"_rid":"AAAAAYAAAAECAAAA8CVHBw==","_self":"dbs/AAAAAQ==/colls/AAAAAYAAAAE=/docs/AAAAAYAAAAECAAAA8CVHBw==/","_etag":"\"ETAG\"","_attachments":"attachments/","_ts":1794767524}
    "#]]);
    let minimal = [PK, ("prefer", "return=minimal")];
    client.check("PUT", "/dbs/d/colls/c/docs/i", &minimal, r#"{"id":"i","pk":"p","n":4}"#, expect![[r#"
        200
        content-length: 0
        etag: "ETAG"
        lsn: 5
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-cosmos-internal-partition-id: 00000001-0000-0001-0000-000000000000
        x-ms-cosmos-item-llsn: 5
        x-ms-cosmos-llsn: 5
        x-ms-cosmos-quorum-acked-llsn: 5
        x-ms-documentdb-partitionkeyrangeid: 0
        x-ms-global-committed-lsn: 5
        x-ms-item-lsn: 5
        x-ms-quorum-acked-lsn: 5
        x-ms-request-charge: 12.1
        x-ms-resource-quota: documentSize=10240;documentsSize=10485760;documentsCount=-1;collectionSize=10485760;
        x-ms-resource-usage: documentSize=0;documentsSize=1;documentsCount=2;collectionSize=1;
        x-ms-session-token: 0:-1#5
    "#]]);
    client.check("DELETE", "/dbs/d/colls/c/docs/i", &[PK], "", expect![[r#"
        204
        lsn: 6
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-cosmos-internal-partition-id: 00000001-0000-0001-0000-000000000000
        x-ms-cosmos-item-llsn: 6
        x-ms-cosmos-llsn: 6
        x-ms-cosmos-quorum-acked-llsn: 6
        x-ms-documentdb-partitionkeyrangeid: 0
        x-ms-global-committed-lsn: 6
        x-ms-item-lsn: 6
        x-ms-quorum-acked-lsn: 6
        x-ms-request-charge: 6.05
        x-ms-resource-quota: documentSize=10240;documentsSize=10485760;documentsCount=-1;collectionSize=10485760;
        x-ms-resource-usage: documentSize=0;documentsSize=1;documentsCount=1;collectionSize=1;
        x-ms-session-token: 0:-1#6
    "#]]);
    client.check("GET", "/dbs/d/colls/c/docs/i", &[PK], "", expect![[r#"
        404
        content-length: 175
        content-type: application/json
        lsn: 6
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-cosmos-internal-partition-id: 00000001-0000-0001-0000-000000000000
        x-ms-cosmos-llsn: 6
        x-ms-cosmos-quorum-acked-llsn: 6
        x-ms-documentdb-partitionkeyrangeid: 0
        x-ms-global-committed-lsn: 6
        x-ms-quorum-acked-lsn: 6
        x-ms-request-charge: 1
        x-ms-session-token: 0:-1#6

        {"code":"NotFound","message":"Resource Not Found. Entity with the specified id does not exist in the system.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    client.check("DELETE", "/dbs/d/colls/c/docs/i", &[PK], "", expect![[r#"
        404
        content-length: 175
        content-type: application/json
        lsn: 6
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-cosmos-internal-partition-id: 00000001-0000-0001-0000-000000000000
        x-ms-cosmos-llsn: 6
        x-ms-cosmos-quorum-acked-llsn: 6
        x-ms-documentdb-partitionkeyrangeid: 0
        x-ms-global-committed-lsn: 6
        x-ms-quorum-acked-lsn: 6
        x-ms-request-charge: 1
        x-ms-session-token: 0:-1#6

        {"code":"NotFound","message":"Resource Not Found. Entity with the specified id does not exist in the system.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
}

#[test]
fn bad_requests() {
    let client = Client::with_container(1);
    client.check("POST", DOCS, &[PK], "{\"id\":", expect![[r#"
        400
        content-length: 241
        content-type: application/json
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-request-charge: 1

        {"code":"BadRequest","message":"The request payload is invalid. Ensure to provide a valid request payload. (malformed JSON at byte 6: the text ends where a value is expected)\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    client.check("POST", DOCS, &[PK], "[]", expect![[r#"
        400
        content-length: 173
        content-type: application/json
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-request-charge: 1

        {"code":"BadRequest","message":"The request payload is invalid. Ensure to provide a valid request payload.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    client.check("POST", DOCS, &[PK], r#"{"pk":"p"}"#, expect![[r#"
        400
        content-length: 182
        content-type: application/json
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-request-charge: 1

        {"code":"BadRequest","message":"The input content is invalid because the required properties - 'id; ' - are missing\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    client.check("POST", DOCS, &[PK], r#"{"id":"i","pk":"q"}"#, expect![[r#"
        400
        content-length: 182
        content-type: application/json
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-request-charge: 1
        x-ms-substatus: 1001

        {"code":"BadRequest","message":"PartitionKey extracted from document doesn't match the one specified in the header.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    client.check("POST", DOCS, &[PK], r#"{"id":"i","pk":"p","n":1e400}"#, expect![[r#"
        400
        content-length: 206
        content-type: application/json
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-request-charge: 1

        {"code":"BadRequest","message":"The request payload is invalid. Ensure to provide a valid request payload. (number out of range at byte 23)\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    let header = "x-ms-documentdb-partitionkey";
    client.check("POST", DOCS, &[(header, "p")], r#"{"id":"i","pk":"p"}"#, expect![[r#"
        400
        content-length: 126
        content-type: application/json
        x-ms-request-charge: 1

        {"code":"BadRequest","message":"Partition key p is invalid.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    client.check("POST", DOCS, &[(header, "[\"p\",\"q\"]")], r#"{"id":"i","pk":"p"}"#, expect![[r#"
        400
        content-length: 169
        content-type: application/json
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-request-charge: 1
        x-ms-substatus: 1001

        {"code":"BadRequest","message":"PartitionKey has more components than defined the collection resource.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    client.check("GET", "/dbs/d/colls/c/docs/i", &[], "", expect![[r#"
        400
        content-length: 154
        content-type: application/json
        x-ms-request-charge: 1

        {"code":"BadRequest","message":"PartitionKey value must be supplied for this operation.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    client.check("DELETE", "/dbs/d/colls/c/docs/i", &[], "", expect![[r#"
        400
        content-length: 154
        content-type: application/json
        x-ms-request-charge: 1

        {"code":"BadRequest","message":"PartitionKey value must be supplied for this operation.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    client.check("GET", "/dbs/d/colls/missing/docs/i", &[PK], "", expect![[r#"
        404
        content-length: 175
        content-type: application/json
        x-ms-request-charge: 1

        {"code":"NotFound","message":"Resource Not Found. Entity with the specified id does not exist in the system.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    client.check("GET", "/dbs/missing/colls/c/docs/i", &[PK], "", expect![[r#"
        404
        content-length: 175
        content-type: application/json
        x-ms-request-charge: 1

        {"code":"NotFound","message":"Resource Not Found. Entity with the specified id does not exist in the system.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    let directive = [PK, ("x-ms-indexing-directive", "Perhaps")];
    client.check("POST", DOCS, &directive, r#"{"id":"i","pk":"p"}"#, expect![[r#"
        400
        content-length: 181
        content-type: application/json
        x-ms-request-charge: 1

        {"code":"BadRequest","message":"The value 'Perhaps' specified for the header 'x-ms-indexing-directive' is invalid.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    let session = [PK, ("x-ms-session-token", "nonsense")];
    client.check("GET", "/dbs/d/colls/c/docs/i", &session, "", expect![[r#"
        400
        content-length: 148
        content-type: application/json
        x-ms-request-charge: 1

        {"code":"BadRequest","message":"The session token provided 'nonsense' is invalid.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    let large = format!(r#"{{"id":"i","pk":"p","text":"{}"}}"#, "x".repeat(2 << 20));
    client.check("POST", DOCS, &[PK], &large, expect![[r#"
        413
        content-length: 163
        content-type: application/json
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-request-charge: 1

        {"code":"RequestEntityTooLarge","message":"Message: {\"Errors\":[\"Request size is too large\"]}\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    let deep = format!(r#"{{"id":"i","pk":"p","deep":{}{}}}"#, "[".repeat(200), "]".repeat(200));
    client.check("POST", DOCS, &[PK], &deep, expect![[r#"
        400
        content-length: 207
        content-type: application/json
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-request-charge: 1

        {"code":"BadRequest","message":"The request payload is invalid. Ensure to provide a valid request payload. (more than 128 levels of nesting)\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    // Nothing of all this was written.
    let page = client.must(200, "GET", DOCS, &[], "");
    assert!(page.body.contains("\"Documents\":[]"), "{}", page.body);
}

#[test]
fn sessions() {
    let client = Client::with_container(1);
    let created = client.must(201, "POST", DOCS, &[PK], r#"{"id":"i","pk":"p"}"#);
    let token = created.header("x-ms-session-token").expect("a token").to_owned();
    client.must(200, "GET", "/dbs/d/colls/c/docs/i", &[PK, ("x-ms-session-token", &token)], "");
    let (range, lsn) = token.rsplit_once('#').expect("an lsn");
    let future = format!("{range}#{}", lsn.parse::<u64>().expect("a number") + 1000);
    client.check("GET", "/dbs/d/colls/c/docs/i", &[PK, ("x-ms-session-token", &future)], "", expect![[r#"
        404
        content-length: 159
        content-type: application/json
        lsn: 1
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-cosmos-internal-partition-id: 00000001-0000-0001-0000-000000000000
        x-ms-cosmos-llsn: 1
        x-ms-cosmos-quorum-acked-llsn: 1
        x-ms-documentdb-partitionkeyrangeid: 0
        x-ms-global-committed-lsn: 1
        x-ms-quorum-acked-lsn: 1
        x-ms-request-charge: 1
        x-ms-session-token: 0:-1#1
        x-ms-substatus: 1002

        {"code":"NotFound","message":"The read session is not available for the input session token.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
}

/// A busy machine may take longer to write than a read waits: one round of five is enough.
#[test]
fn a_read_waits_for_the_state_of_its_session() {
    let client = Client::with_container(1);
    client.must(201, "POST", DOCS, &[PK], r#"{"id":"i","pk":"p"}"#);
    let waited = (2..7).any(|lsn| {
        std::thread::scope(|scope| {
            let ahead = format!("0:-1#{lsn}");
            let client = &client;
            let read = move || {
                client.send("GET", "/dbs/d/colls/c/docs/i", &[PK, ("x-ms-session-token", &ahead)], "")
            };
            let reader = scope.spawn(read);
            std::thread::sleep(std::time::Duration::from_millis(30));
            client.must(201, "POST", DOCS, &[PK], &format!(r#"{{"id":"{lsn}","pk":"p"}}"#));
            reader.join().expect("no panic").status == 200
        })
    });
    assert!(waited);
}

#[test]
fn every_indexing_directive() {
    let client = Client::with_container(1);
    for (position, directive) in ["Default", "Include", "Exclude", "0", "1", "2"].iter().enumerate() {
        let headers = [PK, ("x-ms-indexing-directive", *directive)];
        client.must(201, "POST", DOCS, &headers, &format!(r#"{{"id":"{position}","pk":"p"}}"#));
    }
}

#[test]
fn unusual_ids() {
    let client = Client::with_container(1);
    for (id, path) in [
        ("a b%", "a%20b%25"),
        ("a/b", "a%2Fb"),
        ("a\\\\b", "a%5Cb"),
        ("x?y#z", "x%3Fy%23z"),
        ("ü日", "%C3%BC%E6%97%A5"),
        ("%20", "%2520"),
        ("a+b", "a+b"),
        ("tail ", "tail%20"),
    ] {
        client.must(201, "POST", DOCS, &[PK], &format!(r#"{{"id":"{id}","pk":"p"}}"#));
        let read = client.must(200, "GET", &format!("{DOCS}/{path}"), &[PK], "");
        assert!(read.body.starts_with(&format!(r#"{{"id":"{id}""#)), "{}", read.body);
        client.must(204, "DELETE", &format!("{DOCS}/{path}"), &[PK], "");
    }
}

#[test]
fn pages_of_a_partitioned_container() {
    let client = Client::with_container(3);
    for number in 0..5 {
        let pk = format!("[\"{number}\"]");
        let body = format!(r#"{{"id":"i","pk":"{number}"}}"#);
        client.must(201, "POST", DOCS, &[("x-ms-documentdb-partitionkey", &pk)], &body);
    }
    let page = client.check("GET", DOCS, &[("x-ms-max-item-count", "2")], "", expect![[r#"
        200
        content-length: 498
        content-type: application/json
        lsn: 2
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-continuation: SEALED
        x-ms-cosmos-internal-partition-id: 00000001-0000-0001-0000-000000000000
        x-ms-cosmos-llsn: 2
        x-ms-cosmos-quorum-acked-llsn: 2
        x-ms-documentdb-partitionkeyrangeid: 0
        x-ms-global-committed-lsn: 2
        x-ms-item-count: 2
        x-ms-quorum-acked-lsn: 2
        x-ms-request-charge: 7.83
        x-ms-session-token: 0:-1#2

        {"_rid":"AAAAAYAAAAE=","Documents":[{"id":"i","pk":"4","_rid":"AAAAAYAAAAEFAAAAYJXlAg==","_self":"dbs/AAAAAQ==/colls/AAAAAYAAAAE=/docs/AAAAAYAAAAEFAAAAYJXlAg==/","_etag":"\"ETAG\"","_attachments":"attachments/","_ts":1794767524},{"id":"i","pk":"2","_rid":"AAAAAYAAAAEDAAAAgFLjBA==","_self":"dbs/AAAAAQ==/colls/AAAAAYAAAAE=/docs/AAAAAYAAAAEDAAAAgFLjBA==/","_etag":"\"ETAG\"","_attachments":"attachments/","_ts":1794767524}],"_count":2}
    "#]]);
    let mut count = 2;
    let mut continuation = page.header("x-ms-continuation").map(str::to_owned);
    while let Some(token) = continuation {
        let headers = [("x-ms-max-item-count", "2"), ("x-ms-continuation", token.as_str())];
        let page = client.must(200, "GET", DOCS, &headers, "");
        count += page.header("x-ms-item-count").and_then(|count| count.parse().ok()).unwrap_or(0);
        continuation = page.header("x-ms-continuation").map(str::to_owned);
    }
    assert_eq!(count, 5);
    let one = [("x-ms-documentdb-partitionkeyrangeid", "1")];
    let page = client.must(200, "GET", DOCS, &one, "");
    assert_eq!(page.header("x-ms-documentdb-partitionkeyrangeid"), Some("1"));
    client.check("GET", DOCS, &[("x-ms-documentdb-partitionkeyrangeid", "77")], "", expect![[r#"
        410
        content-length: 153
        content-type: application/json
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-documentdb-partitionkeyrangeid: 0
        x-ms-request-charge: 1
        x-ms-session-token: 0:-1#2
        x-ms-substatus: 1002

        {"code":"Gone","message":"The requested resource is no longer available at the server.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    client.check("GET", DOCS, &[("x-ms-continuation", "nonsense")], "", expect![[r#"
        400
        content-length: 125
        content-type: application/json
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-documentdb-partitionkeyrangeid: 0
        x-ms-request-charge: 1
        x-ms-session-token: 0:-1#2

        {"code":"BadRequest","message":"Invalid Continuation Token\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    client.check("GET", DOCS, &[("x-ms-start-epk", "XYZ")], "", expect![[r#"
        400
        content-length: 168
        content-type: application/json
        x-ms-request-charge: 1

        {"code":"BadRequest","message":"The value 'XYZ' specified for the header 'x-ms-start-epk' is invalid.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
}

/// Clients that have read an item use its `_self`.
#[test]
fn by_self_link() {
    let client = Client::with_container(1);
    let created = client.must(201, "POST", DOCS, &[PK], r#"{"id":"i","pk":"p"}"#).body;
    let link = created.split("\"_self\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a link");
    let rid = link.trim_end_matches('/').rsplit('/').next().expect("a rid").to_ascii_lowercase();
    let path = format!("/{link}");
    let send = |method: &str, body: &str| {
        let token = crate::client::sign_link(method, "docs", &rid);
        client.send_as(&token, method, &path, &[PK], body.as_bytes())
    };
    assert_eq!(send("GET", "").body, created);
    assert_eq!(send("PUT", r#"{"id":"i","pk":"p","n":1}"#).status, 200);
    assert_eq!(send("DELETE", "").status, 204);
    assert_eq!(send("GET", "").status, 404);
    client.must(404, "GET", "/dbs/d/colls/c/docs/i", &[PK], "");
}

#[test]
fn binary_bodies() {
    let client = Client::with_container(1);
    // {"id":"i","pk":"p"}: an object by byte length, `id` is well-known string 12
    let body = [0x80, 0xEA, 7, 0x2C, 0x81, b'i', 0x82, b'p', b'k', 0x81, b'p'];
    let mut body = body.to_vec();
    body[2] = u8::try_from(body.len() - 3).expect("short");
    let token = crate::client::sign("POST", DOCS);
    let answer = client.send_as(&token, "POST", DOCS, &[PK], &body);
    assert_eq!(answer.status, 201, "{}", answer.body);
    let answer = client.send_as(&token, "POST", DOCS, &[PK], &body[..6]);
    expect![[r#"
        400
        content-length: 218
        content-type: application/json
        x-ms-request-charge: 1

        {"code":"BadRequest","message":"The request payload is invalid. Ensure to provide a valid request payload. (binary JSON at byte 6: the body ends early)\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]].assert_eq(&answer.print());
}

/// A token that is ahead of the server, as after a restore, matters for reads only.
#[test]
fn writes_ignore_the_session() {
    let client = Client::with_container(1);
    let ahead = ("x-ms-session-token", "0:-1#1000");
    let headers = [("x-ms-documentdb-partitionkey", "[\"p\"]"), ahead];
    client.must(201, "POST", DOCS, &headers, r#"{"id":"a","pk":"p"}"#);
    let upsert = [headers[0], ahead, ("x-ms-documentdb-is-upsert", "True")];
    client.must(200, "POST", DOCS, &upsert, r#"{"id":"a","pk":"p","n":1}"#);
    client.must(200, "PUT", "/dbs/d/colls/c/docs/a", &headers, r#"{"id":"a","pk":"p","n":2}"#);
    client.must(200, "PATCH", "/dbs/d/colls/c/docs/a", &headers, r#"[{"op":"incr","path":"/n","value":1}]"#);
    let batch =
        [headers[0], ahead, ("x-ms-cosmos-is-batch-request", "True"), ("x-ms-cosmos-batch-atomic", "True")];
    let written = r#"[{"operationType":"Create","resourceBody":{"id":"b","pk":"p"}}]"#;
    client.must(200, "POST", DOCS, &batch, written);
    let with_read = r#"[{"operationType":"Create","resourceBody":{"id":"c","pk":"p"}},{"operationType":"Read","id":"b"}]"#;
    let refused = client.send("POST", DOCS, &batch, with_read);
    assert_eq!((refused.status, refused.header("x-ms-substatus")), (404, Some("1002")), "{}", refused.body);
    client.must(204, "DELETE", "/dbs/d/colls/c/docs/b", &headers, "");
    let read = client.send("GET", "/dbs/d/colls/c/docs/a", &headers, "");
    assert_eq!((read.status, read.header("x-ms-substatus")), (404, Some("1002")));
    assert!(read.body.contains("The read session is not available for the input session token."));
    let bad = [headers[0], ("x-ms-session-token", "invalidtoken")];
    for (method, path, body) in
        [("GET", "/dbs/d/colls/c/docs/a", ""), ("POST", DOCS, r#"{"id":"z","pk":"p"}"#)]
    {
        let answer = client.send(method, path, &bad, body);
        assert_eq!(answer.status, 400);
        assert!(
            answer.body.contains("The session token provided 'invalidtoken' is invalid."),
            "{}",
            answer.body
        );
    }
}

#[test]
fn a_replace_renames() {
    let client = Client::with_container(1);
    let key = [("x-ms-documentdb-partitionkey", "[\"p\"]")];
    for id in ["a", "taken"] {
        client.must(201, "POST", DOCS, &key, &format!(r#"{{"id":"{id}","pk":"p"}}"#));
    }
    let put = |id: &str, body: &str| client.send("PUT", &format!("{DOCS}/{id}"), &key, body);
    assert_eq!(put("a", r#"{"id":"taken","pk":"p"}"#).status, 409);
    assert_eq!(put("a", r#"{"id":"b","pk":"other"}"#).status, 400);
    let renamed = put("a", r#"{"id":"b","pk":"p","n":1}"#);
    assert_eq!(renamed.status, 200);
    assert!(renamed.body.contains(r#""id":"b""#), "{}", renamed.body);
    client.must(404, "GET", &format!("{DOCS}/a"), &key, "");
    assert_eq!(client.must(200, "GET", &format!("{DOCS}/b"), &key, "").body, renamed.body);
    // A missing item is 404 with any body.
    for body in ["{", "{}", r#"{"id":"a","pk":"other"}"#] {
        assert_eq!(put("a", body).status, 404, "{body}");
        assert_eq!(put("b", body).status, 400, "{body}");
    }
}
