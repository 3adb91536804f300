//! The way back: which refactorings can be undone, and in which container.

use quire_value::Value;

use super::order::RefactoringOrder;
use super::rows::{self, Refactoring, RefactoringState};
use super::{Refactorings, container_not_found, refused};
use crate::api::EngineError;

impl Refactorings {
    /// Puts back what items had.
    pub fn undo(&self, database: u32, id: &str) -> Result<Refactoring, EngineError> {
        let _state_lock = self.state_lock.lock();
        self.settle(database)?;
        let own = self.find(database, id)?;
        if matches!(own.state, RefactoringState::Undoing | RefactoringState::Undone) {
            return Err(refused(&own, "undone", own.state));
        }
        if own.rekey.is_some() {
            self.check_rekey_undo(&own)?;
            return self.set_state(own, RefactoringState::Undoing);
        }
        let is_over = own.journal_until.is_some_and(|until| until <= self.shared.clock.now_ms());
        let order = own.order()?;
        if !order.has_journal || is_over {
            let why = "it has no journal".to_owned();
            return Err(EngineError::RefactoringRefuses { id: own.id(), verb: "undone", why });
        }
        let was_finished = own.state == RefactoringState::Finished;
        let state = self.catalog.state();
        let current = self.current_container(&own)?;
        let container = state.container(current).ok_or_else(|| container_not_found(&order.container))?;
        if was_finished {
            self.check_alone(database, &order, container)?;
        }
        if own.plan.is_some() {
            self.check_not_rekeyed_since(&own, &order)?;
            return self.undo_structure(own, was_finished);
        }
        self.check_container(&order, current)?;
        if !was_finished {
            return self.set_state(own, RefactoringState::Undoing);
        }
        // It is open again from here on: a model may have come before.
        rows::put(
            &self.shared,
            &self.catalog,
            &Refactoring { state: RefactoringState::Undoing, ..own.clone() },
        )?;
        if let Err(error) = self.check_settled(&order, current) {
            rows::put(&self.shared, &self.catalog, &own)?;
            return Err(error);
        }
        self.set_state(own, RefactoringState::Undoing)
    }

    /// The container whose items an undo writes: another one than it was made in, where that has got another partition key since.
    pub(super) fn current_container(&self, own: &Refactoring) -> Result<u32, EngineError> {
        let is_successor = |other: &&Refactoring| {
            let places = other.rekey.as_ref().filter(|_| other.state == RefactoringState::Finished);
            places.is_some_and(|places| places.old == Some(own.container))
        };
        let all = self.list(own.database)?;
        Ok(all.iter().find(is_successor).map_or(own.container, |other| other.container))
    }

    /// What items of several containers had is in the journals of these: copies under another key have none.
    fn check_not_rekeyed_since(
        &self,
        own: &Refactoring,
        order: &RefactoringOrder,
    ) -> Result<(), EngineError> {
        let name = own.body.get("container").and_then(Value::as_str).unwrap_or_default();
        let names = order.containers(name);
        let conflicts = |other: &&Refactoring| {
            let is_exchanged =
                other.rekey.as_ref().is_some_and(|places| places.old.is_some() || places.is_back);
            let container = other.body.get("container").and_then(Value::as_str).unwrap_or_default();
            other.number > own.number && is_exchanged && names.iter().any(|name| name == container)
        };
        match self.list(own.database)?.iter().find(conflicts) {
            Some(other) => {
                let why = format!("a container of it got another partition key since, by {}", other.id());
                Err(EngineError::RefactoringRefuses { id: own.id(), verb: "undone", why })
            }
            None => Ok(()),
        }
    }

    fn undo_structure(&self, mut own: Refactoring, was_finished: bool) -> Result<Refactoring, EngineError> {
        own.position = None;
        if was_finished {
            self.check_free_names(&own)?;
        }
        if let Some(plan) = &mut own.plan {
            (plan.phase, plan.undecided, plan.error) = (0, 0, None);
            plan.was_finished |= was_finished;
        }
        self.set_state(own, RefactoringState::Undoing)
    }

    /// The link of an embed is declared again by its undo.
    fn check_free_names(&self, own: &Refactoring) -> Result<(), EngineError> {
        let link = own.plan.as_ref().and_then(|plan| plan.link.get("name")?.as_str());
        let model = self.catalog.database_model(own.database);
        let is_taken = |name: &&str| {
            model.as_ref().is_some_and(|model| model.model().declarations().any(|own| own == *name))
        };
        match link.filter(is_taken) {
            Some(name) => {
                let why = format!("the model has another declaration '{name}'");
                Err(EngineError::RefactoringRefuses { id: own.id(), verb: "undone", why })
            }
            None => Ok(()),
        }
    }
}
