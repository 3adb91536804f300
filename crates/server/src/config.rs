//! Settings and limits.

use crate::handlers::consistency::Consistency;

/// What the server is told by its owner.
#[derive(Clone, Debug, Default)]
pub struct ServerConfig {
    /// Base URL that the account document gives to clients, with a trailing `/`; by default made from the `Host` header.
    pub public_endpoint: Option<String>,
    /// What the account promises, and the strongest level a request may ask for.
    pub consistency: Consistency,
}
