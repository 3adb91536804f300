//! Contexts that one run after the other shares: making a context takes longer than most runs.
//!
//! Invariant: a run finds a shared context as the first run found it, whatever the scripts before it did. What could be left is
//! 1. a property of an object that both can reach: all of them are frozen, and setters that keep something elsewhere are gone
//!    (`prelude/freeze.js`); what the API makes for a run is new in each;
//! 2. a property of the global object: those it has are fixed, and a context that has got another one is not used again;
//! 3. a variable of the program around the script (`let` outside of all functions): the text is one expression
//!    ([`Compiled::is_shareable`](super::compile::Compiled::is_shareable));
//! 4. the state of the engine's random numbers: a shared context has others, new in each run;
//! 5. a job, or memory: the runtime is not used again, as with contexts of their own;
//! 6. something in a program that the context keeps for the next run of the same script: a program is code and constants, and
//!    every evaluation makes its functions anew. The one constant that is an object is the list of texts of a template, so texts
//!    with one are not kept.
//!
//! A frozen built-in also changes what a script may do: it cannot add to one, and an assignment to an inherited name is ignored.
//! A script whose text could notice has a context of its own: see [`super::shareable`]. Those rules are for scripts that work; none
//! of the above depends on them.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rquickjs::atom::PredefinedAtom;
use rquickjs::{Array, Context, Ctx, Error, Filter, FromJs, Function, Object, Value};

use super::bytecode::{Bytecode, evaluate_program};
use super::needs::Needs;
use super::realm::{ApiFunction, Realm};
use super::sandbox::{RunState, Sandbox, engine_failed};
use crate::ScriptError;

/// A context whose built-ins are frozen, during a run.
pub(crate) struct SharedRealm(Realm);

/// The same between runs. Its runtime has [`shared_api`] what the next run needs.
pub(crate) struct IdleRealm {
    context: Context,
    programs: LoadedPrograms,
}

/// The programs that a context keeps: a script that runs again is not loaded again. Beyond either bound, all are dropped.
#[derive(Default)]
pub(crate) struct LoadedPrograms(Mutex<Vec<LoadedProgram>>);

const PROGRAM_COUNT_MAX: usize = 32;
const PROGRAMS_BYTES_MAX: usize = 256 << 10;

struct LoadedProgram {
    number: u64,
    size_bytes: usize,
}

/// What a runtime keeps for its shared context, a list that scripts cannot reach.
#[derive(Clone, Copy)]
enum ContextSlot {
    Api,
    /// What `freeze.js` returns: see [`FreezeFunction`].
    Freeze,
    /// Number of all properties of the global object.
    GlobalCount,
    /// In the order of [`LoadedPrograms`].
    Programs,
}

/// In the order of the list at the end of `prelude/freeze.js`.
#[derive(Clone, Copy)]
enum FreezeFunction {
    IsUntouched,
    FrozenNames,
    GlobalNames,
}

/// What a script could notice.
pub(crate) struct FrozenNames {
    /// Names of properties of frozen objects.
    pub(crate) properties: HashSet<String>,
    pub(crate) globals: HashSet<String>,
}

static NAMES: OnceLock<FrozenNames> = OnceLock::new();

impl SharedRealm {
    pub(crate) fn new(sandbox: &Sandbox) -> Result<SharedRealm, ScriptError> {
        let realm = sandbox.realm(&Needs::ALL)?;
        let freeze = &sandbox.prelude()?.freeze;
        let keep = |ctx: Ctx<'_>| {
            replace_random(&ctx, Arc::clone(&sandbox.state))?;
            let (api, list) = (realm.api(&ctx)?, Array::new(ctx.clone())?);
            let (programs, freeze) = (Array::new(ctx.clone())?, frozen(&ctx, &api, freeze)?);
            list.set(ContextSlot::Api as usize, api)?;
            list.set(ContextSlot::Freeze as usize, freeze)?;
            list.set(ContextSlot::GlobalCount as usize, global_count(&ctx))?;
            list.set(ContextSlot::Programs as usize, programs)?;
            ctx.store_userdata(list.into_object()).map_err(|_| Error::Unknown).map(drop)
        };
        realm.context.with(keep).map_err(engine_failed)?;
        Ok(SharedRealm(Realm { programs: Some(LoadedPrograms::default()), ..realm }))
    }

    pub(crate) fn realm(&self) -> &Realm {
        &self.0
    }

    /// After a run; `None` if it has changed the global object.
    pub(crate) fn into_idle(self, state: &RunState) -> Option<IdleRealm> {
        let is_untouched = |ctx: &Ctx<'_>| {
            ApiFunction::End.of(&self.0.api(ctx)?)?.call::<_, ()>(())?;
            let is_untouched: bool = FreezeFunction::IsUntouched.of(ctx)?.call(())?;
            let count: usize = shared_api(ctx, ContextSlot::GlobalCount)?;
            Ok(is_untouched && global_count(ctx) == count)
        };
        let is_untouched = self.0.turn(state, is_untouched).is_ok_and(|is_untouched| is_untouched);
        let Realm { context, programs, .. } = self.0;
        is_untouched.then(|| IdleRealm { context, programs: programs.unwrap_or_default() })
    }

    /// Those of all shared contexts.
    pub(crate) fn names(&self) -> Result<&'static FrozenNames, ScriptError> {
        if let Some(names) = NAMES.get() {
            return Ok(names);
        }
        let names = self.0.context.with(|ctx| FrozenNames::of(&ctx)).map_err(engine_failed)?;
        Ok(NAMES.get_or_init(|| names))
    }
}

impl IdleRealm {
    pub(crate) fn into_shared(self) -> Result<SharedRealm, ScriptError> {
        let realm = Realm::with_api(self.context, |ctx| shared_api(ctx, ContextSlot::Api))?;
        Ok(SharedRealm(Realm { programs: Some(self.programs), ..realm }))
    }
}

impl FrozenNames {
    fn of(ctx: &Ctx<'_>) -> rquickjs::Result<FrozenNames> {
        let list = |names: FreezeFunction| {
            let names: String = names.of(ctx)?.call(())?;
            Ok::<_, Error>(names.lines().map(str::to_owned).collect())
        };
        let (properties, globals) = (list(FreezeFunction::FrozenNames)?, list(FreezeFunction::GlobalNames)?);
        Ok(FrozenNames { properties, globals })
    }
}

impl FreezeFunction {
    fn of<'js>(self, ctx: &Ctx<'js>) -> rquickjs::Result<Function<'js>> {
        shared_api::<Object<'js>>(ctx, ContextSlot::Freeze)?.get(self as u32)
    }
}

impl LoadedPrograms {
    /// Evaluates the program with this number, which is loaded if it is not there.
    pub(super) fn evaluate<'js>(
        &self,
        ctx: &Ctx<'js>,
        number: u64,
        code: &Bytecode,
    ) -> rquickjs::Result<Value<'js>> {
        let list: Array<'js> = shared_api(ctx, ContextSlot::Programs)?;
        let at = self.0.lock().iter().position(|program| program.number == number);
        let program = match at {
            Some(at) => list.get(at)?,
            None => self.load(ctx, &list, number, code)?,
        };
        evaluate_program(ctx, program)
    }

    fn load<'js>(
        &self,
        ctx: &Ctx<'js>,
        list: &Array<'js>,
        number: u64,
        code: &Bytecode,
    ) -> rquickjs::Result<Value<'js>> {
        let (program, size_bytes) = (code.load(ctx)?, code.size_bytes());
        if size_bytes > PROGRAMS_BYTES_MAX / 4 {
            return Ok(program);
        }
        let mut loaded = self.0.lock();
        let all_bytes: usize = loaded.iter().map(|program| program.size_bytes).sum();
        if loaded.len() >= PROGRAM_COUNT_MAX || all_bytes + size_bytes > PROGRAMS_BYTES_MAX {
            loaded.clear();
            list.as_object().set(PredefinedAtom::Length, 0)?;
        }
        list.set(loaded.len(), program.clone())?;
        loaded.push(LoadedProgram { number, size_bytes });
        Ok(program)
    }
}

fn shared_api<'js, T: FromJs<'js>>(ctx: &Ctx<'js>, what: ContextSlot) -> rquickjs::Result<T> {
    let list = ctx.userdata::<Object<'js>>().map(|list| list.clone()).ok_or(Error::Unknown)?;
    list.get(what as u32)
}

/// The number of all properties of the global object. Among them are fields of classes: no script sees those of another, but they
/// hold memory.
fn global_count(ctx: &Ctx<'_>) -> usize {
    ctx.globals().own_keys::<Value<'_>>(Filter::new().string().symbol().private()).len()
}

/// `Math.random` of the engine is one sequence for all runs of a context: who has seen some of it knows the rest.
fn replace_random(ctx: &Ctx<'_>, state: Arc<RunState>) -> rquickjs::Result<()> {
    let random = Function::new(ctx.clone(), move || state.random())?.with_name("random")?;
    ctx.globals().get::<_, Object<'_>>("Math")?.set("random", random)
}

/// Freezes the context; what `freeze.js` returns.
fn frozen<'js>(ctx: &Ctx<'js>, api: &Object<'js>, freeze: &Bytecode) -> rquickjs::Result<Object<'js>> {
    let seeds: Object<'js> = ApiFunction::Shared.of(api)?.call(())?;
    let function: Function<'js> = freeze.evaluate(ctx)?.get()?;
    function.call((seeds,))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use quire_testkit::hostile::CORPUS;
    use rquickjs::Persistent;

    use super::*;
    use crate::Limits;
    use crate::runtime::bytecode::{SourceDetail, class_prototypes};
    use crate::runtime::compile::Compiled;
    use crate::runtime::sandbox::Pool;

    /// Every object that a script could reach, with all that can be known of it, as text. Written without a look at `freeze.js`.
    const DUMP: &str = r#"(function (extra) {
        const numbers = new Map(), list = [], lines = [];
        function number(object) {
            if (!numbers.has(object)) { numbers.set(object, list.length); list.push(object); }
            return "@" + numbers.get(object);
        }
        function shown(value) {
            if (typeof value === "function" || (typeof value === "object" && value !== null)) return number(value);
            return typeof value + ":" + String(value);
        }
        shown(globalThis);
        // Of call sites, of shared buffers and of what `yield*` wraps around an iterator: scripts get no object of these classes.
        const isHidden = (keys) => keys.includes("getFileName") || keys.includes("growable") || keys.join() === "next,return,throw";
        extra.filter((object) => !isHidden(Reflect.ownKeys(object).map(String))).forEach(shown);
        const { getPrototypeOf } = Object;
        for (let at = 0; at < list.length; at++) {
            const object = list[at];
            const words = [number(object), typeof object, shown(getPrototypeOf(object)), at === 0 || Object.isFrozen(object)];
            for (const key of Reflect.ownKeys(object)) {
                if (at === 0 && key === "__") continue;
                const { value, get, set, writable, enumerable, configurable } = Object.getOwnPropertyDescriptor(object, key);
                let got = "";
                try { got = get === undefined ? "" : JSON.stringify(typeof object[key] + String(object[key])); } catch {}
                words.push(String(key), shown(value), shown(get), shown(set), got, writable, enumerable, configurable);
            }
            lines.push(words.join(" "));
        }
        return lines.join("\n");
    })"#;

    const LIMITS: Limits = Limits {
        soft_time: Duration::from_millis(100),
        time: Duration::from_millis(200),
        function_time: Duration::from_millis(200),
        soft_memory_bytes: 24 << 20,
        memory_bytes: 32 << 20,
        stack_bytes: 512 << 10,
        script_bytes: 2 << 20,
        body_length: 1 << 20,
        log_bytes: 12 << 10,
    };

    fn new_realm(pool: &Pool) -> (Sandbox, SharedRealm) {
        let mut sandbox = pool.take().unwrap();
        sandbox.begin(&LIMITS, Duration::from_secs(3600));
        sandbox.set_own_memory_limit(&LIMITS);
        let shared = SharedRealm::new(&sandbox).unwrap();
        (sandbox, shared)
    }

    fn dump(sandbox: &Sandbox, shared: &SharedRealm) -> String {
        sandbox.set_own_memory_limit(&LIMITS);
        let code = sandbox.with_compiler(|ctx| Bytecode::compile(ctx, DUMP, "dump", SourceDetail::Nothing));
        let dumped = shared.realm().context.with(|ctx| {
            let api = shared.realm().api(&ctx)?;
            let seeds: Vec<Value<'_>> = ApiFunction::Shared.of(&api)?.call(())?;
            let seeds: Vec<_> = seeds.into_iter().chain(class_prototypes(&ctx)).collect();
            code?.evaluate(&ctx)?.get::<Function<'_>>()?.call::<_, String>((seeds,))
        });
        dumped.unwrap()
    }

    fn begin(shared: &SharedRealm) {
        shared.realm().context.with(|ctx| {
            let begin = ApiFunction::Begin.of(&shared.realm().api(&ctx).unwrap()).unwrap();
            let (none, text) = (Value::new_undefined(ctx.clone()), "");
            let headers = Vec::<&str>::new();
            let mut given = rquickjs::function::Args::new_unsized(ctx);
            given.push_arg("procedure").unwrap();
            given.push_arg(none).unwrap();
            for text in ["dbs/a/colls/b/", "dbs/c/colls/d", text, text, "{}"] {
                given.push_arg(text).unwrap();
            }
            given.push_arg(true).unwrap();
            given.push_arg(1000).unwrap();
            given.push_arg(headers).unwrap();
            given.push_arg("[]").unwrap();
            given.push_arg(Option::<&str>::None).unwrap();
            given.push_arg(true).unwrap();
            given.apply::<()>(&begin).unwrap();
        });
    }

    /// More than those of any script that ends.
    const JOBS_MAX: usize = 200_000;

    /// Runs a script whatever its text says; only what it does before its first operation. False when there is no end of what it
    /// leaves to do later.
    fn run(sandbox: &Sandbox, shared: &SharedRealm, text: &str) -> bool {
        let Ok(compiled) = Compiled::new(sandbox, text, &LIMITS) else { return true };
        begin(shared);
        sandbox.set_script_memory_limit(&LIMITS);
        let Ok(Some(entry)) = compiled.entry(shared.realm(), &sandbox.state) else { return true };
        let _ = shared.realm().turn(&sandbox.state, |ctx| {
            let call = ApiFunction::Call.of(&shared.realm().api(ctx)?)?;
            call.call::<_, bool>((Persistent::restore(entry, ctx)?, 10))
        });
        let is_short = || sandbox.state.is_out_of_memory();
        let mut jobs = 0..JOBS_MAX;
        jobs.any(|_| is_short() || !matches!(sandbox.runtime.execute_pending_job(), Ok(true))) && !is_short()
    }

    /// What scripts do that want to leave something behind, beside the corpus of hostile ones.
    const LEAVE: &[&str] = &[
        "function () { Object.prototype.leak = 1 }",
        "function () { Array.prototype.push = function () { return 7 } }",
        "function () { Array.prototype[0] = 1; Array.prototype.length = 5 }",
        "function () { [].constructor.prototype.map = 1; ''.constructor.leak = 1; (1).constructor.leak = 1 }",
        "function () { (function () {}).constructor.prototype.leak = 1; (() => {}).__proto__.leak = 2 }",
        "function () { getContext.leak = 1; __.createDocument.leak = 1; __.__proto__.__proto__.leak = 1 }",
        "function () { getContext().getCollection().constructor.prototype.createDocument = 1; getContext().leak = 1 }",
        "function () { var q = __.filter(x => x); q.filter.leak = 1; q.__proto__.leak = 1; q.__proto__.map = null }",
        "function () { __.spatial.distance = 1; __.spatial.leak = 1; console.log = 1; console.leak = 2 }",
        "function () { Error.prepareStackTrace = () => 'leak'; Error.stackTraceLimit = 0; throw new Error('x') }",
        "function () { Error.leak = 1; new Error(1, 'x').__proto__.name = 'leak'; TypeError.prototype.message = 'leak' }",
        "function* g() { g.prototype.leak = 1; g.__proto__.prototype.next = 1; yield 1 }",
        "async function a() { a.__proto__.leak = 1; Promise.prototype.then = 1; await 1; Promise.leak = 1 }",
        "function () { [][Symbol.iterator]().__proto__.next = 1; [][Symbol.iterator]().__proto__.__proto__.leak = 1 }",
        "function () { /a/.__proto__.exec = 1; RegExp.prototype[Symbol.replace] = 1; /a/.exec('a'); RegExp.leak = 1 }",
        "function () { Object.defineProperty(Math, 'leak', { value: 1 }); Math.max.leak = 1; JSON.parse = 1; Date.now = 1 }",
        "function () { Object.setPrototypeOf(Object.prototype, null); Object.setPrototypeOf(Array.prototype, {}); Array.prototype.__proto__ = {} }",
        "function () { Map.prototype.get = 1; new Map().entries().__proto__.next = 1; Symbol.iterator.description; Symbol.leak = 1 }",
        "function () { new Proxy(Math, {}).leak = 1; Reflect.set(Math, 'leak', 1); Reflect.defineProperty(JSON, 'leak', { get() {} }) }",
        "function () { Int8Array.prototype.leak = 1; ArrayBuffer.leak = 1; Int8Array.__proto__.prototype.set = 1 }",
        "function () { ErrorCodes.Conflict = 1; ErrorCodes.leak = 1; Function.prototype.call = 1; Function.prototype.bind = 1 }",
        "function () { delete Array.prototype.map; delete Object.keys; delete Math.PI }",
        "function () { arguments.callee.leak = 1; arguments.__proto__.leak = 1 }",
        "function () { Object.prototype.__defineGetter__('leak', () => 1); Object.prototype.__defineSetter__('toString', () => 1) }",
        "function () { Iterator.prototype[Symbol.toStringTag] = 'leak'; Iterator.prototype.leak = 1; Iterator.prototype.constructor = 1 }",
        "function () { Iterator.from({ next() {} }).__proto__.leak = 1; Iterator.concat([]).__proto__.next = 1 }",
        "function () { 'use strict'; Object.getOwnPropertyDescriptor(arguments, 'callee').get.leak = 1 }",
        "function () { throw Error.prototype }",
        "function () { throw Object.freeze(Error) }",
        "function () { AggregateError.__proto__.prepareStackTrace = () => 1; AggregateError.__proto__.stackTraceLimit = 0; throw new Error() }",
        "function () { Error.prototype.stack = 1; Reflect.set(Error.prototype, 'stack', 2, Math); Error.captureStackTrace(Math) }",
        "function () { for (const k of Reflect.ownKeys(globalThis)) try { globalThis[k].leak = 1; globalThis[k][Symbol.leak] = 1 } catch {} }",
        "function () { for (const k of Reflect.ownKeys(globalThis)) globalThis[k] = 1 }",
        "function () { for (const k of Reflect.ownKeys(globalThis)) delete globalThis[k] }",
        "function () { for (const k of Reflect.ownKeys(globalThis)) try { Object.defineProperty(globalThis, k, { get() { return 1 } }) } catch {} }",
        "function () { for (const k of Reflect.ownKeys(globalThis)) Reflect.defineProperty(globalThis, k, { enumerable: true }) }",
        "function () { Math = 1; getContext = null; console = 1; NaN = 1; globalThis.JSON = {}; __ = 1 }",
        "function () { delete Math; delete globalThis.JSON; delete __ }",
        "function () { class Base { constructor() { return Math } } class Stamp extends Base { #leak = 1 } new Stamp() }",
        "function () { globalThis.leak = 1; Object.defineProperty(globalThis, 'kael', { value: 1, configurable: true }); delete leak; delete kael }",
    ];
    const CHANGE_GLOBALS: &[&str] = &[
        "function () { leak = 1 }",
        "function () { this.leak = 1 }",
        "function () { delete __; leak = 1 }",
        "function () { delete Math; delete JSON; leak = 1; kael = 2 }",
        "function () { this[Symbol()] = 1 }",
        "function () { Object.setPrototypeOf(this, { leak: 1 }) }",
        "function () { this.__proto__ = null }",
        "function () { Object.preventExtensions(this) }",
        "function () { Object.freeze(this) }",
        "function () { Object.defineProperty(this, '__', { writable: false }) }",
        "function () {}); function leak() {} (function () {}",
        "function () { class Base { constructor() { return globalThis } } class Stamp extends Base { #leak = 1 } new Stamp() }",
        "function () { class Base { constructor() { return globalThis } } class Stamp extends Base { #leak() {} } new Stamp() }",
    ];

    /// The guarantee, for texts that would never share a context, too: a context that is used again is as it was at first.
    #[test]
    fn nothing_is_left_in_a_context_that_is_used_again() {
        let pool = Pool::new(1);
        let new = || new_realm(&pool);
        let (mut sandbox, mut shared) = new();
        begin(&shared);
        let first = dump(&sandbox, &shared);
        let loose = first.lines().find(|line| line.split(' ').nth(3) != Some("true"));
        assert_eq!(loose, None, "not frozen");
        assert!(first.lines().count() > 600, "{}", first.lines().count());
        let corpus =
            CORPUS.iter().filter(|hostile| !hostile.needs_a_process && !hostile.expected.may_time_out());
        let corpus: Vec<String> = corpus.map(|hostile| hostile.procedure()).collect();
        let mut used_again = 0;
        for text in LEAVE.iter().copied().chain(corpus.iter().map(String::as_str)) {
            let has_ended = run(&sandbox, &shared, text);
            sandbox.set_own_memory_limit(&LIMITS);
            match shared.into_idle(&sandbox.state).filter(|_| has_ended) {
                Some(idle) => shared = idle.into_shared().unwrap(),
                None => {
                    (sandbox, shared) = new();
                    continue;
                }
            }
            used_again += 1;
            begin(&shared);
            let after = dump(&sandbox, &shared);
            let changed = first.lines().zip(after.lines()).find(|(first, after)| first != after);
            assert!(first == after, "{text}\n{changed:?}");
        }
        assert!(used_again > LEAVE.len(), "{used_again}");
        for text in CHANGE_GLOBALS {
            let (sandbox, shared) = new();
            assert!(run(&sandbox, &shared, text));
            sandbox.set_own_memory_limit(&LIMITS);
            assert!(shared.into_idle(&sandbox.state).is_none(), "{text}");
        }
    }

    /// With the names of the real built-ins: which of the examples share, and which do not for a reason.
    #[test]
    fn ordinary_scripts_share() {
        let pool = Pool::new(1);
        let (sandbox, shared) = new_realm(&pool);
        let names = shared.names().unwrap();
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/");
        let shares = |name: &str| {
            let text = std::fs::read_to_string(format!("{folder}{name}")).unwrap();
            let compiled = Compiled::new(&sandbox, &text, &Limits::default()).unwrap();
            compiled.may_share() && compiled.is_shareable(&sandbox, names)
        };
        for name in [
            "addBook.js",
            "bulkDelete.js",
            "bulkImport.js",
            "countBooks.js",
            "placeOrder.js",
            "requireAuthors.js",
        ] {
            assert!(shares(name), "{name}");
        }
    }

    /// Calls every function that can be reached twice, with all kinds of values, and lists the objects that both results or what
    /// both gave to functions of a script lead to, though they are neither frozen nor of this run.
    const CALL_ALL: &str = r#"(function (extra) {
        const isObject = (value) => typeof value === "function" || (typeof value === "object" && value !== null);
        function reach(roots, skips) {
            const found = new Set(), list = [...roots];
            while (list.length > 0 && found.size < 1000) {
                const object = list.pop();
                if (!isObject(object) || object === globalThis || found.has(object) || skips(object)) continue;
                found.add(object);
                list.push(Object.getPrototypeOf(object));
                for (const key of Reflect.ownKeys(object).slice(0, 200)) {
                    const { value, get, set } = Object.getOwnPropertyDescriptor(object, key);
                    list.push(value, get, set);
                }
            }
            return found;
        }
        const globals = Reflect.ownKeys(globalThis).filter((key) => key !== "__").map((key) => globalThis[key]);
        const functions = [...globals, ...extra].flatMap((root) => [...reach([root], () => false)]).filter((value) => typeof value === "function");
        let ofRun, given = [];
        const done = () => ({ next() { return { done: true } }, [Symbol.iterator]() { return this } });
        const values = () => [undefined, {}, [1, [2]], "abc", 5, /b/g, new Map([[1, {}]]), new Set([1]), new Date(0), (x) => x, function () {},
            [1].values(), (function* () { yield 1 })(), Promise.resolve(1), new Uint8Array(2),
            new ArrayBuffer(8), Symbol("x"), 1n, new Error("x"), new WeakMap(), new WeakSet(), new DataView(new ArrayBuffer(8)), done(),
            Iterator.from(done()), [1].values().map((x) => x), new Map().keys(), new Set().keys(), "a"[Symbol.iterator](), "a".matchAll(/a/g),
            new DisposableStack(), new Proxy({}, {}), spy(), __, getContext(), __.request, __.response, __.chain()];
        // Has a function under every name, and keeps what they are given.
        function spy() {
            const note = function (...all) { if (new.target === undefined) given.push(this); given.push(...all); return { done: true } };
            return new Proxy(function () {}, { get: (_, key) => typeof key === "symbol" ? undefined : note,
                apply: (_, receiver, all) => Reflect.apply(note, receiver, all), construct: (_, all) => new note(...all) });
        }
        const isSkipped = (object) => Object.isFrozen(object) || ofRun.has(object);
        function result(make) {
            given = [];
            try { given.push(make()) } catch (error) { given.push(error) }
            return reach(given, isSkipped);
        }
        const common = new Set(), count = values().length;
        let calls = 0;
        function twice(make) {
            calls++;
            const first = result(make), second = result(make);
            first.forEach((object) => second.has(object) && common.add(object));
        }
        const waiting = [...new Set(functions)];
        // One function at a time; the end is a text.
        return () => {
            if (waiting.length === 0) {
                const shown = (object) => typeof object + " " + object.name + " " + Reflect.ownKeys(object).map(String);
                return calls + "\n" + [...common].map(shown).join("\n");
            }
            const call = waiting.pop();
            ofRun = reach([__, getContext()], Object.isFrozen);
            twice(() => new call());
            for (let i = 0; i < count; i++) {
                twice(() => Reflect.apply(call, values()[i], []));
                twice(() => Reflect.apply(call, undefined, [values()[i], (x) => x]));
                twice(() => Reflect.apply(call, values()[i], [values()[(i * 7 + 1) % count], 1]));
                twice(() => Reflect.construct(call, [values()[i]]));
            }
        };
    })"#;

    /// An object that two runs can get from a call is frozen, even if no property leads to it.
    #[test]
    fn calls_give_no_object_to_two_runs() {
        let pool = Pool::new(1);
        let (sandbox, shared) = new_realm(&pool);
        begin(&shared);
        let code =
            sandbox.with_compiler(|ctx| Bytecode::compile(ctx, CALL_ALL, "calls", SourceDetail::Nothing));
        let step = shared.realm().context.with(|ctx| {
            let seeds: Value<'_> = ApiFunction::Shared.of(&shared.realm().api(&ctx)?)?.call(())?;
            let function: Function<'_> = code?.evaluate(&ctx)?.get()?;
            Ok::<_, Error>(Persistent::save(&ctx, function.call::<_, Function<'_>>((seeds,))?))
        });
        let step = step.unwrap();
        let found = loop {
            begin(&shared);
            let step = |ctx: Ctx<'_>| step.clone().restore(&ctx)?.call::<_, Option<String>>(());
            if let Some(found) = shared.realm().context.with(step).unwrap() {
                break found;
            }
            while let Ok(true) = sandbox.runtime.execute_pending_job() {}
        };
        let (calls, common) = found.split_once('\n').unwrap();
        assert!(calls.parse::<u32>().unwrap() > 50_000, "{calls}");
        assert_eq!(common, "");
    }
}
