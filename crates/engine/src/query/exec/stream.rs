//! Streaming queries: every row comes from one item, in the order of partitions and child ids.

use super::super::continuation::Resume;
use super::super::partition_scope::ItemPosition;
use super::evaluate::{EvaluationNeed, ItemEvaluator};
use super::lookahead::visit_ahead;
use super::output::{PageOutput, SendOutcome};
use crate::api::EngineError;
use crate::query::plan::candidates::Candidates;
use crate::query::reader::{ItemVisitor, ScanEnd, ScopeReader, VisitNext};

/// Fills the page from a position on. `from` also has the number of rows of that item that were sent. Returns the start
/// of the next page.
pub(crate) fn stream(
    reader: &mut ScopeReader<'_>,
    evaluator: &ItemEvaluator<'_>,
    candidates: &mut Candidates,
    output: &mut PageOutput,
    from: Option<(ItemPosition, u64)>,
) -> Result<Option<Resume>, EngineError> {
    if output.is_finished() {
        return Ok(None);
    }
    let rows_done =
        |position: ItemPosition| from.filter(|(first, _)| *first == position).map_or(0, |(_, row)| row);
    let (mut full_at, mut matched) = (None, 0);
    let (start, wanted) = (from.map(|(position, _)| position), output.wanted());
    let walk = &mut |reader: &mut ScopeReader<'_>, from, visit: &mut ItemVisitor<'_>| {
        candidates.visit(reader, from, wanted, visit)
    };
    let end = visit_ahead(
        reader,
        (evaluator, EvaluationNeed::Rows),
        start,
        wanted,
        &|_| Ok(true),
        walk,
        &mut |found| {
            let before = output.counted();
            let sent = output.send(evaluator, found, rows_done(found.position))?;
            matched += u64::from(output.counted() > before);
            if output.counted() > before {
                output.rows.served_by = Some(found.position.partition);
            }
            Ok(match sent {
                SendOutcome::All => VisitNext::More,
                SendOutcome::Limit => VisitNext::Enough,
                SendOutcome::Full { row } => {
                    full_at = Some((found.position, row));
                    VisitNext::NotThis
                }
            })
        },
    )?;
    reader.meter.matched += matched;
    let place = match end {
        ScanEnd::Done => None,
        ScanEnd::Stopped => full_at,
        ScanEnd::Paused(position) => Some((position, rows_done(position))),
    };
    Ok(place.map(|(position, row)| Resume::Stream {
        position,
        row,
        skipped: output.skipped,
        sent: output.sent,
    }))
}
