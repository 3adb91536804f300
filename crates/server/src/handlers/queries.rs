//! Queries over items, and their plans.
//!
//! Like the gateway of the service, the server runs a query over the whole container when its rows can be streamed. One that
//! needs more (an order, groups, aggregates, ...) is refused with its plan, and the client sends the queries of the plan to
//! the partitions.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::StatusCode;
use hyper::header::{HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, utf8_percent_encode};
use quire_engine::{Container, Crossing, Feature, IndexMetrics, PageRequest, QueryMetrics, QueryPlan, Scope};
use quire_resource::EpkRange;
use quire_value::{Object, Value};

use crate::handlers::items::{FOLLOWED, with_positions};
use crate::handlers::{Call, HandlerResult, charge, feeds};
use crate::wire;
use crate::wire::headers::{Reply, page_head};
use crate::wire::status::{self, HandlerError, RequestError};

const POPULATE_METRICS: HeaderName = HeaderName::from_static("x-ms-documentdb-populatequerymetrics");
const METRICS: HeaderName = HeaderName::from_static("x-ms-documentdb-query-metrics");
const POPULATE_INDEX_METRICS: HeaderName = HeaderName::from_static("x-ms-cosmos-populateindexmetrics");
const POPULATE_INDEX_METRICS_V2: HeaderName = HeaderName::from_static("x-ms-cosmos-populateindexmetrics-v2");
const INDEX_METRICS: HeaderName = HeaderName::from_static("x-ms-cosmos-index-utilization");
const SUPPORTED_FEATURES: HeaderName = HeaderName::from_static("x-ms-cosmos-supported-query-features");
/// Extensions: run the whole query here, and say how it was run.
const WHOLE: HeaderName = HeaderName::from_static("x-quire-whole");
const EXPLAIN: HeaderName = HeaderName::from_static("x-quire-explain");

/// Clients accept about 16 KB of headers.
const EXPLAIN_HEADER_BYTES_MAX: usize = 4 << 10;
const EXPLAIN_ENCODED: &AsciiSet = &CONTROLS.add(b'%');

const EXECUTION_INFO: HeaderName = HeaderName::from_static("x-ms-cosmos-query-execution-info");

pub(crate) async fn query(call: &Call<'_>, database: &str, container: &str) -> HandlerResult {
    let container = call.item_container(database, container)?;
    let query = call.query()?;
    let explain = call.is_true(&EXPLAIN);
    if explain {
        // It counts index rows of all partition keys.
        call.check_whole_container("x-quire-explain")?;
    }
    let page = PageRequest {
        crossing: crossing(call, &container),
        explain,
        index_metrics: call.is_true(&POPULATE_INDEX_METRICS) || call.is_true(&POPULATE_INDEX_METRICS_V2),
        resume: query.resume,
        follow: call.follow()?,
        may_follow: !call.request.has_token,
        head: page_head(&container),
        ..call.page()?
    };
    let (is_at_gateway, is_followed) = (is_at_gateway(&page), page.follow.is_some());
    let (engine, source) = (call.state.engine.clone(), container.clone());
    let (text, parameters) = (query.text, query.parameters);
    let runs_scripts = may_call_functions(&text);
    let run = move || {
        let answer = engine.query_items(&source, &text, &parameters, &page);
        (text, answer)
    };
    let (text, answer) = if runs_scripts { call.run_script(run).await? } else { call.run(run).await? };
    let reply = match answer.result {
        Ok(mut page) => {
            if is_at_gateway {
                page.continuation = page.continuation.map(|token| gateway_token(&token, page.range.as_ref()));
            }
            let (metrics, explained) = (page.metrics, page.explain.clone());
            let execution_info = execution_info(page.ties_descending);
            let indexes = page.index_metrics.take();
            let followed = is_followed.then_some(page.followed);
            let reply = feeds::page_reply(page);
            let reply = with_metrics(call, reply.with(EXECUTION_INFO, execution_info), &metrics);
            with_followed(with_explanation(with_index_metrics(call, reply, indexes), explained), followed)
        }
        Err(error) => Reply::failure(status::query(&error, &text)),
    };
    Ok(with_positions(reply, &container, answer.charge, answer.position.as_ref()))
}

/// Whether the query is one over all ranges that the gateway itself would run.
fn is_at_gateway(page: &PageRequest) -> bool {
    let Scope { partition_key, partition_id, range } = &page.scope;
    partition_key.is_none() && partition_id.is_none() && range.is_none() && page.crossing != Crossing::Whole
}

/// A token of the gateway says in which range it continues: `{"token":"...","range":{"min":"","max":"FF"}}`.
fn gateway_token(token: &str, range: Option<&EpkRange>) -> String {
    let EpkRange { min, max } = range.cloned().unwrap_or_else(EpkRange::full);
    let range: Object = [("min", min.to_hex()), ("max", max.to_hex())].into_iter().collect();
    let token: Object = [("token", Value::from(token)), ("range", range.into())].into_iter().collect();
    Value::Object(token).to_json()
}

/// Whether user-defined functions may run. Only `udf.` calls one; where it is part of a string, the lane is the only
/// difference.
fn may_call_functions(query: &str) -> bool {
    query.as_bytes().windows(3).any(|word| word.eq_ignore_ascii_case(b"udf"))
}

fn crossing(call: &Call<'_>, container: &Container) -> Crossing {
    // Clients from before partition keys have nothing to merge with.
    let is_from_before = container.definition.partition_key.system_key && !call.knows_partition_keys();
    if is_from_before || call.is_true(&WHOLE) {
        Crossing::Whole
    } else if call.crosses_partitions() {
        Crossing::Streamed
    } else {
        Crossing::Refused
    }
}

fn with_followed(reply: Reply, followed: Option<u64>) -> Reply {
    match followed {
        Some(count) => reply.with(FOLLOWED, HeaderValue::from(count)),
        None => reply,
    }
}

/// For clients that show headers but not bodies; the body has the plan in any case.
fn with_explanation(reply: Reply, explained: Option<String>) -> Reply {
    let Some(text) = explained else { return reply };
    let encoded = utf8_percent_encode(&text, EXPLAIN_ENCODED).to_string();
    if encoded.len() > EXPLAIN_HEADER_BYTES_MAX { reply } else { reply.with_text(EXPLAIN, encoded) }
}

/// For a client that resumes an order by itself: in which direction `_rid` orders equal rows, unless it takes that from the
/// first column.
fn execution_info(ties_descending: bool) -> HeaderValue {
    HeaderValue::from_static(if ties_descending {
        "{\"reverseRidEnabled\":false,\"reverseIndexScan\":true}"
    } else {
        "{\"reverseRidEnabled\":false,\"reverseIndexScan\":false}"
    })
}

fn with_metrics(call: &Call<'_>, mut reply: Reply, metrics: &QueryMetrics) -> Reply {
    if call.is_true(&POPULATE_METRICS) {
        reply = reply.with_text(METRICS, metrics_text(metrics));
    }
    reply
}

/// Two forms, by the request header: percent-encoded JSON for the second, base64 of other JSON for the first.
fn with_index_metrics(call: &Call<'_>, reply: Reply, metrics: Option<IndexMetrics>) -> Reply {
    let Some(metrics) = metrics else { return reply };
    let text = if call.is_true(&POPULATE_INDEX_METRICS_V2) {
        utf8_percent_encode(&metrics.to_json_v2().to_json(), NON_ALPHANUMERIC).to_string()
    } else {
        STANDARD.encode(metrics.to_json().to_json())
    };
    reply.with_text(INDEX_METRICS, text)
}

/// `name=value` pairs joined by `;`, none after the last: an empty one is an error for clients.
fn metrics_text(metrics: &QueryMetrics) -> String {
    let milliseconds = |micros: u64| format!("{:.2}", micros as f64 / 1000.0);
    let total = milliseconds(metrics.compile_micros + metrics.execute_micros);
    let (compile, plan) = (milliseconds(metrics.compile_micros), milliseconds(metrics.plan_micros));
    // Above 0 when anything was loaded.
    let load = if metrics.loaded_count > 0 { metrics.load_micros.max(10) } else { metrics.load_micros };
    let (index, load) = (milliseconds(metrics.index_micros), milliseconds(load));
    let write = milliseconds(metrics.write_micros);
    // The time that no other entry has.
    let named = metrics.plan_micros + metrics.index_micros + metrics.load_micros + metrics.write_micros;
    let run = milliseconds(metrics.execute_micros.saturating_sub(named));
    let (loaded, loaded_bytes) = (metrics.loaded_count, metrics.loaded_bytes);
    let (output, output_bytes) = (metrics.output_count, metrics.output_bytes);
    let ratio = metrics.index_hit_ratio;
    format!(
        "totalExecutionTimeInMs={total};queryCompileTimeInMs={compile};queryLogicalPlanBuildTimeInMs=0.00;\
         queryPhysicalPlanBuildTimeInMs={plan};queryOptimizationTimeInMs=0.00;VMExecutionTimeInMs={run};\
         indexLookupTimeInMs={index};instructionCount=0;documentLoadTimeInMs={load};\
         systemFunctionExecuteTimeInMs=0.00;userFunctionExecuteTimeInMs=0.00;retrievedDocumentCount={loaded};\
         retrievedDocumentSize={loaded_bytes};outputDocumentCount={output};outputDocumentSize={output_bytes};\
         writeOutputTimeInMs={write};indexUtilizationRatio={ratio:.2}"
    )
}

/// How a client should run a query over several partitions. Made from the text alone: nothing is read.
pub(crate) async fn plan(call: &Call<'_>, database: &str, container: &str) -> HandlerResult {
    let container = call.item_container(database, container)?;
    let query = call.query()?;
    let scope = call.scope()?;
    let (engine, source, cancel) =
        (call.state.engine.clone(), container.clone(), call.request.client.cancel());
    let (text, plan) = call
        .run(move || {
            let plan = engine.query_plan(&source, &query.text, &query.parameters, &scope, &cancel);
            (query.text, plan)
        })
        .await?;
    let reply = match plan {
        Ok(plan) => {
            check_features(call, &plan.plan)?;
            Reply::json(StatusCode::OK, wire::query_plan(&plan))
        }
        Err(error) => Reply::failure(status::plan(&error, &text)),
    };
    Ok(reply.in_container(&container).charge(charge::PLAN))
}

/// A plan that the client cannot execute is never sent: it would give wrong rows. What it can execute are names separated by
/// commas.
fn check_features(call: &Call<'_>, plan: &QueryPlan) -> Result<(), HandlerError> {
    let supported = call.text(&SUPPORTED_FEATURES)?.unwrap_or_default();
    let features: Vec<String> = plan.missing(supported).into_iter().map(Feature::name).collect();
    if features.is_empty() { Ok(()) } else { Err(RequestError::PlanFeatures { features }.into()) }
}
