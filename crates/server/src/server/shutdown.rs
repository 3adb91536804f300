//! The shutdown: what is stopped, and what is waited for before the engine is closed.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::net::connection::Phase;
use crate::server::ServerError;
use crate::state::ServerState;

/// For engine calls that are still running when the last connection is closed.
const CALLS_TIMEOUT: Duration = Duration::from_secs(5);

/// Ends the tasks, which closes the listeners, waits for the open connections, and closes the engine. `ended` ends with the
/// last connection.
pub(super) async fn stop(
    state: Arc<ServerState>,
    tasks: Vec<JoinHandle<()>>,
    phase: watch::Sender<Phase>,
    mut ended: mpsc::Receiver<Infallible>,
) -> Result<(), ServerError> {
    tracing::info!("shutting down");
    state.ready.store(false, Ordering::Relaxed);
    state.stopping.send_replace(true);
    end(tasks).await;
    phase.send_replace(Phase::Draining);
    state.engine.stop_functions();
    let drained = async {
        tokio::select! {
            _ = ended.recv() => true,
            () = only_functions_run(&state) => false,
        }
    };
    if !matches!(tokio::time::timeout(state.config.limits.shutdown_timeout, drained).await, Ok(true)) {
        tracing::warn!(open = state.network.connections.open(), "closing connections that did not finish");
        phase.send_replace(Phase::Ending);
    }
    close(state).await
}

/// Connections are tasks of their own and go on.
async fn end(tasks: Vec<JoinHandle<()>>) {
    tasks.iter().for_each(JoinHandle::abort);
    for task in tasks {
        if let Err(error) = task.await
            && error.is_panic()
        {
            tracing::error!(%error, "a task of the server panicked");
        }
    }
}

/// Returns when every open connection runs a query in a user-defined function, for a second: a function that runs in this
/// process and does not end cannot be stopped, so the shutdown does not wait for it.
async fn only_functions_run(state: &ServerState) {
    const INTERVAL: Duration = Duration::from_millis(250);
    const COUNT: u32 = 4;
    let mut count = 0;
    while count < COUNT {
        tokio::time::sleep(INTERVAL).await;
        let pages = state.engine.function_pages();
        let holds = pages > 0 && state.network.connections.open() <= pages;
        count = if holds { count + 1 } else { 0 };
    }
}

/// Waits for the engine calls of connections that are closed, then closes the engine.
async fn close(state: Arc<ServerState>) -> Result<(), ServerError> {
    let finished = async {
        tokio::select! {
            () = state.pool.finished() => true,
            () = only_functions_run(&state) => false,
        }
    };
    if !matches!(tokio::time::timeout(CALLS_TIMEOUT, finished).await, Ok(true)) {
        tracing::warn!("closing the engine while calls are still running");
    }
    let closed = tokio::task::spawn_blocking(move || {
        if let Err(error) = state.token_clock.store(&state.engine) {
            tracing::warn!(%error, "the latest time was not stored");
        }
        state.engine.close()
    });
    let closed = closed.await;
    match closed {
        Ok(closed) => closed.map_err(ServerError::Close),
        Err(failed) => std::panic::resume_unwind(failed.into_panic()),
    }
}
