//! Consistency levels: one node provides all of them.

use crate::wire::status::{HandlerError, RequestError};

/// From weak to strong: a request may ask for the account's level or a weaker one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Consistency {
    Eventual,
    ConsistentPrefix,
    #[default]
    Session,
    BoundedStaleness,
    Strong,
}

impl Consistency {
    pub const ALL: [Consistency; 5] = [
        Consistency::Eventual,
        Consistency::ConsistentPrefix,
        Consistency::Session,
        Consistency::BoundedStaleness,
        Consistency::Strong,
    ];

    /// As the protocol writes it.
    pub fn name(self) -> &'static str {
        match self {
            Consistency::Eventual => "Eventual",
            Consistency::ConsistentPrefix => "ConsistentPrefix",
            Consistency::Session => "Session",
            Consistency::BoundedStaleness => "BoundedStaleness",
            Consistency::Strong => "Strong",
        }
    }

    /// `Bounded` is the name of `BoundedStaleness` in the documentation.
    pub fn parse(name: &str) -> Option<Consistency> {
        if name.eq_ignore_ascii_case("Bounded") {
            return Some(Consistency::BoundedStaleness);
        }
        Consistency::ALL.into_iter().find(|level| level.name().eq_ignore_ascii_case(name))
    }
}

pub(crate) fn check(requested: &str, account: Consistency) -> Result<(), HandlerError> {
    match Consistency::parse(requested) {
        Some(level) if level <= account => Ok(()),
        Some(level) => {
            Err(RequestError::ConsistencyTooStrong { requested: level.name(), account: account.name() }
                .into())
        }
        None => Err(super::call::bad_header("x-ms-consistency-level", requested)),
    }
}
