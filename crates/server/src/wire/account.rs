//! The account document, `GET /`.

use bytes::Bytes;
use quire_value::text::write_string;

/// The limits that a client's own planner applies: the live service's values.
const QUERY_ENGINE_CONFIGURATION: &str = concat!(
    "{\"allowNewKeywords\":true,\"maxJoinsPerSqlQuery\":10,\"maxQueryRequestTimeoutFraction\":0.9,",
    "\"maxSqlQueryInputLength\":524288,\"maxUdfRefPerSqlQuery\":10,\"queryMaxInMemorySortDocumentCount\":-1000,",
    "\"spatialMaxGeometryPointCount\":256,\"sqlAllowNonFiniteNumbers\":false,\"sqlDisableOptimizationFlags\":0,",
    "\"sqlQueryILDisableOptimizationFlags\":0,\"clientDisableOptimisticDirectExecution\":false,",
    "\"queryEnableFullText\":true,\"queryEnableFullTextPreviewFeatures\":false,",
    "\"queryMaxFullTextScoreSearchTerms\":30,\"queryMaxRrfArgumentCount\":100,\"enableSpatialIndexing\":true,",
    "\"maxInExpressionItemsCount\":2147483647,\"maxLogicalAndPerSqlQuery\":2147483647,",
    "\"maxLogicalOrPerSqlQuery\":2147483647,\"maxSpatialQueryCells\":2147483647,",
    "\"sqlAllowAggregateFunctions\":true,\"sqlAllowGroupByClause\":true,\"sqlAllowLike\":true,",
    "\"sqlAllowSubQuery\":true,\"sqlAllowScalarSubQuery\":true,\"sqlAllowTop\":true}",
);

/// `endpoint` is where clients send everything from now on, with its trailing slash. The account's id must not
/// be `localhost`: some clients then ignore the locations.
pub(crate) fn account(endpoint: &str, consistency: &str) -> Bytes {
    let mut body = Vec::with_capacity(2560);
    let mut location = b"[{\"name\":\"Local\",\"databaseAccountEndpoint\":".to_vec();
    write_string(endpoint, &mut location);
    location.extend_from_slice(b"}]");
    body.extend_from_slice(
        b"{\"_self\":\"\",\"id\":\"quire\",\"_rid\":\"quire.documents.local\",\"media\":\"//media/\",\
          \"addresses\":\"//addresses/\",\"_dbs\":\"//dbs/\",\"writableLocations\":",
    );
    body.extend_from_slice(&location);
    body.extend_from_slice(b",\"readableLocations\":");
    body.extend_from_slice(&location);
    body.extend_from_slice(
        b",\"enableMultipleWriteLocations\":false,\"continuousBackupEnabled\":false,\
          \"enableNRegionSynchronousCommit\":false,\"enablePerPartitionFailoverBehavior\":false,\
          \"disableCrossRegionalHedging\":false,\
          \"userReplicationPolicy\":{\"asyncReplication\":false,\"minReplicaSetSize\":1,\"maxReplicasetSize\":4},\
          \"userConsistencyPolicy\":{\"defaultConsistencyLevel\":",
    );
    write_string(consistency, &mut body);
    if consistency == "BoundedStaleness" {
        body.extend_from_slice(b",\"maxStalenessPrefix\":100,\"maxIntervalInSeconds\":5");
    }
    body.extend_from_slice(
        b"},\"systemReplicationPolicy\":{\"minReplicaSetSize\":1,\"maxReplicasetSize\":4},\
          \"readPolicy\":{\"primaryReadCoefficient\":1,\"secondaryReadCoefficient\":1},\
          \"queryEngineConfiguration\":",
    );
    write_string(QUERY_ENGINE_CONFIGURATION, &mut body);
    body.push(b'}');
    Bytes::from(body)
}
