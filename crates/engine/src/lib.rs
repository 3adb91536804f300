//! quire-engine
