//! User-defined functions in queries.
//!
//! Functions are looked up when the query is compiled. They are loaded at the first call, in contexts of this page
//! alone.
//!
//! A single call to a worker process costs a message. So a page that buffers several items first collects the calls
//! that these will make ([`PageFunctions::prefetch`]), sends them in one message and keeps the results. A call that was
//! not prefetched is sent alone. So prefetching changes only the cost of a page: a call that fails does so when its
//! item is evaluated.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use quire_script::{CallResult, Caller, FunctionCall, Functions, Script};
use quire_sql::{Allowance, Spend, SqlError, UserFunctions};
use quire_value::Value;

use crate::api::{EngineError, Resource, ScriptError};
use crate::catalog::Container;
use crate::runtime::Shared;
use crate::runtime::scripting::gate::GatePass;
use crate::runtime::scripting::{ScriptSource, Scripting};

/// The cost of a call in steps of evaluation, so that many calls for one item reach the limit.
const CALL_STEPS: u64 = 20;
/// Queued calls, and their bytes.
const NOTED_MAX: usize = 65_536;
const NOTED_BYTES_MAX: usize = 16 << 20;
/// If prefetched calls take longer than this, calls are no longer prefetched: messages are cheap compared with such
/// functions, and the page may end earlier.
const AHEAD_TIME_MAX: Duration = Duration::from_millis(100);

/// Finds the function of a name in a container.
type FindFunction<'a> = dyn Fn(&str) -> Option<Arc<Resource>> + 'a;

/// The functions of one page of a query.
pub(crate) struct PageFunctions<'a> {
    scripting: &'a Scripting,
    find: Box<FindFunction<'a>>,
    /// The limits of the query: its time, and whether the client still waits.
    allowance: Allowance,
    pass: RefCell<Option<GatePass>>,
    found: RefCell<Vec<ScriptSource>>,
    /// Calls in the text of the query.
    written: Cell<u32>,
    running: RefCell<Option<Functions>>,
    prefetched: RefCell<PrefetchedCalls>,
    calls: Cell<u64>,
    /// The error of a call, which the query language cannot represent.
    failure: RefCell<Option<EngineError>>,
}

/// Calls that ran before their item was evaluated.
#[derive(Default)]
struct PrefetchedCalls {
    answers: HashMap<FunctionCall, CallResults>,
    queued: Vec<FunctionCall>,
    queued_bytes: usize,
    /// The number of passes over the buffered items.
    round: u32,
    /// No more prefetching: a function is slow, or the worker failed.
    is_over: bool,
}

/// The results of equal calls, one per call: a function may depend on time or chance.
#[derive(Default)]
struct CallResults {
    waiting: VecDeque<CallResult>,
    /// Results that this round has used.
    used: usize,
    round: u32,
}

impl PrefetchedCalls {
    fn value(&mut self, call: FunctionCall) -> Option<Value> {
        let round = self.round;
        if let Some(answers) = self.answers.get_mut(&call) {
            if answers.round != round {
                (answers.round, answers.used) = (round, 0);
            }
            if let Some(answer) = answers.waiting.get(answers.used) {
                answers.used += 1;
                return answer.clone().ok();
            }
        }
        let bytes = self.queued_bytes + call.size_bytes();
        if self.queued.len() < NOTED_MAX && bytes <= NOTED_BYTES_MAX {
            self.queued_bytes = bytes;
            self.queued.push(call);
        }
        None
    }

    fn take(&mut self, call: &FunctionCall) -> Option<CallResult> {
        self.answers.get_mut(call)?.waiting.pop_front()
    }

    fn add(&mut self, call: FunctionCall, answer: CallResult) {
        self.answers.entry(call).or_default().waiting.push_back(answer);
    }
}

impl<'a> PageFunctions<'a> {
    /// For the current functions of the container.
    pub fn of(shared: &'a Shared, container: &'a Container, allowance: &Allowance) -> PageFunctions<'a> {
        PageFunctions::new(&shared.scripts, allowance, Box::new(|name| container.scripts().function(name)))
    }

    fn new(
        scripting: &'a Scripting,
        allowance: &Allowance,
        find: Box<FindFunction<'a>>,
    ) -> PageFunctions<'a> {
        PageFunctions {
            scripting,
            find,
            allowance: allowance.clone(),
            pass: RefCell::default(),
            found: RefCell::default(),
            written: Cell::new(0),
            running: RefCell::default(),
            prefetched: RefCell::default(),
            calls: Cell::new(0),
            failure: RefCell::default(),
        }
    }

    /// The error of the function that failed, instead of the query's.
    pub fn explain(&self, error: EngineError) -> EngineError {
        match error {
            EngineError::Sql(SqlError::UserFunction { .. }) => self.failure.take().unwrap_or(error),
            _ => error,
        }
    }

    /// Enters the gate for functions, if the query calls any, before it reads anything.
    pub fn enter(&self, container: &Container) -> Result<(), EngineError> {
        let found = self.found.borrow();
        if found.is_empty() {
            return Ok(());
        }
        found.iter().try_for_each(|source| self.scripting.check_blocked(source))?;
        let pass = self.scripting.function_gate.enter(u64::from(container.number))?;
        self.pass.replace(Some(pass));
        Ok(())
    }

    pub fn calls(&self) -> u64 {
        self.calls.get()
    }

    /// Whether the query calls any.
    pub fn are_called(&self) -> bool {
        self.written.get() > 0
    }

    /// Whether items should be buffered until their calls run in one message.
    pub fn wants_prefetch(&self) -> bool {
        self.are_called() && self.scripting.scripts.is_isolated() && !self.prefetched.borrow().is_over
    }

    /// From now on calls run when their item is evaluated.
    pub fn stop_prefetch(&self) {
        self.prefetched.borrow_mut().is_over = true;
    }

    /// Calls the functions of the items that `check` passes to the evaluator, as far as the calls are known in advance.
    /// Results of earlier prefetches are dropped.
    pub fn prefetch(&self, mut check: impl FnMut() -> Result<(), EngineError>) -> Result<(), EngineError> {
        self.prefetched.borrow_mut().answers.clear();
        // A call can depend on the result of every other call in the text. One more round, because equal calls are not
        // distinguished: one of them may have received the result of another.
        let rounds = match self.written.get() {
            1 => 1,
            written => written + 1,
        };
        for _ in 0..rounds {
            self.prefetched.borrow_mut().round += 1;
            check()?;
            if !self.call_queued()? {
                break;
            }
        }
        Ok(())
    }

    /// Sends the queued calls. True: there were some, and there may be more.
    fn call_queued(&self) -> Result<bool, EngineError> {
        let mut ahead = self.prefetched.borrow_mut();
        let mut noted = std::mem::take(&mut ahead.queued);
        ahead.queued_bytes = 0;
        let started = Instant::now();
        while !noted.is_empty() {
            if started.elapsed() >= AHEAD_TIME_MAX {
                ahead.is_over = true;
                return Ok(false);
            }
            let mut running = self.running.borrow_mut();
            let running = self.started(&mut running)?;
            // A function that cannot be loaded, or ends the worker, fails when its item is evaluated.
            let Ok(answers) = running.call_together(&noted) else {
                ahead.is_over = true;
                return Ok(false);
            };
            let rest = noted.split_off(answers.len().min(noted.len()));
            for (call, answer) in std::mem::replace(&mut noted, rest).into_iter().zip(answers) {
                ahead.add(call, answer);
            }
        }
        Ok(!ahead.is_over)
    }

    fn call_one(&self, function: usize, arguments: &[Value]) -> Result<Value, EngineError> {
        self.calls.set(self.calls.get() + 1);
        let fail = |error| self.call_failed(&self.found.borrow()[function], error);
        if self.wants_prefetch() {
            let call = FunctionCall::new(function, arguments);
            if let Some(answer) = self.prefetched.borrow_mut().take(&call) {
                return answer.map_err(fail);
            }
        }
        let mut running = self.running.borrow_mut();
        let running = self.started(&mut running)?;
        let version = Arc::clone(&self.found.borrow()[function].version);
        self.watched(&version, || running.call(function, arguments)).map_err(fail)
    }

    fn call_failed(&self, source: &ScriptSource, error: ScriptError) -> EngineError {
        // A call that ended for another reason does not block the function.
        if self.scripting.is_stopping() {
            return EngineError::Overloaded;
        }
        match self.allowance.check_cancelled() {
            Err(reason) => reason.into(),
            Ok(()) => self.scripting.failed(source, error, None),
        }
    }

    /// A function in this process may not return: the watchdog reports it.
    fn watched<T>(&self, version: &Arc<str>, call: impl FnOnce() -> T) -> T {
        match &*self.pass.borrow() {
            Some(pass) if !self.scripting.scripts.is_isolated() => {
                pass.watched(version, self.scripting.scripts.limits().function_time, call)
            }
            _ => call(),
        }
    }

    /// The functions; starts them first.
    fn started<'r>(&self, running: &'r mut Option<Functions>) -> Result<&'r mut Functions, EngineError> {
        if self.scripting.is_stopping() {
            return Err(EngineError::Overloaded);
        }
        // A call may take longer than all other work between two checks of the evaluator.
        self.allowance.check_cancelled()?;
        if running.is_none() {
            *running = Some(self.start()?);
        }
        Ok(running.as_mut().expect("started"))
    }

    fn start(&self) -> Result<Functions, EngineError> {
        let found = self.found.borrow();
        found.iter().try_for_each(|source| self.scripting.check_blocked(source))?;
        let scripts: Vec<Script<'_>> = found.iter().map(ScriptSource::script).collect();
        let allowance = self.allowance.clone();
        let caller = Caller::with_check(move || allowance.check_cancelled().is_err());
        let load = |scripts: &[Script<'_>], source: &ScriptSource| {
            let load = || self.scripting.scripts.functions(scripts, &caller);
            self.watched(&source.version, load).map_err(|error| self.call_failed(source, error))
        };
        // Loading a script runs it. The first time, each script is loaded alone, so that one that does not end is
        // identified.
        for (source, script) in found.iter().zip(&scripts).filter(|_| scripts.len() > 1) {
            if !self.scripting.scripts.is_isolated() && !self.scripting.scripts.is_loaded(script.version) {
                drop(load(std::slice::from_ref(script), source)?);
            }
        }
        load(&scripts, &found[0])
    }

    fn failed(&self, function: usize, error: EngineError) -> SqlError {
        let name = self.found.borrow()[function].id().to_owned();
        let message = error.to_string();
        self.failure.replace(Some(error));
        SqlError::UserFunction { name, message }
    }
}

impl UserFunctions for PageFunctions<'_> {
    fn find(&self, name: &str) -> Option<usize> {
        let mut found = self.found.borrow_mut();
        self.written.set(self.written.get() + 1);
        if let Some(known) = found.iter().position(|source| source.id() == name) {
            return Some(known);
        }
        found.push(ScriptSource::of((self.find)(name)?));
        Some(found.len() - 1)
    }

    fn call(&self, function: usize, arguments: &[Value], spend: &mut Spend<'_>) -> Result<Value, SqlError> {
        spend(CALL_STEPS)?;
        self.call_one(function, arguments).map_err(|error| self.failed(function, error))
    }

    fn value_or_enqueue(&self, function: usize, arguments: &[Value]) -> Option<Value> {
        let mut ahead = self.prefetched.borrow_mut();
        if ahead.is_over { None } else { ahead.value(FunctionCall::new(function, arguments)) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use quire_resource::{ChildKind, ResourceId};
    use quire_sql::{Externals, Parameters, Query, Schema};
    use quire_value::{Limits, Object, text};

    use super::*;
    use crate::api::{Cancel, ScriptLimits, ScriptOptions};

    const FUNCTIONS: &[(&str, &str)] = &[
        ("double", "function (x) { return 2 * x; }"),
        ("count", "function () { return arguments.length; }"),
        ("nothing", "function () {}"),
        ("keys", "(o) => o && Object.keys(o)"),
        ("kind", "(a) => typeof a"),
        ("keep", "function (x) { if (typeof kept === 'undefined') kept = 0; kept += x; return kept; }"),
        ("throws", "function () { throw new Error(4444, 'no'); }"),
        ("broken", "functio () {}"),
        ("cyclic", "function () { var a = {}; a.a = a; return a; }"),
        ("itself", "function f() { return f; }"),
        ("endless", "function () { for (;;) {} }"),
        ("reaches", "function () { return typeof getContext + typeof __ + typeof udf; }"),
    ];

    fn resource(name: &str) -> Option<Arc<Resource>> {
        let (number, (id, body)) = FUNCTIONS.iter().enumerate().find(|(_, (id, _))| *id == name)?;
        let kind = ChildKind::UserDefinedFunction;
        let rid = ResourceId::Child { database: 1, container: 1, kind, child: number as u64 };
        let body: Object = [("id", *id), ("body", *body)]
            .map(|(name, value)| (name.to_owned(), Value::from(value)))
            .into_iter()
            .collect();
        Some(Arc::new(Resource { rid, id: (*id).to_owned(), body, etag: "\"1\"".to_owned(), ts: 0 }))
    }

    fn scripting(block_slow_scripts: bool) -> Scripting {
        let limits = ScriptLimits { function_time: Duration::from_millis(100), ..ScriptLimits::default() };
        Scripting::new(&ScriptOptions { limits, block_slow_scripts, ..ScriptOptions::default() })
    }

    fn rows(scripting: &Scripting, query: &str, items: &str) -> Result<String, EngineError> {
        let functions = PageFunctions::new(scripting, &Allowance::default(), Box::new(resource));
        let schema = Schema::default().with_functions(&functions);
        let query = Query::compile_for(query, &Parameters::default(), schema)?;
        let items = text::parse(items.as_bytes(), Limits::default())?;
        let rows = query.rows_with(Externals::functions(&functions), items.as_array().expect("an array"));
        Ok(Value::Array(rows.map_err(|error| functions.explain(error.into()))?).to_json())
    }

    fn error_of(query: &str) -> ScriptError {
        match rows(&scripting(false), query, "[{}]") {
            Err(EngineError::Script(failure)) => failure.error,
            other => panic!("{query}: {other:?}"),
        }
    }

    #[test]
    fn rows_call_functions() {
        let items = r#"[{"n": 1, "o": {"b": 1, "a": 2}}, {"n": "x"}, {}]"#;
        for (query, expected) in [
            ("SELECT VALUE udf.double(c.n) FROM c", "[2]"),
            ("SELECT VALUE c.n FROM c WHERE udf.double(c.n) = 2", "[1]"),
            ("SELECT VALUE udf.count(1, 'a', null)", "[3]"),
            ("SELECT VALUE udf.nothing()", "[]"),
            ("SELECT VALUE udf.kind(c.o) FROM c", r#"["object","undefined","undefined"]"#),
            ("SELECT VALUE udf.count(c.o, undefined, c.n) FROM c", "[3,3,3]"),
            ("SELECT VALUE udf.keys(c.o) FROM c", r#"[["b","a"]]"#),
            ("SELECT VALUE udf.double(udf.count(0)) + 1", "[3]"),
            ("SELECT VALUE udf.reaches()", r#"["undefinedundefinedundefined"]"#),
            ("SELECT VALUE SUM(udf.double(c.n)) FROM c", "[2]"),
        ] {
            assert_eq!(rows(&scripting(false), query, items).expect(query), expected, "{query}");
        }
    }

    #[test]
    fn nothing_leaks_into_the_next_page() {
        let scripting = scripting(false);
        for _ in 0..3 {
            assert_eq!(rows(&scripting, "SELECT VALUE udf.keep(1)", "[]").expect("rows"), "[1]");
        }
    }

    #[test]
    fn failures_keep_their_reason() {
        assert!(matches!(
            error_of("SELECT VALUE udf.throws()"),
            ScriptError::Thrown { number: Some(4444), .. }
        ));
        assert!(matches!(error_of("SELECT VALUE udf.broken()"), ScriptError::Compile { .. }));
        assert!(matches!(error_of("SELECT VALUE udf.itself()"), ScriptError::Result { .. }));
        assert!(matches!(
            error_of("SELECT VALUE udf.cyclic()"),
            ScriptError::Thrown { .. } | ScriptError::Result { .. }
        ));
        assert_eq!(error_of("SELECT VALUE udf.endless()"), ScriptError::TimedOut);
    }

    #[test]
    fn unknown_functions_do_not_compile() {
        let unknown = rows(&scripting(false), "SELECT VALUE udf.unknown(1)", "[]");
        assert!(matches!(unknown, Err(EngineError::Sql(SqlError::Compile(_)))), "{unknown:?}");
    }

    #[test]
    fn slow_scripts_are_blocked_only_if_configured() {
        let query = "SELECT VALUE udf.endless()";
        for (block, expected) in [(true, "blocked"), (false, "timed out")] {
            let scripting = scripting(block);
            let outcomes: Vec<&str> = (0..4)
                .map(|_| match rows(&scripting, query, "[]") {
                    Err(EngineError::Script(_)) => "timed out",
                    Err(EngineError::ScriptBlocked { .. }) => "blocked",
                    _ => "other",
                })
                .collect();
            assert_eq!(outcomes, ["timed out", "timed out", "timed out", expected]);
        }
    }

    #[test]
    fn a_cancelled_page_ends_between_calls() {
        let scripting = scripting(false);
        let cancel = Cancel::default();
        let allowance = crate::runtime::allowance::watched(Allowance::default(), &cancel);
        let functions = PageFunctions::new(&scripting, &allowance, Box::new(resource));
        let number = functions.find("count").expect("is there");
        functions.call(number, &[], &mut |_| Ok(())).expect("is called");
        cancel.cancel();
        let error = functions.call(number, &[], &mut |_| Ok(())).expect_err("is cancelled");
        assert!(matches!(functions.explain(error.into()), EngineError::Cancelled));
    }
}
