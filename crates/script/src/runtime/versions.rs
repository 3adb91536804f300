//! Compiled scripts by version: each is compiled once, then loaded into the contexts of its runs.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::runtime::compile::{Compiled, Entry, Form, error_of};
use crate::runtime::realm::{Realm, TurnError};
use crate::runtime::sandbox::Sandbox;
use crate::{Limits, Script, ScriptError};

/// Limits of the cache; beyond either, it is emptied.
const COUNT_MAX: usize = 10_000;
const SIZE_BYTES_MAX: usize = 64 << 20;

#[derive(Default)]
pub(crate) struct Versions {
    known: Mutex<CachedScript>,
}

#[derive(Default)]
struct CachedScript {
    compiled: HashMap<String, Arc<Compiled>>,
    size_bytes: usize,
}

impl Versions {
    pub(crate) fn is_loaded(&self, version: &str) -> bool {
        self.known.lock().compiled.contains_key(version)
    }

    /// The entry function of a script, in a realm that `make_realm` makes ready for it. `return_to_pool` gets those in which there is none.
    pub(crate) fn load<R: Borrow<Realm>>(
        &self,
        sandbox: &Sandbox,
        script: &Script<'_>,
        limits: &Limits,
        make_realm: impl Fn(&Compiled) -> Result<R, ScriptError>,
        return_to_pool: impl Fn(R, &Compiled),
    ) -> Result<(Arc<Compiled>, R, Entry), ScriptError> {
        let enter = |compiled: &Compiled| enter(sandbox, compiled, limits, &make_realm, &return_to_pool);
        let known = self.known.lock().compiled.get(script.version).cloned();
        if let Some(compiled) = known {
            let (realm, entry) = enter(&compiled)?.ok_or_else(no_function)?;
            return Ok((compiled, realm, entry));
        }
        let mut compiled = Compiled::new(sandbox, script.body, limits)?;
        let mut entered = enter(&compiled)?;
        if entered.is_none() && compiled.form == Form::Expression {
            compiled = Compiled::as_program(sandbox, script.body, limits)?;
            entered = enter(&compiled)?;
        }
        let (realm, entry) = entered.ok_or_else(no_function)?;
        let compiled = Arc::new(compiled);
        self.known.lock().add(script.version, &compiled);
        Ok((compiled, realm, entry))
    }
}

/// `None` if the text has no function.
fn enter<R: Borrow<Realm>>(
    sandbox: &Sandbox,
    compiled: &Compiled,
    limits: &Limits,
    make_realm: impl Fn(&Compiled) -> Result<R, ScriptError>,
    return_to_pool: impl Fn(R, &Compiled),
) -> Result<Option<(R, Entry)>, ScriptError> {
    let made = make_realm(compiled)?;
    let realm = made.borrow();
    match compiled.entry(realm, &sandbox.state) {
        Ok(Some(entry)) => Ok(Some((made, entry))),
        Ok(None) => {
            return_to_pool(made, compiled);
            Ok(None)
        }
        Err(stop) => {
            if matches!(stop, TurnError::Null) {
                sandbox.mark_unusable();
            }
            let error = error_of(realm, &sandbox.state, stop, compiled.form, limits);
            if error.leaves_runtime_usable() {
                return_to_pool(made, compiled);
            }
            Err(error)
        }
    }
}

fn no_function() -> ScriptError {
    ScriptError::Compile { message: "SyntaxError: the script has no function".to_owned(), position: None }
}

impl CachedScript {
    fn add(&mut self, version: &str, compiled: &Arc<Compiled>) {
        if self.compiled.len() >= COUNT_MAX || self.size_bytes + compiled.size_bytes() > SIZE_BYTES_MAX {
            *self = CachedScript::default();
        }
        self.size_bytes += compiled.size_bytes();
        if let Some(old) = self.compiled.insert(version.to_owned(), Arc::clone(compiled)) {
            self.size_bytes -= old.size_bytes();
        }
    }
}
