//! quire-sql
