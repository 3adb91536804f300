//! Server-side scripts: stored procedures, triggers, user-defined functions.
//!
//! `quire-script` runs JavaScript and knows nothing of items; here it is given what it reaches them through. A procedure,
//! or a write with its triggers, runs in one transaction over one logical partition: first on a snapshot without locks,
//! twice, and if others changed the partition both times, holding it (see `attempts`). All tries share one time limit.
//!
//! Invariants: nothing that a script did is visible unless all of it is; what a run that failed did is never committed; a
//! script waits for its place before it holds any lock.

mod attempts; // a transaction, tried until it commits
mod host; // what a script asks of the database
pub(crate) mod procedures; // stored procedures
pub(crate) mod system; // procedures that every container has
mod triggers; // writes with triggers

pub use system::is_system_procedure;
pub(crate) use triggers::write_item;

use std::sync::atomic::Ordering;

use quire_resource::{GeospatialType, PartitionKey, PartitionKeyDefinition};
use quire_script::{Collection, Failure, Outcome, ScriptRun};
use quire_value::{Segment, Value};

use self::attempts::ScriptAllowance;
use self::host::ItemHost;
use crate::api::{EngineError, ScriptError};
use crate::catalog::{Container, RoutedKey};
use crate::runtime::Shared;
use crate::runtime::locks::LockKind;
use crate::runtime::scripting::{ScriptSource, Scripting};
use crate::transactions::Transaction;

/// One run over a transaction; what it did is the caller's to commit.
fn run(
    scripting: &Scripting,
    source: &ScriptSource,
    run: &ScriptRun<'_>,
    transaction: &mut Transaction<'_>,
    key: &PartitionKey,
    allowance: &ScriptAllowance<'_>,
) -> Result<Outcome, EngineError> {
    scripting.figures.runs.fetch_add(1, Ordering::Relaxed);
    let mut host = ItemHost::new(transaction, key, allowance);
    let run = ScriptRun { time_used: allowance.used(), ..*run };
    let outcome = match scripting.scripts.is_isolated() {
        true => scripting.scripts.run(&run, &mut host),
        false => allowance.watched(&source.version, || scripting.scripts.run(&run, &mut host)),
    };
    let Failure { error, log } = match outcome {
        Ok(outcome) => return Ok(outcome),
        Err(failure) => failure,
    };
    match host.into_stopped() {
        // It was ended, and is no offender.
        _ if allowance.client.is_cancelled() => Err(EngineError::Cancelled),
        None => Err(scripting.failed(source, error, log)),
        // Only its own time limit cancels its requests.
        Some(EngineError::Cancelled) => Err(scripting.failed(source, ScriptError::TimedOut, log)),
        Some(reason) => Err(reason),
    }
}

/// What scripts can read about their container.
struct ContainerInfo {
    self_link: String,
    alt_link: String,
    usage: String,
    partition_key: String,
    planar: bool,
}

/// There is no quota; these are the figures that clients know.
const QUOTA: &str = "documentSize=10240;documentsSize=10485760;documentsCount=-1;collectionSize=10485760;";

impl ContainerInfo {
    fn of(container: &Container) -> ContainerInfo {
        let (items, bytes) = container.usage();
        let kilobytes = bytes.div_ceil(1024);
        ContainerInfo {
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
        let ContainerInfo { self_link, alt_link, usage, partition_key, planar } = self;
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

/// The name of a logical partition in the gate.
fn name_of(shared: &Shared, container: &Container, place: &RoutedKey<'_>) -> u64 {
    shared.locks.key(container.number, LockKind::LogicalPartition(&place.epk.0))
}

fn header_pairs(headers: &[(String, String)]) -> Vec<(&str, &str)> {
    headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}
