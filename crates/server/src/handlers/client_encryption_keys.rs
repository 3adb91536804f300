//! Client encryption keys: kept for clients, never interpreted.

use hyper::StatusCode;
use quire_engine::Resource;
use quire_value::Value;

use crate::handlers::{Call, Handled, charge, feeds};
use crate::wire::Feed;
use crate::wire::headers::{Reply, database_names};

pub(crate) async fn create(call: &Call<'_>, database: &str) -> Handled {
    let owner = call.owner_database(database)?;
    let body = call.json()?;
    let (engine, database) = (call.state.engine.clone(), database.to_owned());
    let key = call.run(move || engine.create_client_encryption_key(&database, &body)).await??;
    let reply = Reply::json(StatusCode::CREATED, json(&key)).etag(&key.etag);
    Ok(reply.owner(database_names(&owner), &owner.rid).charge(charge::CREATE))
}

pub(crate) fn read(call: &Call<'_>, database: &str, key: &str) -> Handled {
    let owner = call.owner_database(database)?;
    let key = call.state.engine.client_encryption_key(database, key)?;
    let reply = call.read_reply(&key, || json(&key))?;
    Ok(reply.owner(database_names(&owner), &owner.rid).charge(charge::READ))
}

pub(crate) fn list(call: &Call<'_>, database: &str) -> Handled {
    let owner = call.owner_database(database)?;
    let keys = call.state.engine.client_encryption_keys(database)?;
    let rid = owner.rid.to_string();
    let reply = feeds::list(call, Feed::ClientEncryptionKeys, &rid, keys, |key| Ok(key.to_json()))?;
    Ok(reply.owner(database_names(&owner), &owner.rid))
}

pub(crate) async fn query(call: &Call<'_>, database: &str) -> Handled {
    let owner = call.owner_database(database)?;
    let keys = call.state.engine.client_encryption_keys(database)?;
    let rows = keys.iter().map(|key| key.to_json()).collect();
    let reply = feeds::query(call, Feed::ClientEncryptionKeys, &owner.rid.to_string(), rows).await?;
    Ok(reply.owner(database_names(&owner), &owner.rid))
}

pub(crate) async fn replace(call: &Call<'_>, database: &str, key: &str) -> Handled {
    let owner = call.owner_database(database)?;
    let (body, precondition) = (call.json()?, call.precondition()?);
    let (engine, database, name) = (call.state.engine.clone(), database.to_owned(), key.to_owned());
    let replace = move || engine.replace_client_encryption_key(&database, &name, &body, &precondition);
    let key = call.run(replace).await??;
    let reply = Reply::json(StatusCode::OK, json(&key)).etag(&key.etag);
    Ok(reply.owner(database_names(&owner), &owner.rid).charge(charge::REPLACE))
}

fn json(key: &Resource) -> String {
    Value::from(key.to_json()).to_json()
}
