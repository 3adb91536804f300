//! The database itself: catalog, partitions, items, transactions, feed rows, charges.
//!
//! Synchronous. [`Engine::open`] takes any `Storage`; every method may block on it and may be called from any
//! thread. Names, keys and rows of the storage are decided in `keys` and nowhere else.
//! Not here: HTTP and its bodies (see `quire-server`), the choice of a storage (see `quire-cli`).

mod api; // requests and answers
mod error;

pub use api::*;
pub use error::EngineError;
