//! Walks over the items of one snapshot, up to five times: a survey of shapes (on a sample of large containers), the scan, proofs of
//! references, pairs of referrers and targets, and the targets of those. The walks that prove and compare go only over
//! containers whose items cannot be found by their id alone.

use std::ops::Bound;
use std::sync::{Arc, Weak};

use quire_model::Model;
use quire_profile::{
    ContainerProfile, ContainerScan, DatabaseProfile, FollowedChanges, ItemInput, ItemReader, ItemSequence,
    LookedUpItem, Relations, Scan as ItemScan, ScanResult, Survey, Workload,
};
use quire_resource::{ContainerDefinition, PartitionKey};
use quire_storage::{KeyRange, Scan, Snapshot};
use quire_value::{Item, Node, murmur};

use super::lookups::PendingLookups;
use super::retained::{HELD_MAX, RetainedScan, RetainedScans, positions_in};
use crate::api::{EngineError, SessionPosition, corrupt};
use crate::catalog::Container;
use crate::items::visibility::VisibilityPoint;
use crate::runtime::Shared;
use crate::runtime::touched::TouchedLog;
use crate::store::item_row::ItemRow;
use crate::store::keys::{self, ITEMS, RID_PREFIX_BITS};
use crate::store::scan;

/// Items of a container that are scanned, unless the request says so.
pub(crate) const SCAN_MAX_DEFAULT: u64 = 1_000_000;
/// Items of a container that are all surveyed; of a larger one, some in each of this many places.
const SURVEY_ALL_MAX: u64 = 20_000;
const SURVEY_PLACES: u32 = 64;
const SURVEY_ITEMS: usize = 300;

#[derive(Clone, Debug)]
pub(crate) struct BuildOptions {
    /// Of a larger container a uniform sample of about so many items is scanned.
    pub scan_max: u64,
}

/// A profile that is being built.
pub(crate) struct ProfileBuild {
    database: String,
    base: ProfileSnapshot,
    stage: ProfileStage,
    /// The container of the walk, and where the walk goes on.
    place: usize,
    range: Option<KeyRange>,
    survey_place: u32,
    state: BuildState,
    /// Items that were touched since before the snapshot, by container; empty where the profile is not followed.
    touched_logs: Vec<Arc<TouchedLog>>,
    now_ms: u64,
    scan_max: u64,
    done: u64,
    total: u64,
}

/// Profiles of all containers, and what they were made of.
pub(crate) struct BuiltProfile {
    pub profile: DatabaseProfile,
    pub scanned: Vec<ScannedContainer>,
    pub sequences: Vec<ItemSequence>,
    /// Of larger containers it is made of a sample of about so many items.
    pub scan_max: u64,
}

/// A container as it was when it was scanned.
pub(crate) struct ScannedContainer {
    pub container: Weak<Container>,
    pub positions: Vec<SessionPosition>,
}

/// The input of the walks, which does not change.
pub(super) struct ProfileSnapshot {
    pub sources: Vec<ProfileSource>,
    pub snapshot: Box<dyn Snapshot>,
}

pub(super) struct ProfileSource {
    pub container: Arc<Container>,
    pub visibility_point: VisibilityPoint,
    pub positions: Vec<SessionPosition>,
    /// Items with a larger hash are counted and not scanned.
    pub sampled_to: u64,
}

#[derive(Default)]
struct BuildState {
    survey: Survey,
    scan: Option<ItemScan>,
    results: Vec<ScanResult>,
    /// Of the same containers as the results, or of none: they hold too much.
    scans: Vec<ItemScan>,
    held_bytes: usize,
    relations: Option<Relations>,
    wanted: PendingLookups,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProfileStage {
    Survey,
    Scan,
    Prove,
    Pair,
    Compare,
    Done,
}

impl ProfileBuild {
    /// Of the items of these containers as they are now; deleted ones are left out.
    pub fn start(
        shared: &Arc<Shared>,
        database: &str,
        containers: Vec<Arc<Container>>,
        options: &BuildOptions,
    ) -> Result<ProfileBuild, EngineError> {
        let touched_logs = begin_touched_logs(shared, &containers);
        // Before the snapshot: see `Container::visibility_point`.
        let before: Vec<_> =
            containers.iter().map(|own| (own.partitions.deleted_keys(), own.positions())).collect();
        let snapshot = shared.storage.snapshot()?;
        let (mut sources, mut touched_logs_of) = (Vec::new(), Vec::new());
        for ((container, (marks, positions)), touched_logs) in
            containers.into_iter().zip(before).zip(touched_logs)
        {
            if container.partitions.is_retired() {
                continue;
            }
            let visibility_point = container.visibility_point_in(shared, &*snapshot, marks)?;
            let sampled_to = sampled_to(container.usage().0, options.scan_max);
            sources.push(ProfileSource { container, visibility_point, positions, sampled_to });
            touched_logs_of.extend(touched_logs);
        }
        let total = 2 * sources.iter().map(|source| source.container.usage().0).sum::<u64>();
        Ok(ProfileBuild {
            database: database.to_owned(),
            base: ProfileSnapshot { sources, snapshot },
            stage: ProfileStage::Survey,
            place: 0,
            range: None,
            survey_place: 0,
            state: BuildState::default(),
            touched_logs: touched_logs_of,
            now_ms: now_ms(shared),
            scan_max: options.scan_max,
            done: 0,
            total,
        })
    }

    /// Looks at some more items; true when that was the last of them.
    pub fn step(&mut self, items_max: usize) -> Result<bool, EngineError> {
        let is_over = match self.base.sources.get(self.place) {
            None => true,
            Some(_) if !self.is_visited() => {
                self.place += 1;
                self.place >= self.base.sources.len()
            }
            Some(_) => self.walk(items_max)?,
        };
        if is_over {
            self.next_stage()?;
        }
        Ok(self.stage == ProfileStage::Done)
    }

    /// Items that were read, and all items to read.
    pub fn progress(&self) -> (u64, u64) {
        (self.done, self.total.max(self.done))
    }

    fn is_visited(&self) -> bool {
        match self.stage {
            ProfileStage::Survey | ProfileStage::Scan | ProfileStage::Pair => true,
            ProfileStage::Prove | ProfileStage::Compare => self.state.wanted.is_wanted(self.place),
            ProfileStage::Done => false,
        }
    }

    /// One page of the walk over a container; whether it was the last of the last container.
    fn walk(&mut self, items_max: usize) -> Result<bool, EngineError> {
        let source = &self.base.sources[self.place];
        let sampling = self.stage == ProfileStage::Survey && source.container.usage().0 > SURVEY_ALL_MAX;
        let range = match self.range.take() {
            _ if sampling => survey_range(source.container.number, self.survey_place),
            Some(range) => range,
            None => KeyRange::prefix(&keys::container_prefix(source.container.number)),
        };
        let rows_max = if sampling { SURVEY_ITEMS } else { items_max };
        let page = self.base.snapshot.scan(&Scan { rows_max, ..scan(ITEMS, range.clone()) })?;
        for (key, bytes) in &page.rows {
            let rid = keys::rid_of_item_key(key).ok_or_else(|| corrupt("key of an item"))?;
            let row = ItemRow::parse(bytes)?;
            if !source.container.is_invisible(&row, &source.visibility_point) {
                self.state.visit(self.stage, self.place, source, rid, &row)?;
            }
        }
        if matches!(self.stage, ProfileStage::Scan | ProfileStage::Pair) {
            self.done += page.rows.len() as u64;
        }
        self.survey_place += 1;
        let has_more = if sampling { self.survey_place < SURVEY_PLACES } else { page.more };
        match page.rows.into_iter().next_back() {
            Some((last, _)) if has_more => {
                self.range = Some(KeyRange { start: Bound::Excluded(last), ..range });
            }
            None if sampling && has_more => {}
            _ => self.end_container(),
        }
        Ok(self.place >= self.base.sources.len())
    }

    /// A survey is followed by the scan of the same container.
    fn end_container(&mut self) {
        let source = &self.base.sources[self.place];
        self.survey_place = 0;
        match self.stage {
            ProfileStage::Survey => {
                let survey = std::mem::take(&mut self.state.survey);
                self.state.scan = Some(ItemScan::new(&source.container.definition, &survey));
                self.stage = ProfileStage::Scan;
            }
            ProfileStage::Scan => {
                let partitions = u32::try_from(source.container.partitions().len()).unwrap_or(u32::MAX);
                if let Some(scan) = self.state.scan.take() {
                    self.state.results.push(scan.finish(0, self.now_ms, partitions));
                    self.state.retain_scan(scan);
                }
                self.stage = ProfileStage::Survey;
                self.place += 1;
            }
            ProfileStage::Prove | ProfileStage::Pair | ProfileStage::Compare | ProfileStage::Done => {
                self.place += 1
            }
        }
    }

    fn next_stage(&mut self) -> Result<(), EngineError> {
        self.place = 0;
        let (state, base) = (&mut self.state, &self.base);
        let results = &state.results;
        let relations = state.relations.get_or_insert_with(|| Relations::new(&scanned(base, results)));
        self.stage = match self.stage {
            ProfileStage::Survey | ProfileStage::Scan => {
                let lookups = relations.lookups();
                state.wanted = PendingLookups::new(&lookups, base);
                state.wanted.answer_by_id(&lookups, base, relations)?;
                ProfileStage::Prove
            }
            ProfileStage::Prove => {
                std::mem::take(&mut state.wanted).answer_missing(relations);
                relations.begin_pairs();
                ProfileStage::Pair
            }
            ProfileStage::Pair => {
                let lookups = relations.target_lookups();
                state.wanted = PendingLookups::new(&lookups, base);
                state.wanted.answer_by_id(&lookups, base, relations)?;
                ProfileStage::Compare
            }
            ProfileStage::Compare | ProfileStage::Done => {
                std::mem::take(&mut state.wanted).answer_missing(relations);
                relations.end_compare();
                ProfileStage::Done
            }
        };
        Ok(())
    }

    /// The profiles, without what was recorded, and what the next refresh goes on with. Containers that were deleted meanwhile are
    /// left out.
    pub fn finish(self, model: Option<&Model>) -> Result<(BuiltProfile, Option<RetainedScans>), EngineError> {
        let Some(relations) = self.state.relations else {
            let profile = DatabaseProfile { database: self.database, containers: Vec::new() };
            let (made_of, sequences) = Default::default();
            return Ok((
                BuiltProfile { profile, scanned: made_of, sequences, scan_max: self.scan_max },
                None,
            ));
        };
        let followed = self.state.results.iter().map(|_| None).collect();
        let scanned = ScanResults { results: self.state.results, followed, relations: &relations };
        let built = self.base.assemble(self.database, scanned, model, self.scan_max);
        let is_followed = [self.state.scans.len(), self.touched_logs.len()] == [self.base.sources.len(); 2];
        if !is_followed {
            return Ok((built, None));
        }
        let mut sources = Vec::new();
        for ((source, scan), touched_logs) in
            self.base.sources.iter().zip(self.state.scans).zip(self.touched_logs)
        {
            let positions = positions_in(&*self.base.snapshot, &source.container)?;
            sources.push(RetainedScan::new(source, scan, touched_logs, positions));
        }
        let retained = RetainedScans { sources, relations, scan_max: self.scan_max, scanned_ms: self.now_ms };
        Ok((built, Some(retained)))
    }
}

/// The results of all containers.
pub(super) struct ScanResults<'a> {
    pub results: Vec<ScanResult>,
    pub followed: Vec<Option<FollowedChanges>>,
    pub relations: &'a Relations,
}

impl ProfileSnapshot {
    pub fn assemble(
        &self,
        database: String,
        scanned: ScanResults<'_>,
        model: Option<&Model>,
        scan_max: u64,
    ) -> BuiltProfile {
        let (mut containers, mut made_of, mut sequences) = (Vec::new(), Vec::new(), Vec::new());
        for ((source, result), followed) in self.sources.iter().zip(scanned.results).zip(scanned.followed) {
            if source.container.partitions.is_retired() {
                continue;
            }
            let definition = &source.container.definition;
            let nothing = Workload::new().container(&definition.id);
            let mut profile = ContainerProfile::new(definition, result, scanned.relations, nothing);
            profile.followed = followed;
            add_declared(&mut profile, model);
            sequences.extend(profile.references.iter().map(|reference| ItemSequence {
                container: definition.id.clone(),
                path: reference.path.clone(),
                to: reference.to.clone(),
                key: reference.key.clone(),
            }));
            containers.push(profile);
            made_of.push(ScannedContainer {
                container: Arc::downgrade(&source.container),
                positions: source.positions.clone(),
            });
        }
        BuiltProfile {
            profile: DatabaseProfile { database, containers },
            scanned: made_of,
            sequences,
            scan_max,
        }
    }
}

impl BuildState {
    /// For the next refresh, within a bound.
    fn retain_scan(&mut self, scan: ItemScan) {
        self.held_bytes += scan.held_bytes();
        match self.held_bytes <= HELD_MAX {
            true => self.scans.push(scan),
            false => self.scans = Vec::new(),
        }
    }

    fn visit(
        &mut self,
        stage: ProfileStage,
        place: usize,
        source: &ProfileSource,
        rid: u64,
        row: &ItemRow<'_>,
    ) -> Result<(), EngineError> {
        let (item, is_sampled) = (row.node()?, sample_hash(rid) <= source.sampled_to);
        if stage == ProfileStage::Survey {
            self.survey.add(item);
            return Ok(());
        }
        let partition_key = row.partition_key()?;
        let input = item_input(rid, row, item, &partition_key);
        let bytes = input.bytes;
        match (stage, &mut self.scan, &mut self.relations) {
            (ProfileStage::Scan, Some(scan), _) if is_sampled => scan.add(input),
            (ProfileStage::Scan, Some(scan), _) => scan.add_unscanned(1, bytes),
            (ProfileStage::Pair, _, Some(relations)) if is_sampled => {
                relations.add(&source.container.definition.id, input);
            }
            (ProfileStage::Prove | ProfileStage::Compare, _, Some(relations)) => {
                let found = LookedUpItem { number: rid, item, partition_key: &partition_key };
                self.wanted.answer(place, found, relations);
            }
            _ => {}
        }
        Ok(())
    }
}

/// Reads items that records name by number, as they are now.
pub(crate) struct CurrentItems<'a> {
    pub shared: &'a Shared,
    pub containers: &'a [Arc<Container>],
}

impl ItemReader for CurrentItems<'_> {
    fn item(&self, container: &str, number: u64) -> Option<Item> {
        let container = self.containers.iter().find(|own| own.definition.id == container)?;
        let visibility_point = container.visibility_point(self.shared);
        let snapshot = container.snapshot(self.shared).ok()?;
        let bytes = snapshot.get(ITEMS, &keys::item(container.number, number)).ok()??;
        let row =
            ItemRow::parse(&bytes).ok().filter(|row| !container.is_invisible(row, &visibility_point))?;
        Item::from_bytes(row.item().to_vec()).ok()
    }
}

fn scanned<'a>(base: &'a ProfileSnapshot, results: &'a [ScanResult]) -> Vec<ContainerScan<'a>> {
    let definitions = base.sources.iter().map(|source| &source.container.definition);
    definitions
        .zip(results)
        .map(|(definition, scan): (&ContainerDefinition, _)| ContainerScan { definition, scan })
        .collect()
}

pub(super) fn item_input<'a>(
    rid: u64,
    row: &ItemRow<'_>,
    item: Node<'a>,
    partition_key: &'a PartitionKey,
) -> ItemInput<'a> {
    let ts = u64::try_from(row.stamp.ts).unwrap_or(0);
    ItemInput { number: rid, item, partition_key, bytes: u64::from(row.json_bytes), ts }
}

/// From here on touched items are noted, whatever was prepared before. `None` where that is not certain.
fn begin_touched_logs(shared: &Shared, containers: &[Arc<Container>]) -> Vec<Option<Arc<TouchedLog>>> {
    let touched_logs = |own: &Arc<Container>| {
        let touched_logs = shared.touched.begin(own.number, touched_max(own.usage().0));
        own.partitions.settle_prepared().ok().map(|()| touched_logs)
    };
    containers.iter().map(touched_logs).collect()
}

/// Beyond a tenth of the items a scan is due.
fn touched_max(items: u64) -> usize {
    const TOUCHED_MIN: u64 = 100;
    const TOUCHED_MAX: u64 = 100_000;
    (items / 10).clamp(TOUCHED_MIN, TOUCHED_MAX) as usize
}

pub(super) fn now_ms(shared: &Shared) -> u64 {
    u64::try_from(shared.clock.now_ms()).unwrap_or(0)
}

fn survey_range(container: u32, place: u32) -> KeyRange {
    let prefix = place * ((1 << RID_PREFIX_BITS) / SURVEY_PLACES);
    keys::items_from(container, keys::rid(prefix, 0))
}

/// The hash up to which items are in a sample of so many.
fn sampled_to(items: u64, scan_max: u64) -> u64 {
    if items <= scan_max {
        return u64::MAX;
    }
    (u128::from(u64::MAX) * u128::from(scan_max) / u128::from(items)) as u64
}

pub(super) fn sample_hash(rid: u64) -> u64 {
    murmur::murmur128(&rid.to_be_bytes()).0
}

/// Names the links that references are declared as.
fn add_declared(profile: &mut ContainerProfile, model: Option<&Model>) {
    let links = model.map_or(&[][..], |model| &model.links);
    for reference in &mut profile.references {
        let declared = links.iter().find(|link| {
            link.from.container == profile.container
                && link.from.path.to_string() == reference.path
                && link.to.container == reference.to
        });
        reference.declared = declared.map(|link| link.name.clone());
    }
}
