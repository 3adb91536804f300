//! Waiting for the state that a session token asks for.

use std::time::{Duration, Instant};

use crate::handlers::Call;
use crate::routes::RouteKind;
use crate::wire::status::HandlerError;

/// Clients come again after a refusal; nobody is kept waiting for a token that was never given out.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// Waits a short time for the container's partitions to come as far as the request's session token asks. It takes no place of the
/// pool.
pub(crate) async fn wait(call: &Call<'_>, kind: &RouteKind) -> Result<(), HandlerError> {
    let (Some((database, container)), Some(session)) = (kind.container(), call.session()?) else {
        return Ok(());
    };
    call.free_place();
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
