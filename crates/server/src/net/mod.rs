//! From sockets to requests, and the threads that serve them. Nothing here knows what a request means.

pub(crate) mod connection; // one connection, with its timeouts
pub(crate) mod connection_state; // its state while it is served
pub(crate) mod connections; // all of them, and which is closed when there are too many
pub(crate) mod descriptors; // open files: how the store, queries and clients share them
pub(crate) mod listen; // listeners: accept, serve, refuse
pub(crate) mod panics; // panics caught where they cost least
pub(crate) mod pool; // bounded blocking calls into the engine
pub(crate) mod stream; // its socket, plain or TLS
pub(crate) mod supervised; // tasks that are started again after a panic
pub(crate) mod threads; // a thread per connection
pub(crate) mod tls; // the certificate, which may change
