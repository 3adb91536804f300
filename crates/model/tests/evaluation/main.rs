//! What declarations make of items: each sentence of the contract by itself, then random models against a recomputation.

mod items; // references, copies, mirrors, rollups
mod library; // containers, items and models
mod random; // random models and writes
mod store; // items in memory, kept by differences
mod windows; // windows and their pages
