//! Random concurrent procedures, triggers, batches and single writes against a server that is killed under them: a
//! serial order must explain what everybody saw, and no money may be lost.
//!
//! `QUIRE_ISOLATION_SECONDS` makes the run longer (`cargo xtask isolation --minutes 10`), `QUIRE_ISOLATION_SEED` repeats
//! one as far as threads can be repeated. The test command runs some seconds.

use std::path::PathBuf;
use std::time::Duration;

use quire_testkit::isolation::lists::AnomalyKind;
use quire_testkit::isolation::run::{Clients, IsolationFigures, IsolationPlan, Rounds, run};

const SEED: u64 = 0x150_1A7E;

fn plan() -> IsolationPlan {
    IsolationPlan {
        program: PathBuf::from(env!("CARGO_BIN_EXE_quire")),
        arguments: Vec::new(),
        seed: from_environment("QUIRE_ISOLATION_SEED").unwrap_or(SEED),
        clients: 8,
        partitions: 3,
        rounds: Rounds::Count(1),
        round_time: Duration::from_secs(4),
        kills: 2,
        clients_are: Clients::Correct,
        has_model: false,
    }
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// One round, or as many as fit into the time that was asked for.
fn rounds() -> Rounds {
    from_environment("QUIRE_ISOLATION_SECONDS")
        .map_or(Rounds::Count(1), |seconds| Rounds::For(Duration::from_secs(seconds)))
}

fn run_shown(name: &str, plan: &IsolationPlan) -> IsolationFigures {
    println!("{name}: seed {}", plan.seed);
    let figures = run(plan).expect("the run goes through");
    println!("{figures}");
    figures
}

fn must_be_clean(name: &str, arguments: &[&str], clients_are: Clients) {
    let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
    let figures = run_shown(name, &IsolationPlan { arguments, rounds: rounds(), clients_are, ..plan() });
    assert!(figures.is_clean(), "{name}: no serial order explains what was seen");
    assert!(figures.checked.committed > 100 && figures.bank_reads > 10, "{name}: hardly anything was done");
    assert_eq!(figures.never_accepted(), [""; 0], "{name}: never accepted");
}

#[test]
fn a_serial_order_explains_all_reads() {
    must_be_clean("scripts in the server's process", &["--script-isolation", "in-process"], Clients::Correct);
}

#[test]
fn also_with_scripts_in_processes_of_their_own() {
    must_be_clean("scripts in other processes", &["--script-isolation", "process"], Clients::Correct);
}

#[test]
fn also_with_transactions_over_partitions_and_containers() {
    must_be_clean("transactions over partitions", &["--enable-transactions"], Clients::Across);
}

/// Every write has consequences in another container, and groups that are renamed have them in lists and accounts.
#[test]
fn also_with_a_model_on_the_containers() {
    let arguments = vec!["--enable-transactions".to_owned()];
    let (round_time, clients_are) = (Duration::from_secs(3), Clients::Across);
    let plan =
        IsolationPlan { arguments, rounds: rounds(), round_time, clients_are, has_model: true, ..plan() };
    let figures = run_shown("with a model", &plan);
    assert!(figures.is_clean(), "no serial order explains what was seen, or what is maintained is wrong");
    assert!(figures.checked.committed > 20 && figures.places > 100, "hardly anything was done");
}

#[test]
fn a_client_without_conditions_loses_updates_and_is_detected() {
    let plan = IsolationPlan {
        clients_are: Clients::Broken,
        kills: 0,
        round_time: Duration::from_secs(2),
        ..plan()
    };
    let figures = run_shown("a broken client", &plan);
    let lost = figures.anomalies().iter().filter(|anomaly| anomaly.kind == AnomalyKind::LostUpdate).count();
    assert!(lost > 0, "the check does not see lost updates");
}
