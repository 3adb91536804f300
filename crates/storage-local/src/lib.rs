//! quire-storage-local
