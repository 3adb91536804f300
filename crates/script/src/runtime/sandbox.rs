//! Runtimes with limits, and their reuse.
//!
//! A runtime serves one run at a time. It is reused unless the run reached a limit or left work in it. A context is reused
//! only where nothing of a run can be left in it (see [`super::shared_realm`]). An idle context lives as long as its
//! runtime, so that names and shapes of the built-ins exist already when the next context is created, and for compiling.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rquickjs::context::{Intrinsic, intrinsic};
use rquickjs::function::Opt;
use rquickjs::{Context, Ctx, Error, Function, Runtime, Value};

use quire_value::{random, text};

use crate::caller::WatchedCaller;
use crate::isolation::SpatialFunction;
use crate::runtime::bytecode::{Bytecode, SourceDetail};
use crate::runtime::compile::Compiled;
use crate::runtime::needs::Needs;
use crate::runtime::realm::{Realm, RunRealm};
use crate::runtime::shared_realm::{IdleRealm, SharedRealm};
use crate::{Caller, Limits, ScriptError, Spatial};

/// A runtime keeps names and symbols of all its runs; after this many runs it is replaced.
const RUN_COUNT_MAX: u32 = 10_000;
/// Maximum memory of an idle runtime.
const KEPT_BYTES_MAX: usize = 4 << 20;
/// More than the engine has in stock for small objects.
const PROBE: &str = match str::from_utf8(&[b'x'; 2048]) {
    Ok(text) => text,
    Err(_) => "",
};
/// Memory of dropped contexts before a garbage collection: about ten runs at once, for the cost of one.
const GARBAGE_BYTES_MAX: usize = 1 << 20;
/// Memory of an idle context that runs share: about this much is in use and no garbage.
const SHARED_REALM_BYTES: usize = 512 << 10;
/// Number of operations after which the pace is estimated.
const SAMPLE_COUNT: u32 = 100;
/// Frames of the prelude in a stack: it is compiled without names and positions.
pub(crate) const PRELUDE_MARK: &str = "(<null>";

/// Idle runtimes, shared by all threads.
pub(crate) struct Pool {
    idle: Mutex<Vec<Sandbox>>,
    idle_max: usize,
    /// The server shuts down: functions end at once.
    stopping: Arc<AtomicBool>,
}

pub(crate) struct Sandbox {
    pub(crate) runtime: Runtime,
    /// Has all built-ins and the compiler.
    idle_context: Context,
    pub(crate) state: Arc<RunState>,
    /// Left by the last run that could share it.
    shared_realm: Mutex<Option<IdleRealm>>,
    runs: u32,
    is_unusable: AtomicBool,
}

/// The state that a run and the engine's hooks share.
pub(crate) struct RunState {
    times: Mutex<Times>,
    /// Operations that the host has served.
    served: AtomicU32,
    accepting: AtomicBool,
    interrupted: AtomicBool,
    aborted: AtomicBool,
    /// A promise was rejected for lack of memory: a limit, so it is not ignored like other rejections.
    out_of_memory: AtomicBool,
    log: Mutex<String>,
    log_left: AtomicUsize,
    rejections: AtomicI64,
    /// The state of the run's random numbers; `None` until it asks for one.
    random: Mutex<Option<u64>>,
    /// It runs a function, which has nothing to finish when the server shuts down.
    is_function: AtomicBool,
    /// The implementation of `__.spatial`, and whether the geometry of the container is planar.
    spatial: Mutex<Option<(Spatial, bool)>>,
    stopping: Arc<AtomicBool>,
    caller: Mutex<WatchedCaller>,
}

#[derive(Clone, Copy)]
struct Times {
    started: Instant,
    soft_deadline: Instant,
    deadline: Instant,
}

impl Pool {
    pub(crate) fn new(idle_max: usize) -> Pool {
        Pool { idle: Mutex::default(), idle_max, stopping: Arc::default() }
    }

    /// Functions in this process end at the next check of the time, and so do later ones.
    pub(crate) fn stop_functions(&self) {
        self.stopping.store(true, Relaxed);
    }

    pub(crate) fn take(&self) -> Result<Sandbox, ScriptError> {
        let idle = self.idle.lock().pop();
        idle.map_or_else(|| Sandbox::new(Arc::clone(&self.stopping)), Ok)
    }

    /// Keeps the runtime for another run, unless this run left something in it.
    pub(crate) fn return_to_pool(&self, sandbox: Sandbox) {
        if sandbox.is_used_up() {
            return;
        }
        sandbox.state.set_caller(Caller::default());
        let mut idle = self.idle.lock();
        if idle.len() < self.idle_max {
            idle.push(sandbox);
        }
    }
}

impl Sandbox {
    fn new(stopping: Arc<AtomicBool>) -> Result<Sandbox, ScriptError> {
        let runtime = Runtime::new().map_err(engine_failed)?;
        let idle_context = Context::custom::<AllIntrinsics>(&runtime).map_err(engine_failed)?;
        let state = Arc::new(RunState::new(stopping));
        let watched = Arc::clone(&state);
        runtime.set_interrupt_handler(Some(Box::new(move || watched.interrupts())));
        let watched = Arc::clone(&state);
        runtime.set_host_promise_rejection_tracker(Some(Box::new(move |_, _, reason, handled| {
            watched.rejected(&reason, handled);
        })));
        Ok(Sandbox {
            runtime,
            idle_context,
            state,
            shared_realm: Mutex::default(),
            runs: 0,
            is_unusable: AtomicBool::new(false),
        })
    }

    pub(crate) fn begin(&mut self, limits: &Limits, time: Duration) {
        self.runs += 1;
        self.state.begin(limits, time);
        self.runtime.set_max_stack_size(limits.stack_bytes);
        let kept_bytes = if self.shared_realm.get_mut().is_some() { SHARED_REALM_BYTES } else { 0 };
        self.runtime.set_gc_threshold(GARBAGE_BYTES_MAX + kept_bytes);
    }

    /// Sets the memory limit for script code.
    pub(crate) fn set_script_memory_limit(&self, limits: &Limits) {
        self.runtime.set_memory_limit(limits.memory_bytes);
    }

    /// Whether the memory in use is so near the limit that a bare `null` means out of memory.
    pub(crate) fn is_nearly_full(&self, limits: &Limits) -> bool {
        self.memory_bytes() > limits.memory_bytes / 2
    }

    /// Sets the memory limit for our own code, also after a script has used all of its own.
    pub(crate) fn set_own_memory_limit(&self, limits: &Limits) {
        self.runtime.set_memory_limit(limits.memory_bytes + Limits::HEADROOM_BYTES);
    }

    fn is_used_up(&self) -> bool {
        self.holds_much_memory()
            || self.is_unusable.load(Relaxed)
            || self.runs >= RUN_COUNT_MAX
            || self.state.is_interrupted()
            || self.runtime.is_job_pending()
    }

    /// Whether the run left much memory in use: one that reached the memory limit and caught the error is not known otherwise.
    fn holds_much_memory(&self) -> bool {
        self.runtime.set_memory_limit(KEPT_BYTES_MAX);
        if self.can_allocate() {
            return false;
        }
        self.runtime.set_memory_limit(KEPT_BYTES_MAX + Limits::HEADROOM_BYTES);
        self.runtime.run_gc();
        self.memory_bytes() > KEPT_BYTES_MAX
    }

    /// Whether the memory in use is below the limit. To measure it takes as long as a short run.
    fn can_allocate(&self) -> bool {
        self.idle_context.with(|ctx| {
            let text = rquickjs::String::from_str(ctx.clone(), PROBE);
            if text.is_err() {
                drop(ctx.catch());
            }
            text.is_ok()
        })
    }

    /// Marks the runtime as not reusable, because it reached a limit.
    pub(crate) fn mark_unusable(&self) {
        self.is_unusable.store(true, Relaxed);
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        usize::try_from(self.runtime.memory_usage().malloc_size).unwrap_or(0)
    }

    /// A context for compiling, in which nothing runs.
    pub(crate) fn with_compiler<T>(&self, body: impl FnOnce(&Ctx<'_>) -> T) -> T {
        self.idle_context.with(|ctx| body(&ctx))
    }

    /// A new context with the language alone, for user-defined functions.
    pub(crate) fn bare_realm(&self, needs: &Needs) -> Result<Realm, ScriptError> {
        let prelude = self.prelude()?;
        let context = context_for(&self.runtime, needs).map_err(engine_failed)?;
        if needs.language != 0 {
            let prepare = |ctx: Ctx<'_>| {
                let function: Function<'_> = prelude.language.evaluate(&ctx)?.get()?;
                function.call::<_, ()>((needs.language,))
            };
            context.with(prepare).map_err(engine_failed)?;
        }
        Ok(Realm { context, api: None, programs: None })
    }

    /// A new context with the server-side API; [`Realm::begin`] comes next.
    pub(crate) fn realm(&self, needs: &Needs) -> Result<Realm, ScriptError> {
        let prelude = self.prelude()?;
        Realm::with_api(self.bare_realm(needs)?.context, |ctx| {
            let function: Function<'_> = prelude.api.evaluate(ctx)?.get()?;
            let native = native(ctx, Arc::clone(&self.state), prelude)?;
            function.call((native, needs.more))
        })
    }

    /// The context for a run of a script: a shared one if its text allows it.
    pub(crate) fn realm_for(&self, compiled: &Compiled) -> Result<RunRealm, ScriptError> {
        if !compiled.may_share() {
            return Ok(RunRealm::Own(self.realm(&compiled.needs)?));
        }
        let idle = self.shared_realm.lock().take();
        let shared = idle.map_or_else(|| SharedRealm::new(self), IdleRealm::into_shared)?;
        if compiled.is_shareable(self, shared.names()?) {
            return Ok(RunRealm::Shared(shared));
        }
        *self.shared_realm.lock() = shared.into_idle(&self.state);
        Ok(RunRealm::Own(self.realm(&compiled.needs)?))
    }

    /// After a run that reached no limit. A job that is left would run in the context after it was examined.
    pub(crate) fn give_back_realm(&self, realm: RunRealm, compiled: &Compiled) {
        let RunRealm::Shared(shared) = realm else { return };
        if self.runtime.is_job_pending() {
            return;
        }
        match shared.into_idle(&self.state) {
            Some(idle) => *self.shared_realm.lock() = Some(idle),
            None => compiled.set_not_shareable(),
        }
    }

    #[cfg(test)]
    pub(crate) fn has_shared_realm(&self) -> bool {
        self.shared_realm.lock().is_some()
    }

    pub(super) fn prelude(&self) -> Result<&'static Prelude, ScriptError> {
        static COMPILED: OnceLock<Prelude> = OnceLock::new();
        if let Some(compiled) = COMPILED.get() {
            return Ok(compiled);
        }
        let compiled = self.with_compiler(Prelude::compile).map_err(engine_failed)?;
        Ok(COMPILED.get_or_init(|| compiled))
    }
}

/// Our own code, compiled once per process. Each is a function to be called in the context.
pub(super) struct Prelude {
    language: Bytecode,
    api: Bytecode,
    more: Bytecode,
    queries: Bytecode,
    pub(super) freeze: Bytecode,
}

impl Prelude {
    fn compile(ctx: &Ctx<'_>) -> rquickjs::Result<Prelude> {
        let compile = |text| Bytecode::compile(ctx, text, "", SourceDetail::Nothing);
        Ok(Prelude {
            language: compile(include_str!("prelude/language.js"))?,
            api: compile(include_str!("prelude/api.js"))?,
            more: compile(include_str!("prelude/more.js"))?,
            queries: compile(include_str!("prelude/queries.js"))?,
            freeze: compile(include_str!("prelude/freeze.js"))?,
        })
    }
}

type AllIntrinsics = (
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

/// The engine selects built-ins by type, so each selection is a separate step. There is no compiler: scripts cannot
/// create code from text, which at the memory limit could end the process.
fn context_for(runtime: &Runtime, needs: &Needs) -> rquickjs::Result<Context> {
    fn date<I: Intrinsic>(runtime: &Runtime, needs: &Needs) -> rquickjs::Result<Context> {
        if needs.date { regexp::<(I, intrinsic::Date)>(runtime, needs) } else { regexp::<I>(runtime, needs) }
    }
    fn regexp<I: Intrinsic>(runtime: &Runtime, needs: &Needs) -> rquickjs::Result<Context> {
        type WithIntrinsic<I> = (I, intrinsic::RegExpCompiler, intrinsic::RegExp);
        if needs.regexp { map_set::<WithIntrinsic<I>>(runtime, needs) } else { map_set::<I>(runtime, needs) }
    }
    fn map_set<I: Intrinsic>(runtime: &Runtime, needs: &Needs) -> rquickjs::Result<Context> {
        type WithIntrinsic<I> = (I, intrinsic::MapSet);
        if needs.map_set {
            typed_arrays::<WithIntrinsic<I>>(runtime, needs)
        } else {
            typed_arrays::<I>(runtime, needs)
        }
    }
    fn typed_arrays<I: Intrinsic>(runtime: &Runtime, needs: &Needs) -> rquickjs::Result<Context> {
        type WithIntrinsic<I> = (I, intrinsic::TypedArrays);
        if needs.typed_arrays {
            proxy::<WithIntrinsic<I>>(runtime, needs)
        } else {
            proxy::<I>(runtime, needs)
        }
    }
    fn proxy<I: Intrinsic>(runtime: &Runtime, needs: &Needs) -> rquickjs::Result<Context> {
        if needs.proxy {
            promise::<(I, intrinsic::Proxy)>(runtime, needs)
        } else {
            promise::<I>(runtime, needs)
        }
    }
    fn promise<I: Intrinsic>(runtime: &Runtime, needs: &Needs) -> rquickjs::Result<Context> {
        if needs.promise {
            Context::custom::<(I, intrinsic::Promise)>(runtime)
        } else {
            Context::custom::<I>(runtime)
        }
    }
    date::<intrinsic::Json>(runtime, needs)
}

/// The engine throws `null` when there is no memory for an error.
fn is_out_of_memory(reason: &Value<'_>) -> bool {
    let says_so = |error: &rquickjs::Exception<'_>| error.message().as_deref() == Some("out of memory");
    reason.is_null() || reason.as_exception().is_some_and(says_so)
}

/// The native functions of the prelude, by number: one function, because each takes time to create.
fn native<'js>(
    ctx: &Ctx<'js>,
    state: Arc<RunState>,
    prelude: &'static Prelude,
) -> rquickjs::Result<Function<'js>> {
    Function::new(ctx.clone(), move |ctx: Ctx<'js>, what: u32, Opt(given): Opt<Value<'js>>| match what {
        0 => {
            let waiting = given.and_then(|given| given.as_number()).unwrap_or(0.0);
            Ok(Value::new_bool(ctx, state.accepts(waiting as u32)))
        }
        1 => {
            state.aborted.store(true, Relaxed);
            Ok(Value::new_undefined(ctx))
        }
        2 => {
            let text: String = given.ok_or(Error::Unknown)?.get()?;
            Ok(Value::new_bool(ctx, state.append_log(&text)))
        }
        3 => Ok(rquickjs::String::from_str(ctx, &random_id()?)?.into_value()),
        4 => prelude.queries.evaluate(&ctx),
        6 => match *state.spatial.lock() {
            None => Ok(Value::new_null(ctx)),
            Some((function, planar)) => {
                let arguments: String = given.ok_or(Error::Unknown)?.get()?;
                match call_spatial(function, planar, &arguments) {
                    Some(text) => Ok(rquickjs::String::from_str(ctx, &text)?.into_value()),
                    None => Ok(Value::new_undefined(ctx)),
                }
            }
        },
        _ => prelude.more.evaluate(&ctx),
    })
}

/// `arguments` is JSON: the name of the function, then its arguments.
fn call_spatial(function: Spatial, planar: bool, arguments: &str) -> Option<String> {
    let arguments = text::parse(arguments.as_bytes(), text::Limits::default()).ok()?.into_array()?;
    let name = SpatialFunction::named(arguments.first()?.as_str()?)?;
    Some(function(name, &arguments[1..], planar)?.to_json())
}

fn random_id() -> rquickjs::Result<String> {
    let digits = format!("{:032x}", u128::from_be_bytes(random_bytes()?));
    let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
    Ok(parts.join("-"))
}

fn random_bytes<const LENGTH: usize>() -> rquickjs::Result<[u8; LENGTH]> {
    let mut bytes = [0u8; LENGTH];
    getrandom::fill(&mut bytes).map_err(|_| Error::Unknown)?;
    Ok(bytes)
}

impl RunState {
    fn new(stopping: Arc<AtomicBool>) -> RunState {
        let now = Instant::now();
        RunState {
            times: Mutex::new(Times { started: now, soft_deadline: now, deadline: now }),
            served: AtomicU32::new(0),
            accepting: AtomicBool::new(true),
            interrupted: AtomicBool::new(false),
            aborted: AtomicBool::new(false),
            out_of_memory: AtomicBool::new(false),
            log: Mutex::default(),
            log_left: AtomicUsize::new(0),
            rejections: AtomicI64::new(0),
            random: Mutex::default(),
            is_function: AtomicBool::new(false),
            spatial: Mutex::default(),
            stopping,
            caller: Mutex::new(WatchedCaller::new(Caller::default(), now)),
        }
    }

    pub(crate) fn set_caller(&self, caller: Caller) {
        *self.caller.lock() = WatchedCaller::new(caller, Instant::now());
    }

    pub(crate) fn set_function(&self, is_function: bool) {
        self.is_function.store(is_function, Relaxed);
    }

    pub(crate) fn set_spatial(&self, spatial: Option<(Spatial, bool)>) {
        *self.spatial.lock() = spatial;
    }

    fn begin(&self, limits: &Limits, time: Duration) {
        let now = Instant::now();
        *self.times.lock() =
            Times { started: now, soft_deadline: now + limits.soft_time, deadline: now + time };
        self.served.store(0, Relaxed);
        self.accepting.store(true, Relaxed);
        self.interrupted.store(false, Relaxed);
        self.aborted.store(false, Relaxed);
        self.out_of_memory.store(false, Relaxed);
        self.log.lock().clear();
        self.log_left.store(limits.log_bytes, Relaxed);
        self.rejections.store(0, Relaxed);
        *self.random.lock() = None;
    }

    /// From 0 to 1, from a random start.
    pub(super) fn random(&self) -> rquickjs::Result<f64> {
        let mut state = self.random.lock();
        let mut next = match *state {
            Some(last) => last,
            None => u64::from_ne_bytes(random_bytes()?),
        };
        let number = random::next(&mut next);
        *state = Some(next);
        Ok(random::fraction(number))
    }

    fn interrupts(&self) -> bool {
        let is_stopped = self.stopping.load(Relaxed) && self.is_function.load(Relaxed);
        let now = Instant::now();
        if is_stopped || now >= self.times.lock().deadline || self.caller.lock().is_gone(now) {
            self.interrupted.store(true, Relaxed);
        }
        self.is_interrupted()
    }

    fn rejected(&self, reason: &Value<'_>, handled: bool) {
        if !handled && is_out_of_memory(reason) {
            self.out_of_memory.store(true, Relaxed);
        }
        self.rejections.fetch_add(if handled { -1 } else { 1 }, Relaxed);
    }

    /// Whether one more operation may be queued: queued operations must be done before the deadline.
    fn accepts(&self, waiting: u32) -> bool {
        let now = Instant::now();
        let times = *self.times.lock();
        if now >= times.soft_deadline || self.backlog_is_long(&times, now, waiting) {
            self.refuse();
        }
        self.accepting.load(Relaxed)
    }

    /// Whether, at the current pace, they would take longer than the middle between the two deadlines.
    fn backlog_is_long(&self, times: &Times, now: Instant, waiting: u32) -> bool {
        let served = self.served.load(Relaxed);
        if served < SAMPLE_COUNT || waiting < SAMPLE_COUNT {
            return false;
        }
        let needed = now.duration_since(times.started).mul_f64(f64::from(waiting) / f64::from(served));
        let slack = times.deadline.saturating_duration_since(times.soft_deadline) / 2;
        now + needed > times.soft_deadline + slack
    }

    /// Accepts no further operations.
    pub(crate) fn refuse(&self) {
        self.accepting.store(false, Relaxed);
    }

    pub(crate) fn count_served(&self) {
        self.served.fetch_add(1, Relaxed);
    }

    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Relaxed)
    }

    pub(crate) fn is_aborted(&self) -> bool {
        self.aborted.load(Relaxed)
    }

    pub(crate) fn is_out_of_memory(&self) -> bool {
        self.out_of_memory.load(Relaxed)
    }

    pub(crate) fn take_log(&self) -> String {
        std::mem::take(&mut *self.log.lock())
    }

    pub(crate) fn unhandled_rejections(&self) -> u32 {
        u32::try_from(self.rejections.load(Relaxed)).unwrap_or(0)
    }

    /// A rejected promise without a handler is visible nowhere else, so it is logged even if the log is full.
    pub(crate) fn warn_of_rejections(&self, count: u32) {
        let mut log = self.log.lock();
        if !log.is_empty() {
            log.push('\n');
        }
        log.push_str(&format!("warning: {count} promise(s) were rejected and nobody handled it"));
    }

    fn append_log(&self, text: &str) -> bool {
        let Some(left) = self.log_left.load(Relaxed).checked_sub(encoded_len(text)) else { return false };
        self.log_left.store(left, Relaxed);
        self.log.lock().push_str(text);
        true
    }

    /// Fails after the deadline, whether or not the engine noticed.
    pub(crate) fn check_time(&self) -> Result<(), ScriptError> {
        if self.interrupts() { Err(ScriptError::TimedOut) } else { Ok(()) }
    }
}

/// Length after `encodeURIComponent`.
fn encoded_len(text: &str) -> usize {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.!~*'()".contains(byte);
    text.bytes().map(|byte| if plain(&byte) { 1 } else { 3 }).sum()
}

pub(crate) fn engine_failed(error: Error) -> ScriptError {
    ScriptError::Engine { message: error.to_string() }
}
