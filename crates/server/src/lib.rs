//! HTTP: the listener, authentication, routes, headers, wire bodies, the status table.
//!
//! [`server`] starts and stops it. A connection is accepted and served in [`net`]. Each request goes through [`edge`]: limits, guard,
//! [`auth`], and the row of [`operations`] that names its access, its lane and its handler. Engine calls run on the bounded
//! pool of [`net`]; only cache hits run on the async worker.
//! Not here: what requests mean for data (see `quire-engine`), flags and files (see `quire-cli`).

mod admin; // one file per resource below `/_quire/`
mod auth; // who sent a request, and which access they have
mod clock; // the machine's time
mod config; // settings and limits
pub mod demo; // demo data with a day of workload
mod edge; // one request from its head to its answer
mod handlers; // one file per resource of the protocol
mod net; // listeners, connections, TLS, threads, the pool of blocking calls
mod operations; // the table: path, verb and flags to access, lane and handler
mod routes; // the URL grammar
mod server; // start, reload and stop
mod state; // what all requests share
mod wire; // bodies, headers, status codes, binary forms

pub use auth::{KeyError, Keys, OidcConfig, OidcError, WELL_KNOWN_KEY};
pub use clock::SystemClock;
pub use config::{Endpoint, EndpointCall, Limits, ServerConfig, StartPage};
pub use handlers::consistency::Consistency;
pub use net::descriptors::Descriptors;
pub use net::tls::{Tls, TlsError, TlsFiles};
pub use server::{ReloadError, Server, ServerError, ServerHandle, runtime};
