//! What-if: a change is tried on a copy of some items, with the requests that were recorded.
//!
//! A [`WhatIfRun`] samples the items that a [`WhatIfChange`] concerns, puts them into two scratch databases, makes the change in the
//! second one as a client would, and runs the last recorded operations against both: as they were, and translated
//! (`translate`). What is asked for is checked before ([`WhatIfRequest`]); `background::what_ifs` runs it as a job.
//!
//! Invariants: the original is only read; values of requests come from items or from the seed, so the same seed gives the same
//! charges; all that is kept in memory is bounded ([`Sample`]: ids and keys; operations: those of the ring).

mod actions; // requests that belong together
mod concerned; // containers and references that a change is about
mod order; // what is asked for
mod outcome; // what it came to
mod plain; // a recorded operation as a request
mod query; // recorded shapes with values
mod replay; // all operations
mod requests; // requests to the scratch databases
mod run; // from the sample to the result
mod sample; // items that a change is tried on
mod scratch; // the two databases
mod translate; // operations in the new form
mod values; // values that are made up

pub(crate) use order::{Subject, WHAT_IF, WhatIfChange, WhatIfOrder, WhatIfRequest};
pub(crate) use replay::is_permanent;
pub(crate) use run::{RunProgress, WhatIfRun, WhatIfServices};
pub(crate) use scratch::Scratch;
