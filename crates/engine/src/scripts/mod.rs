//! Server-side scripts: stored procedures, triggers, user-defined functions.
//!
//! `quire-script` runs JavaScript and knows nothing of items; here it is given what it reaches them through. A procedure,
//! or a write with its triggers, runs in one transaction over one logical partition: first on a snapshot without locks,
//! twice, and if others changed the partition both times, holding it (see `attempts`). All tries share one time limit.
//!
//! Invariants: nothing that a script did is visible unless all of it is; what a run that failed did is never committed; a
//! script waits for its place before it holds any lock.

mod attempts; // a transaction, tried until it commits
mod contention; // scripts that were disturbed
mod functions; // user-defined functions in queries
mod gate; // how many run at once
mod host; // what a script asks of the database
mod offenders; // scripts that exceed their time too often
mod procedures; // stored procedures
mod spatial; // `__.spatial`
mod system; // procedures that every container has
mod triggers; // writes with triggers

pub(crate) use functions::PageFunctions;
pub use system::is_system_procedure;
pub(crate) use triggers::write_item;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use quire_resource::{GeospatialType, PartitionKey, PartitionKeyDefinition};
use quire_script::{Collection, Failure, Outcome, Run, Script, Scripts};
use quire_value::{Segment, Value};

use crate::ScriptError;
use crate::api::{EngineError, Resource, ScriptFailure, ScriptOptions};
use crate::catalog::Container;
use crate::items::Place;
use crate::runtime::Shared;
use crate::runtime::locks::Protects;
use crate::transactions::Transaction;

use self::attempts::Allowance;
use self::contention::Contention;
use self::gate::Gate;
use self::host::ItemHost;
use self::offenders::Offenders;

const PLACES_PER_CORE: usize = 4;
const PLACES_MIN: usize = 8;
/// Of these, what one logical partition may take,
const PARTITION_SHARE: usize = 4;
/// and what queries of one container may, for the functions they call.
const CONTAINER_SHARE: usize = 2;

/// What all scripts of an engine share.
pub(crate) struct Scripting {
    scripts: Scripts,
    gate: Arc<Gate>,
    /// Of queries that call functions: one that runs in a script must not wait for another place of the same kind.
    function_gate: Arc<Gate>,
    contention: Contention,
    /// `None`: nobody is blocked.
    offenders: Option<Offenders>,
    figures: Figures,
    stopping: AtomicBool,
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
        let mut scripts = Scripts::isolated(options.limits, &options.isolation);
        scripts.set_spatial(Some(spatial::evaluate));
        Scripting {
            scripts,
            gate: Gate::new(places, (places / PARTITION_SHARE).max(2)),
            function_gate: Gate::new(places, places / CONTAINER_SHARE),
            contention: Contention::new(),
            offenders: options.block_offenders.then(Offenders::default),
            figures: Figures::default(),
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

    fn is_stopping(&self) -> bool {
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
            ("script_stuck", (self.gate.stuck() + self.function_gate.stuck()) as u64),
        ]
    }

    /// One run over a transaction; what it did is the caller's to commit.
    fn run(
        &self,
        source: &Source,
        run: &Run<'_>,
        transaction: &mut Transaction<'_>,
        key: &PartitionKey,
        allowance: &Allowance<'_>,
    ) -> Result<Outcome, EngineError> {
        self.figures.runs.fetch_add(1, Ordering::Relaxed);
        let mut host = ItemHost::new(transaction, key, allowance);
        let run = Run { time_used: allowance.used(), ..*run };
        let outcome = match self.scripts.is_isolated() {
            true => self.scripts.run(&run, &mut host),
            false => allowance.watched(&source.version, || self.scripts.run(&run, &mut host)),
        };
        let Failure { error, log } = match outcome {
            Ok(outcome) => return Ok(outcome),
            Err(failure) => failure,
        };
        match host.into_stopped() {
            // It was ended, and is no offender.
            _ if allowance.client.is_cancelled() => Err(EngineError::Cancelled),
            None => Err(self.failed(source, error, log)),
            // Only its own time cancels what it asked for.
            Some(EngineError::Cancelled) => Err(self.failed(source, ScriptError::TimedOut, log)),
            Some(reason) => Err(reason),
        }
    }

    fn check_blocked(&self, script: &Source) -> Result<(), EngineError> {
        if self.gate.is_stuck(&script.version) || self.function_gate.is_stuck(&script.version) {
            return Err(EngineError::ScriptStuck { id: script.id().to_owned() });
        }
        match &self.offenders {
            Some(offenders) if offenders.is_blocked(&script.version) => {
                Err(EngineError::ScriptBlocked { id: script.id().to_owned() })
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

/// A script, and what names exactly its text.
struct Source {
    resource: Arc<Resource>,
    version: Arc<str>,
}

impl Source {
    fn of(resource: Arc<Resource>) -> Source {
        let version = format!("{}{}", resource.rid, resource.etag).into();
        Source { resource, version }
    }

    fn id(&self) -> &str {
        &self.resource.id
    }

    fn script(&self) -> Script<'_> {
        let body = self.resource.body.get("body").and_then(Value::as_str).unwrap_or_default();
        Script { version: &self.version, body }
    }
}

/// What scripts are told about their container.
struct About {
    self_link: String,
    alt_link: String,
    usage: String,
    partition_key: String,
    planar: bool,
}

/// There is no quota; these are the figures that clients know.
const QUOTA: &str = "documentSize=10240;documentsSize=10485760;documentsCount=-1;collectionSize=10485760;";

impl About {
    fn of(container: &Container) -> About {
        let (items, bytes) = container.usage();
        let kilobytes = bytes.div_ceil(1024);
        About {
            self_link: container.resource.rid.self_link(),
            alt_link: format!("dbs/{}/colls/{}", container.database.id, container.resource.id),
            usage: format!(
                "documentSize=0;documentsSize={kilobytes};documentsCount={items};collectionSize={kilobytes};"
            ),
            partition_key: names_of(&container.definition.partition_key).to_json(),
            planar: container.definition.geospatial == GeospatialType::Geometry,
        }
    }

    fn collection(&self) -> Collection<'_> {
        let About { self_link, alt_link, usage, partition_key, planar } = self;
        Collection { self_link, alt_link, usage, quota: QUOTA, partition_key, planar: *planar }
    }
}

/// The paths of a partition key, each as a list of its names.
fn names_of(definition: &PartitionKeyDefinition) -> Value {
    let name = |segment: &Segment| match segment {
        Segment::Name(name) => Some(Value::from(name.as_str())),
        _ => None,
    };
    let paths = definition.paths.iter().map(|path| Value::Array(path.0.iter().filter_map(name).collect()));
    Value::Array(paths.collect())
}

/// Serves as a worker process of [`ScriptIsolation::Process`](crate::ScriptIsolation), on standard input and output.
pub fn serve_scripts() -> ExitCode {
    quire_script::serve(Some(spatial::evaluate))
}

/// A logical partition, as the gate knows it.
fn name_of(shared: &Shared, container: &Container, place: &Place<'_>) -> u64 {
    shared.locks.key(container.number, Protects::LogicalPartition(&place.epk.0))
}

fn header_pairs(headers: &[(String, String)]) -> Vec<(&str, &str)> {
    headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}
