//! The query over single items, as they are stored.

use std::cell::RefCell;
use std::ops::ControlFlow;

use quire_sql::{Evaluator as SqlEvaluator, Externals, Item, ItemSink, Query, Row, SearchedText};
use quire_value::Value;

use crate::api::EngineError;
use crate::catalog::Container;
use crate::items::body::{SelfLinks, StampedItem};
use crate::query::follow::PageLinks;
use crate::query::functions::PageFunctions;
use crate::query::reader::FoundItem;

/// What the caller needs of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EvaluationNeed {
    Rows,
    /// Only whether there are any.
    Existence,
}

pub(crate) struct ItemEvaluator<'a> {
    pub query: &'a Query,
    functions: &'a PageFunctions<'a>,
    pub followed: &'a PageLinks<'a>,
    links: SelfLinks,
    rows: RefCell<SqlEvaluator<'a>>,
}

impl<'a> ItemEvaluator<'a> {
    pub fn new(
        query: &'a Query,
        functions: &'a PageFunctions<'a>,
        followed: &'a PageLinks<'a>,
        container: &Container,
    ) -> Result<ItemEvaluator<'a>, EngineError> {
        let rows = RefCell::new(query.start_with(Externals { functions, links: followed })?);
        Ok(ItemEvaluator { query, functions, followed, links: SelfLinks::new(container), rows })
    }

    fn externals(&self) -> Externals<'_> {
        Externals { functions: self.functions, links: self.followed }
    }

    /// Runs the whole query over its input: see [`Query::run`].
    pub fn run(
        &self,
        feed: &mut dyn FnMut(&mut ItemSink<'_>) -> Result<(), EngineError>,
        emit: &mut dyn FnMut(&Row<'_>) -> ControlFlow<()>,
    ) -> Result<(), EngineError> {
        self.query.run_with(self.externals(), feed, emit)
    }

    /// The query with the values of its aggregates: see [`Query::run_with_aggregates`].
    pub fn run_with_aggregates(
        &self,
        aggregates: Vec<Value>,
        emit: &mut dyn FnMut(&Row<'_>) -> ControlFlow<()>,
    ) -> Result<(), EngineError> {
        Ok(self.query.run_with_aggregates(self.externals(), aggregates, emit)?)
    }

    /// Lends the item as the query language sees it.
    pub fn with_item<T>(
        &self,
        found: &FoundItem<'_>,
        use_item: impl FnOnce(&Item<'_>) -> T,
    ) -> Result<T, EngineError> {
        let system = self.system(found);
        Ok(use_item(&Item::stored(found.row.node()?, &system)))
    }

    pub fn system(&self, found: &FoundItem<'_>) -> StampedItem<'_> {
        StampedItem { links: &self.links, child: found.position.rid, stamp: found.row.stamp }
    }

    /// The rows of an item, before OFFSET and LIMIT.
    pub fn rows_of(
        &self,
        found: &FoundItem<'_>,
        emit: &mut dyn FnMut(&Row<'_>) -> ControlFlow<()>,
    ) -> Result<(), EngineError> {
        Ok(self.with_item(found, |item| self.rows.borrow_mut().rows_of(item, emit))??)
    }

    /// The same for the part of an item that an index row has.
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

    /// Whether items should be buffered until [`ItemEvaluator::prepare`] has seen several of them.
    pub fn is_prepared(&self, need: EvaluationNeed) -> bool {
        self.functions.wants_prefetch() || self.follows(need)
    }

    /// Whether links are followed for what is needed.
    pub fn follows(&self, need: EvaluationNeed) -> bool {
        match need {
            EvaluationNeed::Rows => self.followed.are_used(),
            EvaluationNeed::Existence => self.followed.are_used() && self.query.follows_for_rows(),
        }
    }

    /// Whether an item can have rows, by its own values alone.
    pub fn may_have_rows(&self, found: &FoundItem<'_>) -> Result<bool, EngineError> {
        Ok(self.with_item(found, |item| self.rows.borrow().may_have_rows(item))??)
    }

    /// Calls the functions of these items in one message, and reads the items that they follow in one batch.
    pub fn prepare(&self, items: &[FoundItem<'_>], need: EvaluationNeed) -> Result<(), EngineError> {
        if items.is_empty() {
            return Ok(());
        }
        let is_filter = need == EvaluationNeed::Existence && self.query.rows_are_defined();
        let collect = |item: &Item<'_>| match is_filter {
            true => self.rows.borrow().collect_filter_calls(item),
            false => self.rows.borrow().collect_calls(item),
        };
        let look = || items.iter().try_for_each(|found| self.with_item(found, collect));
        if self.follows(need) { self.followed.prefetch(look) } else { self.functions.prefetch(look) }
    }

    /// The same for the parts of items that index rows have.
    pub fn prepare_parts<'p>(
        &self,
        parts: impl Iterator<Item = &'p Value> + Clone,
    ) -> Result<(), EngineError> {
        if !self.functions.wants_prefetch() {
            return Ok(());
        }
        self.functions.prefetch(|| {
            parts.clone().for_each(|part| self.rows.borrow().collect_calls(&Item::value(part)));
            Ok(())
        })
    }

    /// Whether an item passes WHERE.
    pub fn matches(&self, found: &FoundItem<'_>) -> Result<bool, EngineError> {
        Ok(self.with_item(found, |item| self.rows.borrow().matches(item))??)
    }

    /// Whether an item gives a row. Also for queries that rank.
    pub fn produces_row(&self, found: &FoundItem<'_>) -> Result<bool, EngineError> {
        Ok(self.with_item(found, |item| self.rows.borrow().produces_row(item))??)
    }

    /// The number of words of a text, and how often each of the terms occurs.
    pub fn text_counts(&self, searched: &SearchedText, text: &str) -> Result<Vec<u64>, EngineError> {
        Ok(self.rows.borrow().text_counts(searched, text)?)
    }

    pub fn has_rows(&self, found: &FoundItem<'_>) -> Result<bool, EngineError> {
        // Whether there is a row does not depend on the items that a select list follows.
        if self.followed.are_used() && self.query.rows_are_defined() {
            return self.matches(found);
        }
        let mut any = false;
        self.rows_of(found, &mut |_| {
            any = true;
            ControlFlow::Break(())
        })?;
        Ok(any)
    }
}
