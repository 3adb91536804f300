//! Retries a write until the sequencer accepts it.

use std::time::Duration;

use super::WriteRefused;
use crate::api::EngineError;
use crate::runtime::DataPlaneCounters;
use crate::sync::sleep;

/// A write whose snapshot is stale is prepared again this often.
const TRIES: u32 = 12;
/// The longest wait before the next attempt is this power of two, in milliseconds.
const WAIT_POWER_MAX: u32 = 6;
/// Attempts of [`retry_until_accepted`] without a wait before them.
const AT_ONCE: u32 = 2;

/// The numbers of as many attempts: the first `at_once` follow each other at once, before each later one is a wait that doubles.
pub(crate) fn attempts(count: u32, at_once: u32) -> impl Iterator<Item = u32> {
    (0..count).inspect(move |attempt| {
        if *attempt >= at_once {
            sleep(Duration::from_millis(1 << (attempt + 1 - at_once).min(WAIT_POWER_MAX)));
        }
    })
}

/// Prepares and submits until the sequencer accepts it; `Overloaded` when it never does.
pub(crate) fn retry_until_accepted<T>(
    statistics: &DataPlaneCounters,
    mut attempt: impl FnMut() -> Result<T, WriteRefused>,
) -> Result<T, EngineError> {
    for _ in attempts(TRIES, AT_ONCE) {
        match attempt() {
            Ok(accepted) => return Ok(accepted),
            Err(WriteRefused::Stale) => statistics.retry(),
            Err(WriteRefused::Failed(error)) => return Err(error),
        }
    }
    Err(EngineError::Overloaded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_until_it_is_taken_or_fails() {
        let statistics = DataPlaneCounters::default();
        let mut tries = 0;
        let taken = retry_until_accepted(&statistics, || {
            tries += 1;
            if tries < 4 { Err(WriteRefused::Stale) } else { Ok(tries) }
        });
        assert_eq!(taken.unwrap(), 4);
        let failed: Result<(), EngineError> =
            retry_until_accepted(&statistics, || Err(EngineError::PartitionMoved.into()));
        assert!(matches!(failed, Err(EngineError::PartitionMoved)));
        let mut tries = 0;
        let never: Result<(), EngineError> = retry_until_accepted(&statistics, || {
            tries += 1;
            Err(WriteRefused::Stale)
        });
        assert!(matches!(never, Err(EngineError::Overloaded)));
        assert_eq!(tries, TRIES);
    }
}
