//! From a URL to a handler.

/// What a URL names, and what the client signed for it.
pub(crate) struct Route {
    pub resource_type: &'static str,
    pub resource_link: String,
    pub is_rid_based: bool,
}
