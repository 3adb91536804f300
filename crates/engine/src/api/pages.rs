//! Pages of items: lists and queries.

use bytes::Bytes;
use quire_resource::{EpkRange, PartitionKey, ResourceId, SessionToken};
use quire_sql::{IndexMetrics, Reservation};
use quire_value::Value;
use quire_value::hash::ValueHash;

use super::{Cancel, FollowRequest};

/// Which items a feed or query covers.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// Complete, or a hierarchical prefix.
    pub partition_key: Option<PartitionKey>,
    pub partition_id: Option<String>,
    pub range: Option<EpkRange>,
}

/// How a query is run whose scope is more than one partition key or partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Crossing {
    /// Run whole, whatever it needs.
    #[default]
    Whole,
    /// Run when its rows can be sent one after the other; rows that must be merged are merged by the client, by a plan.
    Streamed,
    /// Refused, unless its filter leaves one partition key.
    Refused,
}

/// Largest continuation handed out when nobody names a limit; over HTTP it comes back as a header.
pub const CONTINUATION_BYTES_MAX: usize = 16 << 10;

#[derive(Clone)]
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
    /// Rows are items and get what follows from them as a last member.
    pub follow: Option<FollowRequest>,
    /// False: the client may not read other containers.
    pub may_follow: bool,
    /// Comes before the rows in [`Page::rows`]: how the text begins that the caller makes of a page. So that need not be copied.
    pub head: Bytes,
    pub cancel: Cancel,
}

/// The first page of everything, as a program that embeds the engine asks for it.
impl Default for PageRequest {
    fn default() -> PageRequest {
        PageRequest::cancelled_by(Cancel::default())
    }
}

impl PageRequest {
    /// The same that ends when it is cancelled.
    pub fn cancelled_by(cancel: Cancel) -> PageRequest {
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
            follow: None,
            may_follow: true,
            head: Bytes::new(),
            cancel,
        }
    }
}

/// A position in the order of a query, named by a client that merges the rows of several partitions.
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

/// One page of rows, each row JSON text already written into one buffer.
pub struct Page {
    /// `[row,row,...]` JSON array text, behind the [head](PageRequest::head) of the request.
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
    /// Items of other containers that the rows have.
    pub followed: u64,
    /// What the rows hold of the memory for queries, until they are somebody else's to count.
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
