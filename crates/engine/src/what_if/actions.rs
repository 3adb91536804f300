//! Requests that belong together: what an action read before.

use std::collections::{HashMap, VecDeque};

use quire_profile::{ActionSource, Operation, Record};

use super::replay::RecordedOperation;

/// Actions whose requests are known; the oldest goes.
const ACTIONS_MAX: usize = 4_096;
const STEPS_MAX: usize = 50;

type ActionId = (u64, ActionSource);

/// What one request of an action was about.
#[derive(Clone, Debug)]
pub(super) struct ActionRequest {
    action: Option<ActionId>,
    pub container: String,
    pub operation: Operation,
    pub items: Vec<u64>,
}

#[derive(Default)]
pub(super) struct Actions {
    open: HashMap<ActionId, Vec<ActionRequest>>,
    order: VecDeque<ActionId>,
}

impl ActionRequest {
    pub fn of(recorded: &RecordedOperation<'_>) -> ActionRequest {
        let Record { action, operation, item, query, .. } = recorded.record;
        let returned = query.iter().flat_map(|query| query.items.iter().copied());
        let items = item.iter().copied().chain(returned).collect();
        ActionRequest {
            action: *action,
            container: recorded.container().to_owned(),
            operation: *operation,
            items,
        }
    }
}

impl Actions {
    /// The requests of the same action before this one.
    pub fn add(&mut self, step: ActionRequest) -> Vec<ActionRequest> {
        let Some(action) = step.action else { return Vec::new() };
        if !self.open.contains_key(&action) {
            self.order.push_back(action);
            if self.order.len() > ACTIONS_MAX
                && let Some(oldest) = self.order.pop_front()
            {
                self.open.remove(&oldest);
            }
        }
        let steps = self.open.entry(action).or_default();
        let earlier = steps.clone();
        if steps.len() < STEPS_MAX {
            steps.push(step);
        }
        earlier
    }
}
