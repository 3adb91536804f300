//! Session tokens: `{range}:{version}#{lsn}`, several joined by commas.

/// The floor a client asks for, per partition key range id.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct SessionToken {
    pub parts: Vec<(String, i64, u64)>, // range id, version, global LSN
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("The session token '{text}' is invalid.")]
pub struct SessionTokenError {
    pub text: String,
}

impl SessionToken {
    /// Accepts `0:-1#5`, `0:1#5#3=4`, comma lists, and bare tokens without a range id (range id `""`).
    pub fn parse(_text: &str) -> Result<SessionToken, SessionTokenError> {
        todo!()
    }
    pub fn format_one(range: &str, version: i64, lsn: u64) -> String {
        format!("{range}:{version}#{lsn}")
    }
}
