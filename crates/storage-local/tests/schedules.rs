//! Group commit under random schedules (ADR 26): what holds, and which known races would be found.

use std::time::Instant;

use quire_storage_local::schedules::{RACES, explore};

const SCHEDULES: u64 = 10_000;
const SEED: u64 = 0;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().expect("a number"))
}

mod group_commit {
    use super::*;

    #[test]
    fn holds_under_every_schedule() {
        let (schedules, seed) =
            (setting("QUIRE_SCHEDULES", SCHEDULES), setting("QUIRE_SCHEDULES_SEED", SEED));
        let started = Instant::now();
        let explored = explore(schedules, seed, None);
        let rate = explored.schedules as f64 / started.elapsed().as_secs_f64();
        println!("group_commit: {} schedules, {rate:.0} per second", explored.schedules);
        assert!(!explored.has_failed, "schedule {} of seed {seed}", explored.schedules);
    }

    #[test]
    fn known_races_are_found() {
        for race in RACES {
            let explored = explore(SCHEDULES, SEED, Some(*race));
            assert!(explored.has_failed, "{race:?} is not found");
            println!("group_commit: {race:?} after {} schedules", explored.schedules);
        }
    }
}
