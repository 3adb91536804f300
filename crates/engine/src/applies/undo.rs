//! Taking back what an apply job did, stage by stage.

use bytes::Bytes;
use quire_storage::{KeyRange, Op, Scan};
use quire_value::{Item, Limits, Object, Value};

use super::additions::without_declarations;
use super::forward::{changed, has_source, members};
use super::state::{ApplyStage, ApplyState};
use super::{ApplyProgress, ApplyRun};
use crate::api::{Cancel, EngineError, ModelCondition, Precondition, corrupt};
use crate::catalog::Container;
use crate::integrity::key_json;
use crate::jobs::JobId;
use crate::maintain::journal::{self, PlaceChange, RestoreOutcome};
use crate::store::item_row::ItemRow;
use crate::store::keys::{self, CATALOG, ITEMS};
use crate::store::scan;
use crate::transactions::batch::{BatchOperation, BatchVerb, Bulk, bulk};

/// Items of one step.
const PAGE_ITEMS: usize = 100;
const CHANGED_SINCE: &str = "it was changed since";

/// An item that is to be as it was.
struct ItemToRestore {
    key: Vec<u8>,
    operation: BatchOperation,
}

impl ApplyRun<'_> {
    pub(super) fn restore_definition(&self, state: ApplyState) -> Result<ApplyProgress, EngineError> {
        let Some(definition) = &state.definition else {
            return Ok(ApplyProgress::Next(state.at(ApplyStage::UndoRefactoring)));
        };
        let found = match self.container(&definition.container) {
            Err(EngineError::ResourceNotFound { .. }) => {
                return Ok(ApplyProgress::Next(state.at(ApplyStage::UndoRefactoring)));
            }
            found => found?,
        };
        let done = match &definition.before {
            Some(before) => {
                let current = members(&found.definition.json, before);
                self.replace(&definition.container, &changed(&definition.after, before, &current))
            }
            None => self.delete_created(&found, &Value::Object(definition.after.clone())),
        };
        match done {
            Ok(()) => Ok(ApplyProgress::Next(state.at(ApplyStage::UndoRefactoring))),
            // It has just changed: checked again.
            Err(EngineError::PreconditionFailed) => Ok(ApplyProgress::Next(state)),
            Err(error) => Err(error),
        }
    }

    /// A view has nothing of its own.
    fn delete_created(&self, found: &Container, body: &Value) -> Result<(), EngineError> {
        if !has_source(found, body) {
            return Ok(());
        }
        let condition = Precondition { if_match: Some(found.resource.etag.clone()) };
        self.applies.catalog.delete_container(&self.database.name, &found.definition.id, &condition)
    }

    pub(super) fn undo_refactoring(&self, state: ApplyState) -> Result<ApplyProgress, EngineError> {
        let Some(id) = &state.refactoring else {
            return Ok(ApplyProgress::Next(state.at(ApplyStage::RemoveDeclarations)));
        };
        let (refactorings, number) = (&self.applies.refactorings, self.database.number);
        match refactorings.find(number, id) {
            Err(EngineError::ResourceNotFound { .. }) => {
                Ok(ApplyProgress::Next(state.at(ApplyStage::RemoveDeclarations)))
            }
            Err(error) => Err(error),
            Ok(own) if matches!(own.state.name(), "undoing" | "undone") => {
                Ok(ApplyProgress::Next(state.at(ApplyStage::UndoingRefactoring)))
            }
            Ok(_) => {
                refactorings.undo(number, id)?;
                Ok(ApplyProgress::Next(state.at(ApplyStage::UndoingRefactoring)))
            }
        }
    }

    pub(super) fn undoing_refactoring(&self, mut state: ApplyState) -> Result<ApplyProgress, EngineError> {
        let id = state.refactoring.clone().unwrap_or_default();
        let own = match self.applies.refactorings.find(self.database.number, &id) {
            Err(EngineError::ResourceNotFound { .. }) => {
                return Ok(ApplyProgress::Next(state.at(ApplyStage::RemoveDeclarations)));
            }
            own => own?,
        };
        let job = own.jobs.last().and_then(|job| job.parse::<JobId>().ok());
        if own.state.name() != "undone" {
            return self.wait_for(job, &state);
        }
        state.items += self.items_of(job)?;
        own.conflicts.iter().for_each(|conflict| state.add_conflict(conflict.clone()));
        Ok(ApplyProgress::Next(state.at(ApplyStage::RemoveDeclarations)))
    }

    /// A link that other declarations use by now stays.
    pub(super) fn remove_declarations(&self, state: ApplyState) -> Result<ApplyProgress, EngineError> {
        let (model, etag) = self.model()?;
        let left = without_declarations(model.clone(), &state.added.names);
        if left == model {
            return Ok(ApplyProgress::Next(state.at(ApplyStage::RestoreItems)));
        }
        let condition = ModelCondition { if_match: Some(etag), if_none_match: None };
        match self.applies.catalog.put_model(&self.database.name, &Value::Object(left), &condition) {
            Ok(_) => Ok(ApplyProgress::Next(state.at(ApplyStage::RestoreItems))),
            Err(EngineError::PreconditionFailed) => Ok(ApplyProgress::Next(state)),
            Err(error) => Err(error),
        }
    }

    /// Some items of the journal.
    pub(super) fn restore_items(&self, mut state: ApplyState) -> Result<ApplyProgress, EngineError> {
        let catalog = self.applies.catalog.state();
        let containers = catalog.database(self.database.number);
        for container in containers.into_iter().flat_map(|database| database.containers.iter()) {
            let range = KeyRange::prefix(&keys::journal_prefix(container.number, state.journal));
            let page = Scan { rows_max: PAGE_ITEMS, ..scan(CATALOG, range) };
            let rows = self.applies.shared.storage.snapshot()?.scan(&page)?.rows;
            if !rows.is_empty() {
                self.restore_some_items(container, rows, &mut state)?;
                return Ok(ApplyProgress::Next(state));
            }
        }
        Ok(ApplyProgress::Next(state.at(ApplyStage::Reopen)))
    }

    /// The journal of an item goes when the item is as it was, or was found to be another one.
    fn restore_some_items(
        &self,
        container: &Container,
        rows: Vec<(Vec<u8>, Vec<u8>)>,
        state: &mut ApplyState,
    ) -> Result<(), EngineError> {
        let (mut ended, mut restored) = (Vec::new(), Vec::new());
        for (key, row) in rows {
            match self.restored(container, &key, &journal::read(&key, &row)?, state)? {
                Some(operation) => restored.push(ItemToRestore { key, operation }),
                None => ended.push(key),
            }
        }
        let operations = restored.iter().map(|own| own.operation.clone()).collect();
        let results = self.write(container, operations)?;
        for (own, result) in restored.into_iter().zip(results) {
            match result {
                // It is checked again.
                Err(EngineError::PreconditionFailed) => continue,
                Err(EngineError::ItemNotFound { .. }) => {}
                Err(EngineError::Cancelled) => return Err(EngineError::Cancelled),
                Err(error) => {
                    state.add_conflict(conflict(container, &own.operation.body, "", &error.to_string()))
                }
                Ok(()) => state.items += 1,
            }
            ended.push(own.key);
        }
        let ops: Vec<Op> = ended.into_iter().map(|key| Op::Delete { space: CATALOG, key }).collect();
        if ops.is_empty() { Ok(()) } else { self.applies.shared.jobs.commit_rows(ops) }
    }

    /// The write that makes an item what it was; nothing where it is, or is gone.
    fn restored(
        &self,
        container: &Container,
        key: &[u8],
        changes: &[PlaceChange],
        state: &mut ApplyState,
    ) -> Result<Option<BatchOperation>, EngineError> {
        let rid = keys::rid_of_journal_key(key).ok_or_else(|| corrupt("key of a journal"))?;
        let snapshot = self.applies.shared.storage.snapshot()?;
        let Some(bytes) = snapshot.get(ITEMS, &keys::item(container.number, rid))? else { return Ok(None) };
        let row = ItemRow::parse(&bytes)?;
        if container.is_invisible(&row, &container.visibility_point(&self.applies.shared)) {
            return Ok(None);
        }
        let mut item = row.node()?.to_value();
        let results: Vec<RestoreOutcome> = changes.iter().map(|change| change.restore(&mut item)).collect();
        let body = Bytes::from(item.to_json());
        for (change, _) in
            changes.iter().zip(&results).filter(|(_, result)| **result == RestoreOutcome::Conflict)
        {
            state.add_conflict(conflict(container, &body, &change.path(), CHANGED_SINCE));
        }
        if !results.contains(&RestoreOutcome::Done) {
            return Ok(None);
        }
        let id = item.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
        Ok(Some(BatchOperation {
            verb: BatchVerb::Replace { id },
            body,
            if_match: Some(row.stamp.etag()),
            if_none_match: None,
            indexing: row.indexing.directive,
            partition_key: None,
            want_body: false,
        }))
    }

    fn write(
        &self,
        container: &Container,
        operations: Vec<BatchOperation>,
    ) -> Result<Vec<Result<(), EngineError>>, EngineError> {
        if operations.is_empty() {
            return Ok(Vec::new());
        }
        let bulk = Bulk {
            operations,
            partition_id: None,
            partition_key: None,
            continue_on_error: true,
            session: None,
            cancel: Cancel::default(),
        };
        let results = bulk::run(&self.applies.shared, container, bulk, 0).result?;
        let mut written = Vec::with_capacity(results.len());
        for result in results {
            match result.result {
                Err(error @ EngineError::PreconditionFailed) => written.push(Err(error)),
                // Nobody knows, or it may go well the next time: all of it is done again.
                Err(error) if !super::is_refusal(&error) => return Err(error),
                result => written.push(result.map(drop)),
            }
        }
        Ok(written)
    }

    pub(super) fn reopen(&self, state: &ApplyState) -> Result<ApplyProgress, EngineError> {
        self.applies.profiles.decide(self.database.number, &state.finding, None)?;
        let result = state.result("undone");
        Ok(match state.error.clone() {
            Some(error) => ApplyProgress::Failed { error, result },
            None => ApplyProgress::Done(result),
        })
    }
}

fn conflict(container: &Container, body: &[u8], path: &str, why: &str) -> Value {
    let item = Item::from_json(body, Limits::default()).ok();
    let root = item.as_ref().map(|item| item.root());
    let key = root.and_then(|root| container.definition.partition_key.extract(root).ok());
    let id = root.and_then(|root| root.get("id")?.as_str().map(str::to_owned));
    let mut json = Object::new();
    json.set("container", container.definition.id.as_str());
    json.set("id", id.map_or(Value::Null, Value::from));
    json.set("partitionKey", key.map_or(Value::Null, |key| key_json(&key)));
    json.set("path", path);
    json.set("reason", why);
    Value::Object(json)
}
