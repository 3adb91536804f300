//! User-defined functions: compiled once, called for every row.
//!
//! In this process a call runs at once. To a worker process a message costs more than a call, so callers that have
//! several calls send them together: see [`Functions::call_together`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use quire_value::Value;
use rquickjs::Function;
use rquickjs::function::Args;

use crate::runtime::compile::{Compiled, Entry, Form, error_of};
use crate::runtime::realm::{Realm, TurnError};
use crate::runtime::sandbox::{Pool, Sandbox};
use crate::runtime::versions::Versions;
use crate::values::{ScriptValue, take_u32};
use crate::worker::remote::RemoteFunctions;
use crate::{Caller, Limits, Script, ScriptError};

/// Every call has the full time of a function; the limit is renewed when this much of it has passed.
const RENEWAL: Duration = Duration::from_millis(20);

/// Functions of one query page. Each has its own context and cannot see the others. Not for other threads.
pub struct Functions(Placement);

enum Placement {
    InProcess(Box<LoadedFunctions>),
    Worker(Box<RemoteFunctions>),
}

/// A call in its encoded form: equal calls have equal bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FunctionCall(pub(crate) Vec<u8>);

/// The result of a call. `undefined` means no result.
pub type CallResult = Result<Value, ScriptError>;

impl FunctionCall {
    /// For the function at `index`, in the order in which they were given.
    pub fn new(index: usize, arguments: &[Value]) -> FunctionCall {
        let mut bytes = Vec::with_capacity(8 + 16 * arguments.len());
        bytes.extend((index as u32).to_le_bytes());
        bytes.extend((arguments.len() as u32).to_le_bytes());
        for argument in arguments {
            ScriptValue::of(argument).encode(&mut bytes);
        }
        FunctionCall(bytes)
    }

    pub fn size_bytes(&self) -> usize {
        self.0.len()
    }
}

/// Decodes one call from the front: the index of the function and its arguments.
pub(crate) fn decode_call<'a>(bytes: &mut &'a [u8]) -> Option<(usize, Vec<ScriptValue<'a>>)> {
    let index = take_u32(bytes)? as usize;
    let count = take_u32(bytes)?;
    let mut arguments = Vec::new();
    for _ in 0..count {
        arguments.push(ScriptValue::decode(bytes)?);
    }
    Some((index, arguments))
}

impl Functions {
    pub(crate) fn in_process(functions: LoadedFunctions) -> Functions {
        Functions(Placement::InProcess(Box::new(functions)))
    }

    pub(crate) fn in_worker(functions: RemoteFunctions) -> Functions {
        Functions(Placement::Worker(Box::new(functions)))
    }

    /// Calls the function at `index`, in the order in which they were given.
    pub fn call(&mut self, index: usize, arguments: &[Value]) -> CallResult {
        match &mut self.0 {
            Placement::InProcess(functions) => {
                functions.renew_if_due();
                let arguments: Vec<ScriptValue<'_>> = arguments.iter().map(ScriptValue::of).collect();
                functions.call(index, &arguments)?.into_value()
            }
            Placement::Worker(functions) => functions.call(&FunctionCall::new(index, arguments)),
        }
    }

    /// Whether calls are cheaper together.
    pub fn is_remote(&self) -> bool {
        matches!(self.0, Placement::Worker(_))
    }

    /// Runs the calls in order until they have taken some time together. Returns the results of the first calls, at
    /// least one; the outer error means that they must be run one by one.
    pub fn call_together(&mut self, calls: &[FunctionCall]) -> Result<Vec<CallResult>, ScriptError> {
        match &mut self.0 {
            Placement::InProcess(functions) => {
                Ok(calls.iter().map(|call| functions.call_encoded(call)).collect())
            }
            Placement::Worker(functions) => functions.call_together(calls),
        }
    }
}

/// In this process.
pub(crate) struct LoadedFunctions {
    // Before the runtime they belong to, so that they are dropped first.
    loaded: Vec<LoadedFunction>,
    sandbox: Option<Sandbox>,
    pool: Arc<Pool>,
    limits: Limits,
    renewed: Instant,
}

struct LoadedFunction {
    entry: Entry,
    form: Form,
    realm: Realm,
}

impl LoadedFunctions {
    pub(crate) fn load(
        scripts: &[Script<'_>],
        versions: &Versions,
        pool: Arc<Pool>,
        limits: Limits,
        caller: &Caller,
    ) -> Result<LoadedFunctions, ScriptError> {
        let mut sandbox = pool.take()?;
        sandbox.begin(&limits, limits.function_time);
        sandbox.state.set_function(true);
        sandbox.state.set_caller(caller.clone());
        sandbox.set_own_memory_limit(&limits);
        let renewed = Instant::now();
        let mut functions =
            LoadedFunctions { loaded: Vec::new(), sandbox: Some(sandbox), pool, limits, renewed };
        for script in scripts {
            let loaded = functions.load_one(script, versions)?;
            functions.loaded.push(loaded);
        }
        functions.sandbox().set_script_memory_limit(&limits);
        Ok(functions)
    }

    pub(crate) fn call(
        &self,
        index: usize,
        arguments: &[ScriptValue<'_>],
    ) -> Result<ScriptValue<'static>, ScriptError> {
        let loaded = self.loaded.get(index).ok_or_else(no_such_function)?;
        let state = &self.sandbox().state;
        let result = loaded.realm.turn(state, |ctx| {
            let mut given = Args::new(ctx.clone(), arguments.len());
            for argument in arguments {
                given.push_arg(argument.to_script(ctx)?)?;
            }
            let entry: Function<'_> = loaded.entry.clone().restore(ctx)?;
            let result: rquickjs::Value<'_> = given.apply(&entry)?;
            ScriptValue::from_script(ctx, result)
        });
        match result {
            Ok(result) => result,
            Err(stop) => Err(self.failed(loaded, stop)),
        }
    }

    fn call_encoded(&mut self, call: &FunctionCall) -> CallResult {
        self.renew_if_due();
        let (index, arguments) = decode_call(&mut &call.0[..]).ok_or_else(no_such_function)?;
        self.call(index, &arguments)?.into_value()
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Renews the time limit of a call, unless hardly any of it has passed.
    pub(crate) fn renew_if_due(&mut self) {
        let now = Instant::now();
        if now.duration_since(self.renewed) < RENEWAL {
            return;
        }
        self.renewed = now;
        let limits = self.limits;
        if let Some(sandbox) = &mut self.sandbox {
            sandbox.begin(&limits, limits.function_time);
        }
    }

    fn load_one(&self, script: &Script<'_>, versions: &Versions) -> Result<LoadedFunction, ScriptError> {
        let sandbox = self.sandbox();
        let make_realm = |compiled: &Compiled| sandbox.bare_realm(&compiled.needs);
        let (compiled, realm, entry) =
            versions.load(sandbox, script, &self.limits, make_realm, |realm, _| drop(realm))?;
        Ok(LoadedFunction { entry, form: compiled.form, realm })
    }

    fn failed(&self, loaded: &LoadedFunction, stop: TurnError) -> ScriptError {
        let LoadedFunction { realm, form, .. } = loaded;
        let sandbox = self.sandbox();
        if matches!(stop, TurnError::Null) {
            sandbox.mark_unusable();
        }
        sandbox.set_own_memory_limit(&self.limits);
        let error = error_of(realm, &sandbox.state, stop, *form, &self.limits);
        sandbox.set_script_memory_limit(&self.limits);
        if matches!(error, ScriptError::OutOfMemory { .. }) {
            sandbox.mark_unusable();
        }
        error
    }

    fn sandbox(&self) -> &Sandbox {
        self.sandbox.as_ref().expect("taken only when dropped")
    }
}

impl Drop for LoadedFunctions {
    fn drop(&mut self) {
        self.loaded.clear();
        if let Some(sandbox) = self.sandbox.take() {
            self.pool.return_to_pool(sandbox);
        }
    }
}

fn no_such_function() -> ScriptError {
    ScriptError::Engine { message: "a call of a function that was not given".to_owned() }
}
