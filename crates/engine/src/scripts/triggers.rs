//! Writes with triggers: the pre-trigger, the write and the post-trigger are one transaction.
//!
//! Order: the triggers fit the request; under the transaction existence and `If-Match`; the pre-trigger; the body is checked
//! as any other, then unique keys; the write; the post-trigger; the commit.

use std::time::Duration;

use bytes::Bytes;
use quire_resource::PartitionKey;
use quire_script::{Call, ScriptRun, TriggerOperation};
use quire_value::text::strict;
use quire_value::{Item, Kind, Limits, Value};

use super::attempts::{ScriptAllowance, ScriptPartition};
use super::{ContainerInfo, header_pairs};
use crate::api::{Answer, EngineError, ItemWritten, Resource, WriteItem, WriteKind, charge};
use crate::catalog::{Container, RoutedKey};
use crate::runtime::Shared;
use crate::runtime::scripting::ScriptSource;
use crate::transactions::{ChangeItem, ChangedItem, Transaction, TransactionChange};

pub(crate) fn write_item(shared: &Shared, container: &Container, write: WriteItem) -> Answer<ItemWritten> {
    let mut charge = charge::REFUSED;
    let refused = |error| Answer { charge: charge::REFUSED, position: None, result: Err(error) };
    let triggers = match Triggers::find(container, &write) {
        Ok(triggers) => triggers,
        Err(error) => return refused(error),
    };
    let place = match key_of(container, &write).and_then(|key| RoutedKey::of(container, key)) {
        Ok(place) => place,
        Err(error) => return refused(error),
    };
    let result = run(shared, container, &place, &write, &triggers, &mut charge);
    // Asked for after the write, so it covers it.
    Answer { charge, position: place.partition.position().ok(), result }
}

struct Triggers {
    operation: TriggerOperation,
    pre: Option<ScriptSource>,
    post: Option<ScriptSource>,
}

/// The result of a write with its triggers.
struct TriggeredWrite {
    changed: ChangedItem,
    body: String,
}

impl Triggers {
    fn find(container: &Container, write: &WriteItem) -> Result<Triggers, EngineError> {
        let operation = operation_of(&write.kind);
        let scripts = container.scripts();
        let find = |name: &Option<String>, kind: &str| {
            let Some(name) = name else { return Ok::<_, EngineError>(None) };
            let trigger = scripts.trigger(name).ok_or_else(|| EngineError::BadRequest {
                message: format!("Trigger '{name}' does not exist in the container."),
            })?;
            check_fits(&trigger, kind, operation)?;
            Ok(Some(ScriptSource::of(trigger)))
        };
        let (pre, post) = (find(&write.pre_trigger, "Pre")?, find(&write.post_trigger, "Post")?);
        Ok(Triggers { operation, pre, post })
    }

    fn all(&self) -> impl Iterator<Item = &ScriptSource> {
        self.pre.iter().chain(&self.post)
    }
}

fn operation_of(kind: &WriteKind) -> TriggerOperation {
    match kind {
        WriteKind::Create => TriggerOperation::Create,
        WriteKind::Upsert => TriggerOperation::Upsert,
        // Undocumented: a patch is a kind of replace.
        WriteKind::Replace { .. } | WriteKind::Patch { .. } => TriggerOperation::Replace,
        WriteKind::Delete { .. } => TriggerOperation::Delete,
    }
}

/// The kind by the header that names it, the operation exactly; `Update` is an old word for replace.
fn check_fits(trigger: &Resource, kind: &str, operation: TriggerOperation) -> Result<(), EngineError> {
    let property = |name: &str| trigger.body.get(name).and_then(Value::as_str).unwrap_or_default();
    let invalid = |what: &str, defined: &str, wanted: &str| EngineError::BadRequest {
        message: format!(
            "Trigger '{}' was defined with {what} '{defined}', and therefore is invalid for '{wanted}'.",
            trigger.id
        ),
    };
    let defined = property("triggerType");
    if !defined.eq_ignore_ascii_case(kind) {
        return Err(invalid("type", defined, kind));
    }
    let names: &[&str] = match operation {
        TriggerOperation::Create => &["All", "Create"],
        TriggerOperation::Replace => &["All", "Replace", "Update"],
        TriggerOperation::Upsert => &["All", "Upsert"],
        TriggerOperation::Delete => &["All", "Delete"],
    };
    let defined = property("triggerOperation");
    if names.iter().any(|name| name.eq_ignore_ascii_case(defined)) {
        return Ok(());
    }
    Err(invalid("operation type", defined, names[1]))
}

/// The header's key, or that of the body as it was sent. That what is written has this key is checked when it is.
fn key_of(container: &Container, write: &WriteItem) -> Result<PartitionKey, EngineError> {
    if let Some(key) = &write.partition_key {
        return Ok(key.clone());
    }
    if write.body.is_empty() || matches!(write.kind, WriteKind::Patch { .. }) {
        return Err(EngineError::PartitionKeyMissing);
    }
    let item = Item::from_json(&write.body, Limits::default())?;
    if item.root().kind() != Kind::Object {
        return Err(EngineError::PartitionKeyMissing);
    }
    Ok(container.definition.partition_key.extract(item.root())?)
}

fn run(
    shared: &Shared,
    container: &Container,
    place: &RoutedKey<'_>,
    write: &WriteItem,
    triggers: &Triggers,
    charge: &mut f64,
) -> Result<ItemWritten, EngineError> {
    container.check_open()?;
    triggers.all().try_for_each(|trigger| shared.scripts.check_blocked(trigger))?;
    let scripts: Vec<&ScriptSource> = triggers.all().collect();
    let (charge_max, cancel) = (f64::INFINITY, &write.cancel);
    let room = ScriptPartition { shared, container, place, scripts: &scripts, charge_max, cancel };
    let headers = header_pairs(&write.trigger_headers);
    let work = TriggerRun {
        partition: &room,
        container_info: ContainerInfo::of(container),
        headers: &headers,
        write,
        triggers,
    };
    let mut spent = 0.0;
    let result = room.transact(&mut spent, |transaction, allowance| work.run(transaction, allowance));
    *charge = charge::SCRIPT * triggers.all().count() as f64 + spent;
    let (TriggeredWrite { changed, body }, committed) = result?;
    let body = match committed.stored_as(container, &changed.etag) {
        // A body that a post-trigger set goes to the client.
        Some(stored) if triggers.post.is_none() => Bytes::from(stored),
        _ => Bytes::from(body),
    };
    let body = if write.want_body { body } else { Bytes::new() };
    Ok(ItemWritten { created: changed.created, body, etag: changed.etag, item_lsn: committed.lsn })
}

struct TriggerRun<'a> {
    partition: &'a ScriptPartition<'a>,
    container_info: ContainerInfo,
    headers: &'a [(&'a str, &'a str)],
    write: &'a WriteItem,
    triggers: &'a Triggers,
}

impl TriggerRun<'_> {
    fn run(
        &self,
        transaction: &mut Transaction<'_>,
        allowance: &ScriptAllowance<'_>,
    ) -> Result<TriggeredWrite, EngineError> {
        let change = self.change();
        transaction.check(&change)?;
        let mut change = transaction.patch_as_replace(change)?;
        change.body = self.before(&change.body, transaction, allowance)?;
        let sent = change.body.clone();
        let changed = transaction.write(change)?;
        let stored = transaction.json_of(&changed);
        let body = self.after(&sent, stored, transaction, allowance)?;
        Ok(TriggeredWrite { changed, body })
    }

    fn change(&self) -> ChangeItem {
        let mut if_none_match = None;
        let change = match &self.write.kind {
            WriteKind::Create => TransactionChange::Create,
            WriteKind::Upsert => TransactionChange::Upsert,
            WriteKind::Replace { id } => TransactionChange::Replace { id: id.clone() },
            WriteKind::Delete { id } => TransactionChange::Delete { id: id.clone() },
            WriteKind::Patch { id, if_none_match: condition } => {
                if_none_match.clone_from(condition);
                TransactionChange::Patch { id: id.clone() }
            }
        };
        ChangeItem {
            change,
            body: self.write.body.clone(),
            if_match: self.write.if_match.clone(),
            if_none_match,
            indexing: self.write.indexing,
        }
    }

    /// The body that the pre-trigger leaves.
    fn before(
        &self,
        body: &Bytes,
        transaction: &mut Transaction<'_>,
        allowance: &ScriptAllowance<'_>,
    ) -> Result<Bytes, EngineError> {
        let Some(trigger) = &self.triggers.pre else { return Ok(body.clone()) };
        let body = text_of(body)?;
        let call = Call::PreTrigger { operation: self.triggers.operation, body: body.as_deref() };
        let left = self.call(trigger, call, transaction, allowance)?;
        Ok(Bytes::from(left.unwrap_or_default()))
    }

    /// The response body, as the post-trigger leaves it.
    fn after(
        &self,
        sent: &Bytes,
        stored: String,
        transaction: &mut Transaction<'_>,
        allowance: &ScriptAllowance<'_>,
    ) -> Result<String, EngineError> {
        let Some(trigger) = &self.triggers.post else { return Ok(stored) };
        let response_body = Some(stored.as_str()).filter(|stored| !stored.is_empty());
        let (operation, sent) = (self.triggers.operation, text_of(sent)?);
        let call = Call::PostTrigger { operation, request_body: sent.as_deref(), response_body };
        Ok(self.call(trigger, call, transaction, allowance)?.unwrap_or_default())
    }

    fn call(
        &self,
        trigger: &ScriptSource,
        call: Call<'_>,
        transaction: &mut Transaction<'_>,
        allowance: &ScriptAllowance<'_>,
    ) -> Result<Option<String>, EngineError> {
        let ScriptPartition { shared, place, .. } = *self.partition;
        let collection = self.container_info.collection();
        let time_used = Duration::ZERO;
        let run = ScriptRun {
            script: trigger.script(),
            call,
            collection,
            headers: self.headers,
            logging: false,
            time_used,
        };
        Ok(super::run(&shared.scripts, trigger, &run, transaction, &place.key, allowance)?.body)
    }
}

/// A delete has no body.
fn text_of(body: &Bytes) -> Result<Option<String>, EngineError> {
    if body.is_empty() {
        return Ok(None);
    }
    // A script must be given what can be read: what is no JSON fails here as it does without a trigger.
    Item::from_json(body, Limits::default())?;
    let text = String::from_utf8(strict(body).into_owned()).map_err(|_| EngineError::BadRequest {
        message: "The request payload is invalid. Ensure to provide a valid request payload.".to_owned(),
    })?;
    Ok(Some(text))
}
