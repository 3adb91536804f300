//! Bounded blocking calls: the engine waits for disks and locks, async workers must not.
//!
//! Reads, writes and scripts have a lane each, with permits of its own. So writers that wait for a lock or a sync never
//! block a read, and scripts, which may run for seconds, block neither. A call without a permit waits in a queue of limited
//! length, for a limited time; when the queue is full it is refused at once.
//!
//! A [`Party`] has at most half of the permits of a lane and of the places in its queue. A permit that is given back goes to
//! the first waiting call whose party has less than its share, so no party waits for the calls of another one.
//!
//! Where nobody waits, a permit is taken and given back by atomic operations alone. Invariants, for which all of them are
//! `SeqCst`:
//! 1. Who gives a permit back looks for waiting calls after that, and who waits looks for permits after it is counted as
//!    waiting: one of them sees the other.
//! 2. Who could not take a permit admits waiting calls under the lock of the queue, after it has taken back what it had
//!    counted: a call that saw the count meanwhile is not forgotten.
//!
//! A call from a thread that serves one connection alone runs on that thread (see [`threads`]).

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use parking_lot::Mutex;
use quire_engine::EngineError;
use tokio::sync::oneshot;

use crate::config::Limits;
use crate::net::threads;

/// Parties are told apart by hashes: two of the same hash share one share.
const PARTIES: usize = 1024;
/// How long a call waits for a permit.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// How often a pool that ends looks for calls that run.
const FINISH_INTERVAL: Duration = Duration::from_millis(5);

pub(crate) struct Pool {
    reads: Arc<Lane>,
    writes: Arc<Lane>,
    scripts: Arc<Lane>,
    hashes: RandomState,
}

/// Whose calls share a share: the hash of what a request is about, or of who sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Party(usize);

struct Lane {
    permits_max: usize,
    free: AtomicUsize,
    /// Permits that each party has.
    held: Box<[AtomicUsize]>,
    share: usize,
    queue: Mutex<LaneQueue>,
    /// The length of the queue.
    waiting: AtomicUsize,
    waiting_max: usize,
    wait_max: Duration,
}

#[derive(Default)]
struct LaneQueue {
    waiting: VecDeque<Waiting>,
    /// Numbers the calls that have waited.
    last: u64,
    is_closed: bool,
}

/// A call in the queue. Its [`Waiter`] removes it, so there is always a receiver.
struct Waiting {
    number: u64,
    party: Party,
    admitted: oneshot::Sender<LanePermit>,
}

/// Waits for a permit. Leaves the queue when dropped, also when its client disconnects.
struct Waiter<'l> {
    lane: &'l Lane,
    number: u64,
    admitted: oneshot::Receiver<LanePermit>,
}

/// A permit of a lane, given back when dropped.
struct LanePermit {
    lane: Arc<Lane>,
    party: Party,
}

impl Pool {
    pub fn new(limits: &Limits) -> Pool {
        let lane = |permits| Lane::new(permits, limits.waiting_max, WAIT_MAX);
        Pool {
            reads: lane(limits.reads_max),
            writes: lane(limits.writes_max),
            scripts: lane(limits.scripts_max),
            hashes: RandomState::new(),
        }
    }

    pub fn party(&self, identity: &(impl Hash + ?Sized)) -> Party {
        Party(self.hashes.hash_one(identity) as usize % PARTIES)
    }

    /// Accepts no further calls and returns when the last one is done.
    pub async fn finished(&self) {
        self.reads.finished().await;
        self.writes.finished().await;
        self.scripts.finished().await;
    }

    /// Runs a call that only reads. `Overloaded` when it would wait too long. A panic of `call` continues in the caller.
    pub async fn read<T: Send + 'static>(
        &self,
        party: Party,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, EngineError> {
        Ok(self.run(Work::Read, party, call).await?.0)
    }

    /// Runs a call and returns its permit with the answer. A caller that keeps the permit until the answer is written limits
    /// the memory of answers that wait to be written.
    pub async fn run<T: Send + 'static>(
        &self,
        work: Work,
        party: Party,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<(T, PoolPermit), EngineError> {
        let lane = match work {
            Work::Read => &self.reads,
            Work::Write => &self.writes,
            Work::Script => &self.scripts,
        };
        let (answer, permit) = lane.run(party, call).await?;
        Ok((answer, PoolPermit { _permit: permit }))
    }
}

/// What a call does, and so which lane it runs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Read,
    Write,
    /// It runs a script, whether it reads or writes.
    Script,
}

/// A permit of a lane, given back when dropped.
pub(crate) struct PoolPermit {
    _permit: LanePermit,
}

impl Lane {
    fn new(permits_max: usize, waiting_max: usize, wait_max: Duration) -> Arc<Lane> {
        Arc::new(Lane {
            permits_max,
            free: AtomicUsize::new(permits_max),
            held: (0..PARTIES).map(|_| AtomicUsize::new(0)).collect(),
            share: permits_max.div_ceil(2),
            queue: Mutex::default(),
            waiting: AtomicUsize::new(0),
            waiting_max,
            wait_max,
        })
    }

    async fn finished(&self) {
        while self.free.compare_exchange(self.permits_max, 0, SeqCst, SeqCst).is_err() {
            tokio::time::sleep(FINISH_INTERVAL).await;
        }
        let mut queue = self.queue.lock();
        queue.is_closed = true;
        queue.waiting.clear();
    }

    async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        party: Party,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<(T, LanePermit), EngineError> {
        let permit = self.permit(party).await?;
        if threads::may_block() {
            return Ok((call(), permit));
        }
        Lane::run_on_pool(permit, call).await
    }

    async fn permit(self: &Arc<Self>, party: Party) -> Result<LanePermit, EngineError> {
        if self.waiting.load(SeqCst) == 0 && self.try_take(party) {
            return Ok(LanePermit { lane: Arc::clone(self), party });
        }
        // In a box: the future of a request has no room for what happens rarely.
        Box::pin(self.wait(party)).await
    }

    async fn run_on_pool<T: Send + 'static>(
        permit: LanePermit,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<(T, LanePermit), EngineError> {
        // The permit moves with the call: a client that disconnects does not free a thread that still works.
        let done = tokio::task::spawn_blocking(move || (call(), permit));
        match done.await {
            Ok(answer) => Ok(answer),
            Err(failed) if failed.is_panic() => std::panic::resume_unwind(failed.into_panic()),
            Err(_) => Err(EngineError::Overloaded), // the runtime is shutting down
        }
    }

    async fn wait(self: &Arc<Self>, party: Party) -> Result<LanePermit, EngineError> {
        let mut waiter = self.queue_up(party)?;
        match tokio::time::timeout(self.wait_max, &mut waiter.admitted).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => Err(EngineError::Overloaded),
        }
    }

    /// Takes a permit if one is free and the party has less than its share.
    fn try_take(&self, party: Party) -> bool {
        let held = &self.held[party.0];
        let more = |held| (held < self.share).then_some(held + 1);
        if held.fetch_update(SeqCst, SeqCst, more).is_err() {
            return false;
        }
        let is_taken = self.free.fetch_update(SeqCst, SeqCst, |free| free.checked_sub(1)).is_ok();
        if !is_taken {
            held.fetch_sub(1, SeqCst);
        }
        is_taken
    }

    fn queue_up(self: &Arc<Self>, party: Party) -> Result<Waiter<'_>, EngineError> {
        let mut queue = self.queue.lock();
        let waiter = if self.has_place(&queue, party) {
            let (sender, admitted) = oneshot::channel();
            queue.last += 1;
            let number = queue.last;
            queue.waiting.push_back(Waiting { number, party, admitted: sender });
            self.waiting.store(queue.waiting.len(), SeqCst);
            Ok(Waiter { lane: self, number, admitted })
        } else {
            Err(EngineError::Overloaded)
        };
        self.admit(&mut queue);
        waiter
    }

    fn has_place(&self, queue: &LaneQueue, party: Party) -> bool {
        let own = || queue.waiting.iter().filter(|waiting| waiting.party == party).count();
        !queue.is_closed && queue.waiting.len() < self.waiting_max && own() < self.waiting_max.div_ceil(2)
    }

    /// Gives free permits to those that wait, in their order; those whose party has its share are passed over.
    fn admit(self: &Arc<Self>, queue: &mut LaneQueue) {
        let mut at = 0;
        while self.free.load(SeqCst) > 0 {
            let Some(waiting) = queue.waiting.get(at) else { break };
            if !self.try_take(waiting.party) {
                at += 1;
            } else if let Some(Waiting { party, admitted, .. }) = queue.waiting.remove(at) {
                let sent = admitted.send(LanePermit { lane: Arc::clone(self), party });
                debug_assert!(sent.is_ok(), "a call in the queue has a receiver");
            }
        }
        self.waiting.store(queue.waiting.len(), SeqCst);
    }

    fn leave_queue(&self, number: u64) {
        let mut queue = self.queue.lock();
        queue.waiting.retain(|waiting| waiting.number != number);
        self.waiting.store(queue.waiting.len(), SeqCst);
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        // A permit that was sent meanwhile is given back with the receiver, after this.
        self.lane.leave_queue(self.number);
    }
}

impl Drop for LanePermit {
    fn drop(&mut self) {
        self.lane.held[self.party.0].fetch_sub(1, SeqCst);
        self.lane.free.fetch_add(1, SeqCst);
        if self.lane.waiting.load(SeqCst) > 0 {
            self.lane.admit(&mut self.lane.queue.lock());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn block_on<T>(test: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(test)
    }

    /// So many permits of a party.
    async fn permits(lane: &Arc<Lane>, party: usize, count: usize) -> Vec<LanePermit> {
        let mut permits = Vec::new();
        for _ in 0..count {
            permits.push(lane.permit(Party(party)).await.expect("a permit"));
        }
        permits
    }

    async fn is_refused(lane: &Arc<Lane>, party: usize) -> bool {
        matches!(lane.permit(Party(party)).await, Err(EngineError::Overloaded))
    }

    fn check_unused(lane: &Lane) {
        assert_eq!(lane.free.load(SeqCst), lane.permits_max);
        assert!(lane.held.iter().all(|held| held.load(SeqCst) == 0));
        assert_eq!((lane.waiting.load(SeqCst), lane.queue.lock().waiting.len()), (0, 0));
    }

    #[test]
    fn a_party_has_half_of_the_permits() {
        block_on(async {
            let lane = Lane::new(8, 8, Duration::from_millis(10));
            let first = permits(&lane, 1, 4).await;
            assert!(is_refused(&lane, 1).await, "it has its share");
            let others = [permits(&lane, 2, 3).await, permits(&lane, 3, 1).await];
            assert!(is_refused(&lane, 4).await, "all are taken");
            drop(others);
            assert!(is_refused(&lane, 1).await, "it has its share still");
            drop(first);
            drop(permits(&lane, 1, 4).await);
            check_unused(&lane);
        });
    }

    #[test]
    fn nobody_waits_for_a_party_with_its_share() {
        block_on(async {
            let lane = Lane::new(4, 100, LONG);
            let heavy = permits(&lane, 1, 2).await;
            let behind: Vec<_> = (0..50).map(|_| lane.queue_up(Party(1)).expect("a place")).collect();
            for party in [2, 3, 2, 3] {
                drop(permits(&lane, party, 2).await);
            }
            assert_eq!(lane.waiting.load(SeqCst), 50);
            // All of them are admitted at last, in turn.
            drop(heavy);
            for mut waiter in behind {
                drop((&mut waiter.admitted).await.expect("a permit"));
            }
            check_unused(&lane);
        });
    }

    #[test]
    fn a_permit_goes_to_the_first_that_may_have_it() {
        block_on(async {
            let lane = Lane::new(4, 100, LONG);
            let (first, second) = (permits(&lane, 1, 2).await, permits(&lane, 2, 2).await);
            let mut waiters = [1, 3, 2].map(|party| lane.queue_up(Party(party)).expect("a place"));
            drop(second);
            assert!(waiters[0].admitted.try_recv().is_err(), "its party has its share");
            let _third = waiters[1].admitted.try_recv().expect("admitted");
            let _second = waiters[2].admitted.try_recv().expect("admitted");
            drop(first);
            drop(waiters[0].admitted.try_recv().expect("admitted"));
        });
    }

    #[test]
    fn the_queue_is_bounded_in_all_and_per_party() {
        block_on(async {
            let lane = Lane::new(2, 4, LONG);
            let _held = [permits(&lane, 1, 1).await, permits(&lane, 2, 1).await];
            let _waiting = [1, 1].map(|party| lane.queue_up(Party(party)).expect("a place"));
            assert!(is_refused(&lane, 1).await, "its part of the queue is full");
            let _more = [2, 3].map(|party| lane.queue_up(Party(party)).expect("a place"));
            assert!(is_refused(&lane, 4).await, "the queue is full");
        });
    }

    #[test]
    fn who_leaves_leaves_nothing() {
        block_on(async {
            let lane = Lane::new(1, 4, LONG);
            let held = permits(&lane, 1, 1).await;
            {
                let mut waiting = pin!(lane.permit(Party(2)));
                assert!(still_waits(waiting.as_mut()).await);
                assert_eq!(lane.waiting.load(SeqCst), 1);
            }
            assert_eq!(lane.waiting.load(SeqCst), 0);
            let admitted = lane.queue_up(Party(2)).expect("a place");
            drop(held);
            // It has a permit that it never takes.
            assert_eq!(lane.free.load(SeqCst), 0);
            drop(admitted);
            check_unused(&lane);
        });
    }

    async fn still_waits(future: impl Future + Unpin) -> bool {
        tokio::select! {
            biased;
            _ = future => false,
            () = std::future::ready(()) => true,
        }
    }

    #[test]
    fn a_lane_that_ends_waits_for_its_calls_and_refuses_others() {
        block_on(async {
            let lane = Lane::new(4, 4, LONG);
            let running = permits(&lane, 1, 2).await;
            let (finished, ()) = tokio::join!(
                async {
                    lane.finished().await;
                    lane.queue.lock().is_closed
                },
                async {
                    tokio::time::sleep(4 * FINISH_INTERVAL).await;
                    assert!(!lane.queue.lock().is_closed);
                    drop(running);
                }
            );
            assert!(finished && is_refused(&lane, 1).await);
        });
    }

    /// Every call gets its permit, and none is lost, however threads meet.
    #[test]
    fn bounds_hold_under_load() {
        const CALLS: usize = 2000;
        let lane = Lane::new(4, 1000, LONG);
        let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (lane, running, most) = (&lane, &running, &most);
                scope.spawn(move || {
                    block_on(async {
                        for _ in 0..CALLS {
                            let permit = lane.permit(Party(thread % 3)).await.expect("a permit");
                            most.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
                            std::thread::yield_now();
                            running.fetch_sub(1, SeqCst);
                            drop(permit);
                        }
                    });
                });
            }
        });
        assert!(most.into_inner() <= 4);
        check_unused(&lane);
    }
}
