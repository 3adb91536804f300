//! Stored procedures.

use std::time::Duration;

use quire_script::{Call, Outcome, ScriptRun};

use super::attempts::ScriptPartition;
use super::{ContainerInfo, header_pairs};
use crate::api::{EngineError, ExecuteProcedure, ProcedureDone, ScriptError, ScriptFailure, charge};
use crate::catalog::{Container, RoutedKey};
use crate::runtime::Shared;
use crate::runtime::scripting::ScriptSource;

const NO_PARAMETERS: &str = "[]";

pub(crate) fn execute(
    shared: &Shared,
    container: &Container,
    place: &RoutedKey<'_>,
    call: &ExecuteProcedure,
    charge: &mut f64,
) -> Result<ProcedureDone, EngineError> {
    container.check_open()?;
    let procedure = container.scripts().procedure(&call.id);
    let procedure = procedure
        .ok_or_else(|| EngineError::ResourceNotFound { kind: "stored procedure", id: call.id.clone() })?;
    let source = ScriptSource::of(procedure);
    shared.scripts.check_blocked(&source)?;
    let parameters = parameters(call)?;
    let about = ContainerInfo::of(container);
    let headers = header_pairs(&call.headers);
    let run = ScriptRun {
        script: source.script(),
        call: Call::Procedure { parameters },
        collection: about.collection(),
        headers: &headers,
        logging: call.logging,
        time_used: Duration::ZERO,
    };
    let charge_max = call.charge_max.unwrap_or(f64::INFINITY);
    let room =
        ScriptPartition { shared, container, place, scripts: &[&source], charge_max, cancel: &call.cancel };
    let mut spent = 0.0;
    let result = room.transact(&mut spent, |transaction, allowance| {
        super::run(&shared.scripts, &source, &run, transaction, &place.key, allowance)
    });
    *charge = charge::SCRIPT + spent;
    let (outcome, _) = result?;
    Ok(done(outcome))
}

fn parameters(call: &ExecuteProcedure) -> Result<&str, EngineError> {
    if call.parameters.is_empty() {
        return Ok(NO_PARAMETERS);
    }
    std::str::from_utf8(&call.parameters).map_err(|_| {
        let error = ScriptError::Parameters { count_max: crate::api::ScriptLimits::ARGUMENT_COUNT_MAX };
        EngineError::Script(Box::new(ScriptFailure { error, log: None }))
    })
}

/// An unhandled rejection is ignored, as in the service; it is added to the script's log.
fn done(outcome: Outcome) -> ProcedureDone {
    let Outcome { body, mut log, unhandled_rejections } = outcome;
    if let Some(log) = log.as_mut().filter(|_| unhandled_rejections > 0) {
        log.push_str(&format!("[{unhandled_rejections} promise(s) were rejected and nobody handled it]"));
    }
    ProcedureDone { body: body.unwrap_or_else(|| "\"\"".to_owned()), log }
}
