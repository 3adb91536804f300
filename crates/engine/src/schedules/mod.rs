//! Small programs of the concurrent core under an explorer of schedules (ADR 26).
//!
//! A program is production code: threads that write, read, lock, delete and split on a storage that the explorer steps through.
//! It asserts what the headers of the modules promise. [`explore`] runs it under many random schedules; a failed assertion, a
//! panic or a deadlock in one of them is a failure of the program. Every program also says which known races it finds when
//! they are put back: a program that finds nothing proves nothing.
//!
//! What is not explored: reordering of memory accesses (every access is seen at once by all threads), and panics.

mod across; // commits over several partitions
mod answers; // cached answers of point reads
mod failures; // what a schedule failed with
mod items; // item locks, from the request to the answer
mod key_marks; // deleted partition keys
mod locks; // the lock table
mod maintained; // writes in modelled containers beside a build
mod recount; // what a model must have made of items
mod sequencer; // the commits of one partition
mod spans; // rows kept for scans, the write clock
mod splits; // one partition becomes two
mod storage; // a storage with points and faults
mod world; // an open engine without threads

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

use crate::sync::races;
pub use crate::sync::races::Race;

/// Of a thread: parsing and writing an item needs more than the explorer gives.
const STACK_BYTES: usize = 1 << 20;
/// No program takes as many: one that does is in an endless loop.
const STEPS_MAX: usize = 200_000;
/// Schedules of one kind before the next kind has its turn.
const BLOCK: u64 = 200;
/// Points at which priorities of threads change, in schedules by priority.
const PRIORITY_CHANGES_MAX: u64 = 4;

pub struct Program {
    pub name: &'static str,
    /// Those that it finds when they are put back.
    pub races: &'static [Race],
    run: fn(),
}

pub const PROGRAMS: &[Program] = &[
    locks::PROGRAM,
    sequencer::PROGRAM,
    sequencer::BARRIER,
    sequencer::RETIRE,
    across::PROGRAM,
    items::PROGRAM,
    answers::PROGRAM,
    spans::PROGRAM,
    key_marks::PROGRAM,
    splits::PROGRAM,
    maintained::PROGRAM,
    maintained::BUILD,
    maintained::TRANSACTED,
];

/// How far an exploration came.
pub struct ExplorationResult {
    /// With the one that failed.
    pub schedules: u64,
    pub failure: Option<String>,
}

/// Runs a program under so many schedules, or until it fails. Half of them are random at every point, the others are random in
/// the priorities of the threads: these find what needs a thread to stand still for long.
pub fn explore(program: &Program, schedules: u64, seed: u64, race: Option<Race>) -> ExplorationResult {
    world::prepare();
    maintained::prepare();
    let mut explored = ExplorationResult { schedules: 0, failure: None };
    while explored.failure.is_none() && explored.schedules < schedules {
        let count = BLOCK.min(schedules - explored.schedules);
        let block = Block { program, count, seed: seed.wrapping_add(explored.schedules), race };
        // What failed leaves its threads unfinished, so it gets a thread of its own.
        let ended = std::thread::scope(|scope| scope.spawn(|| block.run()).join());
        let ended = ended.expect("a block catches what its threads do");
        explored =
            ExplorationResult { schedules: explored.schedules + ended.schedules, failure: ended.failure };
    }
    explored
}

/// Some schedules of one kind: random, or by priorities that change at so many points.
struct Block<'a> {
    program: &'a Program,
    count: u64,
    seed: u64,
    race: Option<Race>,
}

impl Block<'_> {
    fn run(&self) -> ExplorationResult {
        races::set(self.race);
        failures::watch();
        let ran = Arc::new(AtomicU64::new(0));
        let (count, kind) = (self.count as usize, self.seed / BLOCK % (2 * PRIORITY_CHANGES_MAX));
        let is_sound = match kind % 2 {
            0 => self.run_by(RandomScheduler::new_from_seed(self.seed, count), &ran),
            _ => self.run_by(PctScheduler::new_from_seed(self.seed, 1 + kind as usize / 2, count), &ran),
        };
        let failure = (!is_sound).then(failures::first);
        ExplorationResult { schedules: ran.load(Ordering::Relaxed), failure }
    }

    fn run_by(&self, scheduler: impl Scheduler + 'static, ran: &Arc<AtomicU64>) -> bool {
        let (run, ran) = (self.program.run, Arc::clone(ran));
        let once = move || {
            ran.fetch_add(1, Ordering::Relaxed);
            run();
        };
        catch_unwind(AssertUnwindSafe(|| Runner::new(scheduler, config()).run(once))).is_ok()
    }
}

fn config() -> Config {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
    config.silence_warnings = true;
    config.ungraceful_shutdown_config.immediately_return_on_panic = true;
    config
}

/// Starts the threads of a program and waits for them.
fn together(threads: Vec<Box<dyn FnOnce() + Send>>) {
    let threads: Vec<_> = threads.into_iter().map(|run| shuttle::thread::spawn(run)).collect();
    threads.into_iter().for_each(|thread| thread.join().expect("a failure ends the schedule"));
}
