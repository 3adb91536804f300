//! State that all requests of an open engine share.

pub(crate) mod allowance; // memory and time of a page
pub(crate) mod followed; // containers whose versions are kept for followers
#[cfg(test)]
pub(crate) mod injected_bug; // rules that an engine under test breaks
pub(crate) mod locks; // locks of writers
pub(crate) mod scripting; // state that all scripts share
mod shared; // storage, clock, caches, locks, secret
pub(crate) mod signals; // waking background work
#[cfg(test)]
pub(crate) mod stopped_clock; // a clock for tests
pub(crate) mod touched; // items that writers touch, for profiles

pub(crate) use shared::{DataPlaneCounters, Shared};
