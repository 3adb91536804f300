//! Items that a job visits: the commit that writes them also has the new checkpoint of the job.

use std::cell::RefCell;

use quire_storage::Snapshot;

use crate::api::EngineError;
use crate::catalog::Container;
use crate::jobs::JobClaim;
use crate::maintain::visit::{VisitFigures, VisitOrder, VisitOutcome, VisitWork, visit_items};
use crate::runtime::Shared;

/// Visits items of a container. `position` encodes the checkpoint after them, from what the visit did. The error of an item that
/// cannot be written.
pub(super) fn visit_with_checkpoint(
    shared: &Shared,
    claim: &mut JobClaim<'_>,
    (container, rids): (&Container, &[u64]),
    work: VisitWork<'_>,
    position: impl Fn(&VisitFigures) -> Vec<u8>,
) -> Result<Option<String>, EngineError> {
    let advance = RefCell::new(None);
    let done = claim.done() + rids.len() as u64;
    let also = |snapshot: &dyn Snapshot, figures: &VisitFigures| {
        let moved = claim.advance(position(figures), done, None);
        let op = moved.op(snapshot)?;
        *advance.borrow_mut() = Some(moved);
        Ok(vec![op])
    };
    let order = VisitOrder { container, rids, rows: &[], work, also: &also, journal: None };
    let visited = visit_items(shared, &order)?;
    match (visited, advance.into_inner()) {
        (VisitOutcome::Done { is_committed: true }, Some(advance)) => claim.advanced(advance),
        (VisitOutcome::Done { is_committed: false }, Some(advance)) => claim.commit(advance, Vec::new())?,
        (VisitOutcome::Refused(error), _) => return Ok(Some(error.to_string())),
        (VisitOutcome::TooLarge, _) => return Ok(Some("the items are too large for one commit".to_owned())),
        (VisitOutcome::Done { .. } | VisitOutcome::DuplicateKey { .. } | VisitOutcome::NoModel, _) => {}
    }
    Ok(None)
}
