//! Query plans.

use quire_engine::QueryPlan;
use quire_value::text::write_string;

/// Members and their order are the live gateway's. An empty `rewrittenQuery` means the text as it is.
pub(crate) fn query_plan(plan: &QueryPlan) -> Vec<u8> {
    let (offset, limit) = plan.offset_limit.unzip();
    let mut out = Vec::with_capacity(512);
    out.extend_from_slice(
        b"{\"partitionedQueryExecutionInfoVersion\":2,\"queryInfo\":{\"distinctType\":\"None\"",
    );
    for (name, count) in [("top", plan.top), ("offset", offset), ("limit", limit)] {
        let count = count.map_or("null".to_owned(), |count| count.to_string());
        out.extend_from_slice(format!(",\"{name}\":{count}").as_bytes());
    }
    out.extend_from_slice(
        b",\"orderBy\":[],\"orderByExpressions\":[],\"groupByExpressions\":[],\"groupByAliases\":[],\
          \"aggregates\":[],\"groupByAliasToAggregateType\":{},\"rewrittenQuery\":",
    );
    write_string(plan.rewritten.as_deref().unwrap_or_default(), &mut out);
    out.extend_from_slice(
        b",\"hasSelectValue\":false,\"dCountInfo\":null,\"hasNonStreamingOrderBy\":false},\
          \"queryRanges\":[{\"min\":\"\",\"max\":\"FF\",\"isMinInclusive\":true,\"isMaxInclusive\":false}],\
          \"hybridSearchQueryInfo\":null}",
    );
    out
}
