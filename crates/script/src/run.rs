//! A run of a procedure or trigger, from its parameters to its response body.
//!
//! The script runs in turns: its entry function, then one callback after another. Between turns the ready promise
//! jobs run, and the host serves the oldest waiting operation. The run ends when nothing waits.

use std::borrow::Borrow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use rquickjs::function::Args;
use rquickjs::{Ctx, Object, Value};

use crate::functions::{Functions, LoadedFunctions};
use crate::host::{OPERATIONS_BYTES_MAX, OPERATIONS_MAX};
use crate::runtime::compile::{Compiled, Entry, Form, Report, error_of};
use crate::runtime::realm::{ApiFunction, Realm, RunRealm, TurnError};
use crate::runtime::sandbox::{Pool, Sandbox};
use crate::runtime::versions::Versions;
use crate::worker::pool::{Program, Workers};
use crate::worker::remote::RemoteFunctions;
use crate::{
    Answer, Caller, Host, IndexAction, Isolation, ItemLink, Limits, Operation, Reply, Request, ScriptError,
    Spatial,
};

/// Idle runtimes kept for the next runs.
const IDLE_RUNTIME_COUNT_MAX: usize = 64;
/// The memory in use is checked after this many bytes of answers.
const MEMORY_CHECK_BYTES: usize = 1 << 20;

/// Runs scripts with the same limits. Shared by all threads.
pub struct Scripts {
    limits: Limits,
    pool: Arc<Pool>,
    versions: Versions,
    workers: Option<Arc<Workers>>,
    spatial: Option<Spatial>,
}

/// `version` identifies the text: the script's ETag with its identity in the account.
#[derive(Clone, Copy, Debug)]
pub struct Script<'a> {
    pub version: &'a str,
    pub body: &'a str,
}

#[derive(Clone, Copy, Debug)]
pub struct ScriptRun<'a> {
    pub script: Script<'a>,
    pub call: Call<'a>,
    pub collection: Collection<'a>,
    /// Headers of the client's request that the script may read.
    pub headers: &'a [(&'a str, &'a str)],
    /// Whether `console.log` writes.
    pub logging: bool,
    /// Time used by earlier runs for the same request; this run has the remaining time.
    pub time_used: Duration,
}

/// Bodies are JSON text.
#[derive(Clone, Copy, Debug)]
pub enum Call<'a> {
    Procedure { parameters: &'a str },
    PreTrigger { operation: TriggerOperation, body: Option<&'a str> },
    PostTrigger { operation: TriggerOperation, request_body: Option<&'a str>, response_body: Option<&'a str> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TriggerOperation {
    Create,
    Replace,
    Upsert,
    Delete,
}

/// Properties of the container for the script.
#[derive(Clone, Copy, Debug)]
pub struct Collection<'a> {
    /// `dbs/{rid}/colls/{rid}/`
    pub self_link: &'a str,
    /// `dbs/{id}/colls/{id}`
    pub alt_link: &'a str,
    /// `documentSize=0;…;collectionSize=…`
    pub usage: &'a str,
    pub quota: &'a str,
    /// JSON: the paths of the partition key, each as a list of names.
    pub partition_key: &'a str,
    /// Whether its geometry is planar.
    pub planar: bool,
}

/// The result of a run. Its writes are with the host, to be committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// JSON text: the response of a procedure or post-trigger, the request of a pre-trigger. `None` if there was no
    /// body and none was set.
    pub body: Option<String>,
    /// Plain text; sent percent-encoded. `None` when logging is off.
    pub log: Option<String>,
    /// Number of rejected promises without a handler: the service ignores them, but a console should not.
    pub unhandled_rejections: u32,
}

/// A failed run: its writes must be discarded.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    pub error: ScriptError,
    pub log: Option<String>,
}

impl Scripts {
    /// Scripts that run on the caller's thread.
    pub fn new(limits: Limits) -> Scripts {
        Scripts {
            limits,
            pool: Arc::new(Pool::new(IDLE_RUNTIME_COUNT_MAX)),
            versions: Versions::default(),
            workers: None,
            spatial: None,
        }
    }

    pub fn isolated(limits: Limits, isolation: &Isolation) -> Scripts {
        let workers = match isolation {
            Isolation::InProcess => None,
            Isolation::Process { program, arguments } => {
                let program = Program { path: program.clone(), arguments: arguments.clone() };
                Some(Arc::new(Workers::start(program)))
            }
        };
        Scripts { workers, ..Scripts::new(limits) }
    }

    /// The implementation of `__.spatial` in this process. Without it, it returns an error.
    pub fn set_spatial(&mut self, spatial: Option<Spatial>) {
        self.spatial = spatial;
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// For the shutdown of the server: running user-defined functions end now (in this process, where they check the
    /// time), and none begins. Procedures and triggers may finish.
    pub fn stop_functions(&self) {
        self.pool.stop_functions();
        if let Some(workers) = &self.workers {
            workers.stop_functions();
        }
    }

    /// Panics of the thread that starts and ends worker processes.
    pub fn worker_pool_panics(&self) -> u64 {
        self.workers.as_ref().map_or(0, |workers| workers.panics())
    }

    /// Whether scripts run in other processes.
    pub fn is_isolated(&self) -> bool {
        self.workers.is_some()
    }

    pub fn run(&self, run: &ScriptRun<'_>, host: &mut dyn Host) -> Result<Outcome, Failure> {
        self.run_limited(run, &self.limits.after(run.time_used), host)
    }

    /// With limits for this run alone.
    pub(crate) fn run_limited(
        &self,
        run: &ScriptRun<'_>,
        limits: &Limits,
        host: &mut dyn Host,
    ) -> Result<Outcome, Failure> {
        match &self.workers {
            Some(workers) => workers.run(run, limits, host),
            None => self.run_here(run, limits, host),
        }
    }

    /// Whether a script of this version was loaded in this process.
    pub fn is_loaded(&self, version: &str) -> bool {
        self.versions.is_loaded(version)
    }

    fn run_here(
        &self,
        run: &ScriptRun<'_>,
        limits: &Limits,
        host: &mut dyn Host,
    ) -> Result<Outcome, Failure> {
        let mut sandbox = self.pool.take().map_err(|error| Failure { error, log: None })?;
        sandbox.begin(limits, limits.time);
        sandbox.state.set_function(false);
        sandbox.state.set_caller(host.caller());
        sandbox.state.set_spatial(self.spatial.map(|function| (function, run.collection.planar)));
        let result = self.run_in(&sandbox, run, limits, host).map_err(|error| match error {
            // Interrupted before the script itself began.
            ScriptError::Engine { .. } if sandbox.state.is_interrupted() => ScriptError::TimedOut,
            error => error,
        });
        let unhandled_rejections = sandbox.state.unhandled_rejections();
        if run.logging && unhandled_rejections > 0 {
            sandbox.state.warn_of_rejections(unhandled_rejections);
        }
        let log = run.logging.then(|| sandbox.state.take_log());
        if !leaves_runtime_usable(&result) {
            sandbox.mark_unusable();
        }
        self.pool.return_to_pool(sandbox);
        match result {
            Ok(body) => Ok(Outcome { body, log, unhandled_rejections }),
            Err(error) => Err(Failure { error, log }),
        }
    }

    /// The user-defined functions of a query. In a worker process they are compiled with the first call.
    pub fn functions(&self, scripts: &[Script<'_>], caller: &Caller) -> Result<Functions, ScriptError> {
        match &self.workers {
            Some(workers) => {
                let functions =
                    RemoteFunctions::new(Arc::clone(workers), scripts, self.limits, caller.clone());
                Ok(Functions::in_worker(functions))
            }
            None => self.load_functions(scripts, self.limits, caller).map(Functions::in_process),
        }
    }

    pub(crate) fn load_functions(
        &self,
        scripts: &[Script<'_>],
        limits: Limits,
        caller: &Caller,
    ) -> Result<LoadedFunctions, ScriptError> {
        LoadedFunctions::load(scripts, &self.versions, Arc::clone(&self.pool), limits, caller)
    }

    fn run_in(
        &self,
        sandbox: &Sandbox,
        run: &ScriptRun<'_>,
        limits: &Limits,
        host: &mut dyn Host,
    ) -> Result<Option<String>, ScriptError> {
        sandbox.set_own_memory_limit(limits);
        let make_realm = |compiled: &Compiled| {
            let realm = sandbox.realm_for(compiled)?;
            let with_all = !realm.is_shared() || compiled.needs.short;
            Borrow::<Realm>::borrow(&realm).begin(|given| push_arguments(given, run, limits, with_all))?;
            Ok::<RunRealm, ScriptError>(realm)
        };
        let return_to_pool = |realm, compiled: &Compiled| sandbox.give_back_realm(realm, compiled);
        let (compiled, realm, entry) =
            self.versions.load(sandbox, &run.script, limits, make_realm, return_to_pool)?;
        let mut turns =
            Turns { sandbox, realm: realm.borrow(), limits, form: compiled.form, unseen_bytes: 0 };
        sandbox.set_script_memory_limit(limits);
        let result = turns.all(run, entry, host);
        if leaves_runtime_usable(&result) {
            return_to_pool(realm, &compiled);
        }
        result
    }
}

fn leaves_runtime_usable<T>(result: &Result<T, ScriptError>) -> bool {
    result.as_ref().err().is_none_or(ScriptError::leaves_runtime_usable)
}

struct Turns<'a> {
    sandbox: &'a Sandbox,
    realm: &'a Realm,
    limits: &'a Limits,
    form: Form,
    /// Bytes of answers since the last memory check.
    unseen_bytes: usize,
}

impl Turns<'_> {
    /// From the call of the entry function to the body of the response.
    fn all(
        &mut self,
        run: &ScriptRun<'_>,
        entry: Entry,
        host: &mut dyn Host,
    ) -> Result<Option<String>, ScriptError> {
        self.start(entry)?;
        self.until_done(host)?;
        self.sandbox.set_own_memory_limit(self.limits);
        self.body(run)
    }

    fn start(&self, entry: Entry) -> Result<(), ScriptError> {
        let fit = self.turn(|ctx, api| {
            ApiFunction::Call.of(api)?.call((entry.restore(ctx)?, Limits::ARGUMENT_COUNT_MAX as u32))
        })?;
        if fit { Ok(()) } else { Err(ScriptError::Parameters { count_max: Limits::ARGUMENT_COUNT_MAX }) }
    }

    fn until_done(&mut self, host: &mut dyn Host) -> Result<(), ScriptError> {
        // Taken from the script, not yet answered.
        let mut waiting = VecDeque::new();
        loop {
            self.run_jobs()?;
            if waiting.is_empty() {
                waiting = self.take()?;
            }
            if waiting.is_empty() {
                return Ok(());
            }
            for answer in host.call_next(&mut waiting) {
                self.answer(answer)?;
                self.run_jobs()?;
            }
        }
    }

    fn answer(&mut self, answer: Answer) -> Result<(), ScriptError> {
        let Answer { reply, accepting } = answer;
        if reply == Reply::Stop {
            return Err(ScriptError::Stopped);
        }
        let state = &self.sandbox.state;
        state.check_time()?;
        state.count_served();
        if !accepting || self.memory_is_short(&reply) {
            state.refuse();
        }
        self.complete(reply)
    }

    fn run_jobs(&self) -> Result<(), ScriptError> {
        let state = &self.sandbox.state;
        loop {
            state.check_time()?;
            if state.is_out_of_memory() {
                return Err(ScriptError::OutOfMemory { limit_bytes: self.limits.memory_bytes });
            }
            match self.sandbox.runtime.execute_pending_job() {
                Ok(true) => self.check_aborted()?,
                Ok(false) => return self.check_aborted(),
                Err(exception) => {
                    exception.0.with(|ctx| drop(ctx.catch()));
                    state.check_time()?;
                    return Err(ScriptError::OutOfMemory { limit_bytes: self.limits.memory_bytes });
                }
            }
        }
    }

    /// The next waiting operations, as many as go together. The prelude keeps them until they are answered.
    fn take(&self) -> Result<VecDeque<Operation>, ScriptError> {
        self.turn(|_, api| {
            let (mut taken, mut bytes) = (VecDeque::new(), 0);
            let mut next: Option<Object<'_>> = ApiFunction::Take.of(api)?.call(())?;
            while let Some(object) = next {
                let operation = operation_of(&object)?;
                bytes += operation.size_bytes();
                taken.push_back(operation);
                next = object.get("next")?;
                let is_full = taken.len() >= OPERATIONS_MAX || bytes >= OPERATIONS_BYTES_MAX;
                // One that reads page after page is done before those behind it begin.
                if next.is_some() && (is_full || object.get::<_, Option<bool>>("sorts")? == Some(true)) {
                    ApiFunction::Leave.of(api)?.call::<_, ()>((next,))?;
                    break;
                }
            }
            Ok(taken)
        })
    }

    fn complete(&self, reply: Reply) -> Result<(), ScriptError> {
        self.turn(|_, api| match reply {
            Reply::Item { status, body } => ApiFunction::Item.of(api)?.call((status, body)),
            Reply::NotModified => ApiFunction::Item.of(api)?.call((304,)),
            Reply::Deleted => ApiFunction::Item.of(api)?.call((204,)),
            Reply::Page { items, continuation } => ApiFunction::Page.of(api)?.call((items, continuation)),
            Reply::Error { status, message } => ApiFunction::Error.of(api)?.call((status, message)),
            Reply::Stop => Ok(()),
        })
    }

    fn memory_is_short(&mut self, reply: &Reply) -> bool {
        self.unseen_bytes += reply.size_bytes();
        if self.unseen_bytes < MEMORY_CHECK_BYTES {
            return false;
        }
        self.unseen_bytes = 0;
        self.sandbox.memory_bytes() >= self.limits.soft_memory_bytes
    }

    fn check_aborted(&self) -> Result<(), ScriptError> {
        let state = &self.sandbox.state;
        if !state.is_aborted() {
            return Ok(());
        }
        self.sandbox.set_own_memory_limit(self.limits);
        let report = self.realm.turn(state, |ctx| {
            let reason = ApiFunction::AbortReason.of(&self.realm.api(ctx)?)?;
            Ok(Report::of(ctx, reason.call(())?))
        });
        Err(match report {
            Ok(report) => report.into_error(state, self.form, self.limits),
            Err(stop) => error_of(self.realm, state, stop, self.form, self.limits),
        })
    }

    fn body(&self, run: &ScriptRun<'_>) -> Result<Option<String>, ScriptError> {
        let text = self.turn(|_, api| ApiFunction::Body.of(api)?.call::<_, Option<String>>(()))?;
        self.check_aborted()?;
        if text.as_ref().is_some_and(|text| is_longer(text, self.limits.body_length)) {
            let message = "Resulting message would be too large because of \"Body\".".to_owned();
            return Err(ScriptError::Thrown { number: Some(413), stack: message.clone(), message });
        }
        Ok(match run.call {
            Call::Procedure { .. } => Some(text.unwrap_or_else(|| "\"\"".to_owned())),
            _ => text.filter(|text| text != "\"\""),
        })
    }

    fn turn<T>(
        &self,
        body: impl for<'js> FnOnce(&Ctx<'js>, &Object<'js>) -> rquickjs::Result<T>,
    ) -> Result<T, ScriptError> {
        let result = self.realm.turn(&self.sandbox.state, |ctx| body(ctx, &self.realm.api(ctx)?));
        self.check_aborted()?;
        result.map_err(|stop| self.failed(stop))
    }

    fn failed(&self, stop: TurnError) -> ScriptError {
        if matches!(stop, TurnError::Null) {
            self.sandbox.mark_unusable();
            if self.sandbox.is_nearly_full(self.limits) {
                return ScriptError::OutOfMemory { limit_bytes: self.limits.memory_bytes };
            }
        }
        self.sandbox.set_own_memory_limit(self.limits);
        error_of(self.realm, &self.sandbox.state, stop, self.form, self.limits)
    }
}

/// In the order of the parameters of the prelude's `begin`.
fn push_arguments<'js>(
    given: &mut Args<'js>,
    run: &ScriptRun<'_>,
    limits: &Limits,
    with_all: bool,
) -> rquickjs::Result<()> {
    let (kind, operation, request_body, response_body) = match run.call {
        Call::Procedure { parameters } => ("procedure", None, Some(parameters), None),
        Call::PreTrigger { operation, body } => ("pre", Some(operation.name()), body, None),
        Call::PostTrigger { operation, request_body, response_body } => {
            ("post", Some(operation.name()), request_body, response_body)
        }
    };
    let headers: Vec<&str> = run.headers.iter().flat_map(|(name, value)| [*name, *value]).collect();
    given.push_arg(kind)?;
    given.push_arg(operation)?;
    for text in
        [run.collection.self_link, run.collection.alt_link, run.collection.usage, run.collection.quota]
    {
        given.push_arg(text)?;
    }
    given.push_arg(run.collection.partition_key)?;
    given.push_arg(run.logging)?;
    given.push_arg(limits.body_length as f64)?;
    given.push_arg(headers)?;
    given.push_arg(request_body)?;
    given.push_arg(response_body)?;
    given.push_arg(with_all)
}

/// In UTF-16 code units. Most texts are short enough even in bytes.
fn is_longer(text: &str, length_max: usize) -> bool {
    text.len() > length_max && text.encode_utf16().nth(length_max).is_some()
}

impl TriggerOperation {
    fn name(self) -> &'static str {
        match self {
            TriggerOperation::Create => "Create",
            TriggerOperation::Replace => "Replace",
            TriggerOperation::Upsert => "Upsert",
            TriggerOperation::Delete => "Delete",
        }
    }
}

fn operation_of(operation: &Object<'_>) -> rquickjs::Result<Operation> {
    let has_callback = operation.get::<_, Value<'_>>("callback")?.is_function();
    Ok(Operation { request: request_of(operation)?, has_callback })
}

/// Reads properties written by the prelude.
fn request_of(operation: &Object<'_>) -> rquickjs::Result<Request> {
    let text = |name: &str| operation.get::<_, Option<String>>(name);
    let body = || operation.get::<_, String>("body");
    let item = || {
        Ok::<_, rquickjs::Error>(match text("rid")? {
            Some(rid) => ItemLink::Rid(rid),
            None => ItemLink::Id(operation.get("id")?),
        })
    };
    let index_action = || {
        Ok::<_, rquickjs::Error>(match text("indexAction")?.as_deref() {
            Some("include") => IndexAction::Include,
            Some("exclude") => IndexAction::Exclude,
            _ => IndexAction::Default,
        })
    };
    let kind: u32 = operation.get("kind")?;
    Ok(match kind {
        0 => Request::Read { item: item()?, if_none_match: text("etag")? },
        1 => Request::ReadFeed { page_size: operation.get("pageSize")?, continuation: text("continuation")? },
        2 => Request::Query {
            text: operation.get("text")?,
            parameters: text("parameters")?,
            page_size: operation.get("pageSize")?,
            continuation: text("continuation")?,
        },
        3 => Request::Create { body: body()?, index_action: index_action()? },
        4 => Request::Upsert { body: body()?, if_match: text("etag")?, index_action: index_action()? },
        5 => Request::Replace {
            item: item()?,
            body: body()?,
            if_match: text("etag")?,
            index_action: index_action()?,
        },
        _ => Request::Delete { item: item()?, if_match: text("etag")?, partition_key: text("partitionKey")? },
    })
}

#[cfg(test)]
mod tests;
