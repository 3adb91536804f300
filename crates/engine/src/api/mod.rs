//! What callers see of the engine besides [`Engine`](crate::engine::Engine): requests, answers, errors, charges.

mod cancel; // ending work that nobody waits for
pub(crate) mod charge; // what requests cost
mod error; // everything that can go wrong
mod feed; // reading the change feed
mod items; // single items
mod model; // models of databases
mod options; // what an engine is opened with
mod pages; // pages of items: lists and queries
mod plan; // plans for clients that merge partitions themselves
mod resource; // catalog resources as clients see them
mod scripts; // runs of stored procedures

pub use cancel::Cancel;
pub use error::EngineError;
pub(crate) use error::corrupt;
pub use feed::{Changes, ChangesRequest, FeedMode, FeedStart};
pub use items::{
    Answer, IndexingDirective, ItemRead, ItemWritten, PartitionInfo, Position, ReadItem, WriteItem, WriteKind,
};
pub use model::{ModelCondition, ModelResource, ModelWritten};
<<<<<<< HEAD

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
    pub block_offenders: bool,
    /// Procedures and writes with triggers that run at once; `None`: four per core, at least eight.
    pub running_max: Option<usize>,
}

/// A catalog resource: database, container, script, user, permission, client encryption key or offer.
#[derive(Debug)]
pub struct Resource {
    pub rid: ResourceId,
    pub id: String,
    /// What the client defined, normalised; no system properties.
    pub body: Object,
    pub etag: String, // with its quotes
    pub ts: i64,      // seconds
}

/// What kind of script a resource is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScriptKind {
    StoredProcedure,
    Trigger,
    UserDefinedFunction,
}

/// One partition as clients see it.
#[derive(Clone, Debug)]
pub struct PartitionInfo {
    pub id: String,
    pub rid: ResourceId,
    pub range: EpkRange,
    pub parents: Vec<String>,
    pub lsn: u64,
    pub item_count: u64,
    pub size_bytes: u64,
}

/// Where the serving partition stands, for session token, lsn headers and the range id header.
#[derive(Clone, Debug)]
pub struct Position {
    pub partition_id: String,
    pub session_version: i64,
    pub lsn: u64,
}

/// Every item operation says what it cost and where the partition stands, also when it failed.
pub struct Answer<T> {
    pub charge: f64,
    pub position: Option<Position>,
    pub result: Result<T, EngineError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexingDirective {
    Default,
    Include,
    Exclude,
}

#[derive(Clone)]
pub enum WriteKind {
    Create,
    Upsert,
    Replace {
        id: String,
    },
    Delete {
        id: String,
    },
    /// The body is a patch. A matching `If-None-Match` refuses it; on other writes the header has no meaning.
    Patch {
        id: String,
        if_none_match: Option<String>,
    },
}

#[derive(Clone)]
pub struct WriteItem {
    pub kind: WriteKind,
    /// Header value; `None` lets create, upsert and replace take it from the body.
    pub partition_key: Option<PartitionKey>,
    /// JSON text; empty for delete.
    pub body: Bytes,
    pub if_match: Option<String>,
    pub indexing: IndexingDirective,
    /// Build the response body (false under `Prefer: return=minimal`).
    pub want_body: bool,
    /// Trigger to run before the write, by id or rid.
    pub pre_trigger: Option<String>,
    /// Trigger to run after it, in the same transaction.
    pub post_trigger: Option<String>,
    /// Headers of the request that triggers may read.
    pub trigger_headers: Vec<(String, String)>,
    /// Of triggers: a write alone is done by the time that anybody could ask.
    pub cancel: Cancel,
}

pub struct ItemWritten {
    pub created: bool,
    /// The item with system properties; empty for delete or when not wanted.
    pub body: Bytes,
    pub etag: String,
    pub item_lsn: u64,
}

pub struct ReadItem<'a> {
    pub id: &'a str,
    pub partition_key: &'a PartitionKey,
    pub if_none_match: Option<&'a str>,
    pub session: Option<&'a SessionToken>,
}

pub enum ItemRead {
    Found { body: Bytes, etag: Arc<str>, item_lsn: u64 },
    NotModified { etag: Arc<str>, item_lsn: u64 },
}

/// One run of a stored procedure, in one logical partition.
pub struct ExecuteProcedure {
    /// Id or rid of the procedure.
    pub id: String,
    pub partition_key: PartitionKey,
    /// JSON text; empty for no parameters.
    pub parameters: Bytes,
    /// Whether `console.log` writes.
    pub logging: bool,
    pub session: Option<SessionToken>,
    /// Headers of the request that the script may read.
    pub headers: Vec<(String, String)>,
    /// What there is to spend: from there on the procedure is asked to finish, its operations are not accepted.
    pub charge_max: Option<f64>,
    pub cancel: Cancel,
}

/// One run of a procedure that every container has.
pub struct ExecuteSystemProcedure {
    pub id: String,
    pub address: SystemAddress,
    /// JSON text: a list.
    pub parameters: Bytes,
    pub session: Option<SessionToken>,
    pub cancel: Cancel,
}

/// What such a procedure works on.
#[derive(Clone, Debug)]
pub enum SystemAddress {
    PartitionKey(PartitionKey),
    /// The id of a partition.
    Partition(String),
}

#[derive(Debug)]
pub struct ProcedureDone {
    /// JSON text.
    pub body: String,
    /// Plain text; `None` without logging.
    pub log: Option<String>,
}

/// A script that failed, and with it all that it did.
#[derive(Debug)]
pub struct ScriptFailure {
    pub error: ScriptError,
    /// What it logged until then; `None` without logging.
    pub log: Option<String>,
}

/// Which items a feed or query covers.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// Complete, or a hierarchical prefix.
    pub partition_key: Option<PartitionKey>,
    pub partition_id: Option<String>,
    pub range: Option<EpkRange>,
}

/// What becomes of a query whose scope is more than one partition key or partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Crossing {
    /// Run whole, whatever it needs.
    #[default]
    Whole,
    /// Run when its rows can be told one after the other; what must be merged is the client's to merge, by a plan.
    Streamed,
    /// Refused, unless its filter leaves one partition key.
    Refused,
}

/// Largest continuation handed out when nobody names a limit; over HTTP it comes back as a header.
pub const CONTINUATION_BYTES_MAX: usize = 16 << 10;

pub struct PageRequest {
    pub scope: Scope,
    pub crossing: Crossing,
    /// `None`: the service's 1000; `Some(-1)`: as many as fit.
    pub item_count_max: Option<i64>,
    pub continuation: Option<String>,
    pub continuation_bytes_max: usize,
    /// Where the rows of a query with ORDER BY begin; of this and the continuation the later one counts.
    pub resume: Option<ResumeFilter>,
    pub session: Option<SessionToken>,
    /// False: every item of the scope is read, as if there were no index. The rows and their order stay the same.
    pub index_use: bool,
    /// An index is used wherever one can be, however little it saves: for tests with few items.
    pub index_preferred: bool,
    /// Says in [`Page::explain`] how the page was made.
    pub explain: bool,
    /// Says in [`Page::index_metrics`] which indexes serve the query and which would.
    pub index_metrics: bool,
    pub cancel: Cancel,
}

/// The first page of everything, as a program that embeds the engine asks for it.
impl Default for PageRequest {
    fn default() -> PageRequest {
        PageRequest {
            scope: Scope::default(),
            crossing: Crossing::default(),
            item_count_max: None,
            continuation: None,
            continuation_bytes_max: CONTINUATION_BYTES_MAX,
            resume: None,
            session: None,
            index_use: true,
            index_preferred: false,
            explain: false,
            index_metrics: false,
            cancel: Cancel::default(),
        }
    }
}

/// A place in the order of a query, as a client that merges the rows of several partitions names it.
#[derive(Clone, Debug, PartialEq)]
pub struct ResumeFilter {
    /// One for each column of ORDER BY.
    pub values: Vec<ResumeValue>,
    /// `None`: before all rows with these values, or behind them.
    pub rid: Option<ResourceId>,
    /// Rows of that item, or with these values, are left out.
    pub exclude: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ResumeValue {
    /// A scalar or `undefined`.
    Scalar(Value),
    Array(ValueHash),
    Object(ValueHash),
}

/// Where a reading of the change feed begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeedStart {
    Beginning,
    Now,
    /// Behind what an earlier answer told: its [`Changes::etag`].
    After(String),
}

/// What a reading of the change feed tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FeedMode {
    /// Every visible item once, as it is.
    #[default]
    Latest,
    /// Every version and delete, as long as the container's policy keeps them.
    AllVersions,
}

pub struct ChangesRequest {
    pub mode: FeedMode,
    /// Scope, size, session; its continuation is not looked at.
    pub page: PageRequest,
    pub start: FeedStart,
    /// Only changes of this second or later.
    pub since: Option<i64>,
    /// All versions come with the one before them. Else only deletes by clients do.
    pub all_previous_images: bool,
}

/// One page of the change feed.
pub struct Changes {
    /// `[item,item,...]`, each with its `_lsn`, or `[change,change,...]` in the mode with all versions.
    pub rows: Vec<u8>,
    pub count: usize,
    /// The position behind this page, with quotes.
    pub etag: String,
    /// There is more to tell right now.
    pub more: bool,
}

/// Tells work that nobody waits for it any more: it ends with [`EngineError::Cancelled`] soon after, and nothing that it was
/// to do as a whole is done.
#[derive(Clone, Default)]
pub struct Cancel {
    cancelled: Arc<AtomicBool>,
    ask: Option<Arc<Question>>,
    deadline: Option<Instant>,
}

/// Whether nobody waits any more: asked now and then, because it may be a system call.
struct Question {
    is_gone: Box<dyn Fn() -> bool + Send + Sync>,
    began: Instant,
    /// When to ask again, in microseconds since it began.
    ask_at_micros: AtomicU64,
}

impl Cancel {
    /// Between two questions.
    pub(crate) const ASK_INTERVAL: Duration = Duration::from_millis(20);

    /// Also asks, on the thread that works and now and then, whether nobody waits any more.
    pub fn asking(is_gone: impl Fn() -> bool + Send + Sync + 'static) -> Cancel {
        let is_gone = Box::new(is_gone);
        let question = Question { is_gone, began: Instant::now(), ask_at_micros: AtomicU64::new(0) };
        Cancel { ask: Some(Arc::new(question)), ..Cancel::default() }
    }

    /// A part of this work, which also ends when its time comes.
    pub(crate) fn until(&self, deadline: Instant) -> Cancel {
        let whole = self.clone();
        let part = Cancel::asking(move || whole.look());
        Cancel { deadline: Some(deadline), ..part }
    }

    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Whether to end; asks when it is time to.
    pub(crate) fn look(&self) -> bool {
        let is_over = || self.deadline.is_some_and(|at| Instant::now() >= at);
        if !self.is_cancelled() && (self.ask.as_ref().is_some_and(|ask| ask.is_gone()) || is_over()) {
            self.cancel();
        }
        self.is_cancelled()
    }

    /// The same for work that ends with an error.
    pub(crate) fn check(&self) -> Result<(), EngineError> {
        if self.look() { Err(EngineError::Cancelled) } else { Ok(()) }
    }
}

impl Question {
    fn is_gone(&self) -> bool {
        let micros = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        if micros < self.ask_at_micros.load(Ordering::Relaxed) {
            return false;
        }
        let next = micros.saturating_add(Cancel::ASK_INTERVAL.as_micros() as u64);
        self.ask_at_micros.store(next, Ordering::Relaxed);
        (self.is_gone)()
    }
}

/// One page of rows, each row JSON text already written into one buffer.
pub struct Page {
    /// `[row,row,...]` JSON array text.
    pub rows: Vec<u8>,
    pub count: usize,
    pub continuation: Option<String>,
    /// The range of the partition in which the next page begins, or that of the last one.
    pub range: Option<EpkRange>,
    /// Items that ORDER BY takes for equal come by falling `_rid`.
    pub ties_descending: bool,
    pub metrics: QueryMetrics,
    /// The plan as text, with estimated and actual rows, when the request asked for it.
    pub explain: Option<String>,
    pub index_metrics: Option<IndexMetrics>,
    /// What the rows hold of the memory for queries, for as long as they are there.
    pub memory: Option<Reservation>,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct QueryMetrics {
    /// Items read, and their bytes.
    pub loaded_count: u64,
    pub loaded_bytes: u64,
    pub output_count: u64,
    pub output_bytes: u64,
    pub compile_micros: u64,
    pub execute_micros: u64,
    /// Choosing how to find the items.
    pub plan_micros: u64,
    /// Rows of indexes that were read.
    pub index_rows: u64,
    pub index_micros: u64,
    pub load_micros: u64,
    pub write_micros: u64,
    /// The share of the items read that gave rows; 1 when none had to be read.
    pub index_hit_ratio: f64,
}

/// Conditions on a catalog write.
#[derive(Clone, Debug, Default)]
pub struct Precondition {
    pub if_match: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Migrate {
    ToAutoscale,
    ToManual,
}
=======
pub use options::{Clock, Options, QueryMemoryLimits, ScriptOptions};
pub use pages::{
    CONTINUATION_BYTES_MAX, Crossing, Page, PageRequest, QueryMetrics, ResumeFilter, ResumeValue, Scope,
};
pub use plan::{PlannedQuery, QueryRange};
pub use resource::{Migrate, Precondition, Resource, ScriptKind};
pub use scripts::{ExecuteProcedure, ExecuteSystemProcedure, ProcedureDone, ScriptFailure, SystemAddress};
// Parts of `EngineError` and of requests that callers must name.
pub use quire_model::{Difference, ModelError, ModelInvalid, Warning};
pub use quire_script::{
    Isolation as ScriptIsolation, Limits as ScriptLimits, Position as ScriptPosition, ScriptError,
};
pub use quire_sql::ast::Direction;
pub use quire_sql::functions::Aggregate;
pub use quire_sql::{
    Diagnostic, Distinct, Feature, HybridSearch, IndexMetrics, Parameters, QueryInfo, QueryPlan, Reservation,
    SqlError, TempSpace,
};
pub use quire_storage::StorageError;
>>>>>>> 53853a7 (engine: rooms depend in one direction, and tidy checks it)
