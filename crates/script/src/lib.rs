//! Server-side JavaScript in a sandbox: stored procedures, triggers and user-defined functions.
//!
//! [`Scripts::run`] runs one procedure or trigger; it reaches items only through the caller's [`Host`], one [`Request`]
//! and one [`Answer`] at a time, so that the script may as well be in another process: see [`Isolation`].
//! [`Scripts::functions`] compiles user-defined functions, which reach nothing.
//!
//! Invariants:
//! 1. Every run has a context of its own; nothing that it did to globals or prototypes outlives it.
//! 2. A run ends within its [`Limits`]; a runtime that met one is not used again. A few built-ins of the engine never
//!    look at the clock (the tests list them), so scripts of strangers need a process around them that can be killed.
//! 3. The host is called between turns of the script, never from inside it: what a script does to its own objects
//!    cannot change a request that was made before, nor keep a callback alive after the run.
//!
//! Not here: transactions, partitions, what a link resolves to, status codes of HTTP answers (see `quire-engine`,
//! `quire-server`).

mod caller; // who waits for a script
mod error; // `ScriptError`
mod functions; // user-defined functions: many cheap calls
mod host; // `Host` and its messages
mod isolation; // `Isolation`: this process or others
mod limits; // `Limits`
mod run; // one run from parameters to response body
mod runtime; // JavaScript runtimes: compiling, limits, interruption, reuse
mod values; // values of functions as bytes
mod worker; // worker processes: what they give up, and the messages between them and the server

pub use caller::Caller;
pub use error::{Position, ScriptError};
pub use functions::{Called, FunctionCall, Functions};
pub use host::{Answer, Host, IndexAction, ItemLink, Reply, Request};
pub use isolation::{Isolation, Spatial, SpatialFunction};
pub use limits::Limits;
pub use run::{Call, Collection, Failure, Outcome, Run, Script, Scripts, TriggerOperation};
pub use worker::confine::{Confinement, confine};
pub use worker::process::serve;
pub use worker::wire::{is_worker_message, worker_message_rewritten};
