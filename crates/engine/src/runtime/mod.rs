//! What an open engine has once, and all requests share.

pub(crate) mod allowance; // memory and time of a page
#[cfg(test)]
pub(crate) mod broken; // rules that an engine under test breaks
pub(crate) mod followed; // containers whose versions are kept for followers
pub(crate) mod locks; // who may write what at the same time
pub(crate) mod scripting; // what all scripts share
mod shared; // storage, clock, caches, locks, secret
pub(crate) mod signals; // waking background work
pub(crate) mod touched; // items that writers touch, for profiles

pub(crate) use shared::{DataPlaneCounters, Shared};
