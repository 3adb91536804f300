//! Profiles and advice in the storage: rows with a checksum, their content JSON.
//!
//! A profile is a row of its container and goes with it. The list of advice and the decisions about findings are rows of the
//! database. No value of an item is in them but ids in examples and values of discriminators.

use quire_storage::{CommitError, Op, Position, Snapshot};
use quire_value::{Limits, Object, Value, text};

use crate::api::{EngineError, corrupt};
use crate::catalog::{Catalog, Container};
use crate::runtime::Shared;
use crate::store::keys::{self, CATALOG};
use crate::store::{guarded_commit, sealed};

/// JSON of the engine's own, which is not deep.
const LIMITS: Limits = Limits { depth_max: 256 };

/// What is stored about findings of a database.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoredAdvice {
    /// The last list; nothing before the first evaluation.
    pub list: Option<Value>,
    /// By id of a finding: `{"state", "reason"}`.
    pub decisions: Object,
}

/// The stored text of a container's profile.
pub(super) fn profile_text(
    snapshot: &dyn Snapshot,
    container: &Container,
) -> Result<Option<String>, EngineError> {
    read(snapshot, &keys::profile(container.number))
}

/// Stores a profile. False where the container was deleted meanwhile.
pub(super) fn put_profile(
    shared: &Shared,
    container: &Container,
    profile: &Value,
) -> Result<bool, EngineError> {
    let sequence = keys::profile_sequence(container.number);
    let storage = &*shared.storage;
    // Before it is known that the container is there: a drop that begins now refuses the commit.
    let position = storage.position(sequence)?.unwrap_or(Position { epoch: 0, lsn: 0 });
    if container.partitions.is_retired() {
        return Ok(false);
    }
    let key = keys::profile(container.number);
    let value = encode(&key, profile);
    let commit =
        guarded_commit(sequence, position, position.lsn + 1, vec![Op::Put { space: CATALOG, key, value }])?;
    match storage.commit(commit) {
        Ok(_) => Ok(true),
        Err(_) if container.partitions.is_retired() => Ok(false),
        Err(CommitError::Storage(error)) => Err(error.into()),
        // Another build has just stored a profile, or the outcome is unknown: the job does it again.
        Err(_) => Err(EngineError::Contended),
    }
}

pub(super) fn advice(snapshot: &dyn Snapshot, database: u32) -> Result<StoredAdvice, EngineError> {
    let list = read(snapshot, &keys::advice_list(database))?.map(|text| parse(&text)).transpose()?;
    let decisions =
        read(snapshot, &keys::advice_decisions(database))?.map(|text| parse(&text)).transpose()?;
    let decisions = decisions.and_then(Value::into_object).unwrap_or_default();
    Ok(StoredAdvice { list, decisions })
}

pub(super) fn put_list(
    shared: &Shared,
    catalog: &Catalog,
    database: u32,
    list: &Value,
) -> Result<(), EngineError> {
    put(shared, catalog, database, (keys::advice_list(database), list))
}

/// Only where there is one: nothing is committed otherwise.
pub(super) fn remove_list(shared: &Shared, database: u32) -> Result<(), EngineError> {
    let key = keys::advice_list(database);
    shared.advice.settle(&*shared.storage)?;
    if shared.storage.snapshot()?.get(CATALOG, &key)?.is_none() {
        return Ok(());
    }
    shared.advice.commit(&*shared.storage, vec![Op::Delete { space: CATALOG, key }])
}

pub(super) fn put_decisions(
    shared: &Shared,
    catalog: &Catalog,
    database: u32,
    decisions: Object,
) -> Result<(), EngineError> {
    put(shared, catalog, database, (keys::advice_decisions(database), &Value::Object(decisions)))
}

/// A database that is gone has no rows.
fn put(
    shared: &Shared,
    catalog: &Catalog,
    database: u32,
    (key, json): (Vec<u8>, &Value),
) -> Result<(), EngineError> {
    let value = encode(&key, json);
    let exists = || catalog.state().database(database).is_some();
    let ops = vec![Op::Put { space: CATALOG, key, value }];
    match shared.advice.commit_while(&*shared.storage, &exists, ops)? {
        true => Ok(()),
        false => Err(EngineError::ResourceNotFound { kind: "database", id: database.to_string() }),
    }
}

fn encode(key: &[u8], json: &Value) -> Vec<u8> {
    let mut rest = Vec::new();
    sealed::write_text(json.to_json().as_bytes(), &mut rest);
    sealed::seal(key, &rest)
}

fn read(snapshot: &dyn Snapshot, key: &[u8]) -> Result<Option<String>, EngineError> {
    let Some(row) = snapshot.get(CATALOG, key)? else { return Ok(None) };
    Ok(Some(sealed::open(key, &row)?.string()?))
}

pub(super) fn parse(text: &str) -> Result<Value, EngineError> {
    text::parse(text.as_bytes(), LIMITS).map_err(|_| corrupt("JSON of a profile or of advice"))
}
