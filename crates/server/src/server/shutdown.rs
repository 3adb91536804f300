//! The end of a shutdown: what is waited for before the engine is closed.

use std::sync::Arc;
use std::time::Duration;

use crate::server::ServerError;
use crate::state::State;

/// After the connections, the engine calls they left behind get this long.
const CALLS_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns when nothing is left but queries in functions that do not end: what runs in this process and does not look at the
/// clock is not waited for.
pub(super) async fn stuck_in_functions(state: &State) {
    const LOOKS: u32 = 4;
    let mut looks = 0;
    while looks < LOOKS {
        tokio::time::sleep(Duration::from_millis(250)).await;
        let pages = state.engine.function_pages();
        let is_stuck = pages > 0 && state.metrics.open_connections() <= pages;
        looks = if is_stuck { looks + 1 } else { 0 };
    }
}

/// Waits for the engine calls that ended connections left behind, then closes the engine.
pub(super) async fn close(state: Arc<State>) -> Result<(), ServerError> {
    let finished = async {
        tokio::select! {
            () = state.pool.finished() => true,
            () = stuck_in_functions(&state) => false,
        }
    };
    if !matches!(tokio::time::timeout(CALLS_TIMEOUT, finished).await, Ok(true)) {
        tracing::warn!("closing the engine while calls are under way");
    }
    let closed = tokio::task::spawn_blocking(move || state.engine.close()).await;
    match closed {
        Ok(closed) => closed.map_err(ServerError::Close),
        Err(failed) => std::panic::resume_unwind(failed.into_panic()),
    }
}
