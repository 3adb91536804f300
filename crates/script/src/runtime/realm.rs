//! The context of a run, with the prelude's functions.

use std::borrow::Borrow;

use rquickjs::function::Args;
use rquickjs::{Context, Ctx, Error, Function, Object, Persistent, Value};

use super::sandbox::{RunState, engine_failed};
use super::shared_realm::{LoadedPrograms, SharedRealm};
use crate::ScriptError;

/// A context with the prelude's functions.
pub(crate) struct Realm {
    pub(crate) context: Context,
    /// A list of them.
    pub(super) api: Option<Persistent<Object<'static>>>,
    /// Of a context that runs share.
    pub(super) programs: Option<LoadedPrograms>,
}

/// The prelude's functions, in the order of the list at the end of `prelude/api.js`.
#[derive(Clone, Copy)]
pub(crate) enum ApiFunction {
    Begin,
    End,
    Call,
    Take,
    Leave,
    Item,
    Page,
    Error,
    Body,
    AbortReason,
    Shared,
}

impl ApiFunction {
    pub(crate) fn of<'js>(self, api: &Object<'js>) -> rquickjs::Result<Function<'js>> {
        api.get(self as u32)
    }
}

/// The context of a run.
pub(crate) enum RunRealm {
    Own(Realm),
    Shared(SharedRealm),
}

impl RunRealm {
    /// Whether nothing in it can be changed but by its own run.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self, RunRealm::Shared(_))
    }
}

impl Borrow<Realm> for RunRealm {
    fn borrow(&self) -> &Realm {
        match self {
            RunRealm::Own(realm) => realm,
            RunRealm::Shared(shared) => shared.realm(),
        }
    }
}

/// Why a turn of script code failed.
pub(crate) enum TurnError {
    Thrown(Persistent<Value<'static>>),
    /// Thrown by the script, or by the engine when out of memory.
    Null,
    Failed(ScriptError),
}

impl Realm {
    pub(super) fn with_api(
        context: Context,
        api: impl for<'js> FnOnce(&Ctx<'js>) -> rquickjs::Result<Object<'js>>,
    ) -> Result<Realm, ScriptError> {
        let api = context.with(|ctx| Ok(Persistent::save(&ctx, api(&ctx)?))).map_err(engine_failed)?;
        Ok(Realm { context, api: Some(api), programs: None })
    }

    /// Makes what belongs to one run; `arguments` are those of the prelude's `begin`.
    pub(crate) fn begin(
        &self,
        arguments: impl for<'js> FnOnce(&mut Args<'js>) -> rquickjs::Result<()>,
    ) -> Result<(), ScriptError> {
        let begun = self.context.with(|ctx| {
            let begin = ApiFunction::Begin.of(&self.api(&ctx)?)?;
            let mut given = Args::new_unsized(ctx);
            arguments(&mut given)?;
            given.apply::<()>(&begin)
        });
        begun.map_err(engine_failed)
    }

    /// One turn: runs `body` in the context.
    pub(crate) fn turn<T>(
        &self,
        state: &RunState,
        body: impl for<'js> FnOnce(&Ctx<'js>) -> rquickjs::Result<T>,
    ) -> Result<T, TurnError> {
        self.context.with(|ctx| {
            let result = body(&ctx);
            if state.is_interrupted() {
                drop(ctx.catch());
                return Err(TurnError::Failed(ScriptError::TimedOut));
            }
            result.map_err(|error| match error {
                Error::Exception => match ctx.catch() {
                    thrown if thrown.is_null() => TurnError::Null,
                    thrown => TurnError::Thrown(Persistent::save(&ctx, thrown)),
                },
                other => TurnError::Failed(engine_failed(other)),
            })
        })
    }

    /// The prelude's functions.
    pub(crate) fn api<'js>(&self, ctx: &Ctx<'js>) -> rquickjs::Result<Object<'js>> {
        self.api.clone().ok_or(Error::Unknown)?.restore(ctx)
    }
}
