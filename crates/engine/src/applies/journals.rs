//! Journals of applies that were done long ago.

use quire_storage::{KeyRange, Op, Scan};

use super::JOURNAL_MS;
use crate::api::EngineError;
use crate::catalog::Catalog;
use crate::jobs::JobId;
use crate::runtime::Shared;
use crate::store::keys::{self, CATALOG};
use crate::store::scan;

/// Rows of a journal that one commit removes.
const ROWS_MAX: usize = 500;
/// The first number of an apply's journal; smaller ones are of refactorings.
const FIRST: u32 = 1 << 31;

/// Removes the journals of all databases whose time is over.
pub(crate) fn remove_old_journals(shared: &Shared, catalog: &Catalog) -> Result<(), EngineError> {
    for database in catalog.state().databases.iter() {
        for container in database.containers.iter() {
            remove_journals_of(shared, container.number)?;
        }
    }
    Ok(())
}

fn remove_journals_of(shared: &Shared, container: u32) -> Result<(), EngineError> {
    let mut from = FIRST;
    while let Some(journal) = next_journal(shared, container, from)? {
        let job = JobId(u64::from(journal - FIRST));
        let finished = shared.jobs.status(job)?.map(|job| job.finished_ms);
        let now_ms = shared.clock.now_ms();
        // A job that is not there any more ended before that: it is kept as long as its journal (`JobKind::kept_ms`).
        if finished.is_none_or(|at| at.is_some_and(|at| at + JOURNAL_MS < now_ms)) {
            remove_journal(shared, container, journal)?;
        }
        let Some(next) = journal.checked_add(1) else { break };
        from = next;
    }
    Ok(())
}

/// The first journal of an apply job from a number on.
fn next_journal(shared: &Shared, container: u32, from: u32) -> Result<Option<u32>, EngineError> {
    let mut range = KeyRange::prefix(&keys::journals_prefix(container));
    range.start = std::ops::Bound::Included(keys::journal_prefix(container, from));
    let rows = shared.storage.snapshot()?.scan(&Scan { rows_max: 1, ..scan(CATALOG, range) })?.rows;
    Ok(rows.first().and_then(|(key, _)| keys::number_of_journal_key(key)))
}

fn remove_journal(shared: &Shared, container: u32, journal: u32) -> Result<(), EngineError> {
    loop {
        let range = KeyRange::prefix(&keys::journal_prefix(container, journal));
        let page = Scan { rows_max: ROWS_MAX, ..scan(CATALOG, range) };
        let rows = shared.storage.snapshot()?.scan(&page)?.rows;
        if rows.is_empty() {
            return Ok(());
        }
        let ops = rows.into_iter().map(|(key, _)| Op::Delete { space: CATALOG, key }).collect();
        shared.jobs.commit_rows(ops)?;
    }
}
