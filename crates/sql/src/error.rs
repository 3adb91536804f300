//! Errors of queries.

use crate::syntax::diagnostic::Diagnostic;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SqlError {
    /// Syntax or binding errors, all that were found.
    #[error("the query does not compile{}", first_message(.0))]
    Compile(Vec<Diagnostic>),
    /// Planner and run-time errors without a position, in the service's form `{"Errors":[...]}`.
    #[error("{0}")]
    Refused(String),
    /// A row contains NaN or an infinity.
    #[error(
        "The response content contains a numeric value that cannot be represented in JSON (e.g. Infinity and NaN)."
    )]
    NotRepresentable,
    /// A user-defined function failed.
    #[error("the user-defined function 'udf.{name}' failed: {message}")]
    UserFunction { name: String, message: String },
    /// Only while calls are collected: a user-defined function was not called yet, or an item of another container not read.
    #[error("a call has no value yet")]
    CallPending,
    /// Rows that are not items cannot get what follows from them.
    #[error(
        "links can be followed from rows that are whole items: SELECT * or SELECT VALUE with the alias of the container"
    )]
    FollowNeedsItems,
    /// Items of other containers could not be read; the links know why.
    #[error("links could not be followed: {message}")]
    FollowFailed { message: String },
    #[error("the query needs more than {what}")]
    Budget { what: &'static str },
    #[error("the query needs more memory than the {} that one query may use", mebibytes(*.bytes_max))]
    QueryMemory { bytes_max: usize },
    /// Other queries hold it: the same query may succeed later.
    #[error("the {} of memory that all queries may use together are in use; try again later", mebibytes(*.bytes_max))]
    ServerMemory { bytes_max: usize },
    #[error(
        "the query needs more than the {} of temporary space that all queries may use together (--query-temp-mb)",
        mebibytes(*.bytes_max as usize)
    )]
    QueryTempSpace { bytes_max: u64 },
    /// Other queries hold it: the same query may succeed later.
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
    /// The client no longer waits for the answer, or the time limit is over.
    #[error("the query was cancelled")]
    Cancelled,
}

impl SqlError {
    /// Too little memory or temporary space: a caller may retry in a way that needs less.
    pub fn is_out_of_space(&self) -> bool {
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
