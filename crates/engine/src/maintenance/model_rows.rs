//! Rows that declarations of a model have beside items, derived again from the items alone: for a restore and for
//! `verify`.
//!
//! Rows of links' indexes and of mirrors follow from single items. Totals, values of `min` and `max`, and keys by which links find
//! items follow from all of them together. Only declarations whose rows are complete have any here: those that are active, and
//! those whose owned values are being written.

use std::collections::HashMap;

use quire_model::{Database, ModelRules, OnDelete, Operation, RollupTotals, TargetKey};
use quire_resource::{ContainerDefinition, expires_at};
use quire_value::Node;

use crate::api::{EngineError, corrupt};
use crate::catalog::model_row::ModelRow;
use crate::indexes::IndexId;
use crate::links::{
    EXTREME_COUNT_BYTES, TargetHash, extreme_row, link_rows, mirror_value_bytes, referrer_order,
    referrer_place,
};
use crate::maintenance::aggregates::{Aggregate, Aggregates, KeyHolder};
use crate::maintenance::derived::DerivedRow;
use crate::model::{Declaration, Declarations};
use crate::partition::deleted_keys::DeletedKeys;
use crate::store::item_row::ItemRow;
use crate::store::keys::{self, DeclarationKeys, INDEX, LOOKUPS, LinkKeys};

pub(crate) struct ModelRows {
    rules: ModelRules,
    declarations: Declarations,
    containers: HashMap<String, u32>,
    /// Totals, values of `min` and `max`, and keys of links. Of several items with a key the one that expires last has it; the
    /// others are no longer visible.
    aggregates: Aggregates,
    /// Default times to live of containers, and keys that were deleted.
    default_ttls: HashMap<u32, Option<i32>>,
    deleted_keys: HashMap<u32, DeletedKeys>,
}

impl KeyHolder {
    /// It was or may be gone before its rows are: the build of a link that finds it so leaves its key alone.
    fn is_temporary(&self) -> bool {
        self.expires_at < i64::MAX
    }
}

/// Where a target is found, and what says that its referrers are being rewritten.
pub(crate) struct TargetRows {
    pub lookup: Vec<u8>,
    pub fan_out: Vec<u8>,
    /// When it is deleted, its link says what becomes of its referrers.
    pub is_deleted_by_link: bool,
}

impl ModelRows {
    /// `definitions` are the containers of the database, with their numbers.
    pub fn new(row: ModelRow, definitions: &[(u32, &ContainerDefinition)]) -> Result<ModelRows, EngineError> {
        let database = Database::new("", definitions.iter().map(|(_, definition)| *definition));
        let rules = ModelRules::new(&row.model, &database).map_err(|error| corrupt(error.to_string()))?;
        let names = row.model.containers();
        let named = definitions.iter().filter(|(_, definition)| names.contains(&definition.id.as_str()));
        let containers = named.map(|(number, definition)| (definition.id.clone(), *number)).collect();
        let default_ttls =
            definitions.iter().map(|(number, definition)| (*number, definition.default_ttl)).collect();
        let (aggregates, deleted_keys) = Default::default();
        let declarations = row.declarations;
        Ok(ModelRows { rules, declarations, containers, aggregates, default_ttls, deleted_keys })
    }

    /// Call it before adding items of the container: partition keys whose items are no longer visible.
    pub fn set_deleted_keys(&mut self, container: u32, deleted: DeletedKeys) {
        self.deleted_keys.insert(container, deleted);
    }

    /// Indexes of links in a container, and whether they are complete.
    pub fn link_indexes(&self, container: u32) -> Vec<(LinkKeys, bool)> {
        let links = self.rules.links.iter().zip(&self.declarations.links);
        let here = links.filter(|(rules, _)| self.number(&rules.link.from.container) == container);
        here.map(|(_, own)| (link_keys(container, own), own.state.keeps_values())).collect()
    }

    /// The declarations, and whether their rows are complete.
    pub fn declarations(&self) -> impl Iterator<Item = (u32, bool)> {
        self.declarations.iter().map(|(_, own)| (own.number, own.state.keeps_values()))
    }

    /// Takes an item in. Rows that follow from it alone.
    pub fn add(
        &mut self,
        container: u32,
        rid: u64,
        row: &ItemRow<'_>,
    ) -> Result<Vec<DerivedRow>, EngineError> {
        let (node, mut rows) = (row.node()?, Vec::new());
        let order = referrer_order(row.id()?, &row.partition_key()?);
        for link in 0..self.rules.links.len() {
            let (rules, own) = (&self.rules.links[link], &self.declarations.links[link]);
            if !own.state.keeps_values() {
                continue;
            }
            if self.number(&rules.link.from.container) == container {
                let references = rules.references(node)?;
                for middle in link_rows(&references, &order) {
                    let prefix = link_keys(container, own).prefix();
                    let key = [&prefix, &middle[..], &rid.to_be_bytes()].concat();
                    rows.push(DerivedRow { space: INDEX, key, value: Vec::new() });
                }
            }
            if self.number(&rules.link.to.container) == container && rules.link.has_key_index() {
                self.add_link_key(container, link, rid, row)?;
            }
        }
        for rollup in 0..self.rules.rollups.len() {
            self.add_rollup(container, rollup, node)?;
        }
        for mirror in 0..self.rules.mirrors.len() {
            rows.extend(self.mirror_rows(container, mirror, rid, row)?);
        }
        Ok(rows)
    }

    fn add_link_key(
        &mut self,
        container: u32,
        link: usize,
        rid: u64,
        row: &ItemRow<'_>,
    ) -> Result<(), EngineError> {
        let Some(key) = self.rules.links[link].target_key(row.node()?, &row.partition_key()?) else {
            return Ok(());
        };
        let (rows, target) = name(container, &self.declarations.links[link], &key);
        let holder = self.holder(container, rid, row);
        self.aggregates.add(rows.link_key(&target.0), Aggregate::Holder(holder))
    }

    fn holder(&self, container: u32, rid: u64, row: &ItemRow<'_>) -> KeyHolder {
        let default_ttl = self.default_ttls.get(&container).copied().flatten();
        let deleted = self.deleted_keys.get(&container);
        let is_deleted = deleted.is_some_and(|keys| keys.covers(row.encoded_partition_key(), row.stamp.lsn));
        let expires_at = match expires_at(default_ttl, row.ttl, row.written()) {
            _ if is_deleted => i64::MIN,
            at => at.unwrap_or(i64::MAX),
        };
        KeyHolder { expires_at, ts: row.stamp.ts, lsn: row.stamp.lsn, rid }
    }

    fn add_rollup(&mut self, container: u32, number: usize, node: Node<'_>) -> Result<(), EngineError> {
        let (rollup, own) = (&self.rules.rollups[number], &self.declarations.rollups[number]);
        let link = &self.rules.links[rollup.link].link;
        if !own.state.keeps_values() || self.number(&link.from.container) != container {
            return Ok(());
        }
        let target = self.number(&link.to.container);
        for (key, change) in self.rules.rollup_changes(rollup, None, Some(node))? {
            let (rows, target) = name(target, own, &key);
            if matches!(rollup.rollup.op, Operation::Min | Operation::Max) {
                for (value, by) in &change.keys {
                    let (key, row) = extreme_row(rows, target, value, *by);
                    let (_, rest) = row.split_at(EXTREME_COUNT_BYTES);
                    self.aggregates.add(key, Aggregate::Value { count: *by, rest: rest.to_vec() })?;
                }
            } else {
                let mut totals = RollupTotals::default();
                totals.apply(&change);
                self.aggregates.add(rows.total(&target.0), Aggregate::Totals(totals))?;
            }
        }
        Ok(())
    }

    fn mirror_rows(
        &self,
        container: u32,
        number: usize,
        rid: u64,
        row: &ItemRow<'_>,
    ) -> Result<Vec<DerivedRow>, EngineError> {
        let (mirror, own) = (&self.rules.mirrors[number], &self.declarations.mirrors[number]);
        let link = &self.rules.links[mirror.link];
        if !own.state.keeps_values() || self.number(&link.link.from.container) != container {
            return Ok(Vec::new());
        }
        let value = self.rules.mirrored(mirror, row.node()?);
        if value.is_undefined() {
            return Ok(Vec::new());
        }
        let (target, place) =
            (self.number(&link.link.to.container), referrer_place(row.id()?, &row.partition_key()?, rid));
        let mut rows: Vec<DerivedRow> = Vec::new();
        for reference in link.references(row.node()?)? {
            let (keys, hash) = name(target, own, &reference.target);
            let (key, value) = (keys.mirror(&hash.0, &place), mirror_value_bytes(&value));
            if rows.iter().all(|row| row.key != key) {
                rows.push(DerivedRow { space: LOOKUPS, key, value });
            }
        }
        Ok(rows)
    }

    /// Rows that follow from all items that were taken in, and whether each must be there. Nothing is left then.
    pub fn drain_rows(
        &mut self,
        mut each: impl FnMut(DerivedRow, bool) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        self.aggregates.drain(|key, aggregate| {
            let (value, is_certain) = match aggregate {
                Aggregate::Totals(totals) if totals == RollupTotals::default() => return Ok(()),
                Aggregate::Totals(totals) => (totals.to_bytes(), true),
                Aggregate::Value { count, rest } => ([&count.to_le_bytes()[..], &rest].concat(), true),
                Aggregate::Holder(holder) => (keys::number_value(holder.rid), !holder.is_temporary()),
            };
            each(DerivedRow { space: LOOKUPS, key, value }, is_certain)
        })
    }

    /// The rows of a target of a link; `None` where there is no such link.
    pub fn target_of(&self, declaration: u32, target: &TargetKey) -> Option<TargetRows> {
        let link = self.declarations.links.iter().position(|own| own.number == declaration)?;
        let (rules, own) = (&self.rules.links[link], &self.declarations.links[link]);
        let number = self.number(&rules.link.to.container);
        let (keys, hash) = name(number, own, target);
        let lookup = match &target.partition_key {
            Some(key) if !rules.link.has_key_index() => {
                let epk = rules.target_key.effective(key);
                let identity = rules.target_key.identity(key);
                keys::id(number, identity.as_ref().unwrap_or(&epk), &target.value)
            }
            _ => keys.link_key(&hash.0),
        };
        let is_deleted_by_link =
            own.state.is_active() && matches!(rules.link.on_delete, OnDelete::Cascade | OnDelete::Remove);
        Some(TargetRows { lookup, fan_out: keys.fan_out(&hash.0), is_deleted_by_link })
    }

    fn number(&self, container: &str) -> u32 {
        self.containers.get(container).copied().unwrap_or_default()
    }
}

/// A target of a declaration.
fn name(container: u32, own: &Declaration, target: &TargetKey) -> (DeclarationKeys, TargetHash) {
    (DeclarationKeys { container, declaration: own.number }, TargetHash::of(target))
}

fn link_keys(container: u32, link: &Declaration) -> LinkKeys {
    LinkKeys { container, index: IndexId::of_link(link.number).0 }
}
