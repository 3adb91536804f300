//! quire-server
