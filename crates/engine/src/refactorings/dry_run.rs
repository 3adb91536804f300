//! What a refactoring would do: counts, what it would leave, and some items before and after. Nothing is written.

use std::ops::Bound;

use quire_sql::ThreadWatch;
use quire_storage::Scan;
use quire_value::{Object, Value};

use super::convert::{PathChange, convert};
use super::order::{RefactoringOrder, Rule};
use super::rekey::RekeyDryRun;
use super::structure::{ItemFinder, Preview, Structure};
use crate::api::{EngineError, corrupt};
use crate::catalog::Container;
use crate::integrity::item_example;
use crate::runtime::Shared;
use crate::store::item_row::ItemRow;
use crate::store::keys::{self, ITEMS};
use crate::store::scan;

const EXAMPLES_MAX: usize = 3;
const LEFT_MAX: usize = 100;
const PAGE_ITEMS: usize = 500;

/// What was seen until now.
#[derive(Clone, Debug, Default)]
pub(crate) struct DryRun {
    pub items: u64,
    pub journal_bytes: u64,
    converted: u64,
    unconverted: u64,
    conflicts: Vec<Value>,
    examples: Vec<Value>,
    preview: Preview,
    next: Option<Vec<u8>>,
    rekey: RekeyDryRun,
}

impl DryRun {
    /// Looks at all items.
    pub fn of_all(
        shared: &Shared,
        container: &Container,
        order: &RefactoringOrder,
    ) -> Result<DryRun, EngineError> {
        let mut found = DryRun::default();
        while found.step(shared, container, order)? {}
        Ok(found)
    }

    /// Looks at some more items; whether there are others.
    pub fn step(
        &mut self,
        shared: &Shared,
        container: &Container,
        order: &RefactoringOrder,
    ) -> Result<bool, EngineError> {
        if let Some(rule) = order.rule.rekey() {
            let has_more = self.rekey.step(shared, container, rule)?;
            self.items = self.rekey.items();
            return Ok(has_more);
        }
        let mut range = keys::items_from(container.number, 0);
        if let Some(last) = &self.next {
            range.start = Bound::Excluded(last.clone());
        }
        let visibility_point = container.visibility_point(shared);
        let page = container.snapshot(shared)?.scan(&Scan { rows_max: PAGE_ITEMS, ..scan(ITEMS, range) })?;
        for (key, bytes) in &page.rows {
            ThreadWatch::check()?;
            keys::rid_of_item_key(key).ok_or_else(|| corrupt("key of an item"))?;
            let row = ItemRow::parse(bytes)?;
            if container.is_invisible(&row, &visibility_point) {
                continue;
            }
            match &order.rule {
                Rule::Structure(structure) => self.preview_structure(shared, container, structure, &row)?,
                Rule::Rename { .. } | Rule::Retype { .. } | Rule::Rekey(_) => {
                    self.preview_item(container, order, &row)?;
                }
            }
        }
        let has_more = page.more;
        self.next = page.rows.into_iter().next_back().map(|(key, _)| key);
        Ok(has_more)
    }

    fn preview_item(
        &mut self,
        container: &Container,
        order: &RefactoringOrder,
        row: &ItemRow<'_>,
    ) -> Result<(), EngineError> {
        let before = row.node()?.to_value();
        let conversion = convert(&order.rule, before.clone());
        self.items += 1;
        self.unconverted += conversion.unconverted.len() as u64;
        for (place, _) in conversion.unconverted.iter().take(LEFT_MAX - self.conflicts.len().min(LEFT_MAX)) {
            self.conflicts.push(item_example(container, row, place, None, None)?);
        }
        if conversion.changes.is_empty() {
            return Ok(());
        }
        self.converted += 1;
        let bytes: usize =
            conversion.changes.iter().map(PathChange::to_json).map(|json| json.to_json().len()).sum();
        self.journal_bytes += bytes as u64;
        if self.examples.len() < EXAMPLES_MAX {
            let example = Object::from_iter([("before", before), ("after", conversion.item)]);
            self.examples.push(Value::Object(example));
        }
        Ok(())
    }

    fn preview_structure(
        &mut self,
        shared: &Shared,
        container: &Container,
        structure: &Structure,
        row: &ItemRow<'_>,
    ) -> Result<(), EngineError> {
        let before = row.node()?.to_value();
        let find = ItemFinder { shared, container };
        let found = self.preview.preview_item(structure, &container.definition.id, &before, &find)?;
        self.items += 1;
        self.unconverted += found.unconverted.len() as u64;
        for (place, _) in found.unconverted.iter().take(LEFT_MAX - self.conflicts.len().min(LEFT_MAX)) {
            self.conflicts.push(item_example(container, row, place, None, None)?);
        }
        self.journal_bytes += found.journal_bytes;
        if found.after.is_empty() {
            return Ok(());
        }
        self.converted += 1;
        if self.examples.len() < EXAMPLES_MAX {
            let item = |(container, item): (String, Value)| {
                Value::Object(Object::from_iter([("container", Value::from(container)), ("item", item)]))
            };
            let after = found.after.into_iter().map(item).collect::<Value>();
            self.examples.push(Value::Object(Object::from_iter([("before", before), ("after", after)])));
        }
        Ok(())
    }

    pub fn to_json(&self, order: &RefactoringOrder) -> Value {
        if order.rule.rekey().is_some() {
            return self.rekey.to_json(&order.container);
        }
        let mut json = Object::new();
        json.set("kind", order.kind);
        json.set("container", order.container.as_str());
        json.set("items", self.items);
        json.set("wouldConvert", self.converted);
        match order.rule {
            Rule::Structure(Structure::Embed(_)) => json.set("wouldDelete", self.preview.created()),
            Rule::Structure(_) => json.set("wouldMake", self.preview.created()),
            Rule::Rename { .. } | Rule::Retype { .. } | Rule::Rekey(_) => {}
        }
        json.set("wouldLeave", self.unconverted);
        json.set("journalBytes", self.journal_bytes);
        json.set("conflicts", Value::Array(self.conflicts.clone()));
        json.set("examples", Value::Array(self.examples.clone()));
        Value::Object(json)
    }
}
