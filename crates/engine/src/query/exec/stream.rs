//! Queries whose rows are told item by item, in the order of partitions and child ids.

use super::super::continuation::Resume;
use super::super::window::Spot;
use super::evaluate::{Evaluator, Need};
use super::lookahead::visit_ahead;
use super::output::{Output, Sent};
use crate::api::EngineError;
use crate::query::plan::candidates::Candidates;
use crate::query::reader::{End, Next, Reader, Visit};

/// Fills the page from a spot on, of whose item so many rows are done with; says where the next page starts.
pub(crate) fn stream(
    reader: &mut Reader<'_>,
    evaluator: &Evaluator<'_>,
    candidates: &mut Candidates,
    output: &mut Output,
    from: Option<(Spot, u64)>,
) -> Result<Option<Resume>, EngineError> {
    if output.is_finished() {
        return Ok(None);
    }
    let rows_done = |spot: Spot| from.filter(|(first, _)| *first == spot).map_or(0, |(_, row)| row);
    let (mut full_at, mut matched) = (None, 0);
    let (start, wanted) = (from.map(|(spot, _)| spot), output.wanted());
    let walk = &mut |reader: &mut Reader<'_>, from, visit: &mut Visit<'_>| {
        candidates.visit(reader, from, wanted, visit)
    };
    let end =
        visit_ahead(reader, (evaluator, Need::Rows), start, wanted, &|_| Ok(true), walk, &mut |found| {
            let before = output.counted();
            let sent = output.send(evaluator, found, rows_done(found.spot))?;
            matched += u64::from(output.counted() > before);
            if output.counted() > before {
                output.rows.served_by = Some(found.spot.partition);
            }
            Ok(match sent {
                Sent::All => Next::More,
                Sent::Limit => Next::Enough,
                Sent::Full { row } => {
                    full_at = Some((found.spot, row));
                    Next::NotThis
                }
            })
        })?;
    reader.meter.matched += matched;
    let place = match end {
        End::Done => None,
        End::Stopped => full_at,
        End::Paused(spot) => Some((spot, rows_done(spot))),
    };
    Ok(place.map(|(spot, row)| Resume::Stream { spot, row, skipped: output.skipped, sent: output.sent }))
}
