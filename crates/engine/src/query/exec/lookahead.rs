//! Items are buffered before their evaluation in two cases: they call user-defined functions, which then run in one
//! message (see [`PageFunctions`](crate::query::functions::PageFunctions)), or they follow links, and the linked items
//! are then read in one batch (see [`PageLinks`](crate::query::follow::PageLinks)). All other queries evaluate an item
//! as it is read.
//!
//! Invariant: the visitor gets the same items in the same order, and an item that it refuses is left to the next page
//! as if it had not been read. No storage lock is held while functions run.

use std::sync::Arc;

use super::super::partition_scope::ItemPosition;
use super::evaluate::{EvaluationNeed, ItemEvaluator};
use crate::api::EngineError;
use crate::query::follow::BLOCK_ITEMS;
use crate::query::reader::{FoundItem, ItemVisitor, ScanEnd, ScopeReader, VisitNext};
use crate::store::item_row::ItemRow;

/// Items in the buffer: first as many as the page can need, then more.
const ITEMS_FIRST_MAX: usize = 128;
const ITEMS_MAX: usize = 1024;
const BYTES_MAX: usize = 4 << 20;

/// Visits items from a position on, in some order.
pub(crate) type VisitItems<'w> = dyn FnMut(&mut ScopeReader<'_>, Option<ItemPosition>, &mut ItemVisitor<'_>) -> Result<ScanEnd, EngineError>
    + 'w;
/// Whether an item will be evaluated, as far as this is known in advance.
pub(crate) type IsEvaluated<'w> = dyn Fn(&FoundItem<'_>) -> Result<bool, EngineError> + 'w;

struct BufferedItem {
    position: ItemPosition,
    bytes: Vec<u8>,
    /// Bytes of each item before it that has no rows, whatever it follows.
    passed: Vec<usize>,
}

impl BufferedItem {
    fn found(&self) -> Result<FoundItem<'_>, EngineError> {
        Ok(FoundItem { position: self.position, row: ItemRow::trusted(&self.bytes)? })
    }
}

/// Visits the items that `walk` visits, except those without rows. `expected`: the number of items that probably fill
/// the page.
pub(crate) fn visit_ahead(
    reader: &mut ScopeReader<'_>,
    (evaluator, need): (&ItemEvaluator<'_>, EvaluationNeed),
    mut from: Option<ItemPosition>,
    expected: usize,
    is_wanted: &IsEvaluated<'_>,
    walk: &mut VisitItems<'_>,
    visit: &mut ItemVisitor<'_>,
) -> Result<ScanEnd, EngineError> {
    let (first_max, items_max) =
        if evaluator.follows(need) { (BLOCK_ITEMS, BLOCK_ITEMS) } else { (ITEMS_FIRST_MAX, ITEMS_MAX) };
    let mut count_max = expected.clamp(1, first_max);
    loop {
        if !evaluator.is_prepared(need) {
            return walk(reader, from, visit);
        }
        let (mut held, mut bytes, mut next): (Vec<BufferedItem>, usize, Option<ItemPosition>) =
            (Vec::new(), 0, None);
        let mut passed = Vec::new();
        let end = walk(reader, from, &mut |found| {
            if evaluator.follows(need) && !evaluator.may_have_rows(found)? {
                passed.push(found.row.bytes().len());
                return Ok(VisitNext::More);
            }
            if held.len() >= count_max || bytes >= BYTES_MAX {
                next = Some(found.position);
                return Ok(VisitNext::NotThis);
            }
            bytes += found.row.bytes().len();
            let passed = std::mem::take(&mut passed);
            held.push(BufferedItem { position: found.position, bytes: found.row.bytes().to_vec(), passed });
            Ok(VisitNext::More)
        })?;
        if show(reader, (evaluator, need), &held, is_wanted, visit)?.is_some() {
            return Ok(ScanEnd::Stopped);
        }
        match next {
            Some(position) => from = Some(position),
            None => return Ok(end),
        }
        count_max = (2 * count_max).min(items_max);
    }
}

/// `Some`: the visitor stopped. The rest counts as not read.
fn show(
    reader: &mut ScopeReader<'_>,
    (evaluator, need): (&ItemEvaluator<'_>, EvaluationNeed),
    held: &[BufferedItem],
    is_wanted: &IsEvaluated<'_>,
    visit: &mut ItemVisitor<'_>,
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
            VisitNext::More => continue,
            VisitNext::Enough => &held[at + 1..],
            VisitNext::NotThis => &held[at..],
        };
        for item in left {
            item.passed.iter().chain([&item.bytes.len()]).for_each(|bytes| reader.meter.unread(*bytes));
        }
        return Ok(Some(()));
    }
    Ok(None)
}

/// Calls the functions of items that were fetched and will be sent.
pub(crate) fn prepare_fetched(
    reader: &ScopeReader<'_>,
    evaluator: &ItemEvaluator<'_>,
    rids: &[u64],
    rows: &[Option<Arc<[u8]>>],
) -> Result<(), EngineError> {
    if !evaluator.is_prepared(EvaluationNeed::Rows) {
        return Ok(());
    }
    let mut found = Vec::with_capacity(rows.len());
    for (rid, bytes) in rids.iter().zip(rows) {
        if let Some(bytes) = bytes
            && let Some(position) = reader.position_of(*rid)
        {
            found.push(FoundItem { position, row: ItemRow::trusted(bytes)? });
        }
    }
    evaluator.prepare(&found, EvaluationNeed::Rows)
}
