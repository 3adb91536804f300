//! Query language: from SQL text to rows.
//!
//! `parse` → [`ast`] → `bind` → `bound` → `exec` → rows. Each stage is a pure function of the one before.
//! [`Query`] is the front door: compile once, then feed it items.
//! Not here: partitions, paging tokens, charges (see `quire-engine`).

mod access; // what an index can know of a query
pub mod ast; // what the user wrote, with spans
mod bind; // names, parameters, functions, and every rule that is checked before a run
mod bound; // a query with everything resolved
mod computed; // computed properties: what their queries may be
mod diagnostic; // the one table of error codes
mod environment; // time, randomness and allowance of a run
mod exec; // nested loops over stored items, in place: the oracle
mod expression; // one expression over named values, without a query around it
mod flatten; // ORDER BY through a subquery that only names parts of an item
mod fold; // constants, once at compile time
pub mod functions; // the one table of built-in functions
pub mod geo; // geometries: relations, measures, cells
mod lexer; // text to tokens
mod like; // LIKE patterns
mod memory; // one pool for all queries, a share for each
mod meter; // the one meter that all work spends from
mod parser; // recursive descent, one function per grammar rule
mod partition_keys; // which partition keys a filter leaves
mod plan; // what clients merge, and the text they send to every partition
mod print; // syntax back to text
mod projection; // what a view takes of an item
mod query; // the front door
mod ranking; // ORDER BY RANK: scores to ranks, ranks to an order
mod schema; // what of its container a query depends on
mod temp; // temporary files, for what does not fit into memory
pub mod text; // full-text analysis: text to terms
mod user_functions; // functions that the container brings

pub use self::access::{
    Analysis, CompositeIndex, Condition, FullTextCondition, FullTextTerm, IndexAggregate, IndexMetrics,
    Indexes, OrderKey, OrderPath, PathRange, RankComponent, RankSearch, Reads, ScoreOrder, SearchTerm,
    SearchedText, SingleIndex, SpatialCondition, SpatialRelation, TextCount, TextStatisticsSearch,
    ValueRange, VectorOrder,
};
pub use self::computed::{check_computed_properties, check_computed_property};
pub use self::diagnostic::Diagnostic;
pub use self::environment::Environment;
pub use self::exec::{Item, Record, Row, Sorted, Sorter, Steps, SystemProperties};
pub use self::expression::{Expression, ExpressionError, ReadStep};
pub use self::lexer::Span;
pub use self::memory::{MemoryPool, MemoryUse, QueryMemory, Reservation};
pub use self::meter::{Allowance, Meter, Watch};
pub use self::parser::parse;
pub use self::plan::{Distinct, DistinctCount, Feature, HybridSearch, QueryInfo, QueryPlan};
pub use self::projection::Projection;
pub use self::query::{Evaluator, Parameters, Query, Shape, Sink};
pub use self::ranking::{RankStatistics, fused_part, fused_scores};
pub use self::schema::Schema;
pub use self::temp::{QueryTemp, TempFile, TempSpace, TempUse};
pub use self::user_functions::{Spend, UserFunctions};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SqlError {
    /// Syntax or binding: all that were found.
    #[error("the query does not compile{}", first_message(.0))]
    Compile(Vec<Diagnostic>),
    /// Planner and run-time errors without a position, the service's `{"Errors":[...]}` form.
    #[error("{0}")]
    Refused(String),
    /// A row with NaN or an infinity.
    #[error(
        "The response content contains a numeric value that cannot be represented in JSON (e.g. Infinity and NaN)."
    )]
    NotRepresentable,
    /// A user-defined function ended with an error of its own.
    #[error("the user-defined function 'udf.{name}' failed: {message}")]
    UserFunction { name: String, message: String },
    /// Only where calls are foreseen: a call of a user-defined function has no value yet.
    #[error("a call of a user-defined function has no value yet")]
    CallPending,
    #[error("the query needs more than {what}")]
    Budget { what: &'static str },
    #[error("the query needs more memory than the {} that one query may use", mebibytes(*.bytes_max))]
    QueryMemory { bytes_max: usize },
    /// Others hold it: the same query may succeed later.
    #[error("the {} of memory that all queries may use together are in use; try again later", mebibytes(*.bytes_max))]
    ServerMemory { bytes_max: usize },
    #[error(
        "the query needs more than the {} of temporary space that all queries may use together (--query-temp-mb)",
        mebibytes(*.bytes_max as usize)
    )]
    QueryTempSpace { bytes_max: u64 },
    /// Others hold it: the same query may succeed later.
    #[error(
        "the {} of temporary space that all queries may use together (--query-temp-mb) are in use; try again later",
        mebibytes(*.bytes_max as usize)
    )]
    ServerTempSpace { bytes_max: u64 },
    #[error("the {files_max} temporary files that all queries may use together are in use; try again later")]
    TempFiles { files_max: usize },
    #[error("the disk has no space for the temporary files of the query")]
    TempDiskFull,
    #[error("the temporary files of the query could not be read or written: {message}")]
    TempIo { message: String },
    /// Nobody waits for the answer any more.
    #[error("the query was cancelled")]
    Cancelled,
}

impl SqlError {
    /// Memory or temporary files: a caller that can do with less of them may try another way.
    pub fn is_about_room(&self) -> bool {
        matches!(
            self,
            SqlError::QueryMemory { .. }
                | SqlError::ServerMemory { .. }
                | SqlError::QueryTempSpace { .. }
                | SqlError::ServerTempSpace { .. }
                | SqlError::TempFiles { .. }
                | SqlError::TempDiskFull
                | SqlError::TempIo { .. }
        )
    }
}

fn mebibytes(bytes: usize) -> String {
    if bytes < 1 << 20 { format!("{} KiB", bytes >> 10) } else { format!("{} MiB", bytes >> 20) }
}

fn first_message(diagnostics: &[Diagnostic]) -> String {
    diagnostics.first().map_or(String::new(), |first| format!(": {} {}", first.code, first.message))
}
