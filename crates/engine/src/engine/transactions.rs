//! Batches of one container, and transactions over items of a database.

use std::sync::Arc;

use quire_resource::{PartitionKey, SessionToken};
use quire_sql::WriteMeter;

use super::Engine;
use super::after_split::{HELD_MAX, check_name, current};
use crate::api::{Answer, Cancel, EngineError, charge};
use crate::catalog::Container;
use crate::transactions::across::{TransactionRun, TransactionTarget, check_count, failed, key_of};
use crate::transactions::batch::{BatchOperation, Bulk, OperationResult, atomic, bulk};
use crate::transactions::{TransactionAnswer, TransactionOperation};

/// One transaction is overtaken by so many splits at most.
const MOVES_MAX: u32 = 8;

impl Engine {
    /// All operations or none, in order, each seeing those before it. When one fails its result says why, and all
    /// others are [`EngineError::FailedDependency`].
    pub fn write_batch(
        &self,
        container: &Arc<Container>,
        key: &PartitionKey,
        operations: &[BatchOperation],
        session: Option<&SessionToken>,
        cancel: &Cancel,
    ) -> Answer<Vec<OperationResult>> {
        let run = || {
            self.on_current(container, |container| {
                atomic::write_batch(&self.shared, container, key, operations, session, cancel)
            })
        };
        cancel.watch(|| WriteMeter::limited(&self.shared.query_memory, run))
    }

    /// Every operation for itself. Operations on one item keep their order.
    pub fn bulk(&self, container: &Arc<Container>, bulk: Bulk) -> Answer<Vec<OperationResult>> {
        let run = || self.run_bulk(container, &bulk);
        bulk.cancel.watch(|| WriteMeter::limited(&self.shared.query_memory, run))
    }

    fn run_bulk(&self, container: &Arc<Container>, bulk: &Bulk) -> Answer<Vec<OperationResult>> {
        let mut answer =
            self.on_current(container, |container| bulk::run(&self.shared, container, bulk.clone(), 0));
        let mut container = Arc::clone(container);
        // What met a split was not done, nor what came after it: it goes on where the partitions now are.
        while let Ok(results) = &mut answer.result
            && results.iter().any(OperationResult::is_moved)
        {
            let left: Vec<usize> = (0..results.len()).filter(|at| results[*at].is_not_done()).collect();
            let taken =
                results.iter().filter_map(|result| Some(result.result.as_ref().ok()?.body.len())).sum();
            let rest = match self.successor(&container) {
                Ok(successor) => {
                    let operations = left.iter().map(|at| bulk.operations[*at].clone()).collect();
                    container = successor;
                    bulk::run(&self.shared, &container, Bulk { operations, ..bulk.clone() }, taken)
                }
                Err(error) => Answer { charge: 0.0, position: None, result: Err(error) },
            };
            answer.position = rest.position.or(answer.position);
            match rest.result {
                Ok(rest) => left.iter().zip(rest).for_each(|(at, result)| results[*at] = result),
                // Such as that the partition they name is gone.
                Err(error) => left.iter().for_each(|at| results[*at].result = Err(error.duplicate())),
            }
            answer.charge = charge::rounded(results.iter().map(|result| result.charge).sum());
        }
        answer
    }

    /// Runs operations on any items of a database, all or none of them.
    pub fn transact(
        &self,
        database: &str,
        operations: Vec<TransactionOperation>,
        cancel: &Cancel,
    ) -> Result<TransactionAnswer, EngineError> {
        self.catalog.database(database)?;
        check_count(operations.len())?;
        if !self.shared.storage.caps().commit_spans_partitions {
            return Err(EngineError::NotSupported { feature: "a transaction on this storage".to_owned() });
        }
        let (count, mut containers, mut targets) = (operations.len(), Vec::new(), Vec::new());
        let mut steps = Vec::with_capacity(count);
        for (at, operation) in operations.into_iter().enumerate() {
            match self.target(database, &operation, &mut containers, &mut targets) {
                Ok(target) => steps.push((target, operation)),
                Err(error) => return Ok(failed(at, error, count, 0.0, Vec::new())),
            }
        }
        for _ in 0..MOVES_MAX {
            let shared = &self.shared;
            let run =
                TransactionRun { shared, containers: &containers, targets: &targets, steps: &steps, cancel };
            match cancel.watch(|| WriteMeter::limited(&shared.query_memory, || run.run())) {
                Err(EngineError::PartitionMoved) => self.follow(&mut containers)?,
                answer => return answer,
            }
        }
        Err(EngineError::Overloaded)
    }

    /// The containers after a split that one of them has just met.
    fn follow(&self, containers: &mut [Arc<Container>]) -> Result<(), EngineError> {
        self.catalog.settle_unresolved()?;
        for container in containers {
            container.partitions.access().wait_while_held(HELD_MAX);
            let current = current(&self.catalog, container)?;
            check_name(container, &current)?;
            *container = current;
        }
        Ok(())
    }

    /// Which logical partition an operation is about.
    fn target(
        &self,
        database: &str,
        operation: &TransactionOperation,
        containers: &mut Vec<Arc<Container>>,
        targets: &mut Vec<TransactionTarget>,
    ) -> Result<usize, EngineError> {
        let container = self.catalog.container(database, &operation.container)?;
        let key = key_of(&container, operation)?;
        let at = containers.iter().position(|other| other.number == container.number);
        let at = at.unwrap_or_else(|| {
            containers.push(container);
            containers.len() - 1
        });
        let found = targets.iter().position(|target| target.container == at && target.key == key);
        Ok(found.unwrap_or_else(|| {
            targets.push(TransactionTarget { container: at, key });
            targets.len() - 1
        }))
    }
}
