//! Worker processes, in which scripts of strangers run.

pub mod confine; // what a worker process gives up
pub mod pool; // worker processes, seen from the server
pub mod process; // the worker process
pub mod remote; // user-defined functions in a worker process
pub mod wire; // messages between the server and a worker process
