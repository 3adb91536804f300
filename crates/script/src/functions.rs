//! User-defined functions: compiled once, called for every row.

use std::sync::Arc;

use rquickjs::function::Args;
use rquickjs::{Ctx, Function, Type};

use quire_value::{Number, Value, text};

use crate::compile::{Entry, Form, error_of};
use crate::sandbox::{Pool, Realm, Sandbox, Stop};
use crate::versions::Versions;
use crate::{Limits, Script, ScriptError};

/// Functions of one query page. Each has a context of its own and cannot see the others. Stays on its thread.
pub struct Functions {
    // Before the runtime in which they live, so that they are dropped first.
    loaded: Vec<Loaded>,
    sandbox: Option<Sandbox>,
    pool: Arc<Pool>,
    limits: Limits,
}

struct Loaded {
    entry: Entry,
    form: Form,
    realm: Realm,
}

impl Functions {
    pub(crate) fn load(
        scripts: &[Script<'_>],
        versions: &Versions,
        pool: Arc<Pool>,
        limits: Limits,
    ) -> Result<Functions, ScriptError> {
        let mut sandbox = pool.take()?;
        sandbox.begin(&limits, limits.function_time);
        sandbox.relieve(&limits);
        let mut functions = Functions { loaded: Vec::new(), sandbox: Some(sandbox), pool, limits };
        for script in scripts {
            let loaded = functions.load_one(script, versions)?;
            functions.loaded.push(loaded);
        }
        functions.sandbox().confine(&limits);
        Ok(functions)
    }

    /// Calls the function at `index` in the order of compilation. `undefined` stands for no result.
    pub fn call(&mut self, index: usize, arguments: &[Value]) -> Result<Value, ScriptError> {
        let loaded = &self.loaded[index];
        let state = &self.sandbox().state;
        let result = loaded.realm.turn(state, |ctx| {
            let mut given = Args::new(ctx.clone(), arguments.len());
            for argument in arguments {
                given.push_arg(to_script(ctx, argument)?)?;
            }
            let entry: Function<'_> = loaded.entry.clone().restore(ctx)?;
            let result: rquickjs::Value<'_> = given.apply(&entry)?;
            from_script(ctx, result)
        });
        match result {
            Ok(result) => result,
            Err(stop) => Err(self.failed(index, stop)),
        }
    }

    /// Grants the time of a page again.
    pub fn renew(&mut self) {
        let limits = self.limits;
        if let Some(sandbox) = &mut self.sandbox {
            sandbox.begin(&limits, limits.function_time);
        }
    }

    fn load_one(&self, script: &Script<'_>, versions: &Versions) -> Result<Loaded, ScriptError> {
        let sandbox = self.sandbox();
        let (compiled, realm, entry) =
            versions.load(sandbox, script, &self.limits, |needs| sandbox.bare_realm(needs))?;
        Ok(Loaded { entry, form: compiled.form, realm })
    }

    fn failed(&self, index: usize, stop: Stop) -> ScriptError {
        let Loaded { realm, form, .. } = &self.loaded[index];
        let sandbox = self.sandbox();
        if matches!(stop, Stop::Null) {
            sandbox.spoil();
        }
        sandbox.relieve(&self.limits);
        let error = error_of(realm, &sandbox.state, stop, *form, &self.limits);
        sandbox.confine(&self.limits);
        if matches!(error, ScriptError::OutOfMemory { .. }) {
            sandbox.spoil();
        }
        error
    }

    fn sandbox(&self) -> &Sandbox {
        self.sandbox.as_ref().expect("taken only when dropped")
    }
}

impl Drop for Functions {
    fn drop(&mut self) {
        self.loaded.clear();
        if let Some(sandbox) = self.sandbox.take() {
            self.pool.give_back(sandbox);
        }
    }
}

/// Arrays and objects go as text: building them member by member would call setters on tampered prototypes.
fn to_script<'js>(ctx: &Ctx<'js>, value: &Value) -> rquickjs::Result<rquickjs::Value<'js>> {
    Ok(match value {
        Value::Undefined => rquickjs::Value::new_undefined(ctx.clone()),
        Value::Null => rquickjs::Value::new_null(ctx.clone()),
        Value::Bool(value) => rquickjs::Value::new_bool(ctx.clone(), *value),
        Value::Number(number) => match number.as_i64().and_then(|value| i32::try_from(value).ok()) {
            Some(value) => rquickjs::Value::new_int(ctx.clone(), value),
            None => rquickjs::Value::new_float(ctx.clone(), number.as_f64()),
        },
        Value::String(text) => rquickjs::String::from_str(ctx.clone(), text)?.into_value(),
        Value::Array(_) | Value::Object(_) => ctx.json_parse(value.to_json())?,
    })
}

fn from_script<'js>(
    ctx: &Ctx<'js>,
    value: rquickjs::Value<'js>,
) -> rquickjs::Result<Result<Value, ScriptError>> {
    let refused = |what| Ok(Err(ScriptError::Result { what }));
    Ok(Ok(match value.type_of() {
        Type::Undefined | Type::Uninitialized => Value::Undefined,
        Type::Null => Value::Null,
        Type::Bool => Value::from(value.as_bool().unwrap_or_default()),
        Type::Int => Value::from(value.as_int().unwrap_or_default()),
        Type::Float => match value.as_float() {
            Some(number) if number.is_finite() => Value::Number(Number::from(number).normalized()),
            _ => Value::Undefined,
        },
        Type::String => match value.get::<String>() {
            Ok(text) => Value::String(text),
            Err(rquickjs::Error::Utf8(_)) => return refused("text with half a character"),
            Err(error) => return Err(error),
        },
        Type::Function | Type::Constructor => return refused("a function"),
        Type::Symbol => return refused("a symbol"),
        Type::BigInt => return refused("a BigInt"),
        _ => return from_json(ctx, value),
    }))
}

fn from_json<'js>(
    ctx: &Ctx<'js>,
    value: rquickjs::Value<'js>,
) -> rquickjs::Result<Result<Value, ScriptError>> {
    let Some(json) = ctx.json_stringify(value)? else { return Ok(Ok(Value::Undefined)) };
    let parsed = text::parse(json.to_string()?.as_bytes(), text::Limits::default());
    Ok(parsed.map_err(|_| ScriptError::Result { what: "a value nested too deeply" }))
}
