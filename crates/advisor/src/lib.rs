//! From the profile of items and the recorded workload to findings.
//!
//! [`advise`] evaluates every rule of [`rules::RULES`] for every container, drops what a declaration answers or a more exact finding
//! explains, and orders the rest. A rule is a pure function of one file under `rules`; its conditions have names.
//! [`Finding`] says what was seen, what it costs (by [`price`], the charges of the engine) and the request that changes it.
//! Everything is a pure function: no storage, no threads, no clock.
//! Not here: how profiles are built (see `quire-profile`), how a finding is applied (see `quire-engine`).

mod apply; // requests that apply a finding
mod array; // what rules about arrays have in common
mod case; // one container under evaluation
mod declared; // what declarations answer
mod finding; // findings and their parts
mod json; // advice as JSON
mod list; // evaluation, listing, order
mod options; // thresholds that a caller may set
mod precedence; // one finding per cause
mod preview; // an item after a finding is applied
pub mod price; // the charges of requests
mod rules; // one file per rule

pub use apply::{Apply, ApplyKind};
pub use finding::{Advice, Candidate, Effect, Example, Finding, FindingState, InsufficientData, Severity};
pub use list::{Input, advise, advise_without, conditions};
pub use options::{Options, ThresholdError, Thresholds};
pub use preview::{Preview, cut, preview, preview_of};
pub use rules::{Group, RULES, Rule};
