//! Batches over HTTP: whole answers as JSON and in binary form, limits, and what is refused as a whole.

use expect_test::expect;

use crate::client::{Answer, Client, sign};

const DOCS: &str = "/dbs/d/colls/c/docs";
const PK: (&str, &str) = ("x-ms-documentdb-partitionkey", "[\"p\"]");
const BATCH: (&str, &str) = ("x-ms-cosmos-is-batch-request", "True");
const ATOMIC: (&str, &str) = ("x-ms-cosmos-batch-atomic", "True");
const BULK: (&str, &str) = ("x-ms-cosmos-batch-atomic", "False");
const GO_ON: (&str, &str) = ("x-ms-cosmos-batch-continue-on-error", "True");
const RANGE: (&str, &str) = ("x-ms-documentdb-partitionkeyrangeid", "0");

fn atomic(client: &Client, operations: &str) -> Answer {
    client.send("POST", DOCS, &[BATCH, ATOMIC, PK], operations)
}

#[test]
fn all_operations_succeed() {
    let client = Client::with_container(1);
    client.must(201, "POST", DOCS, &[PK], r#"{"id":"old","pk":"p","n":1}"#);
    let operations = r#"[
        {"operationType":"Create","resourceBody":{"id":"a","pk":"p","n":1}},
        {"resourceBody":{"id":"b","pk":"p"},"operationType":"Upsert","minimalReturnPreference":true},
        {"operationType":"Read","id":"a"},
        {"operationType":"Replace","id":"old","resourceBody":{"id":"old","pk":"p"},"ifMatch":"*"},
        {"operationType":"Patch","id":"a","resourceBody":{"operations":[{"op":"incr","path":"/n","value":1}],"condition":"from c where c.n = 1"}},
        {"operationType":"Delete","id":"b","partitionKey":"[\"p\"]"}]"#;
    client.check("POST", DOCS, &[BATCH, ATOMIC, PK], operations, expect![[r#"
        200
        content-length: 1466
        content-type: application/json
        lsn: 2
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-cosmos-internal-partition-id: 00000001-0000-0001-0000-000000000000
        x-ms-cosmos-llsn: 2
        x-ms-cosmos-quorum-acked-llsn: 2
        x-ms-documentdb-partitionkeyrangeid: 0
        x-ms-global-committed-lsn: 2
        x-ms-item-count: 6
        x-ms-quorum-acked-lsn: 2
        x-ms-request-charge: 41.95
        x-ms-session-token: 0:-1#2

        [{"statusCode":201,"requestCharge":6.05,"eTag":"\"ETAG\"","resourceBody":{"id":"a","pk":"p","n":1,"_rid":"AAAAAYAAAAECAAAA8CVHBw==","_self":"dbs/AAAAAQ==/colls/AAAAAYAAAAE=/docs/AAAAAYAAAAECAAAA8CVHBw==/","_etag":"\"ETAG\"","_attachments":"attachments/","_ts":1794767524}},{"statusCode":201,"requestCharge":5.7,"eTag":"\"ETAG\""},{"statusCode":200,"requestCharge":1,"eTag":"\"ETAG\"","resourceBody":{"id":"a","pk":"p","n":1,"_rid":"AAAAAYAAAAECAAAA8CVHBw==","_self":"dbs/AAAAAQ==/colls/AAAAAYAAAAE=/docs/AAAAAYAAAAECAAAA8CVHBw==/","_etag":"\"ETAG\"","_attachments":"attachments/","_ts":1794767524}},{"statusCode":200,"requestCharge":11.4,"eTag":"\"ETAG\"","resourceBody":{"id":"old","pk":"p","_rid":"AAAAAYAAAAEBAAAA8CVHBw==","_self":"dbs/AAAAAQ==/colls/AAAAAYAAAAE=/docs/AAAAAYAAAAEBAAAA8CVHBw==/","_etag":"\"ETAG\"","_attachments":"attachments/","_ts":1794767524}},{"statusCode":200,"requestCharge":12.1,"eTag":"\"ETAG\"","resourceBody":{"id":"a","pk":"p","n":2,"_rid":"AAAAAYAAAAECAAAA8CVHBw==","_self":"dbs/AAAAAQ==/colls/AAAAAYAAAAE=/docs/AAAAAYAAAAECAAAA8CVHBw==/","_etag":"\"ETAG\"","_attachments":"attachments/","_ts":1794767524}},{"statusCode":204,"requestCharge":5.7}]
    "#]]);
    let minimal = [BATCH, ATOMIC, PK, ("prefer", "return=minimal")];
    let operations = r#"[{"operationType":"Upsert","resourceBody":{"id":"a","pk":"p"}},{"operationType":"Read","id":"a"}]"#;
    client.check("POST", DOCS, &minimal, operations, expect![[r#"
        200
        content-length: 418
        content-type: application/json
        lsn: 3
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-cosmos-internal-partition-id: 00000001-0000-0001-0000-000000000000
        x-ms-cosmos-llsn: 3
        x-ms-cosmos-quorum-acked-llsn: 3
        x-ms-documentdb-partitionkeyrangeid: 0
        x-ms-global-committed-lsn: 3
        x-ms-item-count: 2
        x-ms-quorum-acked-lsn: 3
        x-ms-request-charge: 12.4
        x-ms-session-token: 0:-1#3

        [{"statusCode":200,"requestCharge":11.4,"eTag":"\"ETAG\""},{"statusCode":200,"requestCharge":1,"eTag":"\"ETAG\"","resourceBody":{"id":"a","pk":"p","_rid":"AAAAAYAAAAECAAAA8CVHBw==","_self":"dbs/AAAAAQ==/colls/AAAAAYAAAAE=/docs/AAAAAYAAAAECAAAA8CVHBw==/","_etag":"\"ETAG\"","_attachments":"attachments/","_ts":1794767524}}]
    "#]]);
}

#[test]
fn one_operation_fails() {
    let client = Client::with_container(1);
    client.must(201, "POST", DOCS, &[PK], r#"{"id":"old","pk":"p","n":1}"#);
    let create = r#"{"operationType":"Create","resourceBody":{"id":"a","pk":"p"}}"#;
    let mut out = String::new();
    for failing in [
        r#"{"operationType":"Create","resourceBody":{"id":"old","pk":"p"}}"#,
        r#"{"operationType":"Create","resourceBody":{"id":"x","pk":"other"}}"#,
        r#"{"operationType":"Create","resourceBody":7}"#,
        r#"{"operationType":"Read","id":"x"}"#,
        r#"{"operationType":"Replace","id":"old","ifMatch":"\"stale\"","resourceBody":{"id":"old","pk":"p"}}"#,
        r#"{"operationType":"Patch","id":"old","resourceBody":[{"op":"add","path":"/x/y","value":1}]}"#,
        r#"{"operationType":"Patch","id":"old","resourceBody":{"operations":[{"op":"add","path":"/x","value":1}],"condition":"from c where c.n > 1"}}"#,
    ] {
        let answer = atomic(&client, &format!("[{create},{failing},{create}]"));
        let substatus = answer.header("x-ms-substatus").map(|code| format!("/{code}")).unwrap_or_default();
        let charge = answer.header("x-ms-request-charge").expect("a charge");
        let session = answer.header("x-ms-session-token").expect("a session");
        out.push_str(&format!(
            "{failing}\n    {}{substatus} {charge} {session} {}\n",
            answer.status, answer.body
        ));
    }
    expect![[r#"
        {"operationType":"Create","resourceBody":{"id":"old","pk":"p"}}
            207 6.7 0:-1#1 [{"statusCode":424,"requestCharge":5.7},{"statusCode":409,"requestCharge":1,"message":"Entity with the specified id already exists in the system."},{"statusCode":424,"requestCharge":0}]
        {"operationType":"Create","resourceBody":{"id":"x","pk":"other"}}
            207/1001 6.7 0:-1#1 [{"statusCode":424,"requestCharge":5.7},{"statusCode":400,"subStatusCode":1001,"requestCharge":1,"message":"PartitionKey extracted from document doesn't match the one specified in the header."},{"statusCode":424,"requestCharge":0}]
        {"operationType":"Create","resourceBody":7}
            207 6.7 0:-1#1 [{"statusCode":424,"requestCharge":5.7},{"statusCode":400,"requestCharge":1,"message":"The request payload is invalid. Ensure to provide a valid request payload."},{"statusCode":424,"requestCharge":0}]
        {"operationType":"Read","id":"x"}
            207 6.7 0:-1#1 [{"statusCode":424,"requestCharge":5.7},{"statusCode":404,"requestCharge":1,"message":"Resource Not Found. Entity with the specified id does not exist in the system."},{"statusCode":424,"requestCharge":0}]
        {"operationType":"Replace","id":"old","ifMatch":"\"stale\"","resourceBody":{"id":"old","pk":"p"}}
            207 6.7 0:-1#1 [{"statusCode":424,"requestCharge":5.7},{"statusCode":412,"requestCharge":1,"message":"One of the specified pre-condition is not met. Operation cannot be performed because one of the specified precondition is not met."},{"statusCode":424,"requestCharge":0}]
        {"operationType":"Patch","id":"old","resourceBody":[{"op":"add","path":"/x/y","value":1}]}
            207 6.7 0:-1#1 [{"statusCode":424,"requestCharge":5.7},{"statusCode":400,"requestCharge":1,"message":"For Operation(1): Add Operation can only create a child object of an existing node(array or object) and cannot create path recursively, no path found beyond: 'x'. Learn more: https://aka.ms/cosmosdbpatchdocs"},{"statusCode":424,"requestCharge":0}]
        {"operationType":"Patch","id":"old","resourceBody":{"operations":[{"op":"add","path":"/x","value":1}],"condition":"from c where c.n > 1"}}
            207 6.7 0:-1#1 [{"statusCode":424,"requestCharge":5.7},{"statusCode":412,"subStatusCode":1110,"requestCharge":1,"message":"One of the specified pre-condition is not met. Operation cannot be performed because one of the specified precondition is not met."},{"statusCode":424,"requestCharge":0}]
    "#]].assert_eq(&out);
    client.must(404, "GET", "/dbs/d/colls/c/docs/a", &[PK], "");
}

#[test]
fn a_read_that_is_not_modified() {
    let client = Client::with_container(1);
    client.must(201, "POST", DOCS, &[PK], r#"{"id":"old","pk":"p"}"#);
    let answer = atomic(
        &client,
        r#"[{"operationType":"Read","id":"old","ifNoneMatch":"*"},{"operationType":"Create","resourceBody":{"id":"a","pk":"p"}}]"#,
    );
    assert_eq!(answer.status, 207);
    assert!(answer.body.starts_with(r#"[{"statusCode":304,"requestCharge":1,"eTag":"#), "{}", answer.body);
    assert!(answer.body.contains(r#"{"statusCode":201,"#));
    client.must(200, "GET", "/dbs/d/colls/c/docs/a", &[PK], "");
}

#[test]
fn refused_as_a_whole() {
    let client = Client::with_container(1);
    let read = r#"[{"operationType":"Read","id":"x"}]"#.to_owned();
    let many = format!("[{}]", vec![r#"{"operationType":"Read","id":"x"}"#; 101].join(","));
    let large =
        format!(r#"[{{"operationType":"Create","resourceBody":{{"id":"{}"}}}}]"#, "x".repeat(2 << 20));
    let mut out = String::new();
    for (headers, body) in [
        (vec![BATCH, ATOMIC, PK], "[]".to_owned()),
        (vec![BATCH, ATOMIC, PK], many),
        (vec![BATCH, ATOMIC, PK], large),
        (vec![BATCH, ATOMIC], read.clone()),
        (vec![BATCH, ATOMIC, ("x-ms-documentdb-partitionkey", "[]")], read.clone()),
        (vec![BATCH, BULK], read.clone()),
        (vec![BATCH, BULK, ("x-ms-documentdb-partitionkeyrangeid", "7")], read.clone()),
        (vec![BATCH, ATOMIC, PK, ("x-ms-documentdb-pre-trigger-include", "t")], read.clone()),
        (vec![BATCH, ATOMIC, PK, ("x-ms-session-token", "0:-1#99")], read),
        (
            vec![BATCH, ATOMIC, PK],
            r#"[{"operationType":"Read","id":"x","partitionKey":"[\"q\"]"}]"#.to_owned(),
        ),
        (vec![BATCH, ATOMIC, PK], r#"[{"operationType":"Read","id":"x","partitionKey":"q"}]"#.to_owned()),
        (vec![BATCH, ATOMIC, PK], r#"[{"operationType":"Query","id":"x"}]"#.to_owned()),
        (vec![BATCH, ATOMIC, PK], r#"[{"operationType":"Check","id":"x"}]"#.to_owned()),
        (vec![BATCH, ATOMIC, PK], r#"[{"operationType":"Read","id":"x","container":"c"}]"#.to_owned()),
        (vec![BATCH, ATOMIC, PK], r#"[{"operationType":"Read"}]"#.to_owned()),
        (vec![BATCH, ATOMIC, PK], r#"[{"operationType":"Create"}]"#.to_owned()),
        (
            vec![BATCH, ATOMIC, PK],
            r#"[{"operationType":"Read","id":"x","timeToLiveInSeconds":1}]"#.to_owned(),
        ),
        (
            vec![BATCH, ATOMIC, PK],
            r#"[{"operationType":"Read","id":"x","indexingDirective":"Maybe"}]"#.to_owned(),
        ),
        (vec![BATCH, ATOMIC, PK], r#"{"operationType":"Read","id":"x"}"#.to_owned()),
        (vec![BATCH, ATOMIC, PK], r#"[{"operationType":"Create","resourceBody":{"id":}}]"#.to_owned()),
        (vec![BATCH, ATOMIC, PK], String::new()),
    ] {
        let answer = client.send("POST", DOCS, &headers, &body);
        let substatus = answer.header("x-ms-substatus").map(|code| format!("/{code}")).unwrap_or_default();
        let message = answer.body.split("\\r\\n").next().unwrap_or_default();
        let body: String = body.chars().take(70).collect();
        out.push_str(&format!("{body}\n    {}{substatus} {message}\n", answer.status));
    }
    expect![[r#"
        []
            400 {"code":"BadRequest","message":"Batch request has no operations.
        [{"operationType":"Read","id":"x"},{"operationType":"Read","id":"x"},{
            400 {"code":"BadRequest","message":"Batch request has more operations than what is supported.
        [{"operationType":"Create","resourceBody":{"id":"xxxxxxxxxxxxxxxxxxxxx
            413 {"code":"RequestEntityTooLarge","message":"Message: {\"Errors\":[\"Request size is too large\"]}
        [{"operationType":"Read","id":"x"}]
            400 {"code":"BadRequest","message":"PartitionKey value must be supplied for this operation.
        [{"operationType":"Read","id":"x"}]
            400/1001 {"code":"BadRequest","message":"Partition key provided either doesn't correspond to definition in the collection or doesn't match partition key field values specified in the document.
        [{"operationType":"Read","id":"x"}]
            400 {"code":"BadRequest","message":"A batch that is not atomic must name its partition key range by x-ms-documentdb-partitionkeyrangeid.
        [{"operationType":"Read","id":"x"}]
            410/1002 {"code":"Gone","message":"The requested resource is no longer available at the server.
        [{"operationType":"Read","id":"x"}]
            400 {"code":"BadRequest","message":"One of the specified inputs is invalid: triggers run with writes of single items only.
        [{"operationType":"Read","id":"x"}]
            404/1002 {"code":"NotFound","message":"The read session is not available for the input session token.
        [{"operationType":"Read","id":"x","partitionKey":"[\"q\"]"}]
            400 {"code":"BadRequest","message":"One or more operations within the batch request have a different partition key value than the request.
        [{"operationType":"Read","id":"x","partitionKey":"q"}]
            400 {"code":"BadRequest","message":"Partition key q is invalid.
        [{"operationType":"Query","id":"x"}]
            400 {"code":"BadRequest","message":"Operation 1 of the batch request is not valid: 'Query' is no operation type.
        [{"operationType":"Check","id":"x"}]
            400 {"code":"BadRequest","message":"Operation 1 of the batch request is not valid: 'Check' is no operation type.
        [{"operationType":"Read","id":"x","container":"c"}]
            400 {"code":"BadRequest","message":"The batch request is not valid: only an operation of a transaction has a `container`.
        [{"operationType":"Read"}]
            400 {"code":"BadRequest","message":"Operation 1 of the batch request is not valid: it has no id.
        [{"operationType":"Create"}]
            400 {"code":"BadRequest","message":"Operation 1 of the batch request is not valid: it has no resourceBody.
        [{"operationType":"Read","id":"x","timeToLiveInSeconds":1}]
            400 {"code":"BadRequest","message":"The batch request is not valid: unknown field `timeToLiveInSeconds`, expected one of `operationType`, `id`, `resourceBody`, `partitionKey`, `ifMatch`, `ifNoneMatch`, `indexingDirective`, `minimalReturnPreference`, `resourceType`, `container` at line 1 column 55.
        [{"operationType":"Read","id":"x","indexingDirective":"Maybe"}]
            400 {"code":"BadRequest","message":"Operation 1 of the batch request is not valid: 'Maybe' is no indexing directive.
        {"operationType":"Read","id":"x"}
            400 {"code":"BadRequest","message":"The batch request is not valid: invalid type: map, expected a sequence at line 1 column 0.
        [{"operationType":"Create","resourceBody":{"id":}}]
            400 {"code":"BadRequest","message":"The batch request is not valid: expected value at line 1 column 49.

            400 {"code":"BadRequest","message":"The batch request is not valid: EOF while parsing a value at line 1 column 0.
    "#]].assert_eq(&out);
}

#[test]
fn hostile_bodies() {
    let client = Client::with_container(1);
    let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    let names = (0..50_000).map(|n| format!(r#""n{n}":0"#)).collect::<Vec<_>>().join(",");
    for body in [
        format!(r#"{{"operationType":"Create","resourceBody":{{"id":"a","pk":"p","deep":{deep}}}}}"#),
        format!(
            r#"{{"operationType":"Patch","id":"a","resourceBody":[{{"op":"add","path":"/x","value":{deep}}}]}}"#
        ),
        format!(r#"{{"operationType":"Patch","id":"a","resourceBody":{{"operations":{deep}}}}}"#),
        format!(r#"{{"operationType":"Create","resourceBody":{{{names},"n0":1}}}}"#),
        format!(r#"{{"operationType":"Create","resourceBody":"{}"}}"#, "\\ud800".repeat(1000)),
        r#"{"operationType":"Create","resourceBody":{"id":"a","pk":"p","n":1e400}}"#.to_owned(),
    ] {
        let answer = atomic(&client, &format!("[{body}]"));
        assert_eq!(answer.status, 207, "{}", answer.body);
        assert!(answer.body.starts_with(r#"[{"statusCode":400,"#), "{}", answer.body);
    }
    // Not even an operation.
    assert_eq!(atomic(&client, &deep).status, 400);
    assert_eq!(atomic(&client, &format!("[{{{names}}}]")).status, 400);
    client.must(200, "GET", "/dbs/d/colls/c", &[], "");
}

#[test]
fn bulk() {
    let client = Client::with_container(1);
    let operations = r#"[
        {"operationType":"Create","partitionKey":"[\"p\"]","resourceBody":{"id":"a","pk":"p","n":1}},
        {"operationType":"Create","partitionKey":"[\"p\"]","resourceBody":{"id":"a","pk":"p","n":2}},
        {"operationType":"Upsert","partitionKey":"[\"q\"]","resourceBody":{"id":"a","pk":"q"}},
        {"operationType":"Read","partitionKey":"[\"q\"]","id":"a"},
        {"operationType":"Delete","partitionKey":"[\"r\"]","id":"a"}]"#;
    client.check("POST", DOCS, &[BATCH, BULK, GO_ON, RANGE], operations, expect![[r#"
        207
        content-length: 1229
        content-type: application/json
        lsn: 2
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-cosmos-internal-partition-id: 00000001-0000-0001-0000-000000000000
        x-ms-cosmos-llsn: 2
        x-ms-cosmos-quorum-acked-llsn: 2
        x-ms-documentdb-partitionkeyrangeid: 0
        x-ms-global-committed-lsn: 2
        x-ms-item-count: 5
        x-ms-quorum-acked-lsn: 2
        x-ms-request-charge: 14.75
        x-ms-session-token: 0:-1#2

        [{"statusCode":201,"requestCharge":6.05,"eTag":"\"ETAG\"","resourceBody":{"id":"a","pk":"p","n":1,"_rid":"AAAAAYAAAAEBAAAA8CVHBw==","_self":"dbs/AAAAAQ==/colls/AAAAAYAAAAE=/docs/AAAAAYAAAAEBAAAA8CVHBw==/","_etag":"\"ETAG\"","_attachments":"attachments/","_ts":1794767524}},{"statusCode":409,"requestCharge":1,"message":"Entity with the specified id already exists in the system."},{"statusCode":201,"requestCharge":5.7,"eTag":"\"ETAG\"","resourceBody":{"id":"a","pk":"q","_rid":"AAAAAYAAAAECAAAAAMbeBA==","_self":"dbs/AAAAAQ==/colls/AAAAAYAAAAE=/docs/AAAAAYAAAAECAAAAAMbeBA==/","_etag":"\"ETAG\"","_attachments":"attachments/","_ts":1794767524}},{"statusCode":200,"requestCharge":1,"eTag":"\"ETAG\"","resourceBody":{"id":"a","pk":"q","_rid":"AAAAAYAAAAECAAAAAMbeBA==","_self":"dbs/AAAAAQ==/colls/AAAAAYAAAAE=/docs/AAAAAYAAAAECAAAAAMbeBA==/","_etag":"\"ETAG\"","_attachments":"attachments/","_ts":1794767524}},{"statusCode":404,"requestCharge":1,"message":"Resource Not Found. Entity with the specified id does not exist in the system."}]
    "#]]);
    let stopped = client.must(207, "POST", DOCS, &[BATCH, BULK, RANGE], operations);
    let codes: Vec<&str> = stopped.body.split("statusCode\":").skip(1).map(|rest| &rest[..3]).collect();
    assert_eq!(codes, ["409", "424", "424", "424", "424"]);
}

#[test]
fn bulk_operations_of_other_partitions_are_gone() {
    let client = Client::with_container(5);
    let operations: Vec<String> = (0..20)
        .map(|n| {
            format!(
                r#"{{"operationType":"Create","partitionKey":"[\"k{n}\"]","resourceBody":{{"id":"a","pk":"k{n}"}}}}"#
            )
        })
        .collect();
    let answer =
        client.must(207, "POST", DOCS, &[BATCH, BULK, GO_ON, RANGE], &format!("[{}]", operations.join(",")));
    let gone = answer.body.matches(r#"{"statusCode":410,"subStatusCode":1002,"#).count();
    let created = answer.body.matches(r#"{"statusCode":201,"#).count();
    assert!(gone > 0 && created > 0 && gone + created == 20, "{}", answer.body);
}

/// As the .NET client sends it; answered in the same form.
#[test]
fn binary_batches() {
    let client = Client::with_container(1);
    let row = |operation_type: i32, mask: u8, fields: &[&[u8]]| {
        let mut row = vec![0x81, 0x70, 0x54, 0xE1, 0x7F, mask];
        row.extend(operation_type.to_le_bytes());
        row.extend(2_i32.to_le_bytes());
        for field in fields {
            row.push(u8::try_from(field.len()).expect("a short field"));
            row.extend_from_slice(field);
        }
        row
    };
    let stream = |rows: &[Vec<u8>]| {
        let mut stream = vec![0x81, 0xF0, 0xD8, 0xFF, 0x7F, 0x01, 10, 0, 0, 0];
        for row in rows {
            stream.extend([0x81, 0xF1, 0xD8, 0xFF, 0x7F]);
            stream.extend((row.len() as u32).to_le_bytes());
            stream.extend(crc32fast::hash(row).to_le_bytes());
            stream.extend(row);
        }
        stream
    };
    let send = |headers: &[(&str, &str)], body: &[u8]| {
        client.send_as(&sign("POST", DOCS), "POST", DOCS, headers, body)
    };
    let create = row(0, 0x43, &[br#"{"id":"a","pk":"p","n":1}"#]);
    let patch = row(1, 0x53, &[b"a", br#"{"operations":[{"op":"incr","path":"/n","value":2}]}"#]);
    let delete = row(4, 0x13, &[b"b"]);
    let answer = send(&[BATCH, ATOMIC, PK], &stream(&[create.clone(), patch.clone()]));
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/octet-stream")));
    assert_eq!(answer.bytes[..10], stream(&[]));
    let first = &answer.bytes[23..];
    assert_eq!(first[..10], [0x81, 0x71, 0x54, 0xE1, 0x7F, 0x0D, 201, 0, 0, 0]);
    assert!(answer.body.contains(r#"{"id":"a","pk":"p","n":3,"_rid":"#), "{}", answer.body);
    let failed = send(&[BATCH, ATOMIC, PK], &stream(&[create.clone(), delete]));
    assert_eq!(
        (failed.status, &failed.bytes[23..33]),
        (207, &[0x81, 0x71, 0x54, 0xE1, 0x7F, 0x01, 153, 1, 0, 0][..])
    );
    let mut wrong = stream(std::slice::from_ref(&create));
    *wrong.last_mut().expect("bytes") ^= 1;
    assert_eq!(send(&[BATCH, ATOMIC, PK], &wrong).status, 400);
    assert_eq!(send(&[BATCH, ATOMIC, PK], &stream(&vec![patch; 101])).status, 400);
    assert_eq!(send(&[BATCH, ATOMIC, PK], &stream(&[])).status, 400);
    let unknown = send(&[BATCH, ATOMIC, PK], &stream(&[row(7, 0x13, &[b"a"])]));
    assert!(unknown.status == 400 && unknown.body.contains("'7' is no operation type"), "{}", unknown.body);
    let keyed = row(20, 0x47, &[br#"["q"]"#, br#"{"id":"q","pk":"q"}"#]);
    let bulk = send(&[BATCH, BULK, GO_ON, RANGE], &stream(&[keyed, create]));
    assert_eq!(bulk.status, 207);
    assert!(bulk.body.contains(r#"{"id":"q","pk":"q","_rid":"#));
}
