//! Refreshes a profile: reads only the items that writers touched since it was built.
//!
//! A profile of which a tenth of the items has changed, or whose containers are others now, is rebuilt. What a change took away
//! stays in the sketches until then, and the profile says how many changes there were since which moment. Items and bytes are
//! counted exactly, and referrers that changed or whose targets did are compared as they are.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use quire_model::Model;
use quire_profile::FollowedChanges;

use super::build::{
    BuiltProfile, ProfileSnapshot, ProfileSource, ScanResults, item_input, now_ms, sample_hash,
};
use super::lookups::answer_without_scan;
use super::retained::{RetainedScans, totals_in};
use crate::api::EngineError;
use crate::catalog::Container;
use crate::runtime::Shared;
use crate::runtime::touched::TouchedRids;
use crate::store::item_row::ItemRow;
use crate::store::keys::{self, ITEMS};

/// A profile that is being brought up to date.
pub(crate) struct ProfileFollow {
    database: String,
    base: ProfileSnapshot,
    retained: RetainedScans,
    touched: Vec<TouchedItem>,
    next: usize,
    /// For the next refresh, by container: see [`RetainedScan`](super::retained::RetainedScan).
    reached: Vec<HashMap<u32, u64>>,
    taken: Vec<HashMap<u64, u64>>,
    now_ms: u64,
}

struct TouchedItem {
    /// The number of its container among the sources.
    place: usize,
    rid: u64,
    is_new: bool,
}

impl ProfileFollow {
    /// `None` where the profile is to be rebuilt.
    pub fn start(
        shared: &Arc<Shared>,
        database: &str,
        containers: Vec<Arc<Container>>,
        mut retained: RetainedScans,
    ) -> Result<Option<ProfileFollow>, EngineError> {
        if !retained.is_of(&containers) {
            return Ok(None);
        }
        // Before the notes are taken: what is committed later may not be among them.
        let reached: Vec<HashMap<u32, u64>> =
            containers.iter().map(|own| lsns(own)).collect::<Result<_, _>>()?;
        let Some(touched_rids) = retained.take_touched() else { return Ok(None) };
        if containers.iter().any(|own| own.partitions.settle_prepared().is_err()) {
            return Ok(None);
        }
        let base = take_snapshot(shared, containers, &retained)?;
        let hides_keys = base.sources.iter().any(|source| source.visibility_point.hides_keys());
        if hides_keys || base.sources.iter().any(|source| source.container.partitions.is_moved()) {
            return Ok(None);
        }
        let touched = retained.begin(&base, touched_rids);
        let taken = reached.iter().map(|_| HashMap::new()).collect();
        let (database, now_ms) = (database.to_owned(), now_ms(shared));
        Ok(Some(ProfileFollow { database, base, retained, touched, next: 0, reached, taken, now_ms }))
    }

    /// Looks at some more items; true when that was the last of them.
    pub fn step(&mut self, items_max: usize) -> Result<bool, EngineError> {
        let end = self.touched.len().min(self.next + items_max);
        for at in self.next..end {
            self.visit(at)?;
        }
        self.next = end;
        if end < self.touched.len() {
            return Ok(false);
        }
        self.end()?;
        Ok(true)
    }

    /// Items that were read, and all items to read.
    pub fn progress(&self) -> (u64, u64) {
        (self.next as u64, self.touched.len() as u64)
    }

    fn visit(&mut self, at: usize) -> Result<(), EngineError> {
        let TouchedItem { place, rid, is_new } = self.touched[at];
        let source = &self.base.sources[place];
        let retained = &mut self.retained.sources[place];
        let bytes = self.base.snapshot.get(ITEMS, &keys::item(source.container.number, rid))?;
        let row = bytes.as_deref().map(ItemRow::parse).transpose()?;
        let Some(row) = row.filter(|row| !source.container.is_invisible(row, &source.visibility_point))
        else {
            retained.scan.count_unscanned_change();
            return Ok(());
        };
        let (item, partition_key) = (row.node()?, row.partition_key()?);
        let input = item_input(rid, &row, item, &partition_key);
        let (is_sampled, is_known) = (sample_hash(rid) <= retained.sampled_to, retained.has(rid, &row));
        self.taken[place].insert(rid, row.stamp.lsn);
        match is_sampled {
            true if !is_known => retained.scan.follow(input, is_new),
            false if !is_known => retained.scan.count_unscanned_change(),
            _ => {}
        }
        if is_sampled {
            // Also what is known: it has left the pairs.
            self.retained.relations.follow(&source.container.definition.id, input, is_new && !is_known);
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), EngineError> {
        let relations = &mut self.retained.relations;
        relations.end_follow();
        let lookups = relations.target_lookups();
        answer_without_scan(&lookups, &self.base, relations)?;
        relations.end_compare();
        for (source, retained) in self.base.sources.iter().zip(&mut self.retained.sources) {
            let (items, bytes) = totals_in(&*self.base.snapshot, &source.container)?;
            retained.scan.set_total(items, bytes);
        }
        let reached = std::mem::take(&mut self.reached).into_iter().zip(std::mem::take(&mut self.taken));
        for (retained, reached) in self.retained.sources.iter_mut().zip(reached) {
            (retained.positions, retained.taken) = reached;
        }
        Ok(())
    }

    /// The profiles, without what was recorded, and what the next refresh goes on with.
    pub fn finish(self, model: Option<&Model>) -> (BuiltProfile, Option<RetainedScans>) {
        let (base, retained) = (&self.base, self.retained);
        let (mut results, mut followed) = (Vec::new(), Vec::new());
        for (source, own) in base.sources.iter().zip(&retained.sources) {
            let partitions = u32::try_from(source.container.partitions().len()).unwrap_or(u32::MAX);
            results.push(own.scan.finish(0, self.now_ms, partitions));
            let (since_ms, changes) = (retained.scanned_ms, own.scan.followed());
            followed.push((changes > 0).then_some(FollowedChanges { since_ms, changes }));
        }
        let scanned = ScanResults { results, followed, relations: &retained.relations };
        let built = base.assemble(self.database, scanned, model, retained.scan_max);
        (built, Some(retained))
    }
}

impl RetainedScans {
    /// The items that were touched in each container; `None`: not complete, or too many.
    fn take_touched(&self) -> Option<Vec<TouchedRids>> {
        let touched_rids: Vec<TouchedRids> =
            self.sources.iter().map(|source| source.touched_log.take()).collect::<Option<_>>()?;
        let is_due = self.sources.iter().zip(&touched_rids).any(|(source, touched_rids)| {
            !touched_rids.is_empty() && source.scan.needs_refresh(touched_rids.len() as u64)
        });
        (!is_due).then_some(touched_rids)
    }

    /// Collects the items to read, in order.
    fn begin(&mut self, base: &ProfileSnapshot, touched_rids: Vec<TouchedRids>) -> Vec<TouchedItem> {
        let mut touched = Vec::new();
        for (place, (source, touched_rids)) in base.sources.iter().zip(touched_rids).enumerate() {
            let numbers: HashSet<u64> = touched_rids.keys().copied().collect();
            self.relations.begin_follow(&source.container.definition.id, &numbers);
            touched.extend(touched_rids.into_iter().map(|(rid, is_new)| TouchedItem { place, rid, is_new }));
        }
        touched.sort_unstable_by_key(|touched| (touched.place, touched.rid));
        touched
    }
}

fn take_snapshot(
    shared: &Arc<Shared>,
    containers: Vec<Arc<Container>>,
    retained: &RetainedScans,
) -> Result<ProfileSnapshot, EngineError> {
    // Before the snapshot: see `Container::visibility_point`.
    let before: Vec<_> =
        containers.iter().map(|own| (own.partitions.deleted_keys(), own.positions())).collect();
    let snapshot = shared.storage.snapshot()?;
    let mut sources = Vec::new();
    for ((container, (marks, positions)), own) in containers.into_iter().zip(before).zip(&retained.sources) {
        let visibility_point = container.visibility_point_in(shared, &*snapshot, marks)?;
        sources.push(ProfileSource { container, visibility_point, positions, sampled_to: own.sampled_to });
    }
    Ok(ProfileSnapshot { sources, snapshot })
}

fn lsns(container: &Container) -> Result<HashMap<u32, u64>, EngineError> {
    let lsn =
        |partition: &Arc<crate::partition::Partition>| Ok((partition.layout.id, partition.sequencer.lsn()?));
    container.partitions.all().iter().map(lsn).collect()
}
