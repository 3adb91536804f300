//! HTTP: the listener, authentication, routes, headers, wire bodies, the status table.
//!
//! A connection is accepted in [`listen`], spoken in [`connection`], its requests pass [`guard`] and [`auth`] and
//! end in `routes::dispatch`. Engine calls run on the bounded [`pool`]; only cache hits run on the async worker.
//! Not here: what requests mean for data (see `quire-engine`), flags and files (see `quire-cli`).

mod auth; // who asks, and what they may do
mod config; // settings and limits
mod handlers; // one file per resource
mod headers; // response headers
mod pool; // bounded blocking calls into the engine
mod request; // one request, read completely
mod routes; // from a URL to a handler
mod state; // what all requests share
mod status; // from failures to status codes
mod wire; // bodies as they travel

pub use config::ServerConfig;
pub use handlers::consistency::Consistency;
