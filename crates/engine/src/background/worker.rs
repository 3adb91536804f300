//! A worker: a thread of background work that continues after errors and panics.
//!
//! Work is done in rounds. A round that fails or panics is counted, logged and done again after a wait that doubles up to
//! [`BACK_OFF_MAX`]; what the work remembers in memory is made again after a panic. A round divides its work into parts, such
//! as containers ([`WorkerRound::part`]): a part that fails waits by itself and the others go on.
//!
//! Invariants:
//! 1. the thread ends only when the worker is stopped or the storage is closed;
//! 2. a failure is in [`WorkerStatus`] until a later round, or the same part, succeeds;
//! 3. [`Worker::stop`] returns when no round runs and none will.

use std::any::Any;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use quire_storage::StorageError;
use tracing::{error, warn};

use crate::api::EngineError;
use crate::runtime::signals::Signal;

/// The wait after a first failure.
const BACK_OFF_MIN: Duration = Duration::from_millis(100);
const BACK_OFF_MAX: Duration = Duration::from_secs(30);
/// A worker whose last rounds all failed, so many of them, is failing.
const FAILURES_TOLERATED: u32 = 5;

/// The work of a worker.
pub(crate) trait WorkerTask: Send + Sync + 'static {
    const NAME: &'static str;
    /// Before the first round, unless the worker is woken.
    const DELAY: Duration = Duration::ZERO;
    /// What is kept from round to round; lost when a round panics.
    type Memory: Default;

    fn round(&self, round: &WorkerRound<'_>, memory: &mut Self::Memory) -> Result<NextRound, Interrupted>;
}

/// When the next round is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextRound {
    /// There is more to do.
    Now,
    /// After this time, or when the worker is woken.
    After(Duration),
    /// When the worker is woken.
    Woken,
}

/// Why a round or a part ended early.
#[derive(Debug)]
pub(crate) enum Interrupted {
    /// The worker is to stop or to pause: nothing is wrong.
    Requested,
    Failed(EngineError),
}

impl<E: Into<EngineError>> From<E> for Interrupted {
    fn from(error: E) -> Interrupted {
        Interrupted::Failed(error.into())
    }
}

/// The state of a background worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerStatus {
    pub name: &'static str,
    pub state: WorkerState,
    /// Rounds and parts that failed since start, panics included.
    pub failures: u64,
    pub panics: u64,
    /// Parts that failed the last time they were tried.
    pub failing_parts: usize,
    /// Of what is failing now.
    pub last_error: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerState {
    Running,
    /// Its last rounds all failed.
    Failing,
    /// Its thread ended without a request to stop.
    Down,
}

pub(crate) struct Worker<W: WorkerTask> {
    work: Arc<W>,
    signal: Arc<Signal>,
    health: Arc<Mutex<WorkerHealth>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct WorkerHealth {
    rounds: u64,
    failures: u64,
    panics: u64,
    /// Rounds that failed one after the other.
    failed_in_row: u32,
    last_error: Option<String>,
    parts: HashMap<u64, FailedPart>,
}

struct FailedPart {
    failed_in_row: u32,
    not_before: Instant,
    error: String,
}

/// One round's view of its worker.
pub(crate) struct WorkerRound<'a> {
    name: &'static str,
    signal: &'a Signal,
    health: &'a Mutex<WorkerHealth>,
}

impl<W: WorkerTask> Worker<W> {
    pub fn start(work: W, signal: Arc<Signal>) -> Result<Worker<W>, EngineError> {
        Worker::start_threads(work, signal, 1)
    }

    /// Several threads, each with its rounds and its memory. A wake-up reaches one of them: a thread with more work
    /// than it can do wakes the next one.
    pub fn start_threads(work: W, signal: Arc<Signal>, count: usize) -> Result<Worker<W>, EngineError> {
        let (work, health) = (Arc::new(work), Arc::<Mutex<WorkerHealth>>::default());
        let worker = Worker { work, signal, health, threads: Mutex::default() };
        for _ in 0..count {
            let run = (Arc::clone(&worker.work), Arc::clone(&worker.signal), Arc::clone(&worker.health));
            let thread = thread::Builder::new().name(format!("quire-{}", W::NAME));
            let thread = thread.spawn(move || run_rounds(&*run.0, &run.1, &run.2));
            let thread =
                thread.map_err(|source| EngineError::Io { doing: "starting a thread".to_owned(), source })?;
            worker.threads.lock().push(thread);
        }
        Ok(worker)
    }

    pub fn work(&self) -> &W {
        &self.work
    }

    /// For jobs that do a part of the work.
    pub fn shared_work(&self) -> Arc<W> {
        Arc::clone(&self.work)
    }

    /// A paused worker begins no round and ends the current one at its next check.
    pub fn pause(&self, paused: bool) {
        self.signal.pause(paused);
    }

    /// Returns when no round runs any more.
    pub fn stop(&self) {
        self.signal.stop();
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                error!(worker = W::NAME, "the thread of a background worker panicked");
            }
        }
    }

    /// Rounds that were done since start.
    pub fn rounds(&self) -> u64 {
        self.health.lock().rounds
    }

    pub fn status(&self) -> WorkerStatus {
        let is_down = self.threads.lock().iter().any(JoinHandle::is_finished);
        let health = self.health.lock();
        let state = match health.failed_in_row {
            _ if is_down => WorkerState::Down,
            FAILURES_TOLERATED.. => WorkerState::Failing,
            _ => WorkerState::Running,
        };
        let of_part = || health.parts.values().map(|part| part.error.clone()).next();
        WorkerStatus {
            name: W::NAME,
            state,
            failures: health.failures,
            panics: health.panics,
            failing_parts: health.parts.len(),
            last_error: health.last_error.clone().or_else(of_part),
        }
    }
}

impl<W: WorkerTask> Drop for Worker<W> {
    fn drop(&mut self) {
        self.stop();
    }
}

fn run_rounds<W: WorkerTask>(work: &W, signal: &Signal, health: &Mutex<WorkerHealth>) {
    let round = WorkerRound { name: W::NAME, signal, health };
    let mut memory = W::Memory::default();
    let mut wait = Some(W::DELAY);
    while signal.wait(wait) {
        let next = match caught(|| work.round(&round, &mut memory)) {
            Ok(Ok(next)) => {
                health.lock().succeeded();
                next
            }
            Ok(Err(Interrupted::Requested)) => NextRound::Now,
            Ok(Err(Interrupted::Failed(error))) if is_closed(&error) => return,
            Ok(Err(Interrupted::Failed(error))) => {
                let again = health.lock().failed(error.to_string());
                warn!(worker = W::NAME, %error, ?again, "background work failed and is tried again");
                NextRound::After(again)
            }
            Err(panic) => {
                memory = W::Memory::default();
                health.lock().panics += 1;
                let again = health.lock().failed(panic.clone());
                error!(worker = W::NAME, panic, ?again, "background work panicked and is tried again");
                NextRound::After(again)
            }
        };
        wait = match next {
            NextRound::Now => Some(Duration::ZERO),
            NextRound::After(time) => Some(health.lock().wait_at_most(time)),
            NextRound::Woken => health.lock().next_part(),
        };
    }
}

impl WorkerRound<'_> {
    /// Fails when it is time to stop or to pause.
    pub fn check(&self) -> Result<(), Interrupted> {
        if self.signal.is_interrupted() { Err(Interrupted::Requested) } else { Ok(()) }
    }

    /// Waits, and fails when it is time to stop or to pause.
    pub fn sleep(&self, time: Duration) -> Result<(), Interrupted> {
        if self.signal.sleep(time) { Ok(()) } else { Err(Interrupted::Requested) }
    }

    /// Runs one part of the round. `None`: it failed, now or shortly before. It is tried again after a wait of its own,
    /// and the round continues with the other parts.
    pub fn part<T>(
        &self,
        part: u64,
        run: impl FnOnce() -> Result<T, Interrupted>,
    ) -> Result<Option<T>, Interrupted> {
        if self.health.lock().parts.get(&part).is_some_and(|failed| Instant::now() < failed.not_before) {
            return Ok(None);
        }
        let error = match caught(run) {
            Ok(Ok(done)) => {
                self.health.lock().parts.remove(&part);
                return Ok(Some(done));
            }
            Ok(Err(Interrupted::Requested)) => return Err(Interrupted::Requested),
            Ok(Err(Interrupted::Failed(error))) if is_closed(&error) => return Err(error.into()),
            Ok(Err(Interrupted::Failed(error))) => error.to_string(),
            Err(panic) => {
                self.health.lock().panics += 1;
                format!("panic: {panic}")
            }
        };
        let again = self.health.lock().part_failed(part, error.clone());
        warn!(
            worker = self.name,
            part,
            error,
            ?again,
            "part of the background work failed and is tried again"
        );
        Ok(None)
    }

    /// Whether a part failed shortly before, and its next try is not due.
    pub fn is_waiting(&self, part: u64) -> bool {
        self.health.lock().parts.get(&part).is_some_and(|failed| Instant::now() < failed.not_before)
    }

    /// Forgets the failures of parts that are not there any more.
    pub fn retain_parts(&self, is_there: impl Fn(u64) -> bool) {
        // Not while the lock is held: the callback may take locks of its own, and ask about a part under them.
        let parts: Vec<u64> = self.health.lock().parts.keys().copied().collect();
        let gone: Vec<u64> = parts.into_iter().filter(|part| !is_there(*part)).collect();
        let mut health = self.health.lock();
        gone.iter().for_each(|part| drop(health.parts.remove(part)));
    }
}

impl WorkerHealth {
    fn succeeded(&mut self) {
        self.rounds += 1;
        self.failed_in_row = 0;
        self.last_error = None;
    }

    /// The wait before the next try.
    fn failed(&mut self, error: String) -> Duration {
        self.failures += 1;
        self.failed_in_row += 1;
        self.last_error = Some(error);
        back_off(self.failed_in_row)
    }

    fn part_failed(&mut self, part: u64, error: String) -> Duration {
        self.failures += 1;
        let failed_in_row = self.parts.get(&part).map_or(0, |failed| failed.failed_in_row) + 1;
        let again = back_off(failed_in_row);
        self.parts.insert(part, FailedPart { failed_in_row, not_before: Instant::now() + again, error });
        again
    }

    /// When the first of the failed parts is to be tried again.
    fn next_part(&self) -> Option<Duration> {
        let first = self.parts.values().map(|part| part.not_before).min()?;
        Some(first.saturating_duration_since(Instant::now()))
    }

    fn wait_at_most(&self, time: Duration) -> Duration {
        self.next_part().map_or(time, |part| part.min(time))
    }
}

fn back_off(failed_in_row: u32) -> Duration {
    BACK_OFF_MIN.saturating_mul(1 << (failed_in_row - 1).min(16)).min(BACK_OFF_MAX)
}

fn is_closed(error: &EngineError) -> bool {
    matches!(error, EngineError::Storage(StorageError::Closed))
}

/// The message of a panic, if there was one. Shared state is behind locks that are not poisoned, and each change is a
/// commit, so nothing is half done.
fn caught<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| panic_text(&*panic))
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no text".to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// Calls a function of the number of the round.
    struct RoundFunction<F> {
        count: AtomicU32,
        round: F,
    }

    impl<F> WorkerTask for RoundFunction<F>
    where
        F: Fn(u32, &WorkerRound<'_>) -> Result<NextRound, Interrupted> + Send + Sync + 'static,
    {
        const NAME: &'static str = "test";
        type Memory = u32;

        fn round(
            &self,
            round: &WorkerRound<'_>,
            rounds_remembered: &mut u32,
        ) -> Result<NextRound, Interrupted> {
            let count = self.count.fetch_add(1, Ordering::SeqCst);
            assert!(*rounds_remembered <= count);
            *rounds_remembered += 1;
            (self.round)(count, round)
        }
    }

    fn start<F>(round: F) -> Worker<RoundFunction<F>>
    where
        F: Fn(u32, &WorkerRound<'_>) -> Result<NextRound, Interrupted> + Send + Sync + 'static,
    {
        Worker::start(RoundFunction { count: AtomicU32::new(0), round }, Arc::default()).unwrap()
    }

    fn wait_until(mut condition: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !condition() {
            assert!(Instant::now() < deadline, "waited too long");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn goes_on_after_a_panic_and_an_error() {
        let worker = start(|count, _| match count {
            0 => panic!("by design"),
            1 => Err(EngineError::Overloaded.into()),
            _ => Ok(NextRound::Woken),
        });
        wait_until(|| worker.rounds() == 1);
        let status = worker.status();
        assert_eq!((status.state, status.failures, status.panics), (WorkerState::Running, 2, 1));
        assert_eq!(status.last_error, None);
        worker.signal.wake();
        wait_until(|| worker.rounds() == 2);
    }

    #[test]
    fn says_that_it_is_failing_until_it_succeeds() {
        let worker = start(|count, _| {
            assert!(count > FAILURES_TOLERATED, "by design");
            Ok(NextRound::Woken)
        });
        wait_until(|| worker.status().state == WorkerState::Failing);
        assert!(worker.status().last_error.is_some_and(|error| error.contains("by design")));
        wait_until(|| worker.status().state == WorkerState::Running);
    }

    #[test]
    fn a_part_that_panics_leaves_the_others_alone() {
        let worker = start(|_, round| {
            let bad = round.part(1, || if round.name.is_empty() { Ok(()) } else { panic!("by design") })?;
            assert_eq!(bad, None);
            let good = round.part(2, || Ok(()))?;
            assert_eq!(good, Some(()));
            Ok(NextRound::Woken)
        });
        wait_until(|| worker.status().panics >= 3);
        let status = worker.status();
        assert_eq!((status.state, status.failing_parts), (WorkerState::Running, 1));
        worker.health.lock().parts.clear();
    }

    /// Jobs are asked whether they are there, and ask whether they wait, under a lock of their own.
    #[test]
    fn parts_are_checked_without_the_lock() {
        let worker = start(|_, round| {
            round.part(1, || Err::<(), _>(EngineError::Overloaded.into()))?;
            round.retain_parts(|part| round.is_waiting(part));
            round.retain_parts(|part| !round.is_waiting(part));
            Ok(NextRound::Woken)
        });
        wait_until(|| worker.rounds() == 1);
        assert_eq!(worker.status().failing_parts, 0);
    }

    #[test]
    fn ends_when_the_storage_is_closed_and_says_so() {
        let worker = start(|_, _| Err(StorageError::Closed.into()));
        wait_until(|| worker.status().state == WorkerState::Down);
    }

    #[test]
    fn a_paused_worker_does_nothing() {
        let worker = start(|_, round| round.check().map(|()| NextRound::Now));
        wait_until(|| worker.rounds() > 10);
        worker.pause(true);
        let mut before = worker.rounds();
        wait_until(|| std::mem::replace(&mut before, worker.rounds()) == worker.rounds());
        worker.pause(false);
        wait_until(|| worker.rounds() > before);
        worker.stop();
    }

    #[test]
    fn waits_grow_and_end() {
        assert_eq!(back_off(1), BACK_OFF_MIN);
        assert_eq!(back_off(3), 4 * BACK_OFF_MIN);
        assert_eq!(back_off(1000), BACK_OFF_MAX);
    }
}
