//! The change feed of a container.

pub(crate) mod changes;
