//! One run of a procedure or trigger, from its parameters to the body it leaves.
//!
//! The script runs in turns: its entry function, then one callback after another. Between turns the promise jobs that are
//! ready run, and the host serves the oldest operation waiting. The run is over when nothing waits.

use std::collections::HashMap;

use parking_lot::Mutex;
use rquickjs::{Function, Object};

use quire_value::{Object as Members, Value};

use crate::compile::{Entry, Form, Report, compile, error_of};
use crate::functions::Functions;
use crate::sandbox::{Realm, Sandbox, Stop};
use crate::{Answer, Host, IndexAction, ItemLink, Limits, Reply, Request, ScriptError};

/// Versions whose form is remembered; past that all are forgotten.
const FORM_COUNT_MAX: usize = 10_000;
/// Bytes of answers after which the memory in use is looked at.
const MEMORY_CHECK_BYTES: usize = 1 << 20;

/// Runs scripts under the same limits. Shared by all threads.
pub struct Scripts {
    limits: Limits,
    forms: Mutex<HashMap<String, Form>>,
}

/// `version` names the text: the script's ETag, together with what makes it unique in the account.
#[derive(Clone, Copy, Debug)]
pub struct Script<'a> {
    pub version: &'a str,
    pub body: &'a str,
}

#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    pub script: Script<'a>,
    pub call: Call<'a>,
    pub collection: Collection<'a>,
    /// Headers of the client's request that the script may read.
    pub headers: &'a [(&'a str, &'a str)],
    /// Whether `console.log` writes.
    pub logging: bool,
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

/// What the script is told about its container.
#[derive(Clone, Copy, Debug)]
pub struct Collection<'a> {
    /// `dbs/{rid}/colls/{rid}/`
    pub self_link: &'a str,
    /// `dbs/{id}/colls/{id}`
    pub alt_link: &'a str,
    /// `documentSize=0;…;collectionSize=…`
    pub usage: &'a str,
    pub quota: &'a str,
}

/// What a run leaves. Its writes are with the host, to be committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// JSON text: the response of a procedure or post-trigger, the request of a pre-trigger. `None` where there was no
    /// body and none was set.
    pub body: Option<String>,
    /// Plain text; sent percent-encoded. `None` when logging is off.
    pub log: Option<String>,
    /// Promises that were rejected with nobody looking: the service swallows them, so a console should not.
    pub unhandled_rejections: u32,
}

/// A run that must leave nothing behind.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    pub error: ScriptError,
    pub log: Option<String>,
}

impl Scripts {
    pub fn new(limits: Limits) -> Scripts {
        Scripts { limits, forms: Mutex::default() }
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    pub fn run(&self, run: &Run<'_>, host: &mut dyn Host) -> Result<Outcome, Failure> {
        let mut sandbox = Sandbox::take().map_err(|error| Failure { error, log: None })?;
        sandbox.begin(&self.limits, self.limits.time);
        let result = self.run_in(&sandbox, run, host);
        let log = run.logging.then(|| sandbox.state.log.take());
        let unhandled_rejections = u32::try_from(sandbox.state.rejections.get()).unwrap_or(0);
        if !matches!(result, Ok(_) | Err(ScriptError::Thrown { .. } | ScriptError::Compile { .. })) {
            sandbox.spoil();
        }
        sandbox.give_back();
        match result {
            Ok(body) => Ok(Outcome { body, log, unhandled_rejections }),
            Err(error) => Err(Failure { error, log }),
        }
    }

    /// Compiles the user-defined functions of a query.
    pub fn functions(&self, scripts: &[Script<'_>]) -> Result<Functions, ScriptError> {
        Functions::compile(scripts, self.limits)
    }

    fn run_in(
        &self,
        sandbox: &Sandbox,
        run: &Run<'_>,
        host: &mut dyn Host,
    ) -> Result<Option<String>, ScriptError> {
        sandbox.relieve(&self.limits);
        let realm = sandbox.realm(true)?;
        let mut turns =
            Turns { sandbox, realm: &realm, limits: &self.limits, form: Form::Program, unseen_bytes: 0 };
        turns.set_up(run)?;
        let entry = self.compile(&mut turns, &run.script)?;
        sandbox.confine(&self.limits);
        turns.start(entry)?;
        turns.until_done(host)?;
        sandbox.relieve(&self.limits);
        turns.body(run)
    }

    fn compile(&self, turns: &mut Turns<'_>, script: &Script<'_>) -> Result<Entry, ScriptError> {
        let known = self.forms.lock().get(script.version).copied();
        let (form, entry) = compile(turns.realm, &turns.sandbox.state, script.body, known, &self.limits)?;
        turns.form = form;
        if known.is_none() {
            let mut forms = self.forms.lock();
            if forms.len() >= FORM_COUNT_MAX {
                forms.clear();
            }
            forms.insert(script.version.to_owned(), form);
        }
        Ok(entry)
    }
}

struct Turns<'a> {
    sandbox: &'a Sandbox,
    realm: &'a Realm,
    limits: &'a Limits,
    form: Form,
    /// Bytes of answers since the memory was last looked at.
    unseen_bytes: usize,
}

impl Turns<'_> {
    fn set_up(&self, run: &Run<'_>) -> Result<(), ScriptError> {
        let settings = settings(run, self.limits);
        let (request_body, response_body) = match run.call {
            Call::Procedure { parameters } => (Some(parameters), None),
            Call::PreTrigger { body, .. } => (body, None),
            Call::PostTrigger { request_body, response_body, .. } => (request_body, response_body),
        };
        let accepted = self.turn(|_, api| {
            let set_up: Function<'_> = api.get("setUp")?;
            set_up.call::<_, ()>((settings, request_body, response_body))?;
            let Call::Procedure { parameters } = run.call else { return Ok(true) };
            let set_arguments: Function<'_> = api.get("setArguments")?;
            set_arguments.call((parameters, Limits::ARGUMENT_COUNT_MAX as u32))
        })?;
        if accepted { Ok(()) } else { Err(ScriptError::Parameters { count_max: Limits::ARGUMENT_COUNT_MAX }) }
    }

    fn start(&self, entry: Entry) -> Result<(), ScriptError> {
        self.turn(|ctx, api| {
            let call: Function<'_> = api.get("call")?;
            call.call((entry.restore(ctx)?,))
        })
    }

    fn until_done(&mut self, host: &mut dyn Host) -> Result<(), ScriptError> {
        loop {
            self.run_jobs()?;
            let Some((operation, request)) = self.take()? else { return Ok(()) };
            let Answer { reply, accepting } = host.call(request);
            let state = &self.sandbox.state;
            state.check_time()?;
            state.served.set(state.served.get().saturating_add(1));
            if !accepting || self.memory_is_short(&reply) {
                self.sandbox.state.accepting.set(false);
            }
            self.complete(operation, reply)?;
        }
    }

    fn run_jobs(&self) -> Result<(), ScriptError> {
        loop {
            self.sandbox.state.check_time()?;
            if self.sandbox.state.out_of_memory.get() {
                return Err(ScriptError::OutOfMemory { limit_bytes: self.limits.memory_bytes });
            }
            match self.sandbox.runtime.execute_pending_job() {
                Ok(true) => self.check_aborted()?,
                Ok(false) => return self.check_aborted(),
                Err(exception) => {
                    exception.0.with(|ctx| drop(ctx.catch()));
                    self.sandbox.state.check_time()?;
                    return Err(ScriptError::OutOfMemory { limit_bytes: self.limits.memory_bytes });
                }
            }
        }
    }

    fn take(&self) -> Result<Option<(rquickjs::Persistent<Object<'static>>, Request)>, ScriptError> {
        self.turn(|ctx, api| {
            let take: Function<'_> = api.get("take")?;
            let operation: Option<Object<'_>> = take.call(())?;
            let Some(operation) = operation else { return Ok(None) };
            let request = request_of(&operation)?;
            Ok(Some((rquickjs::Persistent::save(ctx, operation), request)))
        })
    }

    fn complete(
        &self,
        operation: rquickjs::Persistent<Object<'static>>,
        reply: Reply,
    ) -> Result<(), ScriptError> {
        if reply == Reply::Stop {
            return Err(ScriptError::Stopped);
        }
        self.turn(|ctx, api| {
            let operation = operation.restore(ctx)?;
            let function = |name| api.get::<_, Function<'_>>(name);
            match reply {
                Reply::Item { status, body } => function("completeItem")?.call((operation, status, body)),
                Reply::NotModified => function("completeItem")?.call((operation, 304)),
                Reply::Deleted => function("completeItem")?.call((operation, 204)),
                Reply::Page { items, continuation } => {
                    function("completePage")?.call((operation, items, continuation))
                }
                Reply::Error { status, message } => {
                    function("completeError")?.call((operation, status, message))
                }
                Reply::Stop => Ok(()),
            }
        })
    }

    fn memory_is_short(&mut self, reply: &Reply) -> bool {
        self.unseen_bytes += match reply {
            Reply::Item { body, .. } => body.len(),
            Reply::Page { items, .. } => items.len(),
            _ => 0,
        };
        if self.unseen_bytes < MEMORY_CHECK_BYTES {
            return false;
        }
        self.unseen_bytes = 0;
        self.sandbox.memory_bytes() >= self.limits.soft_memory_bytes
    }

    fn check_aborted(&self) -> Result<(), ScriptError> {
        let state = &self.sandbox.state;
        if !state.aborted.get() {
            return Ok(());
        }
        self.sandbox.relieve(self.limits);
        let report = self.realm.turn(state, |_, api| {
            let reason: Function<'_> = api.get("abortReason")?;
            Report::read(&reason.call(())?)
        });
        Err(match report {
            Ok(report) => report.into_error(state, self.form, self.limits),
            Err(stop) => error_of(self.realm, state, stop, self.form, self.limits),
        })
    }

    fn body(&self, run: &Run<'_>) -> Result<Option<String>, ScriptError> {
        let name = if matches!(run.call, Call::PreTrigger { .. }) { "requestBody" } else { "responseBody" };
        let text = self.turn(|_, api| {
            let body: Function<'_> = api.get(name)?;
            body.call::<_, Option<String>>(())
        })?;
        self.check_aborted()?;
        if text.as_ref().is_some_and(|text| text.len() > self.limits.body_length * 3) {
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
        body: impl for<'js> FnOnce(&rquickjs::Ctx<'js>, &Object<'js>) -> rquickjs::Result<T>,
    ) -> Result<T, ScriptError> {
        let result = self.realm.turn(&self.sandbox.state, body);
        self.check_aborted()?;
        result.map_err(|stop| self.failed(stop))
    }

    fn failed(&self, stop: Stop) -> ScriptError {
        if matches!(stop, Stop::Null) {
            self.sandbox.spoil();
            if self.sandbox.is_nearly_full(self.limits) {
                return ScriptError::OutOfMemory { limit_bytes: self.limits.memory_bytes };
            }
        }
        self.sandbox.relieve(self.limits);
        error_of(self.realm, &self.sandbox.state, stop, self.form, self.limits)
    }
}

fn settings(run: &Run<'_>, limits: &Limits) -> String {
    let (kind, operation) = match run.call {
        Call::Procedure { .. } => ("procedure", None),
        Call::PreTrigger { operation, .. } => ("pre", Some(operation.name())),
        Call::PostTrigger { operation, .. } => ("post", Some(operation.name())),
    };
    let headers = run.headers.iter().map(|(name, value)| Value::Array(vec![(*name).into(), (*value).into()]));
    let mut members = Members::new();
    members.set("kind", kind);
    if let Some(operation) = operation {
        members.set("operation", operation);
    }
    members.set("selfLink", run.collection.self_link);
    members.set("altLink", run.collection.alt_link);
    members.set("usage", run.collection.usage);
    members.set("quota", run.collection.quota);
    members.set("logging", run.logging);
    members.set("bodyMax", limits.body_length as u64);
    members.set("headers", Value::Array(headers.collect()));
    Value::Object(members).to_json()
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

/// Reads own properties that the prelude wrote, with its names.
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
    let kind: String = operation.get("kind")?;
    Ok(match kind.as_str() {
        "read" => Request::Read { item: item()?, if_none_match: text("etag")? },
        "feed" => {
            Request::ReadFeed { page_size: operation.get("pageSize")?, continuation: text("continuation")? }
        }
        "query" => Request::Query {
            text: operation.get("text")?,
            parameters: text("parameters")?,
            page_size: operation.get("pageSize")?,
            continuation: text("continuation")?,
        },
        "create" => Request::Create { body: body()?, index_action: index_action()? },
        "upsert" => Request::Upsert { body: body()?, if_match: text("etag")?, index_action: index_action()? },
        "replace" => Request::Replace {
            item: item()?,
            body: body()?,
            if_match: text("etag")?,
            index_action: index_action()?,
        },
        _ => Request::Delete { item: item()?, if_match: text("etag")?, partition_key: text("partitionKey")? },
    })
}
