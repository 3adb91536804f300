//! The limits of a page: its share of the memory for queries, its time, and its client's connection.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use quire_resource::GeospatialType;
use quire_sql::{Allowance, Cancellation, Environment, SqlError};
use quire_storage::Token;
use quire_value::random;

use crate::api::{Cancel, EngineError};
use crate::runtime::Shared;
use crate::store::random_token;

/// From compiling the query to the last row of a page.
pub(crate) const PAGE_TIME_MAX: Duration = Duration::from_secs(60);

/// The allowance of one page. All work for the page is checked against it, so that it ends when the client disconnects.
pub(crate) fn of_page(shared: &Shared, cancel: &Cancel) -> Allowance {
    let allowance = watched(Allowance::new(shared.query_memory.query()), cancel);
    match &shared.options.query_temp {
        Some(temp) => allowance.with_temp(temp.query()),
        None => allowance,
    }
}

pub(crate) fn watched(allowance: Allowance, cancel: &Cancel) -> Allowance {
    allowance.with_cancellation(Arc::new(PageWatch::new(cancel)))
}

struct PageWatch {
    cancel: Cancel,
    started: Instant,
}

impl PageWatch {
    fn new(cancel: &Cancel) -> PageWatch {
        PageWatch { cancel: cancel.clone(), started: Instant::now() }
    }
}

impl Cancellation for PageWatch {
    fn check(&self) -> Result<(), SqlError> {
        if self.cancel.check_disconnect() {
            return Err(SqlError::Cancelled);
        }
        if self.started.elapsed() >= PAGE_TIME_MAX {
            return Err(SqlError::Budget { what: "a minute" });
        }
        Ok(())
    }
}

/// What a query or condition is evaluated with, besides its data.
pub(crate) fn environment(
    shared: &Shared,
    geospatial: GeospatialType,
    allowance: Allowance,
) -> Result<Environment, EngineError> {
    const TICKS_PER_MS: i64 = 10_000;
    Ok(Environment {
        now_ticks: Some(shared.clock.now_ms().saturating_mul(TICKS_PER_MS)),
        random_seed: next_seed()?,
        geospatial,
        allowance,
    })
}

/// Another one for every query. The system is asked once for random bytes, since asking takes longer than a short query's plan.
fn next_seed() -> Result<u64, EngineError> {
    static START: OnceLock<u64> = OnceLock::new();
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let start = match START.get() {
        Some(start) => *start,
        None => {
            let Token(bytes) = random_token()?;
            *START.get_or_init(|| bytes as u64)
        }
    };
    // An odd factor maps different counts to different numbers; the rounds spread their bits.
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    Ok(random::split_mix(start.wrapping_add(count.wrapping_mul(random::STEP))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_left_and_a_time_that_is_over_end_the_work() {
        let cancel = Cancel::default();
        let watch = PageWatch::new(&cancel);
        assert_eq!(watch.check(), Ok(()));
        cancel.cancel();
        assert_eq!(watch.check(), Err(SqlError::Cancelled));
        let late =
            PageWatch { started: Instant::now() - PAGE_TIME_MAX, ..PageWatch::new(&Cancel::default()) };
        assert_eq!(late.check(), Err(SqlError::Budget { what: "a minute" }));
        let gone = PageWatch::new(&Cancel::asking(|| true));
        assert_eq!(gone.check(), Err(SqlError::Cancelled), "asked at the first check");
    }
}
