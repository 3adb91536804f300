use expect_test::expect;

use crate::client::Client;

#[test]
fn read_and_replace_an_offer() {
    let client = Client::with_container(1);
    let list = client.check("GET", "/offers", &[], "", expect![[r#"
        200
        content-length: 493
        content-type: application/json
        x-ms-item-count: 1
        x-ms-request-charge: 1

        {"_rid":"","Offers":[{"resource":"dbs/AAAAAQ==/colls/AAAAAYAAAAE=/","offerType":"Invalid","offerResourceId":"AAAAAYAAAAE=","offerVersion":"V2","content":{"offerThroughput":400,"offerIsRUPerMinuteThroughputEnabled":false,"offerMinimumThroughputParameters":{"maxThroughputEverProvisioned":400,"maxConsumedStorageEverInKB":0},"offerLastReplaceTimestamp":1794767524},"id":"AAAB","_rid":"AAAB","_self":"offers/AAAB/","_etag":"\"ETAG\"","_ts":1794767524}],"_count":1}
    "#]]);
    let rid = list.body.split("\"id\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a rid");
    let path = format!("/offers/{rid}/");
    let read = client.check("GET", &path, &[], "", expect![[r#"
        200
        content-length: 459
        content-type: application/json
        etag: "ETAG"
        x-ms-cosmos-min-throughput: 400
        x-ms-offer-replace-pending: false
        x-ms-request-charge: 1

        {"resource":"dbs/AAAAAQ==/colls/AAAAAYAAAAE=/","offerType":"Invalid","offerResourceId":"AAAAAYAAAAE=","offerVersion":"V2","content":{"offerThroughput":400,"offerIsRUPerMinuteThroughputEnabled":false,"offerMinimumThroughputParameters":{"maxThroughputEverProvisioned":400,"maxConsumedStorageEverInKB":0},"offerLastReplaceTimestamp":1794767524},"id":"AAAB","_rid":"AAAB","_self":"offers/AAAB/","_etag":"\"ETAG\"","_ts":1794767524}
    "#]]);
    let query = r#"{"query":"SELECT * FROM root r WHERE r.resource=@link","parameters":[{"name":"@link","value":"dbs/nothing/"}]}"#;
    client.check(
        "POST",
        "/offers",
        &[("x-ms-documentdb-isquery", "True")],
        query,
        expect![[r#"
        200
        content-length: 34
        content-type: application/json
        x-ms-item-count: 0
        x-ms-request-charge: 2.5

        {"_rid":"","Offers":[],"_count":0}
    "#]],
    );
    let replacement = read.body.replace("\"offerThroughput\":400", "\"offerThroughput\":1000");
    client.check("PUT", &path, &[], &replacement, expect![[r#"
        200
        content-length: 461
        content-type: application/json
        etag: "ETAG"
        x-ms-cosmos-min-throughput: 400
        x-ms-offer-replace-pending: false
        x-ms-request-charge: 10

        {"resource":"dbs/AAAAAQ==/colls/AAAAAYAAAAE=/","offerType":"Invalid","offerResourceId":"AAAAAYAAAAE=","offerVersion":"V2","content":{"offerThroughput":1000,"offerIsRUPerMinuteThroughputEnabled":false,"offerMinimumThroughputParameters":{"maxThroughputEverProvisioned":1000,"maxConsumedStorageEverInKB":0},"offerLastReplaceTimestamp":1794767524},"id":"AAAB","_rid":"AAAB","_self":"offers/AAAB/","_etag":"\"ETAG\"","_ts":1794767524}
    "#]]);
    let migrate = [("x-ms-cosmos-migrate-offer-to-autopilot", "true")];
    client.check("PUT", &path, &migrate, &replacement, expect![[r#"
        200
        content-length: 574
        content-type: application/json
        etag: "ETAG"
        x-ms-cosmos-min-throughput: 1000
        x-ms-offer-replace-pending: false
        x-ms-request-charge: 10

        {"resource":"dbs/AAAAAQ==/colls/AAAAAYAAAAE=/","offerType":"Invalid","offerResourceId":"AAAAAYAAAAE=","offerVersion":"V2","content":{"offerThroughput":1000,"offerIsRUPerMinuteThroughputEnabled":false,"offerMinimumThroughputParameters":{"maxThroughputEverProvisioned":1000,"maxConsumedStorageEverInKB":0},"offerLastReplaceTimestamp":1794767524,"offerAutopilotSettings":{"maxThroughput":1000,"autoUpgradePolicy":{"throughputPolicy":{"incrementPercent":10}}}},"id":"AAAB","_rid":"AAAB","_self":"offers/AAAB/","_etag":"\"ETAG\"","_ts":1794767524}
    "#]]);
    let both = [migrate[0], ("x-ms-cosmos-migrate-offer-to-manual-throughput", "true")];
    client.check("PUT", &path, &both, &replacement, expect![[r#"
        400
        content-length: 173
        content-type: application/json
        x-ms-request-charge: 1

        {"code":"BadRequest","message":"An offer cannot be migrated to autoscale and to manual throughput at once.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    client.check("PUT", &path, &[], &replacement, expect![[r#"
        400
        content-length: 213
        content-type: application/json
        x-ms-request-charge: 1

        {"code":"BadRequest","message":"x-ms-cosmos-migrate-offer-to-manual-throughput must be supplied for migration from autoscale to manual throughput.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    client.check("GET", "/offers/zzzz", &[], "", expect![[r#"
        404
        content-length: 175
        content-type: application/json
        x-ms-request-charge: 1

        {"code":"NotFound","message":"Resource Not Found. Entity with the specified id does not exist in the system.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
}
