//! Requests that met a partition while it was split, or a container while its writers were held: nothing of them was done, so
//! they run once more.

use std::sync::Arc;
use std::time::Duration;

use crate::api::{Answer, EngineError};
use crate::catalog::{Catalog, Container};
use crate::engine::Engine;
use crate::sync::sleep;

/// One request is overtaken by so many splits at most.
const RUNS_MAX: u32 = 8;
/// Writers of a container that takes another's place are held for less.
pub(crate) const HELD_MAX: Duration = Duration::from_secs(5);
/// Looks for the container after a split.
const LOOKS_MAX: u32 = 50;

impl Engine {
    /// Runs a request, and again on the container as it then is when a partition was split meanwhile.
    pub(crate) fn on_current<T>(
        &self,
        container: &Arc<Container>,
        run: impl FnMut(&Arc<Container>) -> Answer<T>,
    ) -> Answer<T> {
        on_current(&self.catalog, container, run)
    }

    /// The container after the split that someone has just met.
    pub(crate) fn successor(&self, container: &Arc<Container>) -> Result<Arc<Container>, EngineError> {
        successor(&self.catalog, container)
    }
}

pub(crate) fn on_current<T>(
    catalog: &Catalog,
    container: &Arc<Container>,
    run: impl FnMut(&Arc<Container>) -> Answer<T>,
) -> Answer<T> {
    let answer = retry_until_current(catalog, container, run);
    Answer { result: answer.result.map_err(|error| if_replaced(container, error)), ..answer }
}

/// What took its place is gone, too, where a refactoring was undone.
pub(crate) fn if_replaced(container: &Container, error: EngineError) -> EngineError {
    match error {
        EngineError::ResourceNotFound { kind: "container", .. } if container.is_closed() => {
            EngineError::ContainerReplaced
        }
        error => error,
    }
}

fn retry_until_current<T>(
    catalog: &Catalog,
    container: &Arc<Container>,
    mut run: impl FnMut(&Arc<Container>) -> Answer<T>,
) -> Answer<T> {
    let mut answer = run(container);
    let mut container = Arc::clone(container);
    for _ in 0..RUNS_MAX {
        if !matches!(answer.result, Err(EngineError::PartitionMoved)) {
            return answer;
        }
        container = match successor(catalog, &container) {
            Ok(successor) => successor,
            Err(error) => return Answer { result: Err(error), ..answer },
        };
        answer = run(&container);
    }
    answer
}

pub(crate) fn current(catalog: &Catalog, container: &Container) -> Result<Arc<Container>, EngineError> {
    catalog.current(container).ok_or_else(|| if_replaced(container, container.not_found()))
}

/// Another container may have got the name.
pub(crate) fn check_name(container: &Container, current: &Container) -> Result<(), EngineError> {
    match container.definition.id == current.definition.id {
        true => Ok(()),
        false => Err(EngineError::ContainerReplaced),
    }
}

fn successor(catalog: &Catalog, container: &Arc<Container>) -> Result<Arc<Container>, EngineError> {
    for _ in 0..LOOKS_MAX {
        // Waits for the one that is being published.
        catalog.settle_unresolved()?;
        container.partitions.access().wait_while_held(HELD_MAX);
        let current = current(catalog, container)?;
        check_name(container, &current)?;
        if !current.partitions.is_splitting() {
            return Ok(current);
        }
        if !Arc::ptr_eq(&current.partitions, &container.partitions) {
            return Ok(current);
        }
        sleep(Duration::from_millis(1));
    }
    Err(EngineError::Overloaded)
}
