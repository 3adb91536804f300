//! Plans for clients that run a query over several partitions themselves.
//!
//! Only what needs no merging is planned: each partition runs the query as it is and the client strings the rows
//! together. That is exact for any query that one partition answers alone, and for filters and projections
//! everywhere. The rest is refused by name rather than planned wrongly.

use quire_sql::{Parameters, Query, Shape};

use crate::{Container, Engine, EngineError, Scope};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryPlan {
    /// The client stops after so many rows.
    pub top: Option<u64>,
}

impl Engine {
    pub fn query_plan(
        &self,
        container: &Container,
        text: &str,
        parameters: &Parameters,
        scope: &Scope,
    ) -> Result<QueryPlan, EngineError> {
        let query = Query::compile(text, parameters, &container.definition.computed_properties)?;
        if is_one_partition(container, scope) {
            return Ok(QueryPlan { top: None });
        }
        match query.shape() {
            Shape::Streaming { offset: 0, limit } => Ok(QueryPlan { top: limit }),
            // Every partition gives the same row.
            Shape::Constant => Ok(QueryPlan { top: Some(1) }),
            Shape::Streaming { .. } => Err(not_planned("OFFSET")),
            Shape::Blocking => Err(not_planned("ORDER BY, DISTINCT, GROUP BY or an aggregate")),
        }
    }
}

fn is_one_partition(container: &Container, scope: &Scope) -> bool {
    let complete = scope
        .partition_key
        .as_ref()
        .is_some_and(|key| container.definition.partition_key.check_complete(key).is_ok());
    complete || scope.partition_id.is_some() || container.partitions().len() == 1
}

fn not_planned(clause: &str) -> EngineError {
    EngineError::NotSupported { feature: format!("A query plan for {clause} over several partitions") }
}
