//! The server's own endpoints, below `/_quire/`: one file per resource.
//!
//! `live` and `ready` are open, and so are the start page and the certificate that clients must trust. Everything else is signed like any other
//! request, with the resource type `_quire` and the path (without its leading slash) as link. Resource tokens and bearer
//! tokens give no access here.
//!
//! A new endpoint is a function in the file of its resource and a row in [`operations`]: verb, path with its names, access,
//! lane, call. The function gets an [`AdminCall`] and the names, decoded, and answers with an [`AdminReply`]:
//!
//! - [`AdminCall::run`] calls the engine in the lane of the row, [`AdminCall::container`] looks up a container;
//! - [`AdminCall::json`] and [`AdminCall::body`] give the body within a limit, [`AdminCall::parameters`] the query string;
//! - [`AdminCall::wait_for`] and [`AdminCall::wait_until`] wait for work in the background, as long as `?waitMs=` says;
//! - [`Request::precondition`] is `If-Match`, [`Request::has_version`] is `If-None-Match`; answer an etag by
//!   [`AdminReply::with`];
//! - [`AdminReply::accepted`] is 202 with the `Location` of the resource that shows the progress;
//! - an error is an `EngineError` or a `RequestError`; its status is chosen in [`status`](crate::wire::status).

mod parameters; // `?waitMs=500`
mod path; // the paths, decoded
mod reply; // how answers are written

pub(crate) mod advice;
pub(crate) mod authority;
pub(crate) mod demo;
pub(crate) mod endpoints; // those that the program around the server adds
pub(crate) mod faults;
pub(crate) mod health; // live and ready
pub(crate) mod jobs;
pub(crate) mod metrics;
pub(crate) mod model;
pub(crate) mod partitions;
pub(crate) mod profile;
pub(crate) mod refactorings;
pub(crate) mod start_page;
pub(crate) mod transaction;
pub(crate) mod views;
pub(crate) mod what_if;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use quire_engine::{Container, Engine, EngineError};
use quire_value::{Limits, Value, text};

pub(crate) use self::parameters::Parameters;
pub(crate) use self::path::{AdminPath, AdminRoute, is_own};
pub(crate) use self::reply::AdminReply;
use crate::auth::{self, Access, AuthError, Signed};
use crate::edge::request::{Request, Response};
use crate::operations::{self, AdminOperation};
use crate::state::ServerState;
use crate::wire::status::{HandlerError, RequestError};

const RESOURCE_TYPE: &str = "_quire";
/// All requests below `/_quire/` share the pool as one party.
const OWN_PATHS: &str = "/_quire";
/// Between two checks of what a request waits for; the pause grows from one to the other.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(200);

pub(crate) type AdminResult = Result<AdminReply, HandlerError>;

/// An authorized request below `/_quire/`, its body read.
pub(crate) struct AdminCall<'a> {
    pub state: &'a Arc<ServerState>,
    pub request: &'a Request,
    operation: AdminOperation,
}

impl AdminCall<'_> {
    /// Runs an engine call in the lane of the operation.
    pub async fn run<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Engine) -> Result<T, EngineError> + Send + 'static,
    ) -> Result<T, HandlerError> {
        let engine = self.state.engine.clone();
        let pool = &self.state.pool;
        let (answer, _permit) =
            pool.run(self.operation.lane.work(), pool.party(OWN_PATHS), move || call(&engine)).await?;
        Ok(answer?)
    }

    /// The same for work that changes nothing, and ends when its client has left.
    pub async fn run_for_client<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Engine) -> Result<T, EngineError> + Send + 'static,
    ) -> Result<T, HandlerError> {
        let cancel = self.request.client.cancel();
        self.run(move |engine| cancel.watch(|| call(engine))).await
    }

    pub fn container(&self, database: &str, container: &str) -> Result<Arc<Container>, HandlerError> {
        Ok(self.state.engine.catalog().container(database, container)?)
    }

    /// The body, of at most `bytes_max`.
    pub fn body(&self, bytes_max: usize) -> Result<&Bytes, HandlerError> {
        let body = &self.request.body;
        if body.len() > bytes_max { Err(RequestError::BodyTooLarge { bytes_max }.into()) } else { Ok(body) }
    }

    /// The same for one that must be JSON.
    pub fn json(&self, bytes_max: usize) -> Result<Value, HandlerError> {
        Ok(text::parse(self.body(bytes_max)?, Limits::default()).map_err(EngineError::from)?)
    }

    /// The query string. A parameter that is not one of `known` is an error.
    pub fn parameters(&self, known: &[&str]) -> Result<Parameters<'_>, HandlerError> {
        Parameters::parse(&self.request.path, known)
    }

    /// Returns true when `done` is ready, false at `until` or when the server stops. It holds no permit of the pool while it
    /// waits.
    pub async fn wait_for(&self, until: Instant, done: impl Future<Output = ()>) -> bool {
        tokio::select! {
            () = done => true,
            () = tokio::time::sleep_until(until.into()) => false,
            () = self.state.stopped() => false,
        }
    }

    /// Returns when `is_done`, after `wait`, or when the server stops. It holds no permit of the pool while it waits.
    pub async fn wait_until(&self, wait: Duration, mut is_done: impl FnMut() -> bool) {
        let (deadline, mut pause) = (Instant::now() + wait, PAUSE_MIN);
        while Instant::now() < deadline && !is_done() {
            let next = deadline.min(Instant::now() + pause);
            tokio::select! {
                () = tokio::time::sleep_until(next.into()) => {}
                () = self.state.stopped() => return,
            }
            pause = PAUSE_MAX.min(2 * pause);
        }
    }
}

/// Whether the sender of a request has the access.
pub(crate) async fn authorize(
    state: &ServerState,
    request: &Request,
    access: Access,
) -> Result<(), AuthError> {
    let path = path::without_query(&request.path);
    let signed = Signed {
        method: &request.method,
        resource_type: RESOURCE_TYPE,
        link: path.strip_prefix('/').unwrap_or(path),
        link_rid: None,
    };
    let principal = auth::authenticate_signed(state, &request.headers, &signed).await?;
    auth::authorize_server(&principal, access)
}

/// Serves a request that is authorized.
pub(crate) async fn dispatch(
    state: &Arc<ServerState>,
    request: &Request,
    path: &AdminPath<'_>,
    operation: AdminOperation,
) -> Result<Response, HandlerError> {
    let names = path.names();
    let call = AdminCall { state, request, operation };
    let reply = operations::run_admin(&call, operation.name, &path.with_names(&names)).await?;
    Ok(reply.into_response())
}
