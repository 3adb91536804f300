//! From a target to its referrers, in the order of their ids, then of their partition keys.

use quire_model::{LinkRules, TargetKey};
use quire_storage::{Scan, Snapshot};

use super::TargetHash;
use super::target::refers_to;
use crate::api::{EngineError, corrupt};
use crate::catalog::Container;
use crate::indexes::IndexId;
use crate::items::logical_partition::StoredRow;
use crate::items::visibility::VisibilityPoint;
use crate::store::keys::{INDEX, ITEMS, LinkKeys, item, rid_of_place};
use crate::store::scan;

/// Rows that are read at once.
const PAGE_ROWS: usize = 256;

/// The referrers of one target by one link.
#[derive(Clone, Copy)]
pub(crate) struct Referrers<'a> {
    pub link: &'a LinkRules,
    /// Number of the link.
    pub declaration: u32,
    /// Of the referrers.
    pub container: &'a Container,
    pub target: &'a TargetKey,
}

/// An item that refers to the target, visible or not.
pub(crate) struct Referrer {
    /// Where it stands: the next page begins behind it.
    pub place: Vec<u8>,
    pub stored: StoredRow,
    pub is_invisible: bool,
}

#[derive(Default)]
pub(crate) struct ReferrerPage {
    pub referrers: Vec<Referrer>,
    /// Where the next page begins; `None`: there is none.
    pub next: Option<Vec<u8>>,
}

impl Referrers<'_> {
    pub fn keys(&self) -> LinkKeys {
        LinkKeys { container: self.container.number, index: IndexId::of_link(self.declaration).0 }
    }

    /// The next referrers behind a place, at most `count_max`. `visibility_point` was asked before the snapshot.
    pub fn page(
        &self,
        snapshot: &dyn Snapshot,
        after: Option<&[u8]>,
        count_max: usize,
        visibility_point: &VisibilityPoint,
    ) -> Result<ReferrerPage, EngineError> {
        let (mut page, mut after) = (ReferrerPage::default(), after.map(<[u8]>::to_vec));
        while page.referrers.len() < count_max {
            let rows_max = PAGE_ROWS.min(count_max - page.referrers.len());
            let (places, more) = self.places(snapshot, after.as_deref(), rows_max)?;
            after = places.last().cloned();
            self.load(snapshot, places, visibility_point, &mut page.referrers)?;
            if !more {
                return Ok(page);
            }
        }
        page.next = after;
        Ok(page)
    }

    /// How many rows there are at most, without a look at the items: counted up to `count_max`.
    pub fn rows_up_to(&self, snapshot: &dyn Snapshot, count_max: usize) -> Result<usize, EngineError> {
        Ok(self.places(snapshot, None, count_max)?.0.len())
    }

    fn places(
        &self,
        snapshot: &dyn Snapshot,
        after: Option<&[u8]>,
        rows_max: usize,
    ) -> Result<(Vec<Vec<u8>>, bool), EngineError> {
        let range = self.keys().referrers_after(&TargetHash::of(self.target).0, after);
        let rows = Scan { rows_max, keys_only: true, ..scan(INDEX, range) };
        let page = snapshot.scan(&rows)?;
        let place = |(key, _): &(Vec<u8>, Vec<u8>)| LinkKeys::place_of(key).map(<[u8]>::to_vec);
        let places: Option<Vec<Vec<u8>>> = page.rows.iter().map(place).collect();
        Ok((places.ok_or_else(|| corrupt("row of a link's index"))?, page.more))
    }

    /// Reads the items; those that do not refer to the target but share its hash are left out.
    fn load(
        &self,
        snapshot: &dyn Snapshot,
        places: Vec<Vec<u8>>,
        visibility_point: &VisibilityPoint,
        referrers: &mut Vec<Referrer>,
    ) -> Result<(), EngineError> {
        let rids: Option<Vec<u64>> = places.iter().map(|place| rid_of_place(place)).collect();
        let rids = rids.ok_or_else(|| corrupt("row of a link's index"))?;
        let keys: Vec<Vec<u8>> = rids.iter().map(|rid| item(self.container.number, *rid)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let items = snapshot.multi_get(ITEMS, &keys)?;
        for ((place, rid), bytes) in places.into_iter().zip(rids).zip(items) {
            let bytes = bytes.ok_or_else(|| corrupt("row of a link's index without an item"))?;
            let stored = StoredRow { rid, bytes };
            let (_, row) = stored.parse()?;
            let (is_referrer, is_invisible) = (
                refers_to(self.link, row.node()?, self.target),
                self.container.is_invisible(&row, visibility_point),
            );
            if is_referrer {
                referrers.push(Referrer { place, stored, is_invisible });
            }
        }
        Ok(())
    }
}
