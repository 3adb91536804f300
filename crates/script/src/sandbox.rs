//! Runtimes with limits, and their reuse.
//!
//! A runtime stays on the thread that made it; each thread keeps a few. One that met a limit, or still has work queued,
//! is dropped instead. Contexts are never reused.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rquickjs::context::EvalOptions;
use rquickjs::context::intrinsic;
use rquickjs::{Context, Ctx, Error, Function, Object, Persistent, Runtime, Value};

use crate::{Limits, ScriptError};

/// Idle runtimes per thread: a query inside a procedure may call functions, so two are in use at once.
const IDLE_MAX: usize = 2;
/// A runtime keeps names and symbols of all its runs; after so many it starts anew.
const RUN_COUNT_MAX: u32 = 10_000;
const SHORT_RUN: Duration = Duration::from_millis(5);
/// What an idle runtime may hold.
const KEPT_BYTES_MAX: usize = 4 << 20;
/// Operations from which the pace is judged.
const SAMPLE_COUNT: u32 = 100;
const PRELUDE: &str = include_str!("prelude.js");
/// How frames of the prelude are told from frames of the script.
pub(crate) const PRELUDE_NAME: &str = "quire:prelude";

thread_local! {
    static IDLE: RefCell<Vec<Sandbox>> = const { RefCell::new(Vec::new()) };
}

pub(crate) struct Sandbox {
    pub(crate) runtime: Runtime,
    pub(crate) state: Rc<State>,
    runs: u32,
    spoilt: Cell<bool>,
}

/// What a run shares with the engine's hooks.
pub(crate) struct State {
    started: Cell<Instant>,
    soft_deadline: Cell<Instant>,
    deadline: Cell<Instant>,
    /// Operations that the host has served.
    pub(crate) served: Cell<u32>,
    pub(crate) accepting: Cell<bool>,
    pub(crate) interrupted: Cell<bool>,
    pub(crate) aborted: Cell<bool>,
    /// A promise was rejected for lack of memory: a limit, so not to be swallowed like other rejections.
    pub(crate) out_of_memory: Cell<bool>,
    pub(crate) log: RefCell<String>,
    log_left: Cell<usize>,
    pub(crate) rejections: Cell<i64>,
}

/// A fresh context with the prelude evaluated in it.
pub(crate) struct Realm {
    pub(crate) context: Context,
    api: Persistent<Object<'static>>,
}

/// How a turn of script code ended badly.
pub(crate) enum Stop {
    Thrown(Persistent<Value<'static>>),
    /// By the script, or by the engine out of memory.
    Null,
    Failed(ScriptError),
}

impl Sandbox {
    pub(crate) fn take() -> Result<Sandbox, ScriptError> {
        match IDLE.with_borrow_mut(Vec::pop) {
            Some(sandbox) => Ok(sandbox),
            None => Sandbox::new(),
        }
    }

    fn new() -> Result<Sandbox, ScriptError> {
        let runtime = Runtime::new().map_err(engine_failed)?;
        let now = Instant::now();
        let state = Rc::new(State {
            started: Cell::new(now),
            soft_deadline: Cell::new(now),
            deadline: Cell::new(now),
            served: Cell::new(0),
            accepting: Cell::new(true),
            interrupted: Cell::new(false),
            aborted: Cell::new(false),
            out_of_memory: Cell::new(false),
            log: RefCell::default(),
            log_left: Cell::new(0),
            rejections: Cell::new(0),
        });
        let watched = Rc::clone(&state);
        runtime.set_interrupt_handler(Some(Box::new(move || watched.interrupts())));
        let watched = Rc::clone(&state);
        runtime.set_host_promise_rejection_tracker(Some(Box::new(move |_, _, reason, handled| {
            if !handled && is_out_of_memory(&reason) {
                watched.out_of_memory.set(true);
            }
            watched.rejections.set(watched.rejections.get() + if handled { -1 } else { 1 });
        })));
        Ok(Sandbox { runtime, state, runs: 0, spoilt: Cell::new(false) })
    }

    pub(crate) fn begin(&mut self, limits: &Limits, time: Duration) {
        let now = Instant::now();
        self.runs += 1;
        self.state.started.set(now);
        self.state.served.set(0);
        self.state.deadline.set(now + time);
        self.state.soft_deadline.set(now + limits.soft_time);
        self.state.accepting.set(true);
        self.state.interrupted.set(false);
        self.state.aborted.set(false);
        self.state.out_of_memory.set(false);
        self.state.log.borrow_mut().clear();
        self.state.log_left.set(limits.log_bytes);
        self.state.rejections.set(0);
        self.runtime.set_max_stack_size(limits.stack_bytes);
    }

    /// Memory for script code.
    pub(crate) fn confine(&self, limits: &Limits) {
        self.runtime.set_memory_limit(limits.memory_bytes);
    }

    /// Whether what is in use is near enough to the limit for a bare `null` to mean that there was no more.
    pub(crate) fn is_nearly_full(&self, limits: &Limits) -> bool {
        self.memory_bytes() > limits.memory_bytes / 2
    }

    /// Memory for our own code, also after a script used all of its own.
    pub(crate) fn relieve(&self, limits: &Limits) {
        self.runtime.set_memory_limit(limits.memory_bytes + Limits::HEADROOM_BYTES);
    }

    /// Keeps the runtime for the next run on this thread, unless something of this run is left in it.
    pub(crate) fn give_back(self) {
        if self.is_littered()
            || self.spoilt.get()
            || self.runs >= RUN_COUNT_MAX
            || self.state.interrupted.get()
            || self.runtime.is_job_pending()
        {
            return;
        }
        IDLE.with_borrow_mut(|idle| {
            if idle.len() < IDLE_MAX {
                idle.push(self);
            }
        });
    }

    /// Whether the run left much behind: one that met the memory limit and caught the error is not known otherwise.
    /// Counting takes as long as a short run, and a short run cannot have filled much.
    fn is_littered(&self) -> bool {
        self.state.started.get().elapsed() > SHORT_RUN && self.memory_bytes() > KEPT_BYTES_MAX
    }

    /// The runtime met a limit and is not to be used again.
    pub(crate) fn spoil(&self) {
        self.spoilt.set(true);
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        usize::try_from(self.runtime.memory_usage().malloc_size).unwrap_or(0)
    }

    /// A fresh context. Without `native` it has the language alone, as user-defined functions do.
    pub(crate) fn realm(&self, with_api: bool) -> Result<Realm, ScriptError> {
        let context = Context::custom::<Intrinsics>(&self.runtime).map_err(engine_failed)?;
        let state = Rc::clone(&self.state);
        let api = context
            .with(|ctx| {
                let mut options = EvalOptions::default();
                options.filename = Some(PRELUDE_NAME.to_owned());
                let prelude: Function<'_> = ctx.eval_with_options(PRELUDE, options)?;
                let native = if with_api {
                    native(&ctx, state)?.into_value()
                } else {
                    Value::new_undefined(ctx.clone())
                };
                let api: Object<'_> = prelude.call((native,))?;
                Ok(Persistent::save(&ctx, api))
            })
            .map_err(engine_failed)?;
        Ok(Realm { context, api })
    }
}

type Intrinsics = (
    intrinsic::Date,
    intrinsic::Eval,
    intrinsic::RegExpCompiler,
    intrinsic::RegExp,
    intrinsic::Json,
    intrinsic::Proxy,
    intrinsic::MapSet,
    intrinsic::TypedArrays,
    intrinsic::Promise,
);

/// The engine throws `null` when there is no room even for an error.
fn is_out_of_memory(reason: &Value<'_>) -> bool {
    let says_so = |error: &rquickjs::Exception<'_>| error.message().as_deref() == Some("out of memory");
    reason.is_null() || reason.as_exception().is_some_and(says_so)
}

/// What the prelude may call.
fn native<'js>(ctx: &Ctx<'js>, state: Rc<State>) -> rquickjs::Result<Object<'js>> {
    let object = Object::new(ctx.clone())?;
    let asked = Rc::clone(&state);
    object.set("accepting", Function::new(ctx.clone(), move |waiting: u32| asked.accepts(waiting))?)?;
    let told = Rc::clone(&state);
    object.set("abort", Function::new(ctx.clone(), move || told.aborted.set(true))?)?;
    object.set("log", Function::new(ctx.clone(), move |text: String| state.append_log(&text))?)?;
    object.set("uuid", Function::new(ctx.clone(), random_id)?)?;
    Ok(object)
}

fn random_id() -> rquickjs::Result<String> {
    let mut bytes = [0u8; 16];
    getrandom::fill(&mut bytes).map_err(|_| Error::Unknown)?;
    let digits = format!("{:032x}", u128::from_be_bytes(bytes));
    let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
    Ok(parts.join("-"))
}

impl State {
    fn interrupts(&self) -> bool {
        if Instant::now() >= self.deadline.get() {
            self.interrupted.set(true);
        }
        self.interrupted.get()
    }

    /// Whether one more operation may be queued behind those waiting: what is queued must be done before the deadline.
    fn accepts(&self, waiting: u32) -> bool {
        let now = Instant::now();
        if self.accepting.get() && (now >= self.soft_deadline.get() || self.backlog_is_long(now, waiting)) {
            self.accepting.set(false);
        }
        self.accepting.get()
    }

    /// At the pace so far, would they take past the middle between the two deadlines?
    fn backlog_is_long(&self, now: Instant, waiting: u32) -> bool {
        let served = self.served.get();
        if served < SAMPLE_COUNT || waiting < SAMPLE_COUNT {
            return false;
        }
        let needed = now.duration_since(self.started.get()).mul_f64(f64::from(waiting) / f64::from(served));
        let slack = self.deadline.get().saturating_duration_since(self.soft_deadline.get()) / 2;
        now + needed > self.soft_deadline.get() + slack
    }

    fn append_log(&self, text: &str) -> bool {
        let Some(left) = self.log_left.get().checked_sub(encoded_len(text)) else { return false };
        self.log_left.set(left);
        self.log.borrow_mut().push_str(text);
        true
    }

    /// Fails once the deadline has passed, whether or not the engine noticed.
    pub(crate) fn check_time(&self) -> Result<(), ScriptError> {
        if self.interrupts() { Err(ScriptError::TimedOut) } else { Ok(()) }
    }
}

/// Length after `encodeURIComponent`.
fn encoded_len(text: &str) -> usize {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.!~*'()".contains(byte);
    text.bytes().map(|byte| if plain(&byte) { 1 } else { 3 }).sum()
}

impl Realm {
    /// One turn: whatever `body` does with the prelude's functions.
    pub(crate) fn turn<T>(
        &self,
        state: &State,
        body: impl for<'js> FnOnce(&Ctx<'js>, &Object<'js>) -> rquickjs::Result<T>,
    ) -> Result<T, Stop> {
        self.context.with(|ctx| {
            let api = self.api.clone().restore(&ctx).map_err(|error| Stop::Failed(engine_failed(error)))?;
            let result = body(&ctx, &api);
            if state.interrupted.get() {
                drop(ctx.catch());
                return Err(Stop::Failed(ScriptError::TimedOut));
            }
            result.map_err(|error| match error {
                Error::Exception => match ctx.catch() {
                    thrown if thrown.is_null() => Stop::Null,
                    thrown => Stop::Thrown(Persistent::save(&ctx, thrown)),
                },
                other => Stop::Failed(engine_failed(other)),
            })
        })
    }
}

pub(crate) fn engine_failed(error: Error) -> ScriptError {
    ScriptError::Engine { message: error.to_string() }
}
