//! Items are read ahead of their evaluation where they call user-defined functions, so that these run together: see
//! [`PageFunctions`](crate::query::functions::PageFunctions). Other queries see their items as they are read.
//!
//! Invariant: the visitor is shown the same items in the same order, and what it leaves is left to the next page as if it
//! had not been read. Nothing of the storage is held while functions run.

use std::sync::Arc;

use super::super::window::Spot;
use super::evaluate::Evaluator;
use crate::api::EngineError;
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
}

impl Held {
    fn found(&self) -> Result<Found<'_>, EngineError> {
        Ok(Found { spot: self.spot, row: Row::trusted(&self.bytes)? })
    }
}

/// Shows what `walk` shows. `expected` items are enough for the visitor, as far as it knows.
pub(crate) fn visit_ahead(
    reader: &mut Reader<'_>,
    evaluator: &Evaluator<'_>,
    mut from: Option<Spot>,
    expected: usize,
    is_wanted: &IsWanted<'_>,
    walk: &mut Walk<'_>,
    visit: &mut Visit<'_>,
) -> Result<End, EngineError> {
    let mut count_max = expected.clamp(1, ITEMS_FIRST_MAX);
    loop {
        if !evaluator.is_prepared() {
            return walk(reader, from, visit);
        }
        let (mut held, mut bytes, mut next): (Vec<Held>, usize, Option<Spot>) = (Vec::new(), 0, None);
        let end = walk(reader, from, &mut |found| {
            if held.len() >= count_max || bytes >= BYTES_MAX {
                next = Some(found.spot);
                return Ok(Next::NotThis);
            }
            bytes += found.row.bytes().len();
            held.push(Held { spot: found.spot, bytes: found.row.bytes().to_vec() });
            Ok(Next::More)
        })?;
        if show(reader, evaluator, &held, is_wanted, visit)?.is_some() {
            return Ok(End::Stopped);
        }
        match next {
            Some(spot) => from = Some(spot),
            None => return Ok(end),
        }
        count_max = (2 * count_max).min(ITEMS_MAX);
    }
}

/// `Some`: the visitor has had enough, and the rest counts as not read.
fn show(
    reader: &mut Reader<'_>,
    evaluator: &Evaluator<'_>,
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
    evaluator.prepare(&wanted)?;
    for (at, item) in held.iter().enumerate() {
        reader.meter.spend(1)?;
        let left = match visit(&item.found()?)? {
            Next::More => continue,
            Next::Enough => &held[at + 1..],
            Next::NotThis => &held[at..],
        };
        left.iter().for_each(|item| reader.meter.put_back(item.bytes.len()));
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
    if !evaluator.is_prepared() {
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
    evaluator.prepare(&found)
}
