//! What the server says about itself, below `/_quire/`: one file per resource.
//!
//! `live` and `ready` are open and bare, and so is the certificate that clients must trust. Everything else is signed like
//! any other request, with the resource type `_quire` and the path (without its leading slash) as link. Which key opens
//! what is in [`operations`]; resource tokens and bearers never open anything here.

mod answer; // how answers are written
mod path; // which resource a path names

pub(crate) mod authority;
pub(crate) mod endpoints; // of the server's owner
pub(crate) mod faults;
pub(crate) mod health; // live and ready
pub(crate) mod metrics;
pub(crate) mod partitions;
pub(crate) mod transaction;
pub(crate) mod views;

use std::sync::Arc;

pub(crate) use self::path::{AdminRoute, is_own, parse};
use crate::auth::{self, Access, AuthError, Signed};
use crate::edge::request::{Request, Response};
use crate::operations;
use crate::state::State;
use crate::wire::status::HandlerError;

const RESOURCE_TYPE: &str = "_quire";

pub(crate) type Answered = Result<Response, HandlerError>;

/// An authorized request below `/_quire/`, its body read.
pub(crate) struct AdminCall<'a> {
    pub state: &'a Arc<State>,
    pub request: &'a Request,
}

/// Who asks, and whether they may.
pub(crate) async fn authorize(state: &State, request: &Request, access: Access) -> Result<(), AuthError> {
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

/// Serves a request below `/_quire/` that is authorized.
pub(crate) async fn dispatch(
    state: &Arc<State>,
    request: &Request,
    route: &AdminRoute,
    name: operations::AdminName,
) -> Answered {
    operations::run_admin(name, &AdminCall { state, request }, route).await
}
