//! quire-storage
