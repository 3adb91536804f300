//! Waiting until a session token can be served.

use std::time::{Duration, Instant};

use crate::handlers::Call;
use crate::routes::RouteKind;
use crate::wire::status::HandlerError;

/// Clients retry after a refusal, and a token may name a state that never existed: the wait is short.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// Waits a short time until the partitions of the container have reached the session token of the request. It holds no permit
/// of the pool while it waits.
pub(crate) async fn wait(call: &Call<'_>, kind: &RouteKind<'_>) -> Result<(), HandlerError> {
    let (Some((database, container)), Some(session)) = (kind.container(), call.session()?) else {
        return Ok(());
    };
    call.free_permit();
    let until = Instant::now() + WAIT_MAX;
    loop {
        let container = call.item_container(database, container)?;
        let Some(watch) = call.state.engine.watch_session(&container, &session) else { return Ok(()) };
        tokio::select! {
            () = watch => {}
            () = tokio::time::sleep_until(until.into()) => return Ok(()),
            () = call.state.stopped() => return Ok(()),
        }
    }
}
