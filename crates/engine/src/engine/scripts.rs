//! Stored procedures.

use std::sync::Arc;

use quire_sql::WriteMeter;

use super::Engine;
use crate::api::{Answer, ExecuteProcedure, ExecuteSystemProcedure, ProcedureDone, charge};
use crate::catalog::{Container, RoutedKey};
use crate::scripts::procedures::execute;
use crate::scripts::system;

impl Engine {
    /// Runs a procedure in one logical partition, as one transaction.
    pub fn execute_procedure(
        &self,
        container: &Arc<Container>,
        call: ExecuteProcedure,
    ) -> Answer<ProcedureDone> {
        self.on_current(container, |container| {
            let mut charge = charge::REFUSED;
            let place = match RoutedKey::of(container, call.partition_key.clone()) {
                Ok(place) => place,
                Err(error) => return Answer { charge, position: None, result: Err(error) },
            };
            let run = || execute(&self.shared, container, &place, &call, &mut charge);
            let result = call.cancel.watch(|| WriteMeter::limited(&self.shared.query_memory, run));
            // Asked for after the run, so it covers it.
            Answer { charge, position: place.partition.position().ok(), result }
        })
    }

    /// Runs a procedure that every container has.
    pub fn execute_system_procedure(
        &self,
        container: &Arc<Container>,
        call: ExecuteSystemProcedure,
    ) -> Answer<ProcedureDone> {
        let soft_time = self.shared.scripts.scripts.limits().soft_time;
        let transact = |operations| self.transact(&container.database.id, operations, &call.cancel);
        self.on_current(container, |container| system::execute(container, &call, soft_time, &transact))
    }
}
