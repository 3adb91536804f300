//! Refactorings of every kind under a storm: started, finished and undone at random while a client writes in the old and the new form and
//! the server is killed; what is stored is compared with what the writer knows.
//!
//! `QUIRE_STORM_SECONDS` makes the run longer (`cargo xtask storm --refactorings --minutes 30`), `QUIRE_STORM_SEED` repeats one as far
//! as threads can be repeated, and `QUIRE_STORM_KIND=extract` runs one kind alone. The test command runs some seconds.

use std::path::PathBuf;
use std::time::Duration;

use quire_testkit::storm::refactorings::{RefactoringStormPlan, run};

const SEED: u64 = 0x4EFA_0001;

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn refactorings_lose_nothing() {
    let plan = RefactoringStormPlan {
        program: PathBuf::from(env!("CARGO_BIN_EXE_quire")),
        seed: from_environment("QUIRE_STORM_SEED").unwrap_or(SEED),
        time: Duration::from_secs(from_environment("QUIRE_STORM_SECONDS").unwrap_or(12)),
        between_kills: Duration::from_millis(1_200),
        last_wait: Duration::from_secs(120),
        kind: std::env::var("QUIRE_STORM_KIND").ok(),
    };
    println!("storm of refactorings: seed {}", plan.seed);
    let figures = run(&plan).expect("the run goes through");
    println!("{figures}");
    assert!(figures.problems.is_empty(), "{:?}", figures.problems.first());
    assert!(figures.kills > 2 && figures.cut > 0, "hardly anything was killed");
    assert!(figures.failed_syncs > 0, "no sync has failed");
    assert!(figures.items > 1_000 && figures.writes > 100, "hardly anything was done");
    assert!(plan.kind.is_some() || figures.kinds_not_run().is_empty(), "{:?}", figures.kinds_not_run());
}
