//! Query language: from SQL text to rows.
//!
//! `syntax` → `bind` → `exec` → rows; `analyse` and `plan` say what an index and what a client can know of a query. Each stage
//! is a pure function of the one before. [`Query`] is the front door: compile once, then feed it items.
//! Not here: partitions, paging tokens, charges (see `quire-engine`).
//!
//! Rooms, in the order of dependency: a room uses itself and what stands before it, nothing else.
//!
//! | room        | what it is                                                                  |
//! |-------------|-----------------------------------------------------------------------------|
//! | `syntax`    | text to syntax and back: lexer, ast, parser, print, diagnostic              |
//! | `error`     | how a query can fail                                                        |
//! | `limits`    | what a query may use: steps, memory, temporary files                        |
//! | `text`      | full-text analysis: text to terms; LIKE patterns                            |
//! | `geo`       | geometries: relations, measures, cells                                      |
//! | `data`      | what a run works on, in place: items, values, rows                          |
//! | `functions` | the one table of built-in functions                                         |
//! | `bind`      | names, parameters, functions, and every rule that is checked before a run   |
//! | `exec`      | nested loops over stored items, in place: the oracle                        |
//! | `query`     | the front door: compile, run                                                |
//! | `analyse`   | what an index can know of a query                                           |
//! | `plan`      | what clients merge, and the text they send to every partition               |

mod analyse;
mod bind;
mod data;
mod error;
mod exec;
pub mod functions;
pub mod geo;
mod limits;
mod plan;
mod query;
mod syntax;
pub mod text;

pub use self::analyse::{
    Analysis, CompositeIndex, Condition, FullTextCondition, FullTextTerm, IndexAggregate, IndexMetrics,
    Indexes, OrderKey, OrderPath, PathRange, Projection, RankComponent, RankSearch, Reads, ScoreOrder,
    SearchTerm, SearchedText, SingleIndex, SpatialCondition, SpatialRelation, TextCount,
    TextStatisticsSearch, ValueRange, VectorOrder,
};
pub use self::bind::{Parameters, Schema, check_computed_properties, check_computed_property};
pub use self::data::{Item, Row, SystemProperties};
pub use self::error::SqlError;
pub use self::exec::{Environment, RankStatistics, Record, Sorted, Sorter, Steps, fused_part, fused_scores};
pub use self::functions::UserFunctions;
pub use self::limits::{
    Allowance, MemoryPool, MemoryUse, Meter, QueryMemory, QueryTemp, Reservation, Spend, TempFile, TempSpace,
    TempUse, Watch,
};
pub use self::plan::{Distinct, DistinctCount, Feature, HybridSearch, QueryInfo, QueryPlan};
pub use self::query::{Evaluator, Expression, ExpressionError, Query, ReadStep, Shape, Sink};
pub use self::syntax::ast;
pub use self::syntax::diagnostic::Diagnostic;
pub use self::syntax::lexer::Span;
pub use self::syntax::parser::parse;
