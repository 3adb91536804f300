//! quire-testkit

pub mod values; // strategies for values
