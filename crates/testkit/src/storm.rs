//! Everything a container does at once, against a server that is killed while it does it.
//!
//! Writers own their partition keys, so each knows exactly what is there: a request that a kill left without an answer is
//! settled by reading. Followers read the change feed of every partition key range, the latest versions and all
//! versions, through splits and restarts. [`check`] compares what they have read with what was written; its checks are pure,
//! and their tests feed them each fault they name. [`run`] drives it.

pub mod check; // what the feeds must have returned
mod client; // requests that outlive the server
pub mod declared; // a model beside what other runs do
mod faults; // kills, failed syncs, lost answers
mod follower; // a reader of the change feed
mod model; // what is there, as its writer knows
pub mod models; // declarations that come and go
pub mod refactorings; // refactorings that are started, finished and undone
pub mod run; // writers, followers, changes of the container, kills
mod writer; // writes, and queries that must agree
