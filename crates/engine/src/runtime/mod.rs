//! What an open engine has once, and all requests share.

pub(crate) mod allowance; // memory and time of a page
pub(crate) mod locks; // who may write what at the same time
mod shared; // storage, clock, caches, locks, secret

pub(crate) use shared::Shared;
