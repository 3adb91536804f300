use expect_test::expect;

use crate::client::{Client, sign_link};

const RANGES: &str = "/dbs/d/colls/c/pkranges";

#[test]
fn whole_and_incremental() {
    let client = Client::with_container(2);
    client.check("GET", RANGES, &[], "", expect![[r#"
        200
        content-length: 749
        content-type: application/json
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-item-count: 2
        x-ms-request-charge: 1
        x-ms-session-token: 0:-1#0

        {"_rid":"AAAAAYAAAAE=","PartitionKeyRanges":[{"_rid":"AAAAAYAAAAECAAAAAAAAUA==","id":"0","_etag":"\"74a0182990465b17\"","minInclusive":"","maxExclusive":"1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF","ridPrefix":0,"_self":"dbs/AAAAAQ==/colls/AAAAAYAAAAE=/pkranges/AAAAAYAAAAECAAAAAAAAUA==/","throughputFraction":0.5,"status":"online","parents":[],"ownedArchivalPKRangeIds":[],"_ts":1794767524,"lsn":0},{"_rid":"AAAAAYAAAAEDAAAAAAAAUA==","id":"1","_etag":"\"74a0182990465b17\"","minInclusive":"1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF","maxExclusive":"FF","ridPrefix":1,"_self":"dbs/AAAAAQ==/colls/AAAAAYAAAAE=/pkranges/AAAAAYAAAAEDAAAAAAAAUA==/","throughputFraction":0.5,"status":"online","parents":[],"ownedArchivalPKRangeIds":[],"_ts":1794767524,"lsn":0}],"_count":2}
    "#]]);
    let incremental = [("a-im", "Incremental Feed"), ("x-ms-max-item-count", "-1")];
    let first = client.must(200, "GET", RANGES, &incremental, "");
    let etag = first.header("etag").expect("an etag").to_owned();
    let again = [incremental[0], incremental[1], ("if-none-match", etag.as_str())];
    client.check(
        "GET",
        RANGES,
        &again,
        "",
        expect![[r#"
            304
            etag: "74a0182990465b17"
            x-ms-alt-content-path: dbs/d/colls/c
            x-ms-content-path: AAAAAYAAAAE=
            x-ms-request-charge: 1
            x-ms-session-token: 0:-1#0
        "#]],
    );
    let stale = [incremental[0], ("if-none-match", "\"stale\"")];
    assert_eq!(client.must(200, "GET", RANGES, &stale, "").body, first.body);
    // Without A-IM it is no feed: always the whole list.
    let plain = client.must(200, "GET", RANGES, &[("if-none-match", etag.as_str())], "");
    assert_eq!((plain.body, plain.headers.iter().any(|(name, _)| name == "etag")), (first.body, false));
    let query = r#"{"query":"SELECT VALUE r.id FROM r WHERE r.minInclusive = ''"}"#;
    client.check(
        "POST",
        RANGES,
        &[("x-ms-documentdb-isquery", "True")],
        query,
        expect![[r#"
            200
            content-length: 61
            content-type: application/json
            x-ms-alt-content-path: dbs/d/colls/c
            x-ms-content-path: AAAAAYAAAAE=
            x-ms-item-count: 1
            x-ms-request-charge: 2.5
            x-ms-session-token: 0:-1#0

            {"_rid":"AAAAAYAAAAE=","PartitionKeyRanges":["0"],"_count":1}
        "#]],
    );
    client.check("GET", "/dbs/d/colls/missing/pkranges", &[], "", expect![[r#"
        404
        content-length: 146
        content-type: application/json
        x-ms-request-charge: 1
        x-ms-substatus: 1003

        {"code":"NotFound","message":"Resource Not Found. Owner resource does not exist\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
}

#[test]
fn by_rid() {
    let client = Client::with_container(1);
    let body = client.must(200, "GET", "/dbs/d/colls/c", &[], "").body;
    let link = body.split("\"_self\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a link");
    let rid = link.trim_end_matches('/').rsplit('/').next().expect("a rid");
    let token = sign_link("GET", "pkranges", &rid.to_ascii_lowercase());
    let answer = client.send_as(&token, "GET", &format!("/{link}pkranges"), &[], b"");
    assert_eq!(answer.body, client.must(200, "GET", RANGES, &[], "").body);
    assert_eq!(answer.header("x-ms-alt-content-path"), Some("dbs/d/colls/c"));
}
