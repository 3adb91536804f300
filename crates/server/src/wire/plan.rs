//! Query plans.

use quire_engine::{Aggregate, Direction, Distinct, HybridSearch, PlannedQuery, QueryInfo, QueryRange};
use quire_value::{Object, Value};

/// Members and their order are the live gateway's. An empty `rewrittenQuery` means the text as it is.
pub(crate) fn query_plan(planned: &PlannedQuery) -> String {
    let mut json = Object::new();
    json.set("partitionedQueryExecutionInfoVersion", 2i64);
    if let Some(info) = &planned.plan.info {
        json.set("queryInfo", query_info(info));
    }
    json.set("queryRanges", planned.ranges.iter().map(range).collect::<Vec<Value>>());
    let hybrid = planned.plan.hybrid.as_ref();
    json.set("hybridSearchQueryInfo", hybrid.map_or(Value::Null, hybrid_search));
    Value::from(json).to_json()
}

fn range(range: &QueryRange) -> Value {
    let mut json = Object::new();
    json.set("min", range.min.to_hex());
    json.set("max", range.max.to_hex());
    json.set("isMinInclusive", true);
    json.set("isMaxInclusive", range.includes_max);
    json.into()
}

fn hybrid_search(hybrid: &HybridSearch) -> Value {
    let components = hybrid.components.iter().map(|component| Value::from(query_info(component)));
    let weights = hybrid.component_weights.iter().map(|&weight| Value::Number(weight));
    let mut json = Object::new();
    json.set("globalStatisticsQuery", hybrid.global_statistics_query.as_str());
    json.set("componentQueryInfos", components.collect::<Vec<Value>>());
    json.set("componentWithoutPayloadQueryInfos", Vec::new());
    json.set("projectionQueryInfo", Value::Null);
    json.set("componentWeights", weights.collect::<Vec<Value>>());
    json.set("skip", count(hybrid.skip));
    json.set("take", count(hybrid.take));
    json.set("requiresGlobalStatistics", hybrid.requires_global_statistics);
    json.into()
}

fn query_info(info: &QueryInfo) -> Object {
    let mut json = Object::new();
    json.set("distinctType", distinct_name(info.distinct));
    json.set("top", count(info.top));
    json.set("offset", count(info.offset));
    json.set("limit", count(info.limit));
    json.set("orderBy", list(info.order_by.iter().map(|&direction| direction_name(direction))));
    json.set("orderByExpressions", list(info.order_by_expressions.iter().map(String::as_str)));
    json.set("groupByExpressions", list(info.group_by_expressions.iter().map(String::as_str)));
    json.set("groupByAliases", list(info.group_by_aliases.iter().map(String::as_str)));
    json.set("aggregates", list(info.aggregates.iter().map(|&aggregate| aggregate_name(aggregate))));
    let types = info.group_by_alias_to_aggregate.iter();
    let types = types.map(|(alias, aggregate)| {
        (alias.clone(), aggregate.map_or(Value::Null, |aggregate| aggregate_name(aggregate).into()))
    });
    json.set("groupByAliasToAggregateType", types.collect::<Object>());
    json.set("rewrittenQuery", info.rewritten_query.as_str());
    json.set("hasSelectValue", info.has_select_value);
    json.set(
        "dCountInfo",
        info.distinct_count.as_ref().map_or(Value::Null, |found| {
            let mut alias = Object::new();
            alias.set("dCountAlias", found.alias.as_str());
            alias.into()
        }),
    );
    json.set("hasNonStreamingOrderBy", info.has_non_streaming_order_by);
    json
}

fn count(count: Option<u64>) -> Value {
    count.map_or(Value::Null, Value::from)
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> Value {
    Value::Array(names.map(Value::from).collect())
}

fn distinct_name(distinct: Distinct) -> &'static str {
    match distinct {
        Distinct::None => "None",
        Distinct::Ordered => "Ordered",
        Distinct::Unordered => "Unordered",
    }
}

fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::Ascending => "Ascending",
        Direction::Descending => "Descending",
    }
}

fn aggregate_name(aggregate: Aggregate) -> &'static str {
    match aggregate {
        Aggregate::Count => "Count",
        Aggregate::CountIf => "CountIf",
        Aggregate::Sum => "Sum",
        Aggregate::Average => "Average",
        Aggregate::Min => "Min",
        Aggregate::Max => "Max",
        Aggregate::MakeList => "MakeList",
        Aggregate::MakeSet => "MakeSet",
    }
}
