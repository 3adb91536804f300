//! Query language: from SQL text to rows.
//!
//! `syntax` → `bind` → `exec` → rows. `analyse` derives what an index can serve, `plan` what a client must merge.
//! Each stage is a pure function of the one before. Start with [`Query`]: compile once, then run over items. Not
//! here: partitions, paging tokens, charges (see `quire-engine`).
//!
//! Modules in the order of dependency: each uses only itself and modules before it (checked by `cargo xtask tidy`).
//!
//! | module      | purpose                                                              |
//! |-------------|----------------------------------------------------------------------|
//! | `syntax`    | text to syntax tree and back: lexer, ast, parser, print, diagnostic  |
//! | `error`     | errors of queries                                                    |
//! | `limits`    | limits of a query: steps, memory, temporary files                    |
//! | `text`      | full-text analysis; LIKE patterns                                    |
//! | `geo`       | geometries: relations, distance, area, index cells                   |
//! | `data`      | items, values and rows in place                                      |
//! | `functions` | the table of built-in functions                                      |
//! | `bind`      | names, parameters, functions, and all checks before a run            |
//! | `exec`      | the executor: nested loops over stored items                         |
//! | `query`     | compiled queries: compile, run, evaluate per item                    |
//! | `analyse`   | conditions, order and paths that an index can serve; partition keys  |
//! | `prepared`  | queries that are compiled once, for any values of their parameters    |
//! | `plan`      | query plans for clients: what they merge, and rewritten queries      |

mod analyse;
mod bind;
mod data;
mod error;
mod exec;
pub mod functions;
pub mod geo;
mod limits;
mod plan;
mod prepared;
mod query;
mod syntax;
pub mod text;

pub use self::analyse::{
    Analysis, CompositeIndex, ComputedRange, Condition, FullTextCondition, FullTextTerm, IndexAggregate,
    IndexMetrics, Indexes, OrderKey, OrderPath, PathRange, Projection, RankComponent, RankSearch, Reads,
    ScoreOrder, SearchTerm, SearchedText, SingleIndex, SpatialCondition, SpatialRelation, TextCount,
    TextStatisticsSearch, ValueRange, VectorOrder,
};
pub use self::bind::{Parameters, Schema, check_computed_properties, check_computed_property};
pub use self::data::{Item, LinkedItem, Row, SystemProperties};
pub use self::error::SqlError;
pub use self::exec::{
    Environment, RankStatistics, SortRecord, SortedRecords, Sorter, StepLimit, fused_scores,
    rank_contribution,
};
pub use self::functions::{
    Externals, FOLLOWED_MEMBER, FollowCall, LinkDirection, LinkShape, LinkStep, Links, UserFunctions,
};
pub use self::limits::{
    Allowance, Cancellation, MemoryPool, MemoryUse, Meter, QueryMemory, QueryTemp, Reservation, Spend,
    TempFile, TempSpace, TempUse, ThreadWatch, WriteMeter,
};
pub use self::plan::{Distinct, DistinctCount, Feature, HybridSearch, QueryInfo, QueryPlan};
pub use self::prepared::{PreparedQuery, Unprepared};
pub use self::query::{
    Evaluator, Expression, ExpressionError, ItemSink, Query, QueryShape, ReadStep, Syntax,
};
pub use self::syntax::ast;
pub use self::syntax::diagnostic::Diagnostic;
pub use self::syntax::lexer::Span;
pub use self::syntax::parser::parse;
