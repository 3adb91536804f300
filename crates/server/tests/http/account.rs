use expect_test::expect;

use crate::client::Client;

#[test]
fn the_account_names_the_host_of_the_request() {
    let client = Client::start(1);
    client.check("GET", "/", &[], "", expect![[r#"
        200
        content-length: 1712
        content-type: application/json
        x-ms-request-charge: 0

        {"_self":"","id":"quire","_rid":"quire.documents.local","media":"//media/","addresses":"//addresses/","_dbs":"//dbs/","writableLocations":[{"name":"Local","databaseAccountEndpoint":"http://localhost:8081/"}],"readableLocations":[{"name":"Local","databaseAccountEndpoint":"http://localhost:8081/"}],"enableMultipleWriteLocations":false,"continuousBackupEnabled":false,"enableNRegionSynchronousCommit":false,"enablePerPartitionFailoverBehavior":false,"disableCrossRegionalHedging":false,"userReplicationPolicy":{"asyncReplication":false,"minReplicaSetSize":1,"maxReplicasetSize":4},"userConsistencyPolicy":{"defaultConsistencyLevel":"Session"},"systemReplicationPolicy":{"minReplicaSetSize":1,"maxReplicasetSize":4},"readPolicy":{"primaryReadCoefficient":1,"secondaryReadCoefficient":1},"queryEngineConfiguration":"{\"allowNewKeywords\":true,\"maxJoinsPerSqlQuery\":10,\"maxQueryRequestTimeoutFraction\":0.9,\"maxSqlQueryInputLength\":524288,\"maxUdfRefPerSqlQuery\":10,\"queryMaxInMemorySortDocumentCount\":-1000,\"spatialMaxGeometryPointCount\":256,\"sqlAllowNonFiniteNumbers\":false,\"sqlDisableOptimizationFlags\":0,\"sqlQueryILDisableOptimizationFlags\":0,\"clientDisableOptimisticDirectExecution\":false,\"queryEnableFullText\":true,\"queryEnableFullTextPreviewFeatures\":false,\"queryMaxFullTextScoreSearchTerms\":30,\"queryMaxRrfArgumentCount\":100,\"enableSpatialIndexing\":true,\"maxInExpressionItemsCount\":2147483647,\"maxLogicalAndPerSqlQuery\":2147483647,\"maxLogicalOrPerSqlQuery\":2147483647,\"maxSpatialQueryCells\":2147483647,\"sqlAllowAggregateFunctions\":true,\"sqlAllowGroupByClause\":true,\"sqlAllowLike\":true,\"sqlAllowSubQuery\":true,\"sqlAllowScalarSubQuery\":true,\"sqlAllowTop\":true}"}
    "#]]);
    client.check(
        "HEAD",
        "/",
        &[],
        "",
        expect![[r#"
            200
            content-length: 1712
            content-type: application/json
            x-ms-request-charge: 0
        "#]],
    );
}

#[test]
fn the_account_has_the_public_endpoint_and_consistency() {
    let client = Client::start_with(1, |config| {
        config.public_endpoint = Some("https://localhost:8081/".to_owned());
        config.consistency = quire_server::Consistency::BoundedStaleness;
    });
    let body = client.must(200, "GET", "/", &[], "").body;
    assert!(body.contains("\"databaseAccountEndpoint\":\"https://localhost:8081/\""), "{body}");
    assert!(body.contains(
        "{\"defaultConsistencyLevel\":\"BoundedStaleness\",\"maxStalenessPrefix\":100,\"maxIntervalInSeconds\":5}"
    ));
}

#[test]
fn consistency_levels() {
    let client = Client::start(1);
    for level in ["Session", "session", "ConsistentPrefix", "Eventual"] {
        client.must(200, "GET", "/dbs", &[("x-ms-consistency-level", level)], "");
    }
    client.check("GET", "/dbs", &[("x-ms-consistency-level", "Strong")], "", expect![[r#"
        400
        content-length: 207
        content-type: application/json
        x-ms-request-charge: 1

        {"code":"BadRequest","message":"The requested consistency level 'Strong' is stronger than the account's default consistency level 'Session'.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    client.check("GET", "/dbs", &[("x-ms-consistency-level", "Bounded")], "", expect![[r#"
        400
        content-length: 217
        content-type: application/json
        x-ms-request-charge: 1

        {"code":"BadRequest","message":"The requested consistency level 'BoundedStaleness' is stronger than the account's default consistency level 'Session'.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
    client.check("GET", "/dbs", &[("x-ms-consistency-level", "Sturdy")], "", expect![[r#"
        400
        content-length: 179
        content-type: application/json
        x-ms-request-charge: 1

        {"code":"BadRequest","message":"The value 'Sturdy' specified for the header 'x-ms-consistency-level' is invalid.\r\nActivityId: 00000000-0000-0000-0000-0000000000aa, AGENT"}
    "#]]);
}
