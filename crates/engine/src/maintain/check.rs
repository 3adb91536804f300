//! What can refuse a unit, judged by the state that it leaves.

use quire_model::{Integrity, ItemError, OnDelete, Reference, added_references};

use super::Unit;
use super::fan_out::FanOutRow;
use super::slot::{LinkedKey, Slot};
use super::unit::Target;
use crate::api::{EngineError, charge};
use crate::catalog::Container;
use crate::links::{ScannedKey, TargetHash, scan_for_key};
use crate::store::item_row::ItemRow;
use crate::store::keys::LOOKUPS;

/// Referrers are counted up to one more than an error says.
const REFERRERS_COUNTED_MAX: usize = 1_001;
/// Items beside those that clients write, and their JSON, of one commit.
pub(super) const ITEMS_MAX: usize = 10_000;
pub(super) const BYTES_MAX: usize = 16 << 20;
/// Items that are examined for a key that is not indexed yet. Where there are more, the write is to be sent again.
const SCANNED_MAX: usize = if cfg!(test) { 20 } else { 10_000 };

impl Unit<'_> {
    pub fn check(&mut self) -> Result<(), EngineError> {
        self.check_enforced()?;
        self.check_restricted()?;
        self.check_link_keys()?;
        self.check_pending_deletions()
    }

    /// Every reference that is added by an enforced link has its target.
    fn check_enforced(&mut self) -> Result<(), EngineError> {
        let mut read = 0.0;
        for (at, slot) in self.slots.iter().enumerate().filter(|(_, slot)| slot.is_new_or_client()) {
            self.set_refused_slot(at);
            for (link, references) in &slot.references_after {
                if self.base.link(*link).link.integrity != Integrity::Enforced {
                    continue;
                }
                for reference in added_references(live_references(slot, *link), references) {
                    read += match self.target(*link, &reference.target)? {
                        Some(target) => self.charge_of(&target)?,
                        None => self.check_unindexed(*link, reference)?,
                    };
                }
            }
        }
        self.charge += read;
        Ok(())
    }

    /// While the keys of a link are being indexed, a target that is not found by its key may be there all the same. What it
    /// costs to read it.
    fn check_unindexed(&self, link: usize, reference: &Reference) -> Result<f64, EngineError> {
        let missing = || Err(self.target_missing(link, reference).into());
        let is_known = self.holder(link, TargetHash::of(&reference.target)).is_some();
        let is_indexed = !self.base.link_declaration(link).state.is_counting();
        if is_known || is_indexed || !self.base.link(link).link.has_key_index() {
            return missing();
        }
        let (route, site) = (self.base.route(link), self.base.target_site(link));
        let (snapshot, visibility_point) = (&*self.base.snapshot, &self.base.sites[site].visibility_point);
        match scan_for_key(snapshot, route, &reference.target, visibility_point, SCANNED_MAX)? {
            ScannedKey::Found(bytes) => Ok(charge::read(bytes)),
            ScannedKey::Missing => missing(),
            ScannedKey::Unknown => Err(EngineError::Contended),
        }
    }

    fn charge_of(&self, target: &Target<'_>) -> Result<f64, EngineError> {
        match target {
            Target::Stored(found) => {
                Ok(charge::read(ItemRow::trusted(&found.stored.bytes)?.json_bytes as usize))
            }
            Target::Slot(_) => Ok(charge::REFUSED),
        }
    }

    fn target_missing(&self, link: usize, reference: &Reference) -> ItemError {
        let own = &self.base.link(link).link;
        ItemError::LinkTargetMissing {
            link: own.name.clone(),
            path: own.from.path.at(&reference.positions),
            value: reference.target.value.clone(),
            container: own.to.container.clone(),
        }
    }

    /// Targets that go have no referrers left, where that is asked for.
    fn check_restricted(&self) -> Result<(), EngineError> {
        for own in &self.restricted {
            self.holder(own.link, own.hash).into_iter().for_each(|at| self.set_refused_slot(at));
            let count = self.count_referrers(own)?;
            if count > 0 {
                let link = &self.base.link(own.link).link;
                let (container, name) = (link.from.container.clone(), link.name.clone());
                let count = count as u64;
                return Err(ItemError::LinkRestricted { count, container, link: name }.into());
            }
        }
        Ok(())
    }

    pub(super) fn count_referrers(&self, own: &LinkedKey) -> Result<usize, EngineError> {
        let site = self.base.referrer_site(own.link);
        let visibility_point = &self.base.sites[site].visibility_point;
        let referrers = self.base.referrers(own.link, &own.key);
        let (mut count, mut after) = (self.own_referrers(own).len(), None);
        while count < REFERRERS_COUNTED_MAX {
            let page = referrers.page(&*self.base.snapshot, after.as_deref(), 256, visibility_point)?;
            let others = page.referrers.iter().filter(|referrer| {
                !referrer.is_invisible && self.slot_of(site, referrer.stored.rid).is_none()
            });
            count += others.count();
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        Ok(count.min(REFERRERS_COUNTED_MAX))
    }

    /// A key that a link finds items by has one item.
    fn check_link_keys(&self) -> Result<(), EngineError> {
        for (_, at) in &self.provided_twice {
            self.set_refused_slot(*at);
            let slot = &self.slots[*at];
            let keyed = slot.keys_after.iter().filter(|own| self.base.link(own.link).link.has_key_index());
            let mut taken = keyed.filter(|own| self.is_provided_twice(own));
            if let Some(own) = taken.next() {
                return Err(self.key_in_use(own).into());
            }
        }
        for (at, slot) in self.slots.iter().enumerate().filter(|(_, slot)| slot.is_new_or_client()) {
            self.set_refused_slot(at);
            for own in slot.keys_after.iter().filter(|own| !slot.keys_before.contains(own)) {
                if self.base.link(own.link).link.has_key_index() && self.is_taken(slot, own)? {
                    return Err(self.key_in_use(own).into());
                }
            }
        }
        Ok(())
    }

    fn is_provided_twice(&self, own: &LinkedKey) -> bool {
        self.slots.iter().filter(|slot| slot.keys_after.contains(own)).count() > 1
    }

    pub(super) fn is_taken(&self, slot: &Slot<'_>, own: &LinkedKey) -> Result<bool, EngineError> {
        let Some(found) = self.stored_target(own.link, &own.key)? else { return Ok(false) };
        let rid = found.stored.rid;
        if found.is_invisible || rid == slot.rid {
            return Ok(false);
        }
        let holder = self.slot_of(slot.site, rid).map(|at| &self.slots[at]);
        Ok(holder.is_none_or(|holder| holder.keys_after.contains(own)))
    }

    fn key_in_use(&self, own: &LinkedKey) -> ItemError {
        let link = &self.base.link(own.link).link;
        ItemError::LinkKeyTaken {
            value: own.key.value.clone(),
            key: link.to.key.to_string(),
            container: link.to.container.clone(),
            link: link.name.clone(),
        }
    }

    /// Nothing comes back while references to what it was are still being removed.
    fn check_pending_deletions(&self) -> Result<(), EngineError> {
        for (at, slot) in self.slots.iter().enumerate() {
            self.set_refused_slot(at);
            let came = slot.keys_after.iter().filter(|own| self.holder(own.link, own.hash).is_none());
            for own in came {
                let on_delete = self.base.link(own.link).link.on_delete;
                if !matches!(on_delete, OnDelete::Cascade | OnDelete::Remove) {
                    continue;
                }
                let key = self.base.route(own.link).rows().fan_out(&own.hash.0);
                let Some(row) = self.base.snapshot.get(LOOKUPS, &key)? else { continue };
                let row = FanOutRow::decode(&row)?;
                if row.is_deletion {
                    let id = slot.after.as_ref().map_or(String::new(), |after| after.body.id.clone());
                    return Err(ItemError::DeletionPending { id, job: row.job.to_string() }.into());
                }
            }
        }
        Ok(())
    }

    /// Items beside those that clients write, and their bytes, fit into one commit. `others` are targets that the unit does not
    /// write itself.
    pub(super) fn check_size(&self, others: (usize, usize)) -> Result<(), EngineError> {
        let maintained = self.slots.iter().filter(|slot| !slot.is_client && slot.is_written());
        let bytes = |slot: &Slot<'_>| slot.after.as_ref().map_or(0, |after| after.body.json_bytes as usize);
        let (count, bytes) = maintained.fold(others, |(count, total), slot| (count + 1, total + bytes(slot)));
        if count > ITEMS_MAX || bytes > BYTES_MAX {
            return Err(ItemError::TooMuchAtOnce { count: count as u64 }.into());
        }
        Ok(())
    }
}

/// Deletes by partition key cannot be refused item by item: where an item may not go, none of them can be deleted so.
pub(crate) fn check_key_delete(container: &Container) -> Result<(), EngineError> {
    let Some(model) = container.partitions.model() else { return Ok(()) };
    let windows = model.pages_of.iter().map(|window| &model.database.declarations.windows[*window]);
    if let Some(window) = windows.into_iter().find(|window| !window.state.is_failed()) {
        return Err(ItemError::WindowPage { window: window.name.clone() }.into());
    }
    let links = model.links_to.iter().map(|link| &model.database.rules.links[*link].link);
    match links.into_iter().find(|link| link.on_delete == OnDelete::Restrict) {
        None => Ok(()),
        Some(link) => Err(EngineError::BadRequest {
            message: format!(
                "Items of the container '{}' cannot be deleted by partition key: the link '{}' restricts deletes of them.",
                model.name, link.name
            ),
        }),
    }
}

/// References of what clients see now.
fn live_references<'s>(slot: &'s Slot<'_>, link: usize) -> &'s [Reference] {
    let Some(_) = slot.live() else { return &[] };
    let own = slot.references_before.iter().find(|(own, _)| *own == link);
    own.map_or(&[], |(_, references)| references.as_slice())
}
