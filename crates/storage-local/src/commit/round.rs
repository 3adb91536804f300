//! One round of group commit: prepare, sync, show to readers, answer, in this order.
//!
//! Invariants, under every schedule (`crate::schedules`): nothing is shown to readers before it is synced; a writer whose answer
//! is a success is in what readers see; after a failed sync nothing is written, shown or acknowledged.

use quire_storage::{CommitError, StorageError};

use crate::commit::leader::QueuedCommit;
#[cfg(feature = "schedules")]
use crate::sync::races::{Race, is_put_back};

/// What a round is written to.
pub(crate) trait RoundStore: Sized {
    type Work;
    type Answer: Copy;
    type Batch;

    /// Why nothing is written, if that is so.
    fn refusal(&self) -> Option<StorageError>;
    /// The batch of all works that can be committed, and their answers in order. `None`: there is nothing to write.
    fn prepare(&self, works: Vec<Self::Work>) -> PreparedRound<Self>;
    /// Durable when it returns true. Otherwise there is a [`RoundStore::refusal`] from then on.
    fn sync(&self, batch: &mut Self::Batch) -> bool;
    /// Shows a durable batch to readers.
    fn publish(&self, batch: Self::Batch);
}

type RoundOutcome<S> = Result<<S as RoundStore>::Answer, CommitError>;
/// The batch of a round, and its answers.
pub(crate) type PreparedRound<S> = (Option<<S as RoundStore>::Batch>, Vec<RoundOutcome<S>>);

pub(crate) fn commit_round<S: RoundStore>(store: &S, round: Vec<QueuedCommit<S::Work, RoundOutcome<S>>>) {
    if is_refused(store) {
        let refusal = || store.refusal().unwrap_or(StorageError::Poisoned { during: "commit" });
        return refuse_round(round, refusal);
    }
    let (works, writers): (Vec<_>, Vec<_>) =
        round.into_iter().map(|waiting| (waiting.work, waiting.writer)).unzip();
    let (batch, answers) = store.prepare(works);
    #[cfg(feature = "schedules")]
    if is_put_back(Race::AnswerBeforePublish) {
        writers.into_iter().zip(answers).for_each(|(writer, answer)| writer.answer(answer));
        return batch.into_iter().for_each(|batch| write(store, batch));
    }
    if let Some(batch) = batch {
        write(store, batch);
    }
    for (writer, answer) in writers.into_iter().zip(answers) {
        let refusal = store.refusal();
        #[cfg(feature = "schedules")]
        let refusal = refusal.filter(|_| !is_put_back(Race::AnswerDespiteFailure));
        writer.answer(match (answer, refusal) {
            (Ok(_), Some(error)) => Err(error.into()),
            (answer, _) => answer,
        });
    }
}

fn write<S: RoundStore>(store: &S, mut batch: S::Batch) {
    #[cfg(feature = "schedules")]
    if is_put_back(Race::PublishBeforeSync) {
        store.publish(batch);
        return;
    }
    if store.sync(&mut batch) {
        store.publish(batch);
    }
}

pub(crate) fn refuse_round<W, A>(
    round: Vec<QueuedCommit<W, Result<A, CommitError>>>,
    error: impl Fn() -> StorageError,
) {
    round.into_iter().for_each(|waiting| waiting.writer.answer(Err(error().into())));
}

fn is_refused<S: RoundStore>(store: &S) -> bool {
    #[cfg(feature = "schedules")]
    if is_put_back(Race::WriteAfterFailure) {
        return false;
    }
    store.refusal().is_some()
}
