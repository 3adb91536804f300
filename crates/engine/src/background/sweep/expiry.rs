//! Removes expired items.
//!
//! Items with a `ttl` of their own have expiry rows, in the order of time. The others expire by the container's default in
//! the order in which they were written, which is the order of the latest feed.

use std::collections::HashMap;
use std::ops::Bound;

use quire_resource::ItemTtl;
use quire_storage::KeyRange;

use super::{ContainerSweep, Interrupted, SweepRemainder, SweptContainer, scan};
use crate::api::{EngineError, corrupt};
use crate::store::item_row::ItemRow;
use crate::store::keys;

/// Feed rows per read.
const FEED_ROWS: usize = 1000;

/// The position in the expiry rows.
pub(super) struct OwnExpiryPosition {
    /// No row after the position has an earlier second.
    due: i64,
    /// The last row that was read, unless the next scan begins with `due`.
    after: Option<Vec<u8>>,
}

/// The position in the feeds.
pub(super) struct DefaultTtlPosition {
    /// No item after the position expires earlier.
    due: i64,
    /// The last feed row that was read, by partition: LSN and ordinal.
    places: HashMap<u32, (u64, u16)>,
    /// Items whose time of writing is ahead of the clock were passed over; the first of them expires then.
    passed_due: i64,
}

/// The result of a scan of a partition's feed.
#[derive(Default)]
struct FeedScan {
    expired: Vec<u64>,
    unreadable: Vec<(u64, EngineError)>,
    place: (u64, u16),
    /// When the first remaining item expires; `None`: there are more rows to read.
    next: Option<i64>,
    /// When the first of the expired items did.
    oldest: Option<i64>,
    passed_due: Option<i64>,
}

impl Default for OwnExpiryPosition {
    fn default() -> OwnExpiryPosition {
        OwnExpiryPosition { due: i64::MIN, after: None }
    }
}

impl Default for DefaultTtlPosition {
    fn default() -> DefaultTtlPosition {
        DefaultTtlPosition { due: i64::MIN, places: HashMap::new(), passed_due: i64::MAX }
    }
}

impl OwnExpiryPosition {
    /// Something that expires at this time was written.
    fn add(&mut self, expires_at: i64) {
        if expires_at < self.due || self.after.as_ref().is_some_and(|after| second_of(after) >= expires_at) {
            *self = OwnExpiryPosition { due: expires_at.min(self.due), after: None };
        }
    }
}

impl ContainerSweep<'_> {
    pub(super) fn sweep_own(&mut self, swept: &mut SweptContainer) -> Result<SweepRemainder, Interrupted> {
        // Before the snapshot.
        swept.own.add(self.container.partitions.sweep_due().take_own_expiry());
        if swept.own.due > self.now || self.budget == 0 {
            return Ok(SweepRemainder {
                more: swept.own.due <= self.now,
                lag_seconds: self.lag(swept.own.due),
            });
        }
        let number = self.container.number;
        let expiry = |at: i64, rid: u64| keys::expiry(number, at, rid);
        let start = match &swept.own.after {
            Some(after) => Bound::Excluded(after.clone()),
            None => Bound::Included(expiry(swept.own.due, 0)),
        };
        let range = KeyRange { start, end: Bound::Included(expiry(self.now, u64::MAX)) };
        let snapshot = self.sweep.shared.storage.snapshot()?;
        let page = snapshot.scan(&scan(range, self.budget, true))?;
        let following = if page.more {
            None
        } else {
            let range = KeyRange {
                start: Bound::Excluded(expiry(self.now, u64::MAX)),
                end: Bound::Included(expiry(i64::MAX, u64::MAX)),
            };
            snapshot.scan(&scan(range, 1, true))?.rows.pop()
        };
        drop(snapshot);
        let oldest = page.rows.first().map(|(key, _)| second_of(key));
        let mut rids = Vec::with_capacity(page.rows.len());
        for (key, _) in &page.rows {
            match keys::rid_of_expiry_key(key) {
                Some(rid) => rids.push(rid),
                None => self.skip(swept, "expiry row", &corrupt("expiry row")),
            }
        }
        let removal = self.remove(&rids)?;
        self.finish(removal, swept);
        swept.own = match page.rows.into_iter().next_back() {
            Some((last, _)) if page.more => OwnExpiryPosition { due: second_of(&last), after: Some(last) },
            _ => {
                OwnExpiryPosition { due: following.map_or(i64::MAX, |(key, _)| second_of(&key)), after: None }
            }
        };
        Ok(SweepRemainder { more: page.more, lag_seconds: oldest.map_or(0, |oldest| self.lag(oldest)) })
    }

    pub(super) fn sweep_default(
        &mut self,
        swept: &mut SweptContainer,
        default: i32,
    ) -> Result<SweepRemainder, Interrupted> {
        let written = self.container.partitions.sweep_due().take_item_written();
        swept.default.due = swept.default.due.min(written.saturating_add(i64::from(default)));
        if swept.default.passed_due <= self.now {
            swept.default = DefaultTtlPosition::default();
        }
        if swept.default.due > self.now {
            return Ok(SweepRemainder::default());
        }
        let mut due = i64::MAX;
        let mut left = SweepRemainder::default();
        for id in self.container.partitions.lineage() {
            if self.budget == 0 {
                left.more = true;
                due = self.now;
                break;
            }
            let place = swept.default.places.get(&id).copied().unwrap_or_default();
            let feed_scan = self.scan_feed(id, place, default)?;
            let removal = self.remove(&feed_scan.expired)?;
            self.finish(removal, swept);
            for (rid, error) in &feed_scan.unreadable {
                self.skip(swept, &format!("item {rid:x} of the feed"), error);
            }
            swept.default.places.insert(id, feed_scan.place);
            let passed_due = feed_scan.passed_due.unwrap_or(i64::MAX);
            swept.default.passed_due = swept.default.passed_due.min(passed_due);
            due = due.min(feed_scan.next.unwrap_or(self.now));
            left.add(SweepRemainder {
                more: feed_scan.next.is_none(),
                lag_seconds: feed_scan.oldest.map_or(0, |oldest| self.lag(oldest)),
            });
        }
        swept.default.due = due;
        Ok(left)
    }

    /// Feed rows behind a place, up to the first item that has not expired.
    fn scan_feed(&self, partition: u32, place: (u64, u16), default: i32) -> Result<FeedScan, Interrupted> {
        let number = self.container.number;
        let range = KeyRange {
            start: Bound::Excluded(keys::latest(number, partition, place.0, place.1)),
            end: Bound::Included(keys::latest(number, partition, u64::MAX, u16::MAX)),
        };
        let snapshot = self.sweep.shared.storage.snapshot()?;
        let page = snapshot.scan(&scan(range, FEED_ROWS, false))?;
        let rids = page.rows.iter().map(|(_, value)| keys::number(value).unwrap_or(u64::MAX));
        let rids: Vec<u64> = rids.collect();
        let keys: Vec<Vec<u8>> = rids.iter().map(|rid| keys::item(number, *rid)).collect();
        let borrowed: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let items = snapshot.multi_get(keys::ITEMS, &borrowed)?;
        let mut feed_scan = FeedScan { place, ..FeedScan::default() };
        for (((key, _), rid), bytes) in page.rows.iter().zip(rids).zip(items) {
            let parsed =
                bytes.as_deref().ok_or_else(|| corrupt("feed row without an item")).and_then(ItemRow::parse);
            match parsed {
                Ok(row) if row.ttl == ItemTtl::Inherit => {
                    let expires_at = row.written() + i64::from(default);
                    if expires_at <= self.now {
                        if feed_scan.expired.len() >= self.budget {
                            return Ok(feed_scan);
                        }
                        feed_scan.oldest.get_or_insert(expires_at);
                        feed_scan.expired.push(rid);
                    } else if row.written() <= self.now {
                        feed_scan.next = Some(expires_at);
                        return Ok(feed_scan);
                    } else {
                        // The clock has gone back since: what follows may well have expired.
                        let passed = feed_scan.passed_due.unwrap_or(i64::MAX);
                        feed_scan.passed_due = Some(passed.min(expires_at));
                    }
                }
                Ok(_) => {}
                Err(error) => feed_scan.unreadable.push((rid, error)),
            }
            feed_scan.place = keys::place_of_feed_key(key).unwrap_or(feed_scan.place);
        }
        feed_scan.next = (!page.more).then_some(i64::MAX);
        Ok(feed_scan)
    }

    fn lag(&self, due: i64) -> i64 {
        if due == i64::MIN { 0 } else { self.now.saturating_sub(due).max(0) }
    }
}

/// The second in the key of an expiry row.
fn second_of(key: &[u8]) -> i64 {
    key.get(5..13).and_then(keys::number).map_or(0, |second| i64::try_from(second).unwrap_or(i64::MAX))
}
