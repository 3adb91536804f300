//! Server-side JavaScript in a sandbox: stored procedures, triggers and user-defined functions.
//!
//! [`Scripts::run`] runs one procedure or trigger. It accesses items only through the caller's [`Host`], one
//! [`Request`] and one [`Answer`] at a time, so that the script can also run in another process: see [`Isolation`].
//! [`Scripts::functions`] compiles user-defined functions, which access nothing.
//!
//! Invariants:
//! 1. Nothing of a run is left for the next: it has its own context, or one in which nothing can be left
//!    (`runtime::shared_realm`).
//! 2. A run ends within its [`Limits`]; a runtime that reached a limit is not used again. A few built-ins of the
//!    engine never check the time (the tests list them), so untrusted scripts need a process that can be killed.
//! 3. The host is called between turns of the script, never from inside it: a script cannot change a request that was
//!    made before by changing its own objects, nor keep a callback alive after the run.
//!
//! Not here: transactions, partitions, what a link resolves to, status codes of HTTP answers (see `quire-engine`,
//! `quire-server`).

mod caller; // the caller that waits for a script
mod error; // `ScriptError`
mod functions; // user-defined functions: many cheap calls
mod host; // `Host` and its messages
mod isolation; // `Isolation`: this process or others
mod limits; // `Limits`
mod run; // a run from parameters to response body
mod runtime; // JavaScript runtimes: compiling, limits, interruption, reuse
mod values; // encoding of values of functions
mod worker; // worker processes: confinement, and messages between them and the server

pub use caller::Caller;
pub use error::{Position, ScriptError};
pub use functions::{CallResult, FunctionCall, Functions};
pub use host::{Answer, Host, IndexAction, ItemLink, Operation, Reply, Request};
pub use isolation::{Isolation, Spatial, SpatialFunction};
pub use limits::Limits;
pub use run::{Call, Collection, Failure, Outcome, Script, ScriptRun, Scripts, TriggerOperation};
pub use worker::confine::{Confinement, confine};
pub use worker::process::serve;
pub use worker::wire::{is_worker_message, worker_message_rewritten};
