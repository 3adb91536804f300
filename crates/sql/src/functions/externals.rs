//! What a run calls outside of the query.

use super::links::{Links, NoLinks};
use super::user_defined::{NoFunctions, UserFunctions};

/// The functions and links that the query was compiled with.
#[derive(Clone, Copy)]
pub struct Externals<'r> {
    pub functions: &'r dyn UserFunctions,
    pub links: &'r dyn Links,
}

impl<'r> Externals<'r> {
    /// For queries that call no user-defined function and follow no link.
    pub const NONE: Externals<'static> = Externals { functions: &NoFunctions, links: &NoLinks };

    pub fn functions(functions: &'r dyn UserFunctions) -> Externals<'r> {
        Externals { functions, ..Externals::NONE }
    }

    pub fn links(links: &'r dyn Links) -> Externals<'r> {
        Externals { links, ..Externals::NONE }
    }
}
