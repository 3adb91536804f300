//! Items are read ahead of their evaluation where they call user-defined functions, so that these run together (see
//! [`PageFunctions`](crate::query::functions::PageFunctions)), and where they follow links, so that other items are read together
//! (see [`PageLinks`](crate::query::follow::PageLinks)). Other queries see their items as they are read.
//!
//! Invariant: the visitor is shown the same items in the same order, and what it leaves is left to the next page as if it
//! had not been read. Nothing of the storage is held while functions run.

use std::sync::Arc;

use super::super::window::Spot;
use super::evaluate::{Evaluator, Need};
use crate::api::EngineError;
use crate::query::follow::BLOCK_ITEMS;
use crate::query::reader::{End, Found, Next, Reader, Visit};
use crate::store::item_row::Row;

/// Items held at a time: first as many as the page can need, then more.
const ITEMS_FIRST_MAX: usize = 128;
const ITEMS_MAX: usize = 1024;
const BYTES_MAX: usize = 4 << 20;

/// Shows items from a spot on, in some order.
pub(crate) type Walk<'w> =
    dyn FnMut(&mut Reader<'_>, Option<Spot>, &mut Visit<'_>) -> Result<End, EngineError> + 'w;
/// Whether an item is going to be evaluated, as far as can be told.
pub(crate) type IsWanted<'w> = dyn Fn(&Found<'_>) -> Result<bool, EngineError> + 'w;

struct Held {
    spot: Spot,
    bytes: Vec<u8>,
    /// Items read before it that have no rows, whatever they follow: bytes of each.
    passed: Vec<usize>,
}

impl Held {
    fn found(&self) -> Result<Found<'_>, EngineError> {
        Ok(Found { spot: self.spot, row: Row::trusted(&self.bytes)? })
    }
}

/// Shows what `walk` shows, but for items that have no rows. `expected` items are enough for the visitor, as far as it knows.
pub(crate) fn visit_ahead(
    reader: &mut Reader<'_>,
    (evaluator, need): (&Evaluator<'_>, Need),
    mut from: Option<Spot>,
    expected: usize,
    is_wanted: &IsWanted<'_>,
    walk: &mut Walk<'_>,
    visit: &mut Visit<'_>,
) -> Result<End, EngineError> {
    let (first_max, items_max) =
        if evaluator.follows(need) { (BLOCK_ITEMS, BLOCK_ITEMS) } else { (ITEMS_FIRST_MAX, ITEMS_MAX) };
    let mut count_max = expected.clamp(1, first_max);
    loop {
        if !evaluator.is_prepared(need) {
            return walk(reader, from, visit);
        }
        let (mut held, mut bytes, mut next): (Vec<Held>, usize, Option<Spot>) = (Vec::new(), 0, None);
        let mut passed = Vec::new();
        let end = walk(reader, from, &mut |found| {
            if evaluator.follows(need) && !evaluator.may_have_rows(found)? {
                passed.push(found.row.bytes().len());
                return Ok(Next::More);
            }
            if held.len() >= count_max || bytes >= BYTES_MAX {
                next = Some(found.spot);
                return Ok(Next::NotThis);
            }
            bytes += found.row.bytes().len();
            let passed = std::mem::take(&mut passed);
            held.push(Held { spot: found.spot, bytes: found.row.bytes().to_vec(), passed });
            Ok(Next::More)
        })?;
        if show(reader, (evaluator, need), &held, is_wanted, visit)?.is_some() {
            return Ok(End::Stopped);
        }
        match next {
            Some(spot) => from = Some(spot),
            None => return Ok(end),
        }
        count_max = (2 * count_max).min(items_max);
    }
}

/// `Some`: the visitor has had enough, and the rest counts as not read.
fn show(
    reader: &mut Reader<'_>,
    (evaluator, need): (&Evaluator<'_>, Need),
    held: &[Held],
    is_wanted: &IsWanted<'_>,
    visit: &mut Visit<'_>,
) -> Result<Option<()>, EngineError> {
    let mut wanted = Vec::with_capacity(held.len());
    for item in held {
        let found = item.found()?;
        if is_wanted(&found)? {
            wanted.push(found);
        }
    }
    evaluator.prepare(&wanted, need)?;
    for (at, item) in held.iter().enumerate() {
        reader.meter.spend(1)?;
        let left = match visit(&item.found()?)? {
            Next::More => continue,
            Next::Enough => &held[at + 1..],
            Next::NotThis => &held[at..],
        };
        for item in left {
            item.passed.iter().chain([&item.bytes.len()]).for_each(|bytes| reader.meter.put_back(*bytes));
        }
        return Ok(Some(()));
    }
    Ok(None)
}

/// Has the functions run that items call which were fetched and will be sent.
pub(crate) fn prepare_fetched(
    reader: &Reader<'_>,
    evaluator: &Evaluator<'_>,
    rids: &[u64],
    rows: &[Option<Arc<[u8]>>],
) -> Result<(), EngineError> {
    if !evaluator.is_prepared(Need::Rows) {
        return Ok(());
    }
    let mut found = Vec::with_capacity(rows.len());
    for (rid, bytes) in rids.iter().zip(rows) {
        if let Some(bytes) = bytes
            && let Some(spot) = reader.spot_of(*rid)
        {
            found.push(Found { spot, row: Row::trusted(bytes)? });
        }
    }
    evaluator.prepare(&found, Need::Rows)
}
