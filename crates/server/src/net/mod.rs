//! From sockets to requests, and the threads that serve them.

pub(crate) mod connection; // one connection, watched
pub(crate) mod connection_state; // what is known about it while it is served
pub(crate) mod connections; // all of them, and who makes room for whom
pub(crate) mod descriptors; // open files: the store's and the clients'
pub(crate) mod pool; // bounded blocking calls into the engine
pub(crate) mod stream; // its bytes
pub(crate) mod supervised; // tasks that are started again
pub(crate) mod threads; // a thread per connection
pub(crate) mod tls; // the certificate, which may change
