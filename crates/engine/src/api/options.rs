//! What an engine is opened with.

use std::sync::Arc;

use quire_script::{Isolation as ScriptIsolation, Limits as ScriptLimits};
use quire_sql::TempSpace;

/// Time and chance come in from outside.
pub trait Clock: Send + Sync {
    /// Milliseconds since the epoch.
    fn now_ms(&self) -> i64;
}

pub struct Options {
    pub clock: Arc<dyn Clock>,
    /// Partitions of a new container when its throughput does not ask for more.
    pub partitions: u32,
    pub cache_bytes: usize,
    pub scripts: ScriptOptions,
    pub query_memory: QueryMemoryLimits,
    /// Where queries put what does not fit into their memory; without, they are refused.
    pub query_temp: Option<Arc<TempSpace>>,
}

/// Memory of queries: values that expressions build, groups, rows to sort, pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryMemoryLimits {
    /// Of all queries together; what needs more is refused until others have ended.
    pub total_bytes: usize,
    /// Of one query.
    pub query_bytes: usize,
}

impl Default for QueryMemoryLimits {
    fn default() -> QueryMemoryLimits {
        QueryMemoryLimits { total_bytes: 1 << 30, query_bytes: 128 << 20 }
    }
}

/// How server-side scripts run.
#[derive(Clone, Debug, Default)]
pub struct ScriptOptions {
    pub limits: ScriptLimits,
    /// Whether procedures and triggers run in this process or in others.
    pub isolation: ScriptIsolation,
    /// A script that exceeds its time again and again is refused until it is replaced.
    pub block_slow_scripts: bool,
    /// Procedures and writes with triggers that run at once; `None`: four per core, at least eight.
    pub running_max: Option<usize>,
}
