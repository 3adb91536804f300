//! What declarations of a model keep beside items, made again of the items alone: for a restore, and to verify a store by.
//!
//! Rows of links' indexes and of mirrors follow from single items. Totals, values of `min` and `max`, and keys by which links find
//! items follow from all of them together. Only declarations whose rows are complete have any here: those that are active, and
//! those whose owned values are being written.

use std::collections::{BTreeMap, HashMap};

use quire_model::{Database, ModelRules, OnDelete, Operation, RollupTotals, TargetKey};
use quire_resource::ContainerDefinition;
use quire_storage::Op;
use quire_value::Node;

use crate::api::{EngineError, corrupt};
use crate::catalog::model_row::ModelRow;
use crate::indexes::IndexId;
use crate::links::{
    TargetHash, extreme_row, link_rows, mirror_value_bytes, referrer_order, referrer_place, totals_op,
};
use crate::maintenance::derived::DerivedRow;
use crate::model::{Declaration, Declarations};
use crate::store::item_row::Row;
use crate::store::keys::{self, DeclarationKeys, INDEX, LOOKUPS, LinkKeys};

/// A target of a declaration: container, number of the declaration, hash.
type Name = (DeclarationKeys, TargetHash);

pub(crate) struct ModelRows {
    rules: ModelRules,
    declarations: Declarations,
    containers: HashMap<String, u32>,
    totals: HashMap<Name, RollupTotals>,
    extremes: HashMap<Name, BTreeMap<Vec<u8>, i64>>,
    /// Whoever was written last has a key; the other one is not seen any more.
    link_keys: HashMap<Name, (i64, u64, u64)>,
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
        let (totals, extremes, link_keys) = Default::default();
        Ok(ModelRows { rules, declarations: row.declarations, containers, totals, extremes, link_keys })
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
    pub fn add(&mut self, container: u32, rid: u64, row: &Row<'_>) -> Result<Vec<DerivedRow>, EngineError> {
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
        row: &Row<'_>,
    ) -> Result<(), EngineError> {
        let Some(key) = self.rules.links[link].target_key(row.node()?, &row.partition_key()?) else {
            return Ok(());
        };
        let name = self.name(container, &self.declarations.links[link], &key);
        let holder = (row.stamp.ts, row.stamp.lsn, rid);
        let entry = self.link_keys.entry(name).or_insert(holder);
        *entry = holder.max(*entry);
        Ok(())
    }

    fn add_rollup(&mut self, container: u32, number: usize, node: Node<'_>) -> Result<(), EngineError> {
        let (rollup, own) = (&self.rules.rollups[number], &self.declarations.rollups[number]);
        let link = &self.rules.links[rollup.link].link;
        if !own.state.keeps_values() || self.number(&link.from.container) != container {
            return Ok(());
        }
        let target = self.number(&link.to.container);
        for (key, change) in self.rules.rollup_changes(rollup, None, Some(node))? {
            let name = self.name(target, own, &key);
            if matches!(rollup.rollup.op, Operation::Min | Operation::Max) {
                let values = self.extremes.entry(name).or_default();
                change.keys.iter().for_each(|(value, by)| *values.entry(value.clone()).or_default() += by);
            } else {
                self.totals.entry(name).or_default().apply(&change);
            }
        }
        Ok(())
    }

    fn mirror_rows(
        &self,
        container: u32,
        number: usize,
        rid: u64,
        row: &Row<'_>,
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
            let (keys, hash) = self.name(target, own, &reference.target);
            let (key, value) = (keys.mirror(&hash.0, &place), mirror_value_bytes(&value));
            if rows.iter().all(|row| row.key != key) {
                rows.push(DerivedRow { space: LOOKUPS, key, value });
            }
        }
        Ok(rows)
    }

    /// Rows that follow from all items that were taken in.
    pub fn rest(&self) -> Vec<DerivedRow> {
        let lookup = |key, value| DerivedRow { space: LOOKUPS, key, value };
        let totals = self.totals.iter().filter_map(|((rows, target), totals)| {
            match totals_op(*rows, *target, totals) {
                Op::Put { key, value, .. } => Some(lookup(key, value)),
                Op::Delete { .. } | Op::Rows { .. } => None,
            }
        });
        let extremes = self.extremes.iter().flat_map(|((rows, target), values)| {
            values.iter().map(|(value, count)| {
                let (key, value) = extreme_row(*rows, *target, value, *count);
                lookup(key, value)
            })
        });
        let link_keys = self
            .link_keys
            .iter()
            .map(|((rows, target), (.., rid))| lookup(rows.link_key(&target.0), keys::number_value(*rid)));
        totals.chain(extremes).chain(link_keys).collect()
    }

    /// The rows of a target of a link; `None` where there is no such link.
    pub fn target_of(&self, declaration: u32, target: &TargetKey) -> Option<TargetRows> {
        let link = self.declarations.links.iter().position(|own| own.number == declaration)?;
        let (rules, own) = (&self.rules.links[link], &self.declarations.links[link]);
        let number = self.number(&rules.link.to.container);
        let (keys, hash) = self.name(number, own, target);
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

    fn name(&self, container: u32, own: &Declaration, target: &TargetKey) -> Name {
        (DeclarationKeys { container, declaration: own.number }, TargetHash::of(target))
    }
}

fn link_keys(container: u32, link: &Declaration) -> LinkKeys {
    LinkKeys { container, index: IndexId::of_link(link.number).0 }
}
