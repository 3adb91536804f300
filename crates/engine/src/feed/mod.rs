//! The change feed of a container.

pub(crate) mod changes;
mod version_json; // versions as JSON
