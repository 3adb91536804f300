//! What a page may use: its part of the memory for queries, its time, and a client that waits for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use quire_sql::{Allowance, Cancellation, SqlError};

use crate::api::Cancel;
use crate::runtime::Shared;

/// From the first look at its text to the last row of a page, whatever it does meanwhile.
pub(crate) const PAGE_TIME_MAX: Duration = Duration::from_secs(60);

/// The allowance of one page. All that works for it is spent from here, so that all of it ends when the client leaves.
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
        if self.cancel.look() {
            return Err(SqlError::Cancelled);
        }
        if self.started.elapsed() >= PAGE_TIME_MAX {
            return Err(SqlError::Budget { what: "a minute" });
        }
        Ok(())
    }
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
