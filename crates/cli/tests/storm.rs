//! Everything a container does at once, against a server that is killed under it: writers, both feeds, index changes, times
//! to live, deleted keys and splits, compared with what the writers know.
//!
//! `QUIRE_STORM_SECONDS` makes the run longer (`cargo xtask storm --minutes 30`), `QUIRE_STORM_SEED` repeats one as far as
//! threads can be repeated. The test command runs some seconds.

use std::path::PathBuf;
use std::time::Duration;

use quire_testkit::storm::run::{Plan, run};

const SEED: u64 = 0x5702_0005;

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn all_at_once_and_nothing_lost() {
    let plan = Plan {
        program: PathBuf::from(env!("CARGO_BIN_EXE_quire")),
        seed: from_environment("QUIRE_STORM_SEED").unwrap_or(SEED),
        writers: 4,
        time: Duration::from_secs(from_environment("QUIRE_STORM_SECONDS").unwrap_or(18)),
        round: Duration::from_secs(300),
        stretch: Duration::from_secs(6),
    };
    println!("storm: seed {}", plan.seed);
    let figures = run(&plan).expect("the run goes through");
    println!("{figures}");
    assert!(figures.is_clean(), "what was seen is not what was written: {:?}", figures.problems.first());
    assert!(
        figures.kills >= 1 && figures.queries > 10 && figures.versions_told > 100,
        "hardly anything was done"
    );
    assert!(
        figures.expired > 0 && figures.deleted > 0 && figures.policies > 0 && figures.moves > 0,
        "not everything was done"
    );
    assert_eq!(figures.never_accepted(), [""; 0], "never accepted");
}
