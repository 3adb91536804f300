//! Plans for clients that run a query over several partitions themselves.

use quire_resource::EffectivePartitionKey;
use quire_sql::QueryPlan;

/// What a client merges, and where it sends the query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedQuery {
    pub plan: QueryPlan,
    /// Ascending, none touching another.
    pub ranges: Vec<QueryRange>,
}

/// Effective partition keys from `min` to `max`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryRange {
    pub min: EffectivePartitionKey,
    pub max: EffectivePartitionKey,
    /// Whether `max` itself belongs to it: it does where the range is one key.
    pub includes_max: bool,
}
