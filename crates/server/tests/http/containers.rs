use expect_test::expect;

use crate::client::Client;

const CONTAINER: &str = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#;

#[test]
fn create_read_replace_delete_a_container() {
    let client = Client::start(1);
    client.must(201, "POST", "/dbs", &[], r#"{"id":"my db"}"#);
    let created = client.check("POST", "/dbs/my%20db/colls", &[], CONTAINER, expect![[r#"
        201
        content-length: 600
        content-type: application/json
        etag: "ETAG"
        x-ms-alt-content-path: dbs/my%20db
        x-ms-cosmos-max-content-length: 2097152
        x-ms-request-charge: 5
        x-ms-session-token: 0:-1#0

        {"id":"c","indexingPolicy":{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/\"_etag\"/?"}]},"partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"conflictResolutionPolicy":{"mode":"LastWriterWins","conflictResolutionPath":"/_ts","conflictResolutionProcedure":""},"geospatialConfig":{"type":"Geography"},"_rid":"AAAAAYAAAAE=","_self":"dbs/AAAAAQ==/colls/AAAAAYAAAAE=/","_etag":"\"ETAG\"","_ts":1794767524,"_docs":"docs/","_sprocs":"sprocs/","_triggers":"triggers/","_udfs":"udfs/","_conflicts":"conflicts/"}
    "#]]);
    client.check("POST", "/dbs/my%20db/colls", &[], CONTAINER, expect![[r#"
        409
        content-length: 155
        content-type: application/json
        x-ms-request-charge: 1

        {"code":"Conflict","message":"Entity with the specified id already exists in the system.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    client.check("GET", "/dbs/my%20db/colls/c", &[], "", expect![[r#"
        200
        content-length: 600
        content-type: application/json
        etag: "ETAG"
        x-ms-alt-content-path: dbs/my%20db
        x-ms-content-path: AAAAAQ==
        x-ms-request-charge: 1
        x-ms-session-token: 0:-1#0

        {"id":"c","indexingPolicy":{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/\"_etag\"/?"}]},"partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"conflictResolutionPolicy":{"mode":"LastWriterWins","conflictResolutionPath":"/_ts","conflictResolutionProcedure":""},"geospatialConfig":{"type":"Geography"},"_rid":"AAAAAYAAAAE=","_self":"dbs/AAAAAQ==/colls/AAAAAYAAAAE=/","_etag":"\"ETAG\"","_ts":1794767524,"_docs":"docs/","_sprocs":"sprocs/","_triggers":"triggers/","_udfs":"udfs/","_conflicts":"conflicts/"}
    "#]]);
    let etag = created.header("etag").expect("an etag").to_owned();
    client.check(
        "GET",
        "/dbs/my%20db/colls/c",
        &[("if-none-match", &etag)],
        "",
        expect![[r#"
        304
        etag: "ETAG"
        x-ms-alt-content-path: dbs/my%20db
        x-ms-content-path: AAAAAQ==
        x-ms-request-charge: 1
        x-ms-session-token: 0:-1#0
    "#]],
    );
    client.check("GET", "/dbs/my%20db/colls", &[], "", expect![[r#"
        200
        content-length: 655
        content-type: application/json
        x-ms-alt-content-path: dbs/my%20db
        x-ms-content-path: AAAAAQ==
        x-ms-item-count: 1
        x-ms-request-charge: 1

        {"_rid":"AAAAAQ==","DocumentCollections":[{"id":"c","indexingPolicy":{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/\"_etag\"/?"}]},"partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"conflictResolutionPolicy":{"mode":"LastWriterWins","conflictResolutionPath":"/_ts","conflictResolutionProcedure":""},"geospatialConfig":{"type":"Geography"},"_rid":"AAAAAYAAAAE=","_self":"dbs/AAAAAQ==/colls/AAAAAYAAAAE=/","_etag":"\"ETAG\"","_ts":1794767524,"_docs":"docs/","_sprocs":"sprocs/","_triggers":"triggers/","_udfs":"udfs/","_conflicts":"conflicts/"}],"_count":1}
    "#]]);
    let replacement =
        r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"defaultTtl":60}"#;
    client.check("PUT", "/dbs/my%20db/colls/c", &[("if-match", "\"stale\"")], replacement, expect![[r#"
        412
        content-length: 237
        content-type: application/json
        x-ms-request-charge: 1

        {"code":"PreconditionFailed","message":"One of the specified pre-condition is not met. Operation cannot be performed because one of the specified precondition is not met.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    client.check("PUT", "/dbs/my%20db/colls/c", &[], replacement, expect![[r#"
        200
        content-length: 616
        content-type: application/json
        etag: "ETAG"
        x-ms-alt-content-path: dbs/my%20db
        x-ms-content-path: AAAAAQ==
        x-ms-request-charge: 10
        x-ms-session-token: 0:-1#0

        {"id":"c","indexingPolicy":{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/\"_etag\"/?"}]},"partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"defaultTtl":60,"conflictResolutionPolicy":{"mode":"LastWriterWins","conflictResolutionPath":"/_ts","conflictResolutionProcedure":""},"geospatialConfig":{"type":"Geography"},"_rid":"AAAAAYAAAAE=","_self":"dbs/AAAAAQ==/colls/AAAAAYAAAAE=/","_etag":"\"ETAG\"","_ts":1794767524,"_docs":"docs/","_sprocs":"sprocs/","_triggers":"triggers/","_udfs":"udfs/","_conflicts":"conflicts/"}
    "#]]);
    client.check("PUT", "/dbs/my%20db/colls/missing", &[], replacement, expect![[r#"
        404
        content-length: 175
        content-type: application/json
        x-ms-request-charge: 1

        {"code":"NotFound","message":"Resource Not Found. Entity with the specified id does not exist in the system.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    client.check(
        "DELETE",
        "/dbs/my%20db/colls/c",
        &[],
        "",
        expect![[r#"
        204
        x-ms-alt-content-path: dbs/my%20db
        x-ms-content-path: AAAAAQ==
        x-ms-request-charge: 5
    "#]],
    );
    client.check("GET", "/dbs/my%20db/colls/c", &[], "", expect![[r#"
        404
        content-length: 175
        content-type: application/json
        x-ms-request-charge: 1

        {"code":"NotFound","message":"Resource Not Found. Entity with the specified id does not exist in the system.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    client.check("GET", "/dbs/missing/colls/c", &[], "", expect![[r#"
        404
        content-length: 146
        content-type: application/json
        x-ms-request-charge: 1
        x-ms-substatus: 1003

        {"code":"NotFound","message":"Resource Not Found. Owner resource does not exist\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    client.check("POST", "/dbs/missing/colls", &[], CONTAINER, expect![[r#"
        404
        content-length: 146
        content-type: application/json
        x-ms-request-charge: 1
        x-ms-substatus: 1003

        {"code":"NotFound","message":"Resource Not Found. Owner resource does not exist\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
}

#[test]
fn quota_and_statistics() {
    let client = Client::with_container(2);
    let pk = [("x-ms-documentdb-partitionkey", "[\"p\"]")];
    client.must(201, "POST", "/dbs/d/colls/c/docs", &pk, r#"{"id":"i","pk":"p"}"#);
    let headers = [
        ("x-ms-documentdb-populatequotainfo", "True"),
        ("x-ms-documentdb-populatepartitionstatistics", "true"),
    ];
    client.check("GET", "/dbs/d/colls/c", &headers, "", expect![[r#"
        200
        content-length: 811
        content-type: application/json
        etag: "ETAG"
        x-ms-alt-content-path: dbs/d
        x-ms-content-path: AAAAAQ==
        x-ms-documentdb-collection-index-transformation-progress: 100
        x-ms-request-charge: 1
        x-ms-resource-quota: documentSize=10240;documentsSize=10485760;documentsCount=-1;collectionSize=10485760;
        x-ms-resource-usage: documentSize=0;documentsSize=1;documentsCount=1;collectionSize=1;
        x-ms-session-token: 0:-1#1

        {"id":"c","indexingPolicy":{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/\"_etag\"/?"}]},"partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"conflictResolutionPolicy":{"mode":"LastWriterWins","conflictResolutionPath":"/_ts","conflictResolutionProcedure":""},"geospatialConfig":{"type":"Geography"},"_rid":"AAAAAYAAAAE=","_self":"dbs/AAAAAQ==/colls/AAAAAYAAAAE=/","_etag":"\"ETAG\"","_ts":1794767524,"_docs":"docs/","_sprocs":"sprocs/","_triggers":"triggers/","_udfs":"udfs/","_conflicts":"conflicts/","statistics":[{"id":"0","sizeInKB":1,"documentCount":1,"sampledDistinctPartitionKeyCount":0,"partitionKeys":[]},{"id":"1","sizeInKB":0,"documentCount":0,"sampledDistinctPartitionKeyCount":0,"partitionKeys":[]}]}
    "#]]);
}

#[test]
fn intended_rid() {
    let client = Client::with_container(1);
    let intended = [("x-ms-cosmos-intended-collection-rid", "AAAAAIAAAAA=")];
    client.check("GET", "/dbs/d/colls/c", &intended, "", expect![[r#"
        400
        content-length: 197
        content-type: application/json
        x-ms-request-charge: 1
        x-ms-substatus: 1024

        {"code":"BadRequest","message":"The container was recreated: its _rid differs from the one in x-ms-cosmos-intended-collection-rid.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    for path in ["/dbs/d/colls/c/docs/i", "/dbs/d/colls/c/docs", "/dbs/d/colls/c/pkranges"] {
        let answer = client.send("GET", path, &intended, "");
        assert_eq!((answer.status, answer.header("x-ms-substatus")), (400, Some("1024")), "{path}");
    }
    let body = client.must(200, "GET", "/dbs/d/colls/c", &[], "").body;
    let rid = body.split("\"_rid\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a rid");
    client.must(200, "GET", "/dbs/d/colls/c", &[("x-ms-cosmos-intended-collection-rid", rid)], "");
}

#[test]
fn throughput_headers() {
    let client = Client::start(1);
    client.must(201, "POST", "/dbs", &[], r#"{"id":"d"}"#);
    let both = [
        ("x-ms-offer-throughput", "400"),
        ("x-ms-cosmos-offer-autopilot-settings", "{\"maxThroughput\":4000}"),
    ];
    client.check("POST", "/dbs/d/colls", &both, CONTAINER, expect![[r#"
        400
        content-length: 199
        content-type: application/json
        x-ms-request-charge: 1

        {"code":"BadRequest","message":"The headers x-ms-offer-throughput and x-ms-cosmos-offer-autopilot-settings cannot both be specified.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    client.check("POST", "/dbs/d/colls", &[("x-ms-offer-throughput", "150")], CONTAINER, expect![[r#"
        400
        content-length: 169
        content-type: application/json
        x-ms-request-charge: 1

        {"code":"BadRequest","message":"Requested throughput 150 is less than required minimum throughput 400.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    client.must(201, "POST", "/dbs/d/colls", &both[1..], CONTAINER);
}

#[test]
fn queries() {
    let client = Client::with_container(1);
    let query = r#"{"query":"SELECT VALUE r.id FROM r"}"#;
    client.check(
        "POST",
        "/dbs/d/colls",
        &[("x-ms-documentdb-isquery", "true")],
        query,
        expect![[r#"
        200
        content-length: 58
        content-type: application/json
        x-ms-alt-content-path: dbs/d
        x-ms-content-path: AAAAAQ==
        x-ms-item-count: 1
        x-ms-request-charge: 2.5

        {"_rid":"AAAAAQ==","DocumentCollections":["c"],"_count":1}
    "#]],
    );
}
