//! The time that resource tokens are made and checked with: the latest time that was read.
//!
//! It follows the clock, never goes back, and always advances at least as fast as monotonic time. So a token that has expired stays
//! expired when the clock is set back, and a token that was made while the clock was ahead ends after its lifetime.
//! What is stored of it ([`TokenClock::store`]) carries that over a restart, to the minute, or to the last moment after a stop.
//! Bearer tokens and signed dates come from other machines and are checked with the clock itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use quire_engine::{Clock, Engine, EngineError};

/// A clock that moves this much more or less than monotonic time has jumped. Slewing is far below it.
const JUMP_MS: i64 = 5000;
/// The time is stored again when so much has passed since: a token may live that much longer after a kill.
const STORE_AFTER_MS: i64 = 60_000;

pub(crate) struct TokenClock {
    clock: Arc<dyn Clock>,
    last_reading: Mutex<ClockReading>,
}

struct ClockReading {
    clock_ms: i64,
    latest_ms: i64,
    at: Instant,
}

impl TokenClock {
    /// `latest_ms` is a time that has certainly passed, such as that of something stored.
    pub fn new(clock: Arc<dyn Clock>, latest_ms: i64) -> TokenClock {
        let clock_ms = clock.now_ms();
        if latest_ms > clock_ms.saturating_add(JUMP_MS) {
            let behind_ms = latest_ms - clock_ms;
            tracing::warn!(behind_ms, "the clock is behind the time of what is stored");
        }
        let seen = ClockReading { clock_ms, latest_ms: latest_ms.max(clock_ms), at: Instant::now() };
        TokenClock { clock, last_reading: Mutex::new(seen) }
    }

    pub fn now_seconds(&self) -> i64 {
        self.now_ms().div_euclid(1000)
    }

    /// Whether [`TokenClock::store`] has something to do. Without a permission there are no tokens, and nothing is stored.
    pub fn is_store_due(&self, engine: &Engine) -> bool {
        self.now_ms().saturating_sub(engine.stored_time_ms()) >= STORE_AFTER_MS && has_permissions(engine)
    }

    /// Makes the latest time durable. It blocks.
    pub fn store(&self, engine: &Engine) -> Result<(), EngineError> {
        if has_permissions(engine) { engine.store_time(self.now_ms()) } else { Ok(()) }
    }

    fn now_ms(&self) -> i64 {
        let mut seen = self.last_reading.lock();
        let now = Instant::now();
        let passed = now.saturating_duration_since(seen.at);
        let (next, jump_ms) = seen.next(self.clock.now_ms(), passed, now);
        *seen = next;
        if let Some(jump_ms) = jump_ms {
            tracing::warn!(jump_ms, "the clock has jumped; resource tokens follow the latest time seen");
        }
        seen.latest_ms
    }
}

impl ClockReading {
    fn next(&self, clock_ms: i64, passed: Duration, at: Instant) -> (ClockReading, Option<i64>) {
        let passed_ms = i64::try_from(passed.as_millis()).unwrap_or(i64::MAX);
        let jump_ms = clock_ms.saturating_sub(self.clock_ms).saturating_sub(passed_ms);
        let latest_ms = self.latest_ms.saturating_add(passed_ms).max(clock_ms);
        // Less than a millisecond is not lost: it is counted from the same moment again.
        let at = if passed_ms == 0 { self.at } else { at };
        (ClockReading { clock_ms, latest_ms, at }, Some(jump_ms).filter(|jump_ms| jump_ms.abs() > JUMP_MS))
    }
}

/// The latest time that was stored, and that of anything in the catalog.
pub(crate) fn latest_stored_ms(engine: &Engine) -> i64 {
    let mut latest = 0;
    for database in engine.catalog().databases() {
        latest = latest.max(database.ts);
        for container in engine.catalog().containers(&database.id).unwrap_or_default() {
            latest = latest.max(container.resource.ts);
        }
        for user in engine.catalog().users(&database.id).unwrap_or_default() {
            latest = latest.max(user.ts);
            for permission in engine.catalog().permissions(&database.id, &user.id).unwrap_or_default() {
                latest = latest.max(permission.ts);
            }
        }
    }
    latest.saturating_mul(1000).max(engine.stored_time_ms())
}

fn has_permissions(engine: &Engine) -> bool {
    let catalog = engine.catalog();
    catalog.databases().iter().any(|database| {
        let users = catalog.users(&database.id).unwrap_or_default();
        users.iter().any(|user| !catalog.permissions(&database.id, &user.id).unwrap_or_default().is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(seen: &ClockReading, clock_ms: i64, passed_ms: u64) -> (ClockReading, Option<i64>) {
        let passed = Duration::from_millis(passed_ms);
        seen.next(clock_ms, passed, seen.at + passed)
    }

    #[test]
    fn the_latest_time_advances_and_never_goes_back() {
        let seen = ClockReading { clock_ms: 1_000_000, latest_ms: 1_000_000, at: Instant::now() };
        let (seen, jump) = step(&seen, 1_000_100, 100);
        assert_eq!((seen.latest_ms, jump), (1_000_100, None));
        let (seen, jump) = step(&seen, 100_000, 10);
        assert_eq!((seen.latest_ms, jump), (1_000_110, Some(-900_110)));
        let (seen, jump) = step(&seen, 101_000, 1000);
        assert_eq!((seen.latest_ms, jump), (1_001_110, None));
        let (seen, jump) = step(&seen, 5_000_000, 1);
        assert_eq!((seen.latest_ms, jump), (5_000_000, Some(4_898_999)));
        // When the clock is right again, tokens that were made in between still expire.
        let (seen, _) = step(&seen, 101_002, 1);
        let (seen, jump) = step(&seen, 161_002, 60_000);
        assert_eq!((seen.latest_ms, jump), (5_060_001, None));
    }
}
