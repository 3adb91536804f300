//! One request from its head to its answer, before and after the handler.

pub(crate) mod answers; // answers, counted until they are sent
pub(crate) mod body; // bodies, read within the limits
pub(crate) mod budget; // the bytes that all requests may have in memory
pub(crate) mod dispatch; // an authenticated request, authorized and run
pub(crate) mod exchange; // one request from its head to its answer
pub(crate) mod faults; // fault rules, for tests of clients
pub(crate) mod guard; // hosts and origins
pub(crate) mod log; // slow requests, panics
pub(crate) mod metrics; // what is counted and timed
pub(crate) mod recording; // what is recorded of a request
pub(crate) mod request; // one request, read completely
pub(crate) mod respond; // the requests of a listener
pub(crate) mod throttle; // provisioned throughput, enforced
