//! Tools for tests: generators, runners, a signing client, live servers, crashes.
//!
//! A dev-dependency only; nothing that is shipped uses it.

pub mod allocations; // counts allocations
pub mod crash; // kill loops, and what a power cut leaves
pub mod hostile; // scripts that mean harm
pub mod http; // a signing client on a blocking socket
pub mod interpreter; // a second interpreter of queries, to judge the first by
pub mod isolation; // whether a serial order explains what clients saw
pub mod links; // links over items in memory
pub mod live; // a server process
pub mod model; // what a declared model must have made of items
pub mod qt; // `.qt` files: queries and what comes out
pub mod random; // random items and queries
pub mod storm; // everything a container does at once, with kills
pub mod values; // strategies for values

/// The one generator of random numbers for tests.
pub use quire_storage::random::Random;
