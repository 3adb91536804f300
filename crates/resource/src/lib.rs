//! quire-resource
