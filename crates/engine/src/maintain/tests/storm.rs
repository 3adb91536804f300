//! A storm in this process: many writers, a storage that loses answers and fails at a sync, engines that are opened again. After
//! every leg everything is compared with a recomputation. What an engine does wrong has to show.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use quire_storage::fault::{CommitFault, FaultStorage};
use quire_testkit::model::random::{Chance, KEYS};

use super::random::{Tally, model_of, step};
use super::*;
use crate::runtime::broken::Broken;

const WRITERS: u64 = 4;
/// An engine is opened so often on what is left by the one before.
const LEGS: u64 = 5;
/// Commits of a leg until the storage fails, at most.
const COMMITS: usize = 60;
/// For jobs to end; only an engine that has lost one ever waits so long.
const JOBS_WAIT: Duration = Duration::from_secs(60);
/// A broken engine is found long before.
const ROUNDS_MAX: u64 = 400;

/// What one round has found, if anything.
fn round(seed: u64, broken: Option<Broken>) -> Option<String> {
    let mut chance = Chance(seed ^ 0x5702);
    let storage = Arc::new(FaultStorage::new(MemoryStorage::new()));
    let fan_out_max = *chance.pick(&[0, 0, 2, 100]);
    let model =
        model_of(seed).replace(r#""version":1"#, &format!(r#""version":1,"fanOutMax":{fan_out_max}"#));
    let mut bench = Bench::on(storage.clone(), if chance.one_in(2) { 1 } else { 5 }, KEYS, &model);
    for leg in 0..LEGS {
        bench.engine.shared.broken.set(broken);
        storage.script_commits(faults(&mut chance));
        write_until_it_fails(&bench, seed ^ leg << 48);
        // Its end: what it still wants to write is refused.
        bench.engine.close().ok();
        storage.stop_faults();
        storage.reopen().unwrap();
        bench.engine = Engine::open(storage.clone(), options(&bench.clock, 5)).unwrap();
        if let Some(problem) = problem(&bench) {
            return Some(format!("seed {seed}, leg {leg}: {problem}, by the model {}", bench.model));
        }
    }
    None
}

/// Commits that are slow, so that writers meet, or whose answer is lost; the last sync fails.
fn faults(chance: &mut Chance) -> Vec<CommitFault> {
    let slow = CommitFault::Delay(Duration::from_micros(500));
    let others = [CommitFault::Pass, slow, slow, slow, slow, slow, CommitFault::UnknownDone];
    let count = 10 + chance.below(COMMITS);
    let mut faults: Vec<CommitFault> = (0..count).map(|_| *chance.pick(&others)).collect();
    faults.push(*chance.pick(&[CommitFault::Poison, CommitFault::PoisonDone]));
    faults
}

fn write_until_it_fails(bench: &Bench, seed: u64) {
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || {
                let mut chance = Chance(seed ^ writer << 32);
                let elements = (seed << 20 | writer << 16) as i64 & i64::MAX;
                let mut tally = Tally { elements, windows: usize::MAX, can_fail: true, ..Tally::default() };
                while bench.storage.is_writable() {
                    step(bench, &mut chance, &mut tally);
                }
            });
        }
    });
}

/// What is wrong when all jobs are done: owned values, references of enforced links, and rows beside the items.
fn problem(bench: &Bench) -> Option<String> {
    let end = Instant::now() + JOBS_WAIT;
    while !bench.engine.jobs().unwrap().iter().all(|job| job.state.is_finished()) {
        if Instant::now() > end {
            return Some("jobs do not end".to_owned());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let items = bench.all_items();
    let mut problems = bench.oracle().problems(&items);
    let model = json(&bench.model);
    let links = model.get("links").and_then(Value::as_array).unwrap();
    let is_enforced =
        |link: &&Value| link.get("integrity").and_then(Value::as_str).is_some_and(|own| own == "enforced");
    let enforced: BTreeSet<&str> =
        links.iter().filter(is_enforced).filter_map(|link| link.get("name")?.as_str()).collect();
    let dangling = bench.oracle().dangling(&items).into_iter().filter(|own| enforced.contains(&*own.link));
    problems.extend(dangling.map(|own| format!("{own:?}")));
    let report = crate::verify(&*bench.storage).unwrap();
    problems.extend(report.problems);
    (!problems.is_empty()).then(|| problems.join("; "))
}

#[test]
fn what_is_kept_stays_true_on_a_storage_that_fails() {
    for seed in 0..8 {
        assert_eq!(round(1_000 + seed, None), None);
    }
}

fn is_found_out(broken: Broken) {
    let started = Instant::now();
    let found = (0..ROUNDS_MAX).find_map(|seed| Some((seed, round(seed, Some(broken))?)));
    let (seed, problem) = found.unwrap_or_else(|| panic!("{broken:?} is not found"));
    println!("{broken:?}: in round {seed}, after {:?}: {problem}", started.elapsed());
}

#[test]
fn an_engine_that_does_not_lock_targets_is_found_out() {
    is_found_out(Broken::TargetNotLocked);
}

#[test]
fn an_engine_that_writes_job_rows_later_is_found_out() {
    is_found_out(Broken::JobRowInSecondCommit);
}

#[test]
fn an_engine_that_applies_differences_twice_is_found_out() {
    is_found_out(Broken::DifferenceTwice);
}
