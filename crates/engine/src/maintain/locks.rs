//! What a unit has to hold, as one set.

use quire_model::{Integrity, ModelRules, OnDelete, TargetKey};

use super::Unit;
use crate::api::EngineError;
use crate::items::logical_partition::LogicalPartition;
use crate::links::{TargetHash, TargetRoute};
#[cfg(test)]
use crate::runtime::injected_bug::InjectedBug;
use crate::runtime::locks::{LockKind, LockMode, LockSet, LockTable};
#[cfg(feature = "schedules")]
use crate::sync::races::{Race, is_put_back};

impl Unit<'_> {
    pub fn locks(&self) -> Result<LockSet, EngineError> {
        let mut set = LockSet::default();
        for slot in &self.slots {
            let (table, container) = (&self.base.shared.locks, slot.logical_partition.container.number);
            slot.logical_partition.add_lock(table, &mut set, LockMode::Shared);
            let before = slot.before.iter().map(|before| &before.id_key);
            for id_key in before.chain(slot.after.iter().map(|after| &after.id_key)) {
                table.add(&mut set, container, LockKind::Item(id_key), LockMode::Exclusive);
            }
            for own in slot.keys_before.iter().chain(&slot.keys_after) {
                if self.base.link(own.link).link.has_key_index() {
                    let declaration = self.base.link_declaration(own.link).number;
                    let what = LockKind::LinkTarget(declaration, &own.hash.0);
                    table.add(&mut set, container, what, LockMode::Exclusive);
                }
            }
            for (link, references) in slot.references_before.iter().chain(&slot.references_after) {
                for reference in references {
                    self.lock_target(&mut set, *link, &reference.target)?;
                }
            }
        }
        for (logical_partition, id_key) in &self.windows.watched {
            lock_item(&self.base.shared.locks, &mut set, logical_partition, id_key);
        }
        Ok(set)
    }

    fn lock_target(&self, set: &mut LockSet, link: usize, target: &TargetKey) -> Result<(), EngineError> {
        let name = Some(self.base.link(link).link.name.as_str());
        let is_converted = self.base.model.conversions.iter().any(|own| own.rule.link() == name);
        if !needs_target(&self.base.model.rules, link) && !is_converted {
            return Ok(());
        }
        #[cfg(test)]
        if self.base.shared.injected_bug.is(InjectedBug::TargetNotLocked) {
            return Ok(());
        }
        let table = &self.base.shared.locks;
        lock_named_target(table, set, self.base.route(link), target);
        if self.base.link(link).link.has_key_index()
            && let Some(found) = self.stored_target(link, target)?
        {
            lock_item(table, set, &found.logical_partition, &found.id_key);
        }
        Ok(())
    }
}

/// Locks a target by what a reference says of it.
pub(super) fn lock_named_target(
    table: &LockTable,
    set: &mut LockSet,
    route: TargetRoute<'_>,
    target: &TargetKey,
) {
    #[cfg(feature = "schedules")]
    if is_put_back(Race::TargetNotLocked) {
        return;
    }
    if route.link.link.has_key_index() {
        let what = LockKind::LinkTarget(route.declaration, &TargetHash::of(target).0);
        table.add(set, route.container.number, what, LockMode::Shared);
    } else if let Some((logical_partition, id_key)) = route.place_of(target) {
        lock_item(table, set, &logical_partition, &id_key);
    }
}

fn lock_item(table: &LockTable, set: &mut LockSet, logical_partition: &LogicalPartition<'_>, id_key: &[u8]) {
    logical_partition.add_lock(table, set, LockMode::Shared);
    table.add(set, logical_partition.container.number, LockKind::Item(id_key), LockMode::Shared);
}

/// Whether anything depends on the targets of a link.
pub(super) fn needs_target(rules: &ModelRules, link: usize) -> bool {
    let own = &rules.links[link].link;
    own.integrity == Integrity::Enforced
        || own.on_delete != OnDelete::Allow
        || rules.copies.iter().any(|copy| copy.link == link)
        || rules.mirrors.iter().any(|mirror| mirror.link == link)
        || rules.rollups.iter().any(|rollup| rollup.link == link)
}
