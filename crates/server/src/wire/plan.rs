//! Query plans.

/// "Run the text as it is on every range and string the rows together." Members and order are the live gateway's.
pub(crate) fn trivial_plan(top: Option<u64>) -> String {
    let top = top.map_or("null".to_owned(), |top| top.to_string());
    format!(
        "{{\"partitionedQueryExecutionInfoVersion\":2,\"queryInfo\":{{\"distinctType\":\"None\",\"top\":{top},\
         \"offset\":null,\"limit\":null,\"orderBy\":[],\"orderByExpressions\":[],\"groupByExpressions\":[],\
         \"groupByAliases\":[],\"aggregates\":[],\"groupByAliasToAggregateType\":{{}},\"rewrittenQuery\":\"\",\
         \"hasSelectValue\":false,\"dCountInfo\":null,\"hasNonStreamingOrderBy\":false}},\
         \"queryRanges\":[{{\"min\":\"\",\"max\":\"FF\",\"isMinInclusive\":true,\"isMaxInclusive\":false}}],\
         \"hybridSearchQueryInfo\":null}}"
    )
}
