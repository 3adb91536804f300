//! A storm in this process: many writers, a storage that loses answers and fails at a sync, engines that are opened again. After
//! every leg everything is compared with a recomputation. What an engine does wrong has to show.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use quire_storage::fault::{CommitFault, FaultStorage};
use quire_testkit::Random;
use quire_testkit::model::random::KEYS;

use super::random::{Tally, model_of, step};
use super::*;
use crate::runtime::injected_bug::InjectedBug;

const WRITERS: u64 = 4;
/// An engine is opened so often on what is left by the one before.
const ENGINE_RUNS: u64 = 5;
/// Commits of a leg until the storage fails, at most.
const COMMITS: usize = 60;
/// For jobs to end; only an engine that has lost one ever waits so long.
const JOBS_WAIT: Duration = Duration::from_secs(60);
/// A broken engine is found long before.
const ROUNDS_MAX: u64 = 400;

/// What one round has found, if anything.
fn round(seed: u64, injected_bug: Option<InjectedBug>) -> Option<String> {
    let mut random = Random(seed ^ 0x5702);
    let storage = Arc::new(FaultStorage::new(MemoryStorage::new()));
    let fan_out_max = *random.pick(&[0, 0, 2, 100]);
    let model =
        model_of(seed).replace(r#""version":1"#, &format!(r#""version":1,"fanOutMax":{fan_out_max}"#));
    let mut bench = Bench::on(storage.clone(), if random.one_in(2) { 1 } else { 5 }, KEYS, &model);
    for engine_run in 0..ENGINE_RUNS {
        bench.engine.shared.injected_bug.set(injected_bug);
        storage.script_commits(faults(&mut random));
        write_until_it_fails(&bench, seed ^ engine_run << 48);
        // Its end: what it still wants to write is refused.
        bench.engine.close().ok();
        storage.stop_faults();
        storage.reopen().unwrap();
        bench.engine = Engine::open(storage.clone(), options(&bench.clock, 5)).unwrap();
        if let Some(problem) = problem(&bench) {
            return Some(format!("seed {seed}, leg {engine_run}: {problem}, by the model {}", bench.model));
        }
    }
    None
}

/// Commits that are slow, so that writers meet, or whose answer is lost; the last sync fails.
fn faults(random: &mut Random) -> Vec<CommitFault> {
    let slow = CommitFault::Delay(Duration::from_micros(500));
    let others = [CommitFault::Pass, slow, slow, slow, slow, slow, CommitFault::UnknownDone];
    let count = 10 + random.below(COMMITS);
    let mut faults: Vec<CommitFault> = (0..count).map(|_| *random.pick(&others)).collect();
    faults.push(*random.pick(&[CommitFault::Poison, CommitFault::PoisonDone]));
    faults
}

fn write_until_it_fails(bench: &Bench, seed: u64) {
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || {
                let mut random = Random(seed ^ writer << 32);
                let elements = (seed << 20 | writer << 16) as i64 & i64::MAX;
                let mut tally = Tally { elements, windows: usize::MAX, can_fail: true, ..Tally::default() };
                while bench.storage.is_writable() {
                    step(bench, &mut random, &mut tally);
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
fn maintained_values_stay_right_on_a_failing_storage() {
    for seed in 0..8 {
        assert_eq!(round(1_000 + seed, None), None);
    }
}

fn check_bug_is_found(injected_bug: InjectedBug) {
    let started = Instant::now();
    let found = (0..ROUNDS_MAX).find_map(|seed| Some((seed, round(seed, Some(injected_bug))?)));
    let (seed, problem) = found.unwrap_or_else(|| panic!("{injected_bug:?} is not found"));
    println!("{injected_bug:?}: in round {seed}, after {:?}: {problem}", started.elapsed());
}

#[test]
fn an_engine_that_does_not_lock_targets_is_detected() {
    check_bug_is_found(InjectedBug::TargetNotLocked);
}

#[test]
fn an_engine_that_writes_job_rows_later_is_detected() {
    check_bug_is_found(InjectedBug::JobRowInSecondCommit);
}

#[test]
fn an_engine_that_applies_differences_twice_is_detected() {
    check_bug_is_found(InjectedBug::DifferenceTwice);
}
