//! What declarations make of items: each sentence of the contract by itself, then random models against a recomputation.

mod items; // references, copies, mirrors, rollups
mod library; // containers, items and models
mod windows; // windows and their pages
