//! Pages of items: lists and queries.

use std::sync::Arc;

use quire_sql::{Environment, Parameters, Schema};
use quire_value::Object;

use super::Engine;
use crate::api::{Answer, Cancel, EngineError, Page, PageRequest, PlannedQuery, Scope};
use crate::catalog::Container;
use crate::query;
use crate::query::client_plan::planned;
use crate::query::compile::{CompiledQuery, compiled};
use crate::query::follow::PageLinks;
use crate::query::functions::PageFunctions;
use crate::runtime::allowance;

impl Engine {
    pub fn list_items(&self, container: &Arc<Container>, request: &PageRequest) -> Answer<Page> {
        self.on_current(container, |container| query::page::list_items(&self.shared, container, request))
    }

    pub fn query_items(
        &self,
        container: &Arc<Container>,
        text: &str,
        parameters: &Parameters,
        request: &PageRequest,
    ) -> Answer<Page> {
        self.on_current(container, |container| {
            query::query_items(&self.shared, &self.catalog, container, text, parameters, request)
        })
    }

    /// A query over resources that are already in memory (feeds of databases, containers, offers, ...). `body` gives the
    /// members of one.
    pub fn query_resources<R>(
        &self,
        text: &str,
        parameters: &Parameters,
        resources: &[R],
        body: impl Fn(&R) -> Object,
        request: &PageRequest,
    ) -> Result<Page, EngineError> {
        query::resources::query_resources(&self.shared, text, parameters, (resources, &body), request)
    }

    /// What a client does with the rows of the partitions, whatever part of the container it asks of.
    pub fn query_plan(
        &self,
        container: &Container,
        text: &str,
        parameters: &Parameters,
        scope: &Scope,
        cancel: &Cancel,
    ) -> Result<PlannedQuery, EngineError> {
        let allowance = allowance::of_page(&self.shared, cancel);
        let functions = PageFunctions::of(&self.shared, container, &allowance);
        let links = PageLinks::new(&self.shared, Some(&self.catalog), container, &allowance);
        let schema = Schema::of(&container.definition).with_functions(&functions).with_links(&links);
        let geospatial = container.definition.geospatial;
        let environment = Environment { geospatial, ..Environment::within(allowance.clone()) };
        let CompiledQuery { query, .. } =
            compiled(&self.shared, container, (text, parameters), schema, environment)?;
        planned(container, &query, scope)
    }
}
