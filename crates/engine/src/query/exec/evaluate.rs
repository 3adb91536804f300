//! The query over single items, as they are stored.

use std::cell::RefCell;
use std::ops::ControlFlow;

use quire_sql::{Evaluator as SqlEvaluator, Item, ItemSink, Query, Row, SearchedText};
use quire_value::Value;

use crate::api::EngineError;
use crate::catalog::Container;
use crate::items::body::{Links, Stamped};
use crate::query::functions::PageFunctions;
use crate::query::reader::Found;

pub(crate) struct Evaluator<'a> {
    pub query: &'a Query,
    functions: &'a PageFunctions<'a>,
    links: Links,
    rows: RefCell<SqlEvaluator<'a>>,
}

impl<'a> Evaluator<'a> {
    pub fn new(
        query: &'a Query,
        functions: &'a PageFunctions<'a>,
        container: &Container,
    ) -> Result<Evaluator<'a>, EngineError> {
        let rows = RefCell::new(query.start_with_functions(functions)?);
        Ok(Evaluator { query, functions, links: Links::new(container), rows })
    }

    /// The whole query over what a feed hands out: see [`Query::run`].
    pub fn run(
        &self,
        feed: &mut dyn FnMut(&mut ItemSink<'_>) -> Result<(), EngineError>,
        emit: &mut dyn FnMut(&Row<'_>) -> ControlFlow<()>,
    ) -> Result<(), EngineError> {
        self.query.run_with_functions(self.functions, feed, emit)
    }

    /// The query with the values of its aggregates: see [`Query::run_with_aggregates`].
    pub fn run_with_aggregates(
        &self,
        aggregates: Vec<Value>,
        emit: &mut dyn FnMut(&Row<'_>) -> ControlFlow<()>,
    ) -> Result<(), EngineError> {
        Ok(self.query.run_with_aggregates(self.functions, aggregates, emit)?)
    }

    /// Lends the item as the query language sees it.
    pub fn with_item<T>(
        &self,
        found: &Found<'_>,
        use_item: impl FnOnce(&Item<'_>) -> T,
    ) -> Result<T, EngineError> {
        let system = self.system(found);
        Ok(use_item(&Item::stored(found.row.node()?, &system)))
    }

    pub fn system(&self, found: &Found<'_>) -> Stamped<'_> {
        Stamped { links: &self.links, child: found.spot.rid, stamp: found.row.stamp }
    }

    /// The rows of an item, before OFFSET and LIMIT.
    pub fn rows_of(
        &self,
        found: &Found<'_>,
        emit: &mut dyn FnMut(&Row<'_>) -> ControlFlow<()>,
    ) -> Result<(), EngineError> {
        Ok(self.with_item(found, |item| self.rows.borrow_mut().rows_of(item, emit))??)
    }

    /// The same for what an index knows of an item.
    pub fn rows_of_part(
        &self,
        part: &Value,
        emit: &mut dyn FnMut(&Row<'_>) -> ControlFlow<()>,
    ) -> Result<(), EngineError> {
        Ok(self.rows.borrow_mut().rows_of(&Item::value(part), emit)?)
    }

    pub fn calls_functions(&self) -> bool {
        self.functions.are_called()
    }

    /// Whether items should be held back until [`Evaluator::prepare`] has seen several of them.
    pub fn is_prepared(&self) -> bool {
        self.functions.wants_foresight()
    }

    /// Has the functions that these items call run together.
    pub fn prepare(&self, items: &[Found<'_>]) -> Result<(), EngineError> {
        self.functions.foresee(|| {
            items
                .iter()
                .try_for_each(|found| self.with_item(found, |item| self.rows.borrow().collect_calls(item)))
        })
    }

    /// The same for what an index knows of items.
    pub fn prepare_parts<'p>(
        &self,
        parts: impl Iterator<Item = &'p Value> + Clone,
    ) -> Result<(), EngineError> {
        if !self.is_prepared() {
            return Ok(());
        }
        self.functions.foresee(|| {
            parts.clone().for_each(|part| self.rows.borrow().collect_calls(&Item::value(part)));
            Ok(())
        })
    }

    /// Whether an item passes WHERE.
    pub fn matches(&self, found: &Found<'_>) -> Result<bool, EngineError> {
        Ok(self.with_item(found, |item| self.rows.borrow().matches(item))??)
    }

    /// Whether an item gives a row, also of a query that ranks.
    pub fn produces_row(&self, found: &Found<'_>) -> Result<bool, EngineError> {
        Ok(self.with_item(found, |item| self.rows.borrow().produces_row(item))??)
    }

    /// The number of words of a text, and how often each of the terms occurs.
    pub fn text_counts(&self, searched: &SearchedText, text: &str) -> Result<Vec<u64>, EngineError> {
        Ok(self.rows.borrow().text_counts(searched, text)?)
    }

    pub fn has_rows(&self, found: &Found<'_>) -> Result<bool, EngineError> {
        let mut any = false;
        self.rows_of(found, &mut |_| {
            any = true;
            ControlFlow::Break(())
        })?;
        Ok(any)
    }
}
