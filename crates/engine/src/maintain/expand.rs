//! Consequences of changes, to a fixed point: pages of windows, and what becomes of the referrers of targets that go, come or
//! change.

use std::collections::{HashSet, VecDeque};

use quire_model::{OnDelete, OnMissing, TargetKey};
use quire_value::Item;

use super::fan_out::FanOut;
use super::slot::LinkedKey;
use super::{NewItemVersion, Unit};
use crate::api::EngineError;
use crate::items::body::Body;
use crate::links::{Referrer, TargetHash};

/// Referrers that are read at once.
const PAGE: usize = 128;

/// What becomes of a referrer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    Delete,
    RemoveReferences,
    /// Its copies are made again.
    Refresh,
}

#[derive(Default)]
struct Progress {
    /// Items whose changes have not been followed.
    queue: VecDeque<usize>,
    /// Keys that were followed, and whether nobody has them any more.
    done: HashSet<(usize, TargetHash, bool)>,
}

impl Unit<'_> {
    pub fn expand(&mut self) -> Result<(), EngineError> {
        self.convert()?;
        self.expand_windows()?;
        let mut progress = Progress { queue: (0..self.slots.len()).collect(), ..Progress::default() };
        loop {
            self.follow_all(&mut progress)?;
            // Removing an item by `cascade` also removes its pages.
            let touched = self.expand_windows()?;
            if touched.is_empty() {
                return Ok(());
            }
            progress.queue.extend(touched);
        }
    }

    fn follow_all(&mut self, progress: &mut Progress) -> Result<(), EngineError> {
        while let Some(at) = progress.queue.pop_front() {
            let slot = &self.slots[at];
            let keys: Vec<LinkedKey> = slot.keys_before.iter().chain(&slot.keys_after).cloned().collect();
            for own in keys {
                self.follow(own, progress)?;
            }
        }
        Ok(())
    }

    /// What follows from what became of a target.
    fn follow(&mut self, own: LinkedKey, progress: &mut Progress) -> Result<(), EngineError> {
        let (holder, provider) = (self.holder(own.link, own.hash), self.provider(own.link, own.hash));
        if !progress.done.insert((own.link, own.hash, provider.is_none())) {
            return Ok(());
        }
        match (holder, provider) {
            (Some(holder), None) => {
                let was_live = self.slots[holder].live().is_some();
                self.apply_target_removal(own, was_live, progress)
            }
            (holder, Some(provider)) if self.fields_differ(&own, holder, provider)? => {
                self.apply(own, Effect::Refresh, false, progress)
            }
            _ => Ok(()),
        }
    }

    fn apply_target_removal(
        &mut self,
        own: LinkedKey,
        was_live: bool,
        progress: &mut Progress,
    ) -> Result<(), EngineError> {
        let is_active = self.base.link_declaration(own.link).state.is_active();
        let on_delete = self.base.link(own.link).link.on_delete;
        match on_delete {
            OnDelete::Restrict if is_active && was_live => {
                self.restricted.push(own);
                Ok(())
            }
            OnDelete::Cascade if is_active => self.apply(own, Effect::Delete, true, progress),
            OnDelete::Remove if is_active => self.apply(own, Effect::RemoveReferences, true, progress),
            _ if self.removes_copied_fields(own.link) => self.apply(own, Effect::Refresh, false, progress),
            _ => Ok(()),
        }
    }

    /// Whether a copy of a link takes its fields away when the target goes.
    fn removes_copied_fields(&self, link: usize) -> bool {
        let rules = &self.base.model.rules;
        self.maintained_copies(link).any(|copy| rules.copies[copy].copy.on_missing == OnMissing::Remove)
    }

    /// Copies of a link whose values are kept right.
    fn maintained_copies(&self, link: usize) -> impl Iterator<Item = usize> {
        let model = &self.base.model;
        let copies = model.rules.copies.iter().zip(&model.declarations.copies).enumerate();
        copies
            .filter(move |(_, (copy, declaration))| copy.link == link && declaration.state.keeps_values())
            .map(|(number, _)| number)
    }

    /// Whether a copy of a link has other values than before.
    fn fields_differ(
        &self,
        own: &LinkedKey,
        holder: Option<usize>,
        provider: usize,
    ) -> Result<bool, EngineError> {
        let rules = &self.base.model.rules;
        let after = self.slots[provider].after.as_ref().map(|after| after.body.item.root());
        let before = match holder.and_then(|holder| self.slots[holder].before.as_ref()) {
            Some(before) => Some(before.node()?),
            None => None,
        };
        Ok(self.maintained_copies(own.link).any(|copy| {
            let fields = |node| rules.fields_of(&rules.copies[copy], node);
            before.map(fields) != after.map(fields)
        }))
    }

    /// Does something to all referrers of a target, or leaves it to a job.
    fn apply(
        &mut self,
        own: LinkedKey,
        effect: Effect,
        is_deletion: bool,
        progress: &mut Progress,
    ) -> Result<(), EngineError> {
        for at in self.own_referrers(&own) {
            self.apply_effect(at, &own.key, own.link, effect, progress)?;
        }
        let site = self.base.referrer_site(own.link);
        let Some(others) = self.other_referrers(&own)? else {
            let since_lsn = self.since_lsn(&own)?;
            // A target that changed first and goes then has one job.
            let is_same = |other: &&mut FanOut| other.link == own.link && other.target == own.key;
            match self.fan_outs.iter_mut().find(is_same) {
                Some(other) => other.is_deletion |= is_deletion,
                None => {
                    self.fan_outs.push(FanOut { link: own.link, target: own.key, is_deletion, since_lsn })
                }
            }
            return Ok(());
        };
        self.fan_out_left -= others.len();
        self.fan_out_bytes_left -= bytes_of(&others);
        for referrer in others {
            let at = self.add_stored(site, referrer.stored.rid, referrer.stored.bytes, true)?;
            progress.queue.push_back(at);
            self.apply_effect(at, &own.key, own.link, effect, progress)?;
        }
        Ok(())
    }

    /// Items of the unit that refer to a target when it is done.
    pub(super) fn own_referrers(&self, own: &LinkedKey) -> Vec<usize> {
        let site = self.base.referrer_site(own.link);
        let slots = self.slots.iter().enumerate();
        let refers = slots.filter(|(_, slot)| slot.site == site && slot.refers_to(own.link, &own.key));
        refers.map(|(at, _)| at).collect()
    }

    /// All other referrers that clients see; `None` when there are more than the unit may rewrite.
    fn other_referrers(&self, own: &LinkedKey) -> Result<Option<Vec<Referrer>>, EngineError> {
        let site = self.base.referrer_site(own.link);
        let (snapshot, visibility_point) = (&*self.base.snapshot, &self.base.sites[site].visibility_point);
        let referrers = self.base.referrers(own.link, &own.key);
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = referrers.page(snapshot, after.as_deref(), PAGE, visibility_point)?;
            let is_other = |referrer: &Referrer| {
                !referrer.is_invisible && self.slot_of(site, referrer.stored.rid).is_none()
            };
            found.extend(page.referrers.into_iter().filter(is_other));
            if found.len() > self.fan_out_left || bytes_of(&found) > self.fan_out_bytes_left {
                return Ok(None);
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(Some(found)),
            }
        }
    }

    /// The version of a target from before the unit.
    fn since_lsn(&self, own: &LinkedKey) -> Result<u64, EngineError> {
        let before = self.holder(own.link, own.hash).and_then(|holder| self.slots[holder].before.as_ref());
        before.map_or(Ok(0), |before| Ok(before.row()?.stamp.lsn))
    }

    fn apply_effect(
        &mut self,
        at: usize,
        target: &TargetKey,
        link: usize,
        effect: Effect,
        progress: &mut Progress,
    ) -> Result<(), EngineError> {
        let after = match effect {
            Effect::Refresh => return Ok(()),
            Effect::Delete => None,
            Effect::RemoveReferences => self.without_references(at, target, link)?,
        };
        self.slots[at].is_changed = true;
        let name = &self.base.link_declaration(link).name;
        self.slots[at].add_maintained_by(name);
        self.set_after(at, after)?;
        progress.queue.push_back(at);
        Ok(())
    }

    /// What `onDelete` says of a referrer whose target is gone.
    pub(super) fn apply_deletion(
        &mut self,
        at: usize,
        target: &TargetKey,
        link: usize,
    ) -> Result<(), EngineError> {
        match self.base.link(link).link.on_delete {
            OnDelete::Cascade => {
                self.slots[at].is_changed = true;
                self.set_after(at, None)
            }
            OnDelete::Remove => self.take_references(at, target, link),
            OnDelete::Allow | OnDelete::Restrict => Ok(()),
        }
    }

    /// Takes the references to a target out of an item.
    pub(super) fn take_references(
        &mut self,
        at: usize,
        target: &TargetKey,
        link: usize,
    ) -> Result<(), EngineError> {
        let after = self.without_references(at, target, link)?;
        self.slots[at].is_changed = true;
        self.set_after(at, after)
    }

    /// The new version of an item without its references to a target.
    fn without_references(
        &mut self,
        at: usize,
        target: &TargetKey,
        link: usize,
    ) -> Result<Option<NewItemVersion>, EngineError> {
        let slot = &mut self.slots[at];
        let references = slot.references_after.iter().filter(|(own, _)| *own == link);
        let references: Vec<_> =
            references.flat_map(|(_, own)| own).filter(|own| own.target == *target).cloned().collect();
        let Some(after) = slot.after.take() else { return Ok(None) };
        let mut value = after.body.item.root().to_value();
        self.base.model.rules.links[link].remove_references(&mut value, &references);
        let wants_json = !after.body.json.is_empty();
        let body = Body::of_item(Item::from_value(&value), wants_json)?;
        Ok(Some(NewItemVersion { body, ..after }))
    }
}

fn bytes_of(referrers: &[Referrer]) -> usize {
    referrers.iter().map(|referrer| referrer.stored.bytes.len()).sum()
}
