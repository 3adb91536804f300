//! What another partition key would do: how many keys there would be and how large the largest, which items could not be
//! there, and some items before and after.
//!
//! What is counted is divided by its hash into parts of about a million items, and each part is examined in a walk of its own:
//! memory is bounded whatever the container holds.

use std::collections::HashMap;

use quire_storage::Scan;
use quire_value::{Object, Value};
use ring::digest;

use super::{RekeyRule, RekeyedItem};
use crate::api::EngineError;
use crate::catalog::{Catalog, Container};
use crate::integrity::{item_example, key_json};
use crate::runtime::Shared;
use crate::store::item_row::ItemRow;
use crate::store::keys::{self, ITEMS};
use crate::store::scan;

const EXAMPLES_MAX: usize = 3;
const CONFLICTS_MAX: usize = 100;
const PAGE_ITEMS: usize = 500;
const PART_ITEMS: u64 = 1_000_000;
/// Of no container: nothing of it is stored.
const NO_CONTAINER: u32 = 0;

#[derive(Clone, Debug, Default)]
pub(crate) struct RekeyDryRun {
    items: u64,
    next_rid: u64,
    /// Walks over the items; the current one counts what falls into its part.
    parts: u64,
    part: u64,
    claims: HashMap<[u8; 16], u64>,
    keys: HashMap<[u8; 16], (u64, Value)>,
    key_count: u64,
    largest: Option<(u64, Value)>,
    conflict_count: u64,
    too_long: u64,
    conflicts: Vec<Value>,
    examples: Vec<Value>,
}

impl RekeyDryRun {
    pub fn items(&self) -> u64 {
        self.items
    }

    /// Looks at some more items; whether there are others.
    pub fn step(
        &mut self,
        shared: &Shared,
        container: &Container,
        rule: &RekeyRule,
    ) -> Result<bool, EngineError> {
        if self.parts == 0 {
            self.parts = container.usage().0 / PART_ITEMS + 1;
        }
        let definition = Catalog::rekeyed_definition(container, &container.definition.id, &rule.key)?;
        let visibility_point = container.visibility_point(shared);
        let range = keys::items_from(container.number, self.next_rid);
        let page = container.snapshot(shared)?.scan(&Scan { rows_max: PAGE_ITEMS, ..scan(ITEMS, range) })?;
        for (key, bytes) in &page.rows {
            self.next_rid = keys::rid_of_item_key(key).map_or(u64::MAX, |rid| rid + 1);
            let row = ItemRow::parse(bytes)?;
            if !container.is_invisible(&row, &visibility_point) {
                let node = row.node()?;
                self.preview_item(container, &row, RekeyedItem::of(NO_CONTAINER, &definition, node))?;
            }
        }
        if !page.more {
            self.end_part();
        }
        Ok(self.part < self.parts)
    }

    fn preview_item(
        &mut self,
        container: &Container,
        row: &ItemRow<'_>,
        place: Option<RekeyedItem>,
    ) -> Result<(), EngineError> {
        let is_first = self.part == 0;
        self.items += u64::from(is_first);
        let Some(place) = place else {
            if is_first {
                self.too_long += 1;
                self.conflict(container, row, "its partition key would be too long")?;
            }
            return Ok(());
        };
        if is_first && self.examples.len() < EXAMPLES_MAX {
            self.examples.push(example(row, &place)?);
        }
        let key = key_json(&place.key);
        let name = hash(key.to_json().as_bytes());
        if self.is_of_part(&name) {
            self.keys.entry(name).or_insert((0, key)).0 += 1;
        }
        let own = place.claims.iter().enumerate().filter(|(_, claim)| self.is_of_part(&claim.digest));
        let mut conflict_kind = None;
        for (at, claim) in own.collect::<Vec<_>>() {
            let count = self.claims.entry(claim.digest).or_default();
            *count += 1;
            if *count > 1 {
                conflict_kind = Some(at);
            }
        }
        match conflict_kind {
            Some(at) => {
                self.conflict_count += 1;
                self.conflict(container, row, conflict_text(at == 0))
            }
            None => Ok(()),
        }
    }

    fn is_of_part(&self, hash: &[u8; 16]) -> bool {
        let [first, second, third, fourth, ..] = *hash;
        u64::from(u32::from_be_bytes([first, second, third, fourth])) % self.parts == self.part
    }

    fn end_part(&mut self) {
        for (count, key) in std::mem::take(&mut self.keys).into_values() {
            self.key_count += 1;
            if self.largest.as_ref().is_none_or(|(most, _)| *most < count) {
                self.largest = Some((count, key));
            }
        }
        self.claims = HashMap::new();
        (self.part, self.next_rid) = (self.part + 1, 0);
    }

    fn conflict(&mut self, container: &Container, row: &ItemRow<'_>, why: &str) -> Result<(), EngineError> {
        if self.conflicts.len() < CONFLICTS_MAX {
            let mut conflict = item_example(container, row, "", None, None)?;
            if let Some(conflict) = conflict.as_object_mut() {
                conflict.set("reason", why);
            }
            self.conflicts.push(conflict);
        }
        Ok(())
    }

    pub fn to_json(&self, container: &str) -> Value {
        let mut json = Object::new();
        json.set("kind", "rekey");
        json.set("container", container);
        json.set("items", self.items);
        json.set(
            "wouldConvert",
            self.items - self.too_long - self.conflict_count.min(self.items - self.too_long),
        );
        json.set("wouldLeave", self.conflict_count + self.too_long);
        json.set("partitionKeys", self.key_count);
        if let Some((items, key)) = &self.largest {
            let mut largest = Object::new();
            largest.set("partitionKey", key.clone());
            largest.set("items", *items);
            largest.set("share", *items as f64 / self.items.max(1) as f64);
            json.set("largest", largest);
        }
        json.set("conflicts", Value::Array(self.conflicts.clone()));
        json.set("examples", Value::Array(self.examples.clone()));
        Value::Object(json)
    }
}

/// Why an item cannot be beside another one.
fn conflict_text(is_id: bool) -> &'static str {
    if is_id {
        "another item would have the same id and partition key"
    } else {
        "another item would have the same unique values under the same partition key"
    }
}

fn example(row: &ItemRow<'_>, place: &RekeyedItem) -> Result<Value, EngineError> {
    let item = row.node()?.to_value();
    let with_key =
        |key: Value| Value::Object(Object::from_iter([("partitionKey", key), ("item", item.clone())]));
    let (before, after) = (with_key(key_json(&row.partition_key()?)), with_key(key_json(&place.key)));
    Ok(Value::Object(Object::from_iter([("before", before), ("after", after)])))
}

fn hash(bytes: &[u8]) -> [u8; 16] {
    let hash = digest::digest(&digest::SHA256, bytes);
    hash.as_ref()[..16].try_into().expect("SHA-256 has 32 bytes")
}
