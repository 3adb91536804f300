//! Compiles the queries of a container. What can be [prepared](crate::memory::prepared_queries) is compiled once and then only bound
//! to the parameters of each request, whether the request asks for rows or for a plan.

use std::sync::Arc;

use quire_sql::{Allowance, Analysis, Environment, Parameters, Query, Schema, Syntax};

use crate::api::EngineError;
use crate::catalog::Container;
use crate::memory::prepared_queries::{PreparedEntry, PreparedKey};
use crate::runtime::Shared;

pub(crate) struct CompiledQuery {
    pub query: Query,
    /// Of a query that was prepared.
    pub analysis: Option<Arc<Analysis>>,
}

/// Compiles for a request. `schema` is the container's.
pub(crate) fn compiled(
    shared: &Shared,
    container: &Container,
    (text, parameters): (&str, &Parameters),
    schema: Schema<'_>,
    environment: Environment,
) -> Result<CompiledQuery, EngineError> {
    let computed = &container.definition.computed_properties;
    let key = PreparedKey { version: container.version, text, parameters, computed };
    // A member that the request adds to the rows is not in the text.
    let known = if schema.adds_followed { None } else { shared.prepared_queries.find(&key) };
    let mut environment = environment;
    let may_prepare = known.is_none() && !schema.adds_followed;
    if let Some(PreparedEntry::Prepared { query: prepared, .. }) = known {
        match prepared.bind(parameters, environment)? {
            Ok((query, analysis)) => return Ok(CompiledQuery { query, analysis: Some(analysis) }),
            Err(back) => environment = back,
        }
    }
    let (syntax, is_known) = syntax_of(shared, text, &environment.allowance)?;
    let query = Query::compile_parsed(&syntax, text, parameters, schema, environment)?;
    // Most texts that come once never come again: they have their values in them.
    if may_prepare && is_known {
        shared.prepared_queries.insert(&key, &query);
    }
    Ok(CompiledQuery { query, analysis: None })
}

/// The syntax of a text, within the memory of its query, and whether the text was parsed before.
pub(crate) fn syntax_of(
    shared: &Shared,
    text: &str,
    allowance: &Allowance,
) -> Result<(Syntax, bool), EngineError> {
    allowance.memory().take(Syntax::bytes_max(text))?;
    Ok(shared.syntax_cache.get(text)?)
}
