//! Scans of a build that stay in memory, so that the next refresh reads only what has changed since.

use std::collections::HashMap;
use std::sync::Arc;

use quire_profile::{Relations, Scan};
use quire_storage::Snapshot;

use super::build::ProfileSource;
use crate::api::{EngineError, corrupt};
use crate::catalog::Container;
use crate::runtime::touched::TouchedLog;
use crate::store::item_row::ItemRow;
use crate::store::keys::{self, CATALOG, Counts};

/// Of one database. What holds more is rebuilt every time.
pub(crate) const HELD_MAX: usize = 32 << 20;
/// Of all databases.
pub(super) const HELD_TOTAL_MAX: usize = 64 << 20;

/// Scans of all containers of a database, and how their items belong together.
pub(crate) struct RetainedScans {
    /// In the order of the containers' names.
    pub sources: Vec<RetainedScan>,
    pub relations: Relations,
    pub scan_max: u64,
    /// When the items were scanned.
    pub scanned_ms: u64,
}

pub(crate) struct RetainedScan {
    number: u32,
    /// Of the container's definition.
    etag: String,
    pub scan: Scan,
    pub sampled_to: u64,
    pub touched_log: Arc<TouchedLog>,
    /// By partition: what was committed up to this LSN is in the scan.
    pub positions: HashMap<u32, u64>,
    /// Touched items that were taken in by the last refresh, and the LSN that they had.
    pub taken: HashMap<u64, u64>,
}

impl RetainedScans {
    /// Whether a database has still these containers, and no others.
    pub fn is_of(&self, containers: &[Arc<Container>]) -> bool {
        self.sources.len() == containers.len()
            && self.sources.iter().zip(containers).all(|(source, container)| source.is_of(container))
    }

    pub fn held_bytes(&self) -> usize {
        self.sources.iter().map(|source| source.scan.held_bytes()).sum::<usize>()
            + self.relations.held_bytes()
    }
}

impl RetainedScan {
    pub(super) fn new(
        source: &ProfileSource,
        scan: Scan,
        touched_log: Arc<TouchedLog>,
        positions: HashMap<u32, u64>,
    ) -> RetainedScan {
        let container = &source.container;
        let (number, etag) = (container.number, container.resource.etag.clone());
        let (sampled_to, taken) = (source.sampled_to, HashMap::new());
        RetainedScan { number, etag, scan, sampled_to, touched_log, positions, taken }
    }

    /// Partitions may have been split since.
    fn is_of(&self, container: &Container) -> bool {
        (self.number, &self.etag) == (container.number, &container.resource.etag)
            && !container.partitions.is_retired()
    }

    /// Whether a version of an item is in the scan already.
    pub fn has(&self, rid: u64, row: &ItemRow<'_>) -> bool {
        let is_scanned = self.positions.get(&row.stamp.partition).is_some_and(|lsn| row.stamp.lsn <= *lsn);
        is_scanned || self.taken.get(&rid) == Some(&row.stamp.lsn)
    }
}

/// By partition: its LSN in a snapshot.
pub(super) fn positions_in(
    snapshot: &dyn Snapshot,
    container: &Container,
) -> Result<HashMap<u32, u64>, EngineError> {
    let counts = counts_in(snapshot, container)?;
    Ok(counts.into_iter().map(|(partition, counts)| (partition, counts.lsn)).collect())
}

/// Items and their bytes in a snapshot. Expired ones are among them until they are removed.
pub(super) fn totals_in(snapshot: &dyn Snapshot, container: &Container) -> Result<(u64, u64), EngineError> {
    let counts = counts_in(snapshot, container)?;
    Ok(counts.iter().fold((0, 0), |total, (_, counts)| (total.0 + counts.items, total.1 + counts.bytes)))
}

fn counts_in(snapshot: &dyn Snapshot, container: &Container) -> Result<Vec<(u32, Counts)>, EngineError> {
    let mut found = Vec::new();
    for partition in container.partitions.all() {
        let id = partition.layout.id;
        let row = snapshot.get(CATALOG, &keys::counts(container.number, id))?;
        let decode = |row: Vec<u8>| Counts::decode(&row).ok_or_else(|| corrupt("counts of a partition"));
        found.push((id, row.map_or_else(|| Ok(Counts::default()), decode)?));
    }
    Ok(found)
}
