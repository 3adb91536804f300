//! The concurrent core under random schedules (ADR 26): what holds, and which known races would be found.
//!
//! `QUIRE_SCHEDULES` and `QUIRE_SCHEDULES_SEED` ask for more schedules, or others: see `cargo xtask schedules`.

use std::time::Instant;

use quire_engine::schedules::{PROGRAMS, Program, explore};

/// Of each program: all of them, and the known races, take about a minute of one core.
const SCHEDULES: u64 = 10_000;
const SEED: u64 = 0;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().expect("a number"))
}

fn program(name: &str) -> &'static Program {
    PROGRAMS.iter().find(|program| program.name == name).expect("a program")
}

/// No schedule breaks what the program asserts.
fn holds(name: &str) {
    let (schedules, seed) = (setting("QUIRE_SCHEDULES", SCHEDULES), setting("QUIRE_SCHEDULES_SEED", SEED));
    let started = Instant::now();
    let explored = explore(program(name), schedules, seed, None);
    let rate = explored.schedules as f64 / started.elapsed().as_secs_f64();
    println!("{name}: {} schedules, {rate:.0} per second", explored.schedules);
    assert_eq!(explored.failure, None, "schedule {} of seed {seed}", explored.schedules);
}

/// Each known race, put back, is found within the schedules of a run.
fn finds(name: &str) {
    let program = program(name);
    assert!(!program.races.is_empty(), "{name} finds nothing");
    for race in program.races {
        let explored = explore(program, SCHEDULES, SEED, Some(*race));
        let failure = explored.failure.unwrap_or_else(|| panic!("{race:?} is not found"));
        println!("{name}: {race:?} after {} schedules: {failure}", explored.schedules);
    }
}

macro_rules! programs {
    ($($name:ident)*) => {
        $(mod $name {
            #[test]
            fn holds_under_every_schedule() {
                super::holds(stringify!($name));
            }

            #[test]
            fn known_races_are_found() {
                super::finds(stringify!($name));
            }
        })*

        #[test]
        fn every_program_is_run() {
            let names = [$(stringify!($name)),*];
            assert!(PROGRAMS.iter().all(|program| names.contains(&program.name)));
        }
    };
}

programs! { locks sequencer barrier retire across items answers spans key_marks splits maintained build transacted }
