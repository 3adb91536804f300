//! Refactorings under a storm: each kind is started, finished and undone at random in a database of its own, while a client writes
//! in the old and in the new form, answers are lost, syncs fail and the server is killed. What is stored then is compared with
//! what the writer knows, computed here for each form: nothing of it comes from the server's code.
//!
//! A cycle is a new database, its items, one refactoring, and a way through its states. A request without an answer is
//! settled by reading: a killed server does nothing more, and one whose sync failed is replaced before the read.
//! A refactoring that does not come to a state while the server is killed again and again has to get there when the kills pause.

mod cycle; // one database, one refactoring, and back
mod kinds; // what each kind stores in each form
mod rekeyed; // the same for another partition key
mod structures; // the same for kinds that change several containers

use std::fmt;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Result;

use self::cycle::Cycle;
use self::kinds::KINDS;
use super::client::{Client, StormState};
use super::faults::FaultyServer;
use crate::Random;

/// How a run goes.
#[derive(Clone, Debug)]
pub struct RefactoringStormPlan {
    pub program: PathBuf,
    pub seed: u64,
    pub time: Duration,
    /// Between two kills, on average.
    pub between_kills: Duration,
    /// For a refactoring to come to a state with kills in between, and then without.
    pub last_wait: Duration,
    /// The only kind that is run, by several clients; all of them, once each, if it is `None`.
    pub kind: Option<String>,
}

/// What a run did, and what was wrong with it.
#[derive(Debug, Default)]
pub struct RefactoringFigures {
    pub kills: u32,
    /// Of the servers that were killed, those that had stopped to write because a sync failed.
    pub failed_syncs: u32,
    /// How often kills had to pause until a refactoring came to its state.
    pub pauses: u32,
    /// By kind, in the order of [`KINDS`].
    pub cycles: Vec<u32>,
    pub finished: u32,
    pub undone: u32,
    /// Of those, after they were finished.
    pub reverted: u32,
    pub writes: u64,
    pub refused: u64,
    /// Writes without an answer.
    pub cut: u64,
    /// Items that were compared.
    pub items: usize,
    pub problems: Vec<String>,
}

const PROBLEMS_MAX: usize = 10;

impl RefactoringFigures {
    /// Kinds of which no refactoring was gone through.
    pub fn kinds_not_run(&self) -> Vec<&'static str> {
        let all = KINDS.iter().zip(&self.cycles);
        all.filter(|(_, cycles)| **cycles == 0).map(|(kind, _)| kind.name).collect()
    }
}

impl fmt::Display for RefactoringFigures {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RefactoringFigures { kills, finished, undone, reverted, writes, refused, cut, items, .. } = self;
        let (syncs, pauses) = (self.failed_syncs, self.pauses);
        writeln!(
            out,
            "{kills} kills, {} violations; {syncs} failed syncs, {pauses} pauses",
            self.problems.len()
        )?;
        for (kind, cycles) in KINDS.iter().zip(&self.cycles) {
            writeln!(out, "  {:18} {cycles} refactorings", kind.name)?;
        }
        writeln!(out, "  {finished} finished, {undone} undone, {reverted} of them after they were finished")?;
        write!(out, "  {writes} writes, {refused} refused, {cut} without an answer; {items} items compared")?;
        self.problems.iter().try_for_each(|problem| write!(out, "\n{problem}"))
    }
}

pub fn run(plan: &RefactoringStormPlan) -> Result<RefactoringFigures> {
    let folder = tempfile::tempdir()?;
    let data = folder.path().join("data");
    let shared = StormState::default();
    let mut random = Random(plan.seed);
    let figures = RefactoringFigures { cycles: vec![0; KINDS.len()], ..RefactoringFigures::default() };
    let figures = Mutex::new(figures);
    let program: (_, &[&str]) = (&*plan.program, &[]);
    let mut server = FaultyServer::start(program, &data, plan.between_kills, (&shared, random.next_u64()))?;
    let seeds: Vec<u64> = KINDS.iter().map(|_| random.next_u64()).collect();
    let served = std::thread::scope(|scope| {
        for (at, seed) in seeds.into_iter().enumerate() {
            let (shared, figures) = (&shared, &figures);
            let only = plan.kind.as_ref().and_then(|own| KINDS.iter().position(|kind| kind.name == own));
            scope.spawn(move || run_cycles(plan, (only.unwrap_or(at), at, seed), shared, figures));
        }
        let served = server.serve(plan.time, |has_failed| killed(&figures, has_failed));
        shared.stop.store(true, Ordering::SeqCst);
        shared.stopped_retrying.store(served.is_err(), Ordering::SeqCst);
        served
    });
    served?;
    let mut figures = figures.into_inner().unwrap_or_default();
    server.stop()?;
    let output = std::process::Command::new(&plan.program).arg("verify").arg(&data).output()?;
    if !output.status.success() {
        let said = [output.stdout, output.stderr].concat();
        figures.problems.push(format!("verify: {}", String::from_utf8_lossy(&said)));
    }
    Ok(figures)
}

/// One cycle after the other, of one kind.
fn run_cycles(
    plan: &RefactoringStormPlan,
    (number, client, seed): (usize, usize, u64),
    shared: &StormState,
    figures: &Mutex<RefactoringFigures>,
) {
    let mut random = Random(seed);
    for cycle in 0.. {
        let database = format!("{}-{client}-{cycle}", KINDS[number].name);
        let mut cycle =
            Cycle::new(Client::new(shared), &KINDS[number], database, random.next_u64(), plan.last_wait);
        let done = cycle.run();
        let Ok(mut figures) = figures.lock() else { return };
        cycle.add_to(&mut figures);
        figures.cycles[number] += u32::from(done.is_ok());
        if let Err(problem) = done
            && !shared.stopped_retrying.load(Ordering::SeqCst)
            && figures.problems.len() < PROBLEMS_MAX
        {
            figures.problems.push(format!("{} (cycle seed {}): {problem:#}", KINDS[number].name, cycle.seed));
        }
        if shared.stop.load(Ordering::SeqCst) || !figures.problems.is_empty() {
            return;
        }
    }
}

/// Whether to go on.
fn killed(figures: &Mutex<RefactoringFigures>, has_failed: bool) -> bool {
    let Ok(mut figures) = figures.lock() else { return false };
    figures.kills += 1;
    figures.failed_syncs += u32::from(has_failed);
    figures.problems.is_empty()
}
