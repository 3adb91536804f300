//! Retries a write until the sequencer accepts it.

use std::time::Duration;

use super::WriteRefused;
use crate::api::EngineError;
use crate::runtime::DataPlaneCounters;
use crate::sync::sleep;

/// A write whose snapshot is stale is prepared again this often.
const TRIES: u32 = 12;
/// The longest wait before the next try is this power of two, in milliseconds.
const WAIT_POWER_MAX: u32 = 6;

/// Prepares and submits until that is taken: at once a second time, then after waits that double. `Overloaded` when it never
/// is.
pub(crate) fn retry_until_accepted<T>(
    statistics: &DataPlaneCounters,
    mut attempt: impl FnMut() -> Result<T, WriteRefused>,
) -> Result<T, EngineError> {
    for tried in 0..TRIES {
        if tried > 1 {
            sleep(Duration::from_millis(1 << (tried - 1).min(WAIT_POWER_MAX)));
        }
        match attempt() {
            Ok(taken) => return Ok(taken),
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
