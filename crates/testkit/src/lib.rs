//! quire-testkit

pub mod qt; // `.qt` files: queries and what comes out
pub mod values; // strategies for values
