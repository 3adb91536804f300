//! Waiting for what happens in the background.

use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(60);

pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < until, "did not happen: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
