//! Group commit under an explorer of schedules (ADR 26): [`LeaderQueue`](crate::commit::leader) and
//! [`commit_round`](crate::commit::round) as they are, on a journal that the explorer steps through.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quire_storage::{CommitError, StorageError};
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

use crate::commit::leader::{LeaderQueue, NotCommitted};
use crate::commit::round::{RoundStore, commit_round};
use crate::sync::Mutex;
use crate::sync::races;
pub use crate::sync::races::Race;

/// All of them are found by [`explore`] when they are put back.
pub const RACES: &[Race] = &[
    Race::TwoLeaders,
    Race::LostHandover,
    Race::PublishBeforeSync,
    Race::AnswerBeforePublish,
    Race::AnswerDespiteFailure,
    Race::WriteAfterFailure,
    Race::CloseBesideLeader,
];

const WRITERS: u64 = 4;
const WRITES: u64 = 2;
/// Works of a round, fewer than may wait.
const ROUND_WORKS_MAX: usize = 3;
/// One of so many syncs fails.
const FAILURE_ONE_IN: u32 = 6;
const STEPS_MAX: usize = 100_000;
/// Schedules of one kind before the next kind has its turn.
const BLOCK: u64 = 200;
/// Points at which priorities of threads change, in schedules by priority.
const PRIORITY_CHANGES_MAX: u64 = 4;

/// How far an exploration came.
pub struct ExplorationResult {
    /// With the one that failed.
    pub schedules: u64,
    pub has_failed: bool,
}

/// Runs the program under so many schedules, or until it fails.
pub fn explore(schedules: u64, seed: u64, race: Option<Race>) -> ExplorationResult {
    let mut explored = ExplorationResult { schedules: 0, has_failed: false };
    while !explored.has_failed && explored.schedules < schedules {
        let count = BLOCK.min(schedules - explored.schedules);
        let seed = seed.wrapping_add(explored.schedules);
        // What failed leaves its threads unfinished, so it gets a thread of its own.
        let ended = std::thread::scope(|scope| scope.spawn(|| run_block(count, seed, race)).join());
        let (ran, is_sound) = ended.expect("a block catches what its threads do");
        explored = ExplorationResult { schedules: explored.schedules + ran, has_failed: !is_sound };
    }
    explored
}

fn run_block(count: u64, seed: u64, race: Option<Race>) -> (u64, bool) {
    races::set(race);
    let ran = Arc::new(AtomicU64::new(0));
    let kind = seed / BLOCK % (2 * PRIORITY_CHANGES_MAX);
    let is_sound = match kind % 2 {
        0 => run_by(RandomScheduler::new_from_seed(seed, count as usize), &ran),
        _ => run_by(PctScheduler::new_from_seed(seed, 1 + kind as usize / 2, count as usize), &ran),
    };
    (ran.load(Ordering::Relaxed), is_sound)
}

fn run_by(scheduler: impl Scheduler + 'static, ran: &Arc<AtomicU64>) -> bool {
    let ran = Arc::clone(ran);
    let once = move || {
        ran.fetch_add(1, Ordering::Relaxed);
        program();
    };
    catch_unwind(AssertUnwindSafe(|| Runner::new(scheduler, config()).run(once))).is_ok()
}

fn config() -> Config {
    let mut config = Config::new();
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
    config.silence_warnings = true;
    config.ungraceful_shutdown_config.immediately_return_on_panic = true;
    config
}

/// A journal, and what readers see of it.
#[derive(Default)]
struct Journal(Mutex<JournalState>);

#[derive(Default)]
struct JournalState {
    /// Given out to works, ahead of what is durable.
    prepared: u64,
    is_written_to: bool,
    durable: Vec<u64>,
    visible: Vec<u64>,
    /// Works of a batch whose sync has failed.
    lost: Vec<u64>,
    is_poisoned: bool,
    is_closed: bool,
}

impl RoundStore for Journal {
    type Work = u64;
    type Answer = u64;
    type Batch = Vec<u64>;

    fn refusal(&self) -> Option<StorageError> {
        self.0.lock().is_poisoned.then_some(StorageError::Poisoned { during: "journal write" })
    }

    fn prepare(&self, works: Vec<u64>) -> (Option<Vec<u64>>, Vec<Result<u64, CommitError>>) {
        let mut state = self.0.lock();
        let answers = works
            .iter()
            .map(|_| {
                state.prepared += 1;
                Ok(state.prepared)
            })
            .collect();
        (Some(works), answers)
    }

    fn sync(&self, batch: &mut Vec<u64>) -> bool {
        {
            let mut state = self.0.lock();
            assert!(!state.is_written_to, "two leaders write");
            assert!(!state.is_poisoned, "written after a failed sync");
            assert!(!state.is_closed, "written after the close");
            state.is_written_to = true;
        }
        shuttle::thread::yield_now(); // the disk
        let is_failed = thread_rng().gen_ratio(1, FAILURE_ONE_IN);
        let mut state = self.0.lock();
        state.is_written_to = false;
        match is_failed {
            true => {
                state.is_poisoned = true;
                state.lost.extend(batch.iter());
            }
            false => state.durable.extend(batch.iter()),
        }
        !is_failed
    }

    fn publish(&self, batch: Vec<u64>) {
        let mut state = self.0.lock();
        state.visible.extend(batch);
        state.check_visible();
    }
}

impl JournalState {
    /// Nothing is visible that is not durable, and nothing twice.
    fn check_visible(&self) {
        assert!(self.visible.len() <= self.durable.len(), "visible before it is durable");
        assert!(self.durable.starts_with(&self.visible), "{:?} of {:?}", self.visible, self.durable);
    }
}

/// Writers, a reader and a close, with syncs that fail.
fn program() {
    let journal = Arc::new(Journal::default());
    let queue = Arc::new(LeaderQueue::<u64, Result<u64, CommitError>>::default());
    let closes = thread_rng().gen_ratio(1, 3);
    let mut threads = Vec::new();
    for writer in 0..WRITERS {
        let (journal, queue) = (Arc::clone(&journal), Arc::clone(&queue));
        threads.push(shuttle::thread::spawn(move || {
            for write in 0..WRITES {
                write_one(&journal, &queue, writer * WRITES + write, closes);
            }
        }));
    }
    let reader = Arc::clone(&journal);
    threads.push(shuttle::thread::spawn(move || {
        let mut seen = 0;
        for _ in 0..4 {
            let state = reader.0.lock();
            state.check_visible();
            assert!(state.visible.len() >= seen, "what was visible is gone");
            seen = state.visible.len();
            drop(state);
            shuttle::thread::yield_now();
        }
    }));
    if closes {
        queue.close();
        journal.0.lock().is_closed = true;
    }
    threads.into_iter().for_each(|thread| thread.join().expect("a failure ends the schedule"));
    let state = journal.0.lock();
    assert_eq!(state.visible, state.durable, "what is durable is visible in the end");
}

fn write_one(journal: &Journal, queue: &LeaderQueue<u64, Result<u64, CommitError>>, work: u64, closes: bool) {
    let lead = || {
        let mut works = 0;
        let round = queue.take_round(|_, _| {
            works += 1;
            works <= ROUND_WORKS_MAX
        });
        assert!(!round.is_empty(), "a leader has a work of its own");
        commit_round(journal, round);
    };
    let outcome = queue.submit(work, lead);
    let state = journal.0.lock();
    match outcome {
        Ok(Ok(_)) => {
            assert!(state.durable.contains(&work), "acknowledged, not durable");
            assert!(state.visible.contains(&work), "acknowledged, not visible");
        }
        Ok(Err(_)) => {
            assert!(state.is_poisoned, "refused without a reason");
            assert!(!state.visible.contains(&work) || state.durable.contains(&work), "refused and visible");
        }
        Err(NotCommitted::Closed) => assert!(closes, "closed by nobody"),
        Err(NotCommitted::NotAnswered) => panic!("no answer"),
    }
}
