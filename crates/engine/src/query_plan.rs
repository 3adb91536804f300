//! Plans for clients that run a query over several partitions themselves.

use quire_sql::{Parameters, Query, QueryInfo, QueryPlan};

use crate::{Container, Engine, EngineError, Scope};

impl Engine {
    /// What a client does with the rows of the partitions. One partition answers any query alone.
    pub fn query_plan(
        &self,
        container: &Container,
        text: &str,
        parameters: &Parameters,
        scope: &Scope,
    ) -> Result<QueryPlan, EngineError> {
        let query = Query::compile(text, parameters, &container.definition.computed_properties)?;
        if is_one_partition(container, scope) {
            return Ok(QueryPlan { info: QueryInfo::default(), features: Vec::new() });
        }
        Ok(query.plan()?)
    }
}

fn is_one_partition(container: &Container, scope: &Scope) -> bool {
    let definition = &container.definition.partition_key;
    let is_complete = |key| definition.check_complete(key).is_ok();
    scope.partition_key.as_ref().is_some_and(is_complete)
        || scope.partition_id.is_some()
        || container.partitions().len() == 1
}
