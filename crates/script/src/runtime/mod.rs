//! JavaScript runtimes. The API that scripts see is in `prelude`, compiled once and loaded as bytecode.

#[expect(unsafe_code, reason = "the engine's calls for bytecode have no safe form; see the module")]
pub mod bytecode; // programs compiled once, for every context
pub mod compile; // from text to the entry function; positions of errors
pub mod needs; // which built-ins a script may use
pub mod realm; // the context of a run
pub mod sandbox; // runtimes: limits, interruption, reuse
pub mod shareable; // whether runs of a script may share a context
pub mod shared_realm; // contexts that runs share
mod tokens; // the words of a script's text
pub mod versions; // compiled scripts by version
