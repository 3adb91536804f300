//! One commit over several partitions.

use quire_storage::{Commit, CommitError};

use super::group::{Group, item_of};
use super::queue::Leadership;
use super::{Prepared, Refused, Sequencer, Written};
use crate::api::EngineError;
use crate::store::random_token;

/// One commit over several partitions, each of them once: all of it or nothing, with one LSN in each. Blocks as
/// [`Sequencer::submit`] does; answers in the order of the writes.
pub(crate) fn submit_across(writes: Vec<(&Sequencer, Prepared)>) -> Result<Vec<Written>, Refused> {
    let mut order: Vec<usize> = (0..writes.len()).collect();
    order.sort_unstable_by_key(|&at| writes[at].0.storage_partition());
    let mut writes: Vec<Option<(&Sequencer, Prepared)>> = writes.into_iter().map(Some).collect();
    let in_order = order.iter().filter_map(|&at| writes[at].take());
    let written = submit_in_order(in_order.map(|(sequencer, write)| (sequencer, vec![write])).collect())?;
    let mut answers = vec![Written { lsn: 0, ts: 0 }; order.len()];
    order.into_iter().zip(written).for_each(|(at, written)| answers[at] = written);
    Ok(answers)
}

/// The same for several writes of each partition, which keep LSNs of their own.
pub(crate) fn submit_together(mut writes: Vec<(&Sequencer, Vec<Prepared>)>) -> Result<(), Refused> {
    writes.sort_unstable_by_key(|(sequencer, _)| sequencer.storage_partition());
    submit_in_order(writes).map(|_| ())
}

fn submit_in_order(writes: Vec<(&Sequencer, Vec<Prepared>)>) -> Result<Vec<Written>, Refused> {
    let Some(&(first, _)) = writes.first() else { return Ok(Vec::new()) };
    let _leaderships: Vec<Leadership<'_>> =
        writes.iter().map(|(sequencer, _)| sequencer.take_leadership()).collect();
    let mut before = Vec::with_capacity(writes.len());
    for (sequencer, prepared) in &writes {
        before.push(sequencer.ready().map_err(Refused::Failed)?);
        if prepared.iter().any(|prepared| sequencer.is_stale(prepared)) {
            return Err(Refused::Stale);
        }
    }
    let token = random_token().map_err(Refused::Failed)?;
    let (mut ops, mut guards, mut groups, mut afters) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for ((sequencer, prepared), committed) in writes.into_iter().zip(before) {
        let mut group = Group::new(sequencer);
        // An index is listed once by a commit, whichever partition is the first to need it.
        let listed = |other: &&Group<'_>| other.sequencer.container == sequencer.container;
        group.names = groups.iter().filter(listed).flat_map(|other| other.names.clone()).collect();
        let from = ops.len();
        let (guard, after) = sequencer.stamp_all(prepared, committed, &mut ops, &mut group);
        group.rids.extend(ops[from..].iter().filter_map(item_of));
        guards.push(guard);
        afters.push(after);
        groups.push(group);
    }
    let written = groups.iter().flat_map(|group| group.written.clone()).collect();
    groups.iter_mut().for_each(Group::mark);
    let outcome = first.shared.storage.commit(Commit { guards, token, ops });
    let outcome = match outcome {
        Ok(_) => Outcome::Done,
        // A raised epoch of one partition keeps all of the commit from happening.
        Err(CommitError::Unknown { .. }) => match first.settle(token) {
            Some(true) => Outcome::DoneElsewhere,
            Some(false) => Outcome::Nothing,
            None => Outcome::InDoubt,
        },
        Err(CommitError::Busy | CommitError::Conflict { .. }) => Outcome::Nothing,
        Err(error) => {
            let error = first.explain(error);
            groups.into_iter().for_each(|group| group.fail(&error));
            return Err(Refused::Failed(error));
        }
    };
    for (group, after) in groups.into_iter().zip(afters) {
        match outcome {
            Outcome::Done => group.succeed(after.0.counts, Some(after)),
            Outcome::DoneElsewhere => group.succeed(after.0.counts, None),
            Outcome::Nothing => group.stale(),
            Outcome::InDoubt => group.in_doubt(token),
        }
    }
    match outcome {
        Outcome::Done | Outcome::DoneElsewhere => Ok(written),
        Outcome::Nothing => Err(Refused::Stale),
        Outcome::InDoubt => Err(Refused::Failed(EngineError::Overloaded)),
    }
}

/// What a commit over several partitions came to.
#[derive(Clone, Copy)]
pub(super) enum Outcome {
    Done,
    /// It is certain now, but where the partitions stand has to be read again.
    DoneElsewhere,
    Nothing,
    InDoubt,
}
