//! Procedures that every container has, under ids that begin with `__.sys.`. They are addressed by a partition key, as all
//! procedures are, or by the id of a partition.
//!
//! | id                 | parameters                   | body of the answer       |
//! |--------------------|------------------------------|--------------------------|
//! | `echo`             | a value                      | the value                |
//! | `commonBulkInsert` | items (texts or objects), options | `{"count", "errorCode"}` |
//!
//! A bulk insert takes items of any partition keys of its partition. It goes on in transactions of up to a hundred items,
//! in the order of the items, and ends before the first that fails or when its time is over: `count` items are there,
//! and the client sends the rest again. `errorCode` is the status of the item that failed; when that is one of the first
//! transaction, nothing was inserted and the error is the answer, unless `softStopOnConflict` is asked for.

use std::time::{Duration, Instant};

use bytes::Bytes;
use quire_resource::PartitionKey;
use quire_value::{Limits, Value, text};

use super::host::script_error;
use crate::api::{
    Answer, EngineError, ExecuteSystemProcedure, IndexingDirective, ProcedureDone, SystemAddress, charge,
};
use crate::catalog::{Container, RoutedKey};
use crate::partition::Partition;
use crate::store::random_token;
use crate::transactions::{
    TRANSACTION_OPERATIONS_MAX, TransactionAnswer, TransactionOperation, TransactionVerb,
};

pub(crate) const ECHO: &str = "__.sys.echo";
pub(crate) const BULK_INSERT: &str = "__.sys.commonBulkInsert";

/// Whether every container has a procedure of this id that can be addressed by a partition.
pub fn is_system_procedure(id: &str) -> bool {
    matches!(id, ECHO | BULK_INSERT)
}

/// The options of a bulk insert.
struct BulkOptions {
    verb: TransactionVerb,
    makes_ids: bool,
    stops_softly: bool,
}

/// Runs operations on items of the container's database, all of them or none.
pub(crate) type Transact<'a> =
    dyn Fn(Vec<TransactionOperation>) -> Result<TransactionAnswer, EngineError> + 'a;

pub(crate) fn execute(
    container: &Container,
    call: &ExecuteSystemProcedure,
    soft_time: Duration,
    transact: &Transact<'_>,
) -> Answer<ProcedureDone> {
    let mut spent = charge::REFUSED;
    let result = try_execute(container, call, soft_time, transact, &mut spent);
    let position =
        address(container, &call.address).ok().and_then(|(partition, _)| partition.position().ok());
    Answer { charge: charge::rounded(spent), position, result }
}

fn try_execute(
    container: &Container,
    call: &ExecuteSystemProcedure,
    soft_time: Duration,
    transact: &Transact<'_>,
    spent: &mut f64,
) -> Result<ProcedureDone, EngineError> {
    container.check_open()?;
    let (partition, key) = address(container, &call.address)?;
    let parameters = match text::parse(&call.parameters, Limits::default())? {
        Value::Array(parameters) => parameters,
        _ => return Err(bad_parameters()),
    };
    *spent = charge::SCRIPT;
    let body = match call.id.as_str() {
        ECHO => parameters.first().map_or_else(|| "\"\"".to_owned(), Value::to_json),
        BULK_INSERT => {
            let options = bulk_options(parameters.get(1));
            let insert = BulkInsert { container, partition, key: key.as_ref(), options, transact };
            insert.run(parameters.first(), soft_time, spent)?
        }
        id => return Err(EngineError::ResourceNotFound { kind: "stored procedure", id: id.to_owned() }),
    };
    Ok(ProcedureDone { body, log: None })
}

struct BulkInsert<'a> {
    container: &'a Container,
    partition: &'a Partition,
    key: Option<&'a PartitionKey>,
    options: BulkOptions,
    transact: &'a Transact<'a>,
}

impl BulkInsert<'_> {
    fn run(
        &self,
        items: Option<&Value>,
        soft_time: Duration,
        spent: &mut f64,
    ) -> Result<String, EngineError> {
        let items = items.and_then(Value::as_array).ok_or_else(bad_parameters)?;
        let started = Instant::now();
        let (mut count, mut error_code) = (0, 0);
        while count < items.len() && started.elapsed() < soft_time {
            let last = items.len().min(count + TRANSACTION_OPERATIONS_MAX);
            let (mut group, mut failed) = (&items[count..last], false);
            // Items before the one that fails are inserted.
            while !group.is_empty()
                && let Some((at, error)) = self.insert_group(group, spent)?
            {
                let status = script_error(&error).map(|(status, _)| status);
                match status {
                    Some(status) if count > 0 || self.options.stops_softly => error_code = status,
                    _ => return Err(error),
                }
                (group, failed) = (&group[..at], true);
            }
            count += group.len();
            if failed {
                break;
            }
        }
        Ok(format!(r#"{{"count":{count},"errorCode":{error_code}}}"#))
    }

    /// All of the items or none: which of them failed, and why.
    fn insert_group(
        &self,
        items: &[Value],
        spent: &mut f64,
    ) -> Result<Option<(usize, EngineError)>, EngineError> {
        let mut operations = Vec::with_capacity(items.len());
        for (at, item) in items.iter().enumerate() {
            match operation(self.container, self.partition, self.key, item, &self.options) {
                Ok(operation) => operations.push(operation),
                Err(error) => return Ok(Some((at, error))),
            }
        }
        let answer = (self.transact)(operations)?;
        *spent += answer.charge;
        let failed = answer.results.into_iter().enumerate().find_map(|(at, result)| match result {
            Err(EngineError::FailedDependency) | Ok(_) => None,
            Err(error) => Some((at, error)),
        });
        Ok(failed)
    }
}

/// The partition, and the key where the call names one.
fn address<'c>(
    container: &'c Container,
    address: &SystemAddress,
) -> Result<(&'c Partition, Option<PartitionKey>), EngineError> {
    match address {
        SystemAddress::PartitionKey(key) => {
            let place = RoutedKey::of(container, key.clone())?;
            Ok((place.partition, Some(place.key)))
        }
        SystemAddress::Partition(id) => {
            let found = container.partitions.all().iter().find(|partition| *partition.name == **id);
            let partition = found.ok_or_else(|| EngineError::PartitionGone { id: id.clone() })?;
            Ok((partition, None))
        }
    }
}

fn operation(
    container: &Container,
    partition: &Partition,
    key: Option<&PartitionKey>,
    item: &Value,
    options: &BulkOptions,
) -> Result<TransactionOperation, EngineError> {
    let mut item = match item {
        Value::String(json) => text::parse(json.as_bytes(), Limits::default())?,
        item => item.clone(),
    };
    let Value::Object(object) = &mut item else { return Err(bad_parameters()) };
    let has_id = object.get("id").and_then(Value::as_str).is_some_and(|id| !id.is_empty());
    if options.makes_ids && !has_id {
        object.set("id", random_id()?);
    }
    let own = container.definition.partition_key.extract(quire_value::Item::from_value(&item).root())?;
    let place = RoutedKey::of(container, own)?;
    if key.is_some_and(|key| *key != place.key) {
        return Err(EngineError::PartitionKeyMismatch);
    }
    if place.partition.name != partition.name {
        let message = format!("The item belongs to another partition key range than '{}'.", partition.name);
        return Err(EngineError::BadRequest { message });
    }
    Ok(TransactionOperation {
        container: container.resource.id.clone(),
        partition_key: Some(place.key),
        verb: options.verb.clone(),
        body: Bytes::from(item.to_json()),
        if_match: None,
        if_none_match: None,
        indexing: IndexingDirective::Default,
        want_body: false,
    })
}

fn random_id() -> Result<String, EngineError> {
    let digits = format!("{:032x}", random_token()?.0);
    let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
    Ok(parts.join("-"))
}

fn bulk_options(options: Option<&Value>) -> BulkOptions {
    let is_set = |name: &str| options.and_then(|options| options.get(name)) == Some(&Value::Bool(true));
    BulkOptions {
        verb: if is_set("enableUpsert") { TransactionVerb::Upsert } else { TransactionVerb::Create },
        makes_ids: !is_set("disableAutomaticIdGeneration"),
        stops_softly: is_set("softStopOnConflict"),
    }
}

fn bad_parameters() -> EngineError {
    EngineError::BadRequest {
        message: "The parameters of the procedure must be a list of items and its options.".to_owned(),
    }
}
