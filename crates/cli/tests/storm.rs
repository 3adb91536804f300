//! Everything a container does at once, against a server that is killed under it: writers, both feeds, index changes, times
//! to live, deleted keys and splits, compared with what the writers know.
//!
//! `QUIRE_STORM_SECONDS` makes the run longer (`cargo xtask storm --minutes 30`), `QUIRE_STORM_SEED` repeats one as far as
//! threads can be repeated. The test command runs some seconds.

use std::path::PathBuf;
use std::time::Duration;

use quire_testkit::storm::run::{FollowerBehaviour, StormFigures, StormPlan, run};

const SEED: u64 = 0x5702_0005;

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

fn plan() -> StormPlan {
    StormPlan {
        program: PathBuf::from(env!("CARGO_BIN_EXE_quire")),
        seed: from_environment("QUIRE_STORM_SEED").unwrap_or(SEED),
        writers: 4,
        time: Duration::from_secs(from_environment("QUIRE_STORM_SECONDS").unwrap_or(18)),
        round: Duration::from_secs(300),
        round_time: Duration::from_secs(6),
        last_wait: Duration::from_secs(60),
        followers: FollowerBehaviour::Correct,
        has_model: false,
    }
}

fn run_shown(plan: &StormPlan) -> StormFigures {
    println!("storm, {:?} followers: seed {}", plan.followers, plan.seed);
    let figures = run(plan).expect("the run goes through");
    println!("{figures}");
    figures
}

#[test]
fn all_at_once_and_nothing_lost() {
    let figures = run_shown(&plan());
    assert!(figures.is_clean(), "what was seen is not what was written: {:?}", figures.problems.first());
    assert!(figures.kills > 0 && figures.moves > 0 && figures.policies > 0, "not everything was done");
    assert!(figures.expired > 0 && figures.deleted > 0, "nothing was deleted");
    assert!(figures.queries > 10 && figures.version_changes > 100, "hardly anything was done");
    assert_eq!(figures.never_accepted(), [""; 0], "never accepted");
}

/// Every write has consequences in another container; what is seen of this one is the same.
#[test]
fn the_same_with_a_model_on_the_container() {
    let time = Duration::from_secs(from_environment("QUIRE_STORM_SECONDS").unwrap_or(6));
    let round_time = Duration::from_secs(3);
    let figures = run_shown(&StormPlan { time, round_time, has_model: true, ..plan() });
    assert!(figures.is_clean(), "what was seen is not what was written: {:?}", figures.problems.first());
    assert!(
        figures.kills > 0 && figures.version_changes > 20 && figures.places > 100,
        "hardly anything was done"
    );
}

#[test]
fn followers_that_lose_changes_are_detected() {
    let time = Duration::from_secs(4);
    let followers = FollowerBehaviour::LosesChanges;
    let figures = run_shown(&StormPlan { time, last_wait: 2 * time, followers, ..plan() });
    let has = |text: &str| {
        figures.problems.iter().any(|problem| problem.starts_with('w') && problem.contains(text))
    };
    assert!(has("is found again"), "a version that comes twice goes unnoticed");
    assert!(has("changes found"), "a version that is lost goes unnoticed");
}
