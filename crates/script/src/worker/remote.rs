//! User-defined functions in a worker process, on the side of the server.
//!
//! A page has one worker from its first call on, so that its functions are loaded once; the worker is returned when
//! the page ends. A worker that reached a limit, failed or exceeded its deadline is dropped, and the next call takes
//! another.

use std::sync::Arc;
use std::time::Instant;

use crate::functions::{CallResult, FunctionCall};
use crate::worker::pool::{GRACE, KillWhen, Worker, Workers};
use crate::worker::process::CALLS_TIME;
use crate::{Caller, Limits, Script, ScriptError};

/// Maximum calls of one message.
const CALLS_MAX: usize = 1024;
const CALLS_BYTES_MAX: usize = 1 << 20;

pub(crate) struct RemoteFunctions {
    workers: Arc<Workers>,
    scripts: Vec<FunctionText>,
    limits: Limits,
    caller: Caller,
    /// The worker in which the functions are loaded.
    worker: Option<Worker>,
}

pub(crate) struct FunctionText {
    version: String,
    body: String,
}

impl FunctionText {
    pub(crate) fn script(&self) -> Script<'_> {
        Script { version: &self.version, body: &self.body }
    }
}

impl RemoteFunctions {
    pub(crate) fn new(
        workers: Arc<Workers>,
        scripts: &[Script<'_>],
        limits: Limits,
        caller: Caller,
    ) -> RemoteFunctions {
        let owned = |script: &Script<'_>| FunctionText {
            version: script.version.to_owned(),
            body: script.body.to_owned(),
        };
        let scripts = scripts.iter().map(owned).collect();
        RemoteFunctions { workers, scripts, limits, caller, worker: None }
    }

    pub(crate) fn call(&mut self, call: &FunctionCall) -> CallResult {
        self.call_together(std::slice::from_ref(call))?.pop().unwrap_or_else(|| Err(no_value()))
    }

    pub(crate) fn call_together(&mut self, calls: &[FunctionCall]) -> Result<Vec<CallResult>, ScriptError> {
        let calls = &calls[..fitting(calls)];
        let is_loaded = self.worker.is_some();
        let mut worker = match self.worker.take() {
            Some(worker) => worker,
            None => self.workers.take()?,
        };
        // A correct worker answers in this time; it may compile first.
        let deadline = Instant::now() + self.limits.function_time + CALLS_TIME + GRACE;
        let load = (!is_loaded).then_some((&self.limits, &self.scripts[..]));
        let watch = KillWhen { deadline, is_function: true, caller: self.caller.clone() };
        let values = self.workers.run_watched(&mut worker, watch, |worker| worker.call(load, calls))??;
        if values.is_empty() || values.len() > calls.len() {
            return Err(no_value());
        }
        if values.iter().all(|value| value.as_ref().err().is_none_or(ScriptError::leaves_runtime_usable)) {
            self.worker = Some(worker);
        }
        Ok(values)
    }
}

/// How many of the calls fit into one message; at least one.
fn fitting(calls: &[FunctionCall]) -> usize {
    let mut bytes = 0;
    let fits = |call: &&FunctionCall| {
        bytes += call.size_bytes();
        bytes <= CALLS_BYTES_MAX
    };
    calls.iter().take(CALLS_MAX).take_while(fits).count().clamp(1, calls.len().max(1)).min(calls.len())
}

impl Drop for RemoteFunctions {
    fn drop(&mut self) {
        if let Some(mut worker) = self.worker.take()
            && worker.release().is_ok()
        {
            self.workers.return_to_pool(worker);
        }
    }
}

fn no_value() -> ScriptError {
    ScriptError::Engine { message: "the worker process answered with too few or too many values".to_owned() }
}
