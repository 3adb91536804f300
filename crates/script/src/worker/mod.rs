//! Worker processes for untrusted scripts.

pub mod confine; // confinement of a worker process
pub mod pool; // the pool of worker processes in the server
pub mod process; // the worker process
pub mod remote; // user-defined functions in a worker process
pub mod wire; // messages between the server and a worker process
