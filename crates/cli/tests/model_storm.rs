//! Models under a storm: declarations come, change and go while clients write, answers are lost, syncs fail and the server is killed;
//! after every round what is maintained equals a recomputation from scratch.
//!
//! `QUIRE_STORM_SECONDS` makes the run longer (`cargo xtask storm --model --minutes 60`), `QUIRE_STORM_SEED` repeats one as far
//! as threads can be repeated. The test command runs some seconds.

use std::path::PathBuf;
use std::time::Duration;

use quire_testkit::storm::models::{ModelPlan, run};

const SEED: u64 = 0x40DE_0001;

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn maintained_values_stay_right() {
    let plan = ModelPlan {
        program: PathBuf::from(env!("CARGO_BIN_EXE_quire")),
        seed: from_environment("QUIRE_STORM_SEED").unwrap_or(SEED),
        writers: 4,
        time: Duration::from_secs(from_environment("QUIRE_STORM_SECONDS").unwrap_or(12)),
        round: Duration::from_secs(8),
        unchanged: Duration::from_secs(3),
        between_kills: Duration::from_secs(3),
        last_wait: Duration::from_secs(60),
    };
    println!("storm of models: seed {}", plan.seed);
    let figures = run(&plan).expect("the run goes through");
    println!("{figures}");
    assert!(figures.problems.is_empty(), "{:?}", figures.problems.first());
    assert!(figures.kills > 0 && figures.models > 0, "not everything was done");
    assert!(figures.failed_syncs > 0 && figures.cut > 0 && figures.left > 0, "not everything has failed");
    assert!(figures.declarations > 0 && figures.places > 0 && figures.owned > 0, "nothing was compared");
    assert!(figures.followed > 0 || figures.rounds < 3, "no item was read across a link");
}
