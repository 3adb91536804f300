//! Databases.

use hyper::StatusCode;
use quire_engine::Resource;
use quire_value::Value;

use crate::handlers::{Call, Handled, charge, feeds};
use crate::wire::Feed;
use crate::wire::headers::Reply;

pub(crate) async fn create(call: &Call<'_>) -> Handled {
    let (body, throughput) = (call.json()?, call.throughput()?);
    let engine = call.state.engine.clone();
    let database = call.run(move || engine.create_database(&body, throughput)).await??;
    let count = call.state.engine.databases().len();
    Ok(Reply::json(StatusCode::CREATED, json(&database))
        .etag(&database.etag)
        .database_usage(count)
        .charge(charge::CREATE))
}

pub(crate) fn read(call: &Call<'_>, database: &str) -> Handled {
    let database = call.state.engine.database(database)?;
    Ok(call.read_reply(&database, || json(&database))?.charge(charge::READ))
}

pub(crate) fn list(call: &Call<'_>) -> Handled {
    feeds::list(call, Feed::Databases, "", call.state.engine.databases(), |database| Ok(database.to_json()))
}

pub(crate) async fn query(call: &Call<'_>) -> Handled {
    let rows = call.state.engine.databases().iter().map(|database| database.to_json()).collect();
    feeds::query(call, Feed::Databases, "", rows).await
}

pub(crate) async fn delete(call: &Call<'_>, database: &str) -> Handled {
    let (engine, precondition) = (call.state.engine.clone(), call.precondition()?);
    let database = database.to_owned();
    call.run(move || engine.delete_database(&database, &precondition)).await??;
    Ok(Reply::empty(StatusCode::NO_CONTENT).charge(charge::DELETE))
}

fn json(database: &Resource) -> String {
    Value::from(database.to_json()).to_json()
}
