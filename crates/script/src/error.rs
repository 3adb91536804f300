//! Errors of a run.

/// Position in a script's text; lines and columns from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub line: u32,
    pub column: u32,
}

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ScriptError {
    /// The text is not a script. Detected when it is run, not when it is stored.
    #[error("Encountered exception while compiling Javascript. Exception = {message}")]
    Compile { message: String, position: Option<Position> },
    #[error("script of {length} bytes is longer than {length_max}")]
    TooLong { length: usize, length_max: usize },
    /// Parameters that are not a JSON array, or too many.
    #[error("the parameters of a stored procedure must be a JSON array of at most {count_max} elements")]
    Parameters { count_max: usize },
    /// Thrown and not caught, or passed to `abort`. `number`: the first argument of `Error(number, message)`.
    #[error("Encountered exception while executing function. Exception = {message}\r\nStack trace: {stack}")]
    Thrown { number: Option<i64>, message: String, stack: String },
    #[error("The requested operation exceeded maximum alloted time.")]
    TimedOut,
    #[error("the script exceeded its memory limit of {limit_bytes} bytes")]
    OutOfMemory { limit_bytes: usize },
    /// A function returned a value without JSON form.
    #[error("the user-defined function returned {what}, which is not a JSON value")]
    Result { what: &'static str },
    /// The host answered [`Reply::Stop`](crate::Reply) and keeps the reason.
    #[error("the host stopped the script")]
    Stopped,
    /// Not caused by the script.
    #[error("the script engine failed: {message}")]
    Engine { message: String },
}

impl ScriptError {
    /// Whether the runtime can be used again.
    pub(crate) fn leaves_runtime_usable(&self) -> bool {
        !matches!(self, ScriptError::TimedOut | ScriptError::OutOfMemory { .. } | ScriptError::Engine { .. })
    }
}
