//! Stored procedures.

use std::sync::Arc;
use std::time::Duration;

use quire_script::{Call, Outcome, Run};

use super::attempts::Room;
use super::{About, Source, header_pairs};
use crate::ScriptError;
use crate::api::{Answer, EngineError, ExecuteProcedure, ProcedureDone, ScriptFailure, charge};
use crate::catalog::Container;
use crate::engine::Engine;
use crate::items::Place;
use crate::runtime::Shared;

const NO_PARAMETERS: &str = "[]";

impl Engine {
    /// Runs a procedure in one logical partition, as one transaction.
    pub fn execute_procedure(
        &self,
        container: &Arc<Container>,
        call: ExecuteProcedure,
    ) -> Answer<ProcedureDone> {
        self.on_current(container, |container| {
            let mut charge = charge::REFUSED;
            let place = match Place::of(container, call.partition_key.clone()) {
                Ok(place) => place,
                Err(error) => return Answer { charge, position: None, result: Err(error) },
            };
            let result = execute(&self.shared, container, &place, &call, &mut charge);
            // Asked for after the run, so it covers it.
            Answer { charge, position: place.partition.position().ok(), result }
        })
    }
}

fn execute(
    shared: &Shared,
    container: &Container,
    place: &Place<'_>,
    call: &ExecuteProcedure,
    charge: &mut f64,
) -> Result<ProcedureDone, EngineError> {
    container.check_open()?;
    let procedure = container.scripts().procedure(&call.id);
    let procedure = procedure
        .ok_or_else(|| EngineError::ResourceNotFound { kind: "stored procedure", id: call.id.clone() })?;
    let source = Source::of(procedure);
    shared.scripts.check_blocked(&source)?;
    place.partition.position_for(call.session.as_ref())?;
    let parameters = parameters(call)?;
    let about = About::of(container);
    let headers = header_pairs(&call.headers);
    let run = Run {
        script: source.script(),
        call: Call::Procedure { parameters },
        collection: about.collection(),
        headers: &headers,
        logging: call.logging,
        time_used: Duration::ZERO,
    };
    let charge_max = call.charge_max.unwrap_or(f64::INFINITY);
    let room = Room { shared, container, place, scripts: &[&source], charge_max, cancel: &call.cancel };
    let mut spent = 0.0;
    let result = room.transact(&mut spent, |transaction, allowance| {
        shared.scripts.run(&source, &run, transaction, &place.key, allowance)
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
        let error = ScriptError::Parameters { count_max: crate::ScriptLimits::ARGUMENT_COUNT_MAX };
        EngineError::Script(Box::new(ScriptFailure { error, log: None }))
    })
}

/// A rejection that nobody handles is swallowed, as the service does; whoever looks at the log is told.
fn done(outcome: Outcome) -> ProcedureDone {
    let Outcome { body, mut log, unhandled_rejections } = outcome;
    if let Some(log) = log.as_mut().filter(|_| unhandled_rejections > 0) {
        log.push_str(&format!("[{unhandled_rejections} promise(s) were rejected and nobody handled it]"));
    }
    ProcedureDone { body: body.unwrap_or_else(|| "\"\"".to_owned()), log }
}
