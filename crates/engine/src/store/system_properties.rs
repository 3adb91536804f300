//! Properties of items that the engine sets.

/// Set by the engine, dropped when a client sends them back.
pub(crate) const SYSTEM_PROPERTIES: [&str; 6] = ["_rid", "_self", "_etag", "_attachments", "_ts", "_lsn"];

pub(crate) fn is_system_property(name: &str) -> bool {
    SYSTEM_PROPERTIES.contains(&name)
}
