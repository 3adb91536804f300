//! Journals of other refactorings when an undo takes the containers away that have them: they go on in the one that stays.

use std::ops::Bound;
use std::sync::Arc;

use quire_storage::{KeyRange, Op, Scan, Snapshot};

use super::{RekeyedItem, rid_under_key};
use crate::api::{EngineError, corrupt};
use crate::catalog::Container;
use crate::refactorings::Refactorings;
use crate::refactorings::rows::{self, Refactoring};
use crate::store::item_row::ItemRow;
use crate::store::keys::{self, CATALOG, ITEMS};
use crate::store::scan;

/// Rows of one commit, and commits of one step.
const PAGE_ROWS: usize = 500;
const STEP_PAGES: usize = 10;
/// The position of a refactoring all of whose journals are copied.
const COPIED: &str = "copied";

/// The last row of a journal that was copied. They are copied in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CopiedRow {
    container: u32,
    refactoring: u32,
    rid: u64,
}

impl CopiedRow {
    fn parse(text: &str) -> Option<CopiedRow> {
        let mut parts = text.split('/');
        let (container, refactoring, rid) = (parts.next()?, parts.next()?, parts.next()?);
        let (container, refactoring) = (container.parse().ok()?, refactoring.parse().ok()?);
        Some(CopiedRow { container, refactoring, rid: rid.parse().ok()? })
    }

    fn text(self) -> String {
        format!("{}/{}/{}", self.container, self.refactoring, self.rid)
    }
}

impl Refactorings {
    /// Copies some rows of journals to the container that is going to have the name; whether all are copied. Items that are changed
    /// afterwards keep their rids, unless a client gives them another key.
    pub fn copy_journals(&self, own: &mut Refactoring, stays: &Arc<Container>) -> Result<bool, EngineError> {
        if own.position.as_deref() == Some(COPIED) {
            return Ok(true);
        }
        let mut last = own.position.as_deref().and_then(CopiedRow::parse);
        for _ in 0..STEP_PAGES {
            let Some(next) = self.copy_page(own, stays, last)? else {
                own.position = Some(COPIED.to_owned());
                self.put_rekey(own)?;
                return Ok(true);
            };
            last = Some(next);
        }
        own.position = last.map(CopiedRow::text);
        self.put_rekey(own)?;
        Ok(false)
    }

    /// The last row that was copied; `None` where there is none behind `last`.
    fn copy_page(
        &self,
        own: &Refactoring,
        stays: &Container,
        last: Option<CopiedRow>,
    ) -> Result<Option<CopiedRow>, EngineError> {
        let snapshot = self.shared.storage.snapshot()?;
        let mut others = self.refactorings_that_move(own)?;
        // What is changed along declarations cannot be undone once one of its containers got another key.
        others.retain(|other| other.plan.is_none() && other.rekey.is_none());
        others.sort_by_key(|other| (other.container, other.number));
        for other in &others {
            let name = (other.container, other.number);
            let mut range = KeyRange::prefix(&keys::journal_prefix(name.0, name.1));
            match last.filter(|last| (last.container, last.refactoring) >= name) {
                Some(last) if (last.container, last.refactoring) > name => continue,
                Some(last) => range.start = Bound::Excluded(keys::journal(name.0, name.1, last.rid)),
                None => {}
            }
            let page = snapshot.scan(&Scan { rows_max: PAGE_ROWS, ..scan(CATALOG, range) })?;
            let (mut ops, mut copied) = (Vec::new(), None);
            for (key, row) in &page.rows {
                let rid = keys::rid_of_journal_key(key).ok_or_else(|| corrupt("key of a journal"))?;
                copied = Some(CopiedRow { container: name.0, refactoring: name.1, rid });
                let Some(to) = self.rid_in(&*snapshot, own, (other.container, rid), stays)? else { continue };
                let changes = rows::read_changes(key, row)?;
                ops.push(rows::journal_op(&keys::journal(stays.number, name.1, to), &changes));
            }
            if copied.is_some() {
                rows::commit_journal(&self.shared, stays, ops)?;
                return Ok(copied);
            }
        }
        Ok(None)
    }

    /// The rid that an item has, or is going to have, in the container that stays; `None` where it is gone.
    fn rid_in(
        &self,
        snapshot: &dyn Snapshot,
        own: &Refactoring,
        (container, rid): (u32, u64),
        stays: &Container,
    ) -> Result<Option<u64>, EngineError> {
        let state = self.catalog.state();
        let (Some(from), Some(current)) = (state.container(container), state.container(own.container)) else {
            return Ok(None);
        };
        // What has the name has the item as it is now. One that was left when names were exchanged is in the old one alone.
        let in_current = match from.number == current.number {
            true => Some(rid),
            false => rid_under_key(snapshot, (from, rid), current)?,
        };
        let place = in_current.map_or((from.number, rid), |rid| (current.number, rid));
        let Some(bytes) = snapshot.get(ITEMS, &keys::item(place.0, place.1))? else { return Ok(None) };
        let copy = RekeyedItem::of(stays.number, &stays.definition, ItemRow::parse(&bytes)?.node()?);
        let key = &stays.definition.partition_key;
        let counter = rid & keys::RID_COUNTER_MASK;
        Ok(copy.map(|copy| keys::rid(copy.epk.rid_prefix(key.kind, key.version), counter)))
    }

    /// Others of the containers that go. All of them stay in the list.
    fn refactorings_that_move(&self, own: &Refactoring) -> Result<Vec<Refactoring>, EngineError> {
        let old = own.rekey.as_ref().and_then(|places| places.old);
        let goes = |number: u32| number == own.container || Some(number) == old;
        let mut all = self.list(own.database)?;
        all.retain(|other| other.number != own.number && goes(other.container));
        Ok(all)
    }

    /// Their rows once the other container has the name, for the commit that gives it the name.
    pub fn moved_rows(&self, own: &Refactoring, stays: u32) -> Result<Vec<Op>, EngineError> {
        let moved = |other: Refactoring| Refactoring { container: stays, ..other }.op();
        Ok(self.refactorings_that_move(own)?.into_iter().map(moved).collect())
    }
}
