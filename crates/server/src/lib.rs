//! HTTP: the listener, authentication, routes, headers, wire bodies, the status table.
//!
//! A connection is accepted in [`listen`], spoken in [`connection`], its requests pass [`guard`] and [`auth`] and
//! end in `dispatch`, which runs what the table of [`operations`] says. Engine calls run on the bounded [`pool`]; only cache hits run on the async worker.
//! Not here: what requests mean for data (see `quire-engine`), flags and files (see `quire-cli`).

mod answer_form; // answers without system properties, or in binary
mod auth; // who asks, and what they may do
mod binary_json; // binary request bodies turned into text
mod binary_json_writer; // the same in answers
mod clock; // the real one
mod config; // settings and limits
mod connection; // one connection, watched
mod connections; // all of them, and who makes room for whom
mod descriptors; // open files: the store's and the clients'
mod dispatch; // an authenticated request, authorized and run
mod exchange; // one request from its head to its answer
mod faults; // requests that fail by rule, for tests of clients
mod guard; // hosts and origins
mod handlers; // one file per resource
mod headers; // response headers
mod hybrid_row; // batches in binary form
mod listen; // the server: doors, keys, shutdown
mod log; // slow requests, panics
mod metrics; // figures
mod operations; // the table: path, verb and flags to access, lane and handler
mod panics; // a bug costs one answer
mod partitions; // `/_quire/dbs/{db}/colls/{coll}/partitions`
mod pool; // bounded blocking calls into the engine
mod quire; // `/_quire/`
mod request; // one request, read completely
mod routes; // the URL grammar
mod state; // what all requests share
mod status; // from failures to status codes
mod supervised; // tasks that are started again
mod threads; // a thread per connection
mod throttle; // provisioned throughput, held to
mod tls; // the certificate, which may change
mod transaction; // `/_quire/dbs/{db}/transaction`
mod views; // how far views are, and their rebuilding
mod wire; // bodies as they travel

pub use auth::{KeyError, Keys, OidcConfig, OidcError, WELL_KNOWN_KEY};
pub use clock::SystemClock;
pub use config::{Endpoint, EndpointCall, Limits, ServerConfig};
pub use descriptors::Descriptors;
pub use handlers::consistency::Consistency;
pub use listen::{ReloadError, Server, ServerError, ServerHandle, runtime};
pub use tls::{Tls, TlsError, TlsFiles};
