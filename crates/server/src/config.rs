//! Settings and limits.

/// What the server is told by its owner.
#[derive(Clone, Debug, Default)]
pub struct ServerConfig {
    /// Base URL that the account document gives to clients, with a trailing `/`; by default made from the `Host` header.
    pub public_endpoint: Option<String>,
}
