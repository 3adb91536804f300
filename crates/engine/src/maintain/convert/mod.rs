//! Items that get another form as a part of their unit, because a refactoring is open (see `model::conversion`).
//!
//! Every write of a client in a container that is refactored is converted in its own commit, and so is what the job of the
//! refactoring visits ([`VisitWork::Convert`](super::visit::VisitWork::Convert)). All items that a conversion makes or changes
//! are slots of the unit, so they are locked, counted and settled as any others.
//!
//! Invariants:
//! 1. what a conversion changes in several items, and what the journal says of it, is one commit;
//! 2. converting an item that has the form of the stage changes nothing, so a visit can be repeated;
//! 3. a client's value is never dropped: it stays, it is in the other form, or the write is refused, unless `oldWriters` or
//!    `onConflict` says which value counts.

mod embed; // items become parts of others
mod embed_undo; // parts become items again
pub(super) mod extract; // parts of items become items
mod flip; // arrays of ids become references to their owner
mod merge; // join items become arrays
mod split; // arrays become windows

use std::collections::BTreeMap;

use quire_storage::Op;
use quire_value::{Item, Value};

use super::owned_values::body_of;
use super::{NewItemVersion, Unit};
use crate::api::{EngineError, IndexingDirective};
use crate::items::body::Body;
use crate::items::logical_partition::LogicalPartition;
use crate::model::{Conversion, ConversionRule};
use crate::store::{journal, keys};

/// The conversions of a unit, and what became of them.
#[derive(Default)]
pub(super) struct UnitConversions {
    /// The refactoring whose job visits the first slots, and how many of them.
    pub visit: Option<(u32, usize)>,
    pub unconverted: Vec<UnconvertedPath>,
    /// Visited items that were changed.
    pub converted: u64,
    /// Items that became parts of others in this unit.
    embedded: Vec<usize>,
    journal: BTreeMap<JournalKey, JournalChange>,
}

/// Container, refactoring, child id.
type JournalKey = (u32, u32, u64);

/// What the journal of an item says from the commit on.
enum JournalChange {
    /// Places that were changed; those of the same place and key count in the place of earlier ones.
    Places(Vec<Value>),
    /// The refactoring made the item of this.
    Made(Value),
    Deleted,
}

/// A path that a visit leaves unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnconvertedPath {
    pub container: u32,
    pub rid: u64,
    pub path: String,
    pub why: &'static str,
    /// It has to be decided what becomes of it.
    pub is_undecided: bool,
}

impl<'a> Unit<'a> {
    /// Gives the items of the unit the form that open refactorings want.
    pub(super) fn convert(&mut self) -> Result<(), EngineError> {
        let base = self.base;
        for own in &base.model.conversions {
            for at in 0..self.slots.len() {
                let visited = self.conversions.visit;
                let is_visited =
                    visited.is_some_and(|(number, count)| number == own.refactoring && at < count);
                if is_visited || self.slots[at].is_client {
                    self.convert_slot(at, own, is_visited)?;
                }
            }
        }
        Ok(())
    }

    fn convert_slot(&mut self, at: usize, own: &Conversion, is_visited: bool) -> Result<(), EngineError> {
        self.set_refused_slot(at);
        let was_changed = self.slots[at].is_changed;
        match &own.rule {
            ConversionRule::Extract(rule) => self.extract(at, own, rule, is_visited)?,
            ConversionRule::Flip(rule) => self.flip(at, own, rule, is_visited)?,
            ConversionRule::Merge(rule) => self.merge(at, own, rule, is_visited)?,
            ConversionRule::Split(rule) => self.split(at, own, rule, is_visited)?,
            ConversionRule::Embed(rule) => self.embed(at, own, rule, is_visited)?,
        }
        let is_converted = is_visited && !was_changed && self.slots[at].is_changed;
        self.conversions.converted += u64::from(is_converted);
        Ok(())
    }

    fn container_name(&self, at: usize) -> &'a str {
        let base = self.base;
        &base.sites[self.slots[at].site].container.definition.id
    }

    fn site_named(&self, name: &str) -> Option<usize> {
        self.base.sites.iter().position(|site| site.container.definition.id == name)
    }

    /// Another new version of an item; its id and its key stay.
    fn set_converted(&mut self, at: usize, value: &Value, owner: &str) -> Result<(), EngineError> {
        let container = self.container_name(at);
        let Some(after) = self.slots[at].after.take() else { return Ok(()) };
        let body = body_of(value, &after.body, owner, container)?;
        let tuples = self.slots[at].logical_partition.tuples(body.item.root());
        self.slots[at].is_changed = true;
        self.slots[at].add_maintained_by(owner);
        self.set_after(at, Some(NewItemVersion { body, tuples, ..after }))
    }

    /// Adds an item that a refactoring makes.
    fn add_created(&mut self, site: usize, value: &Value, owner: &str) -> Result<usize, EngineError> {
        let container = self.base.sites[site].container;
        let item = Item::from_value(value);
        let key = container.definition.partition_key.extract(item.root())?;
        let logical_partition = LogicalPartition::of(container, key)?;
        let body = Body::of_item(item, false)?;
        let (id_key, tuples) =
            (logical_partition.id_key(&body.id), logical_partition.tuples(body.item.root()));
        let rid = logical_partition.place.new_rid(container)?;
        let at = self.add(logical_partition, (rid, false), None, None)?;
        let after =
            NewItemVersion { id_key, body, tuples, directive: IndexingDirective::Default, own_etag: None };
        self.slots[at].is_changed = true;
        self.slots[at].add_maintained_by(owner);
        self.set_after(at, Some(after))?;
        Ok(at)
    }

    /// Takes an item away.
    fn remove_converted(&mut self, at: usize, owner: &str) -> Result<(), EngineError> {
        self.slots[at].is_changed = true;
        self.slots[at].add_maintained_by(owner);
        self.set_after(at, None)
    }

    fn journal_key(&self, at: usize, own: &Conversion) -> JournalKey {
        (self.slots[at].logical_partition.container.number, own.refactoring, self.slots[at].rid)
    }

    fn record_journal_change(&mut self, at: usize, own: &Conversion, change: JournalChange) {
        if !own.has_journal {
            return;
        }
        let key = self.journal_key(at, own);
        match (self.conversions.journal.get_mut(&key), change) {
            (Some(JournalChange::Places(places)), JournalChange::Places(more)) => {
                if let Value::Array(all) = merged(places, &more) {
                    *places = all;
                }
            }
            (_, change) => drop(self.conversions.journal.insert(key, change)),
        }
    }

    /// What the journal says of an item.
    fn journalled(&self, at: usize, own: &Conversion) -> Result<Option<Value>, EngineError> {
        let (container, refactoring, rid) = self.journal_key(at, own);
        let stored = || journal::read(&*self.base.snapshot, &keys::journal(container, refactoring, rid));
        match self.conversions.journal.get(&(container, refactoring, rid)) {
            None => stored(),
            Some(JournalChange::Made(made)) => Ok(Some(made.clone())),
            Some(JournalChange::Deleted) => Ok(None),
            Some(JournalChange::Places(places)) => {
                let earlier = stored()?;
                Ok(Some(merged(earlier.as_ref().and_then(Value::as_array).unwrap_or_default(), places)))
            }
        }
    }

    fn add_unconverted(&mut self, at: usize, path: String, (why, is_undecided): (&'static str, bool)) {
        let (container, rid) = (self.slots[at].logical_partition.container.number, self.slots[at].rid);
        self.conversions.unconverted.push(UnconvertedPath { container, rid, path, why, is_undecided });
    }

    /// Rows of journals, for the commit of the unit.
    pub(super) fn converted_journal_ops(&self) -> Result<Vec<Op>, EngineError> {
        let mut ops = Vec::new();
        for ((container, refactoring, rid), change) in &self.conversions.journal {
            let key = keys::journal(*container, *refactoring, *rid);
            ops.push(match change {
                JournalChange::Deleted => journal::delete(key),
                JournalChange::Made(made) => journal::put(key, made),
                JournalChange::Places(places) => {
                    let earlier = journal::read(&*self.base.snapshot, &key)?;
                    let earlier = earlier.as_ref().and_then(Value::as_array).unwrap_or_default();
                    journal::put(key, &merged(earlier, places))
                }
            });
        }
        Ok(ops)
    }

    pub(super) fn has_journal(&self) -> bool {
        !self.conversions.journal.is_empty()
    }

    /// Bytes that journals grow by, at most.
    pub(super) fn journal_bytes(&self) -> u64 {
        let bytes = |change: &JournalChange| match change {
            JournalChange::Deleted => 0,
            JournalChange::Made(made) => made.to_json().len(),
            JournalChange::Places(places) => places.iter().map(|place| place.to_json().len()).sum(),
        };
        self.conversions.journal.values().map(bytes).sum::<usize>() as u64
    }
}

fn merged(earlier: &[Value], later: &[Value]) -> Value {
    let is_same =
        |one: &Value, other: &Value| ["at", "key"].iter().all(|member| one.get(member) == other.get(member));
    let kept = earlier.iter().filter(|one| !later.iter().any(|other| is_same(one, other)));
    kept.chain(later).cloned().collect()
}
