//! quire-value
