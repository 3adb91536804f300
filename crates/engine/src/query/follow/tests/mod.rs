//! Reading across links through an engine in this process.

mod bench; // a database with a model
mod examples; // `.qt` files with links
mod header; // members of rows and point reads
mod pages; // blocks, limits, charges, continuations, snapshots
mod round_trips; // what a client would read itself
