//! Server-side scripts: stored procedures, triggers, user-defined functions.
//!
//! `quire-script` runs JavaScript and knows nothing of items; here it is given what it reaches them through. A procedure,
//! or a write with its triggers, runs in one transaction over one logical partition: first on a snapshot without locks,
//! twice, and if others changed the partition both times, holding it. All tries share one time limit.
//!
//! Invariants: nothing that a script did is visible unless all of it is; what a run that failed did is never committed; a
//! script waits for its place before it holds any lock.

mod functions; // user-defined functions in queries
mod gate; // how many run at once
mod offenders; // scripts that exceed their time too often

pub(crate) use functions::PageFunctions;

use std::sync::atomic::{AtomicU64, Ordering};

use quire_script::{Script, Scripts};

use crate::api::{Resource, ScriptFailure, ScriptOptions};
use crate::{EngineError, ScriptError};

use self::gate::Gate;
use self::offenders::Offenders;

const PLACES_PER_CORE: usize = 4;
const PLACES_MIN: usize = 8;

/// What all scripts of an engine share.
pub(crate) struct Scripting {
    scripts: Scripts,
    gate: Gate,
    /// `None`: nobody is blocked.
    offenders: Option<Offenders>,
    figures: Figures,
}

/// Counters since start.
#[derive(Default)]
struct Figures {
    runs: AtomicU64,
    retries: AtomicU64,
    conflicts: AtomicU64,
    failures: AtomicU64,
    timeouts: AtomicU64,
}

impl Scripting {
    pub fn new(options: &ScriptOptions) -> Scripting {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let places = options.running_max.unwrap_or((PLACES_PER_CORE * cores).max(PLACES_MIN));
        Scripting {
            scripts: Scripts::new(options.limits),
            gate: Gate::new(places),
            offenders: options.block_offenders.then(Offenders::default),
            figures: Figures::default(),
        }
    }

    /// For `/_quire/metrics`.
    pub fn statistics(&self) -> Vec<(&'static str, u64)> {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (waits, refusals) = self.gate.statistics();
        vec![
            ("script_runs", count(&self.figures.runs)),
            ("script_retries", count(&self.figures.retries)),
            ("script_conflicts", count(&self.figures.conflicts)),
            ("script_failures", count(&self.figures.failures)),
            ("script_timeouts", count(&self.figures.timeouts)),
            ("script_waits", waits),
            ("script_refusals", refusals),
        ]
    }

    fn check_blocked(&self, script: &Source) -> Result<(), EngineError> {
        match &self.offenders {
            Some(offenders) if offenders.is_blocked(&script.version) => {
                Err(EngineError::ScriptBlocked { id: script.id.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Notes a failure, and whose it was.
    fn failed(&self, script: &Source, error: ScriptError, log: Option<String>) -> EngineError {
        self.figures.failures.fetch_add(1, Ordering::Relaxed);
        if error == ScriptError::TimedOut {
            self.figures.timeouts.fetch_add(1, Ordering::Relaxed);
            if let Some(offenders) = &self.offenders {
                offenders.strike(&script.version);
            }
        }
        EngineError::Script(Box::new(ScriptFailure { error, log }))
    }
}

/// The text of a script, and what names exactly this text.
#[derive(Clone)]
struct Source {
    id: String,
    version: String,
    body: String,
}

impl Source {
    fn of(resource: &Resource) -> Source {
        let body = resource.body.get("body").and_then(|body| body.as_str()).unwrap_or_default();
        let version = format!("{}{}", resource.rid, resource.etag);
        Source { id: resource.id.clone(), version, body: body.to_owned() }
    }

    fn script(&self) -> Script<'_> {
        Script { version: &self.version, body: &self.body }
    }
}
