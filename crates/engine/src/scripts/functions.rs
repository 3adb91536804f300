//! User-defined functions in queries.
//!
//! Found when the query is compiled, compiled themselves when the first of them is called, in contexts of this page alone.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::{Duration, Instant};

use quire_script::{Functions, Script};
use quire_sql::{Spend, SqlError, UserFunctions};
use quire_value::Value;

use super::gate::Pass;
use super::{Scripting, Source};
use crate::api::{Cancel, Resource};
use crate::shared::Shared;
use crate::{Container, EngineError};

/// What a call counts as, in steps of evaluation: many of them for one item come to an end.
const CALL_STEPS: u64 = 20;
/// Each call may take the time of [`ScriptLimits`](crate::ScriptLimits); it is granted again this often.
const RENEWAL: Duration = Duration::from_millis(20);
/// All calls of a page.
const TIME_MAX: Duration = Duration::from_secs(60);

/// Finds the function of a name in a container.
type Find<'a> = dyn Fn(&str) -> Option<Arc<Resource>> + 'a;

/// The functions of one page of a query.
pub(crate) struct PageFunctions<'a> {
    scripting: &'a Scripting,
    find: Box<Find<'a>>,
    cancel: Cancel,
    found: RefCell<Vec<Source>>,
    running: RefCell<Option<Running>>,
    calls: Cell<u64>,
    /// Why a call failed, as the query language cannot say it.
    failure: RefCell<Option<EngineError>>,
}

struct Running {
    functions: Functions,
    started: Instant,
    renewed: Instant,
}

impl<'a> PageFunctions<'a> {
    /// Of the functions that the container has now.
    pub fn of(shared: &'a Shared, container: &'a Container, cancel: &Cancel) -> PageFunctions<'a> {
        PageFunctions::new(&shared.scripts, cancel, Box::new(|name| container.scripts().function(name)))
    }

    fn new(scripting: &'a Scripting, cancel: &Cancel, find: Box<Find<'a>>) -> PageFunctions<'a> {
        PageFunctions {
            scripting,
            find,
            cancel: cancel.clone(),
            found: RefCell::default(),
            running: RefCell::default(),
            calls: Cell::new(0),
            failure: RefCell::default(),
        }
    }

    /// The error of a query, told by the function that caused it.
    pub fn explain(&self, error: EngineError) -> EngineError {
        match error {
            EngineError::Sql(SqlError::UserFunction { .. }) => self.failure.take().unwrap_or(error),
            _ => error,
        }
    }

    /// A place for the functions that the query calls, if it does: before it reads anything.
    pub fn enter(&self, container: &Container) -> Result<Option<Pass<'a>>, EngineError> {
        if self.found.borrow().is_empty() {
            return Ok(None);
        }
        self.scripting.function_gate.enter(u64::from(container.number)).map(Some)
    }

    pub fn calls(&self) -> u64 {
        self.calls.get()
    }

    fn call_one(&self, function: usize, arguments: &[Value]) -> Result<Value, EngineError> {
        let mut running = self.running.borrow_mut();
        let running = match &mut *running {
            Some(running) => running,
            empty => empty.insert(self.start()?),
        };
        self.renew(running)?;
        self.calls.set(self.calls.get() + 1);
        let result = running.functions.call(function, arguments);
        result.map_err(|error| self.scripting.failed(&self.found.borrow()[function], error, None))
    }

    fn start(&self) -> Result<Running, EngineError> {
        let found = self.found.borrow();
        found.iter().try_for_each(|source| self.scripting.check_blocked(source))?;
        let scripts: Vec<Script<'_>> = found.iter().map(Source::script).collect();
        let functions = self.scripting.scripts.functions(&scripts);
        let functions = functions.map_err(|error| self.scripting.failed(&found[0], error, None))?;
        let now = Instant::now();
        Ok(Running { functions, started: now, renewed: now })
    }

    /// Looks whether the page may go on, now and then: between two items that is not asked of us.
    fn renew(&self, running: &mut Running) -> Result<(), EngineError> {
        if running.renewed.elapsed() < RENEWAL {
            return Ok(());
        }
        self.cancel.ask();
        if self.cancel.is_cancelled() {
            return Err(EngineError::Cancelled);
        }
        if running.started.elapsed() >= TIME_MAX {
            return Err(SqlError::Budget { what: "a minute of user-defined functions" }.into());
        }
        running.functions.renew();
        running.renewed = Instant::now();
        Ok(())
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
        if let Some(known) = found.iter().position(|source| source.id() == name) {
            return Some(known);
        }
        found.push(Source::of((self.find)(name)?));
        Some(found.len() - 1)
    }

    fn call(&self, function: usize, arguments: &[Value], spend: &mut Spend<'_>) -> Result<Value, SqlError> {
        spend(CALL_STEPS)?;
        self.call_one(function, arguments).map_err(|error| self.failed(function, error))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use quire_resource::{ChildKind, ResourceId};
    use quire_sql::{Parameters, Query, Schema};
    use quire_value::{Limits, Object, text};

    use super::*;
    use crate::api::ScriptOptions;
    use crate::{ScriptError, ScriptLimits};

    const FUNCTIONS: &[(&str, &str)] = &[
        ("double", "function (x) { return 2 * x; }"),
        ("count", "function () { return arguments.length; }"),
        ("nothing", "function () {}"),
        ("keys", "(o) => Object.keys(o)"),
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

    fn scripting(block_offenders: bool) -> Scripting {
        let limits = ScriptLimits { function_time: Duration::from_millis(100), ..ScriptLimits::default() };
        Scripting::new(&ScriptOptions { limits, block_offenders, ..ScriptOptions::default() })
    }

    fn rows(scripting: &Scripting, query: &str, items: &str) -> Result<String, EngineError> {
        let functions = PageFunctions::new(scripting, &Cancel::default(), Box::new(resource));
        let schema = Schema::default().with_functions(&functions);
        let query = Query::compile_for(query, &Parameters::default(), schema)?;
        let items = text::parse(items.as_bytes(), Limits::default())?;
        let rows = query.rows_calling(&functions, items.as_array().expect("an array"));
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
    fn offenders_are_blocked_only_when_asked() {
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
        let functions = PageFunctions::new(&scripting, &cancel, Box::new(resource));
        let number = functions.find("count").expect("is there");
        functions.call(number, &[], &mut |_| Ok(())).expect("is called");
        cancel.cancel();
        std::thread::sleep(RENEWAL);
        let error = functions.call(number, &[], &mut |_| Ok(())).expect_err("is cancelled");
        assert!(matches!(functions.explain(error.into()), EngineError::Cancelled));
    }
}
