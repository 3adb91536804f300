//! Random bytes of the system.

use quire_storage::Token;

use crate::api::EngineError;

/// Names a commit, so that its outcome can be asked for.
pub(crate) fn random_token() -> Result<Token, EngineError> {
    let mut bytes = [0; 16];
    fill_random(&mut bytes)?;
    Ok(Token(u128::from_ne_bytes(bytes)))
}

pub(crate) fn fill_random(bytes: &mut [u8]) -> Result<(), EngineError> {
    getrandom::fill(bytes).map_err(|error| EngineError::Io {
        doing: "asking the system for random bytes".to_owned(),
        source: std::io::Error::other(error.to_string()),
    })
}
