//! State that all scripts of an engine share: the runtime, the gates, and which scripts are blocked.

mod blocked_scripts; // scripts that exceed their time limit too often
pub(crate) mod contention; // recent conflicts
pub(crate) mod gate; // limits how many run at once
mod spatial; // `__.spatial`

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use quire_script::{Script, ScriptError, Scripts};
use quire_value::Value;

use self::blocked_scripts::BlockedScripts;
use self::contention::Contention;
use self::gate::Gate;
use crate::api::{EngineError, Resource, ScriptFailure, ScriptOptions};

const PLACES_PER_CORE: usize = 4;

const PLACES_MIN: usize = 8;

/// Of these, what one logical partition may take,
const PARTITION_SHARE: usize = 4;

/// and what queries of one container may, for the functions they call.
const CONTAINER_SHARE: usize = 2;

/// State that all scripts of an engine share.
pub(crate) struct Scripting {
    pub scripts: Scripts,
    pub gate: Arc<Gate>,
    /// For queries that call functions: a query in a script must not wait for a second place of the same gate.
    pub function_gate: Arc<Gate>,
    pub contention: Contention,
    /// `None`: no script is ever blocked.
    pub blocked: Option<BlockedScripts>,
    pub figures: ScriptFigures,
    pub stopping: AtomicBool,
}

/// Counters since start.
#[derive(Default)]
pub(crate) struct ScriptFigures {
    pub runs: AtomicU64,
    pub retries: AtomicU64,
    pub conflicts: AtomicU64,
    pub failures: AtomicU64,
    pub timeouts: AtomicU64,
}

impl Scripting {
    pub fn new(options: &ScriptOptions) -> Scripting {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let places = options.running_max.unwrap_or((PLACES_PER_CORE * cores).max(PLACES_MIN));
        let mut scripts = Scripts::isolated(options.limits, &options.isolation);
        scripts.set_spatial(Some(spatial::evaluate));
        Scripting {
            scripts,
            gate: Gate::new(places, (places / PARTITION_SHARE).max(2)),
            function_gate: Gate::new(places, places / CONTAINER_SHARE),
            contention: Contention::new(),
            blocked: options.block_slow_scripts.then(BlockedScripts::default),
            figures: ScriptFigures::default(),
            stopping: AtomicBool::new(false),
        }
    }

    /// The server stops: no query waits for a function any more.
    pub fn stop_functions(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.scripts.stop_functions();
    }

    /// Pages that have a place to call functions.
    pub fn function_pages(&self) -> usize {
        self.function_gate.running()
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// For `/_quire/metrics`.
    pub fn statistics(&self) -> Vec<(&'static str, u64)> {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (waits, refusals) = self.gate.statistics();
        let (function_waits, function_refusals) = self.function_gate.statistics();
        vec![
            ("script_runs", count(&self.figures.runs)),
            ("script_retries", count(&self.figures.retries)),
            ("script_conflicts", count(&self.figures.conflicts)),
            ("script_failures", count(&self.figures.failures)),
            ("script_timeouts", count(&self.figures.timeouts)),
            ("script_waits", waits + function_waits),
            ("script_refusals", refusals + function_refusals),
            ("script_worker_pool_panics", self.scripts.worker_pool_panics()),
            ("script_stuck", (self.gate.stuck() + self.function_gate.stuck()) as u64),
        ]
    }

    pub fn check_blocked(&self, script: &ScriptSource) -> Result<(), EngineError> {
        if self.gate.is_stuck(&script.version) || self.function_gate.is_stuck(&script.version) {
            return Err(EngineError::ScriptStuck { id: script.id().to_owned() });
        }
        match &self.blocked {
            Some(blocked_scripts) if blocked_scripts.is_blocked(&script.version) => {
                Err(EngineError::ScriptBlocked { id: script.id().to_owned() })
            }
            _ => Ok(()),
        }
    }

    /// Counts a failure of a script.
    pub fn failed(&self, script: &ScriptSource, error: ScriptError, log: Option<String>) -> EngineError {
        self.figures.failures.fetch_add(1, Ordering::Relaxed);
        if error == ScriptError::TimedOut {
            self.figures.timeouts.fetch_add(1, Ordering::Relaxed);
            if let Some(blocked_scripts) = &self.blocked {
                blocked_scripts.count_failure(&script.version);
            }
        }
        EngineError::Script(Box::new(ScriptFailure { error, log }))
    }
}

/// A script and the version of its text.
pub(crate) struct ScriptSource {
    pub resource: Arc<Resource>,
    pub version: Arc<str>,
}

impl ScriptSource {
    pub fn of(resource: Arc<Resource>) -> ScriptSource {
        let version = format!("{}{}", resource.rid, resource.etag).into();
        ScriptSource { resource, version }
    }

    pub fn id(&self) -> &str {
        &self.resource.id
    }

    pub fn script(&self) -> Script<'_> {
        let body = self.resource.body.get("body").and_then(Value::as_str).unwrap_or_default();
        Script { version: &self.version, body }
    }
}

/// Serves as a worker process of [`ScriptIsolation::Process`](crate::ScriptIsolation), on standard input and output.
pub fn serve_scripts() -> ExitCode {
    quire_script::serve(Some(spatial::evaluate))
}
