//! Users.

use hyper::StatusCode;
use quire_engine::Resource;
use quire_value::Value;

use crate::handlers::{Call, Handled, charge, feeds};
use crate::wire::Feed;
use crate::wire::headers::{Reply, database_names};

pub(crate) async fn create(call: &Call<'_>, database: &str) -> Handled {
    let owner = call.owner_database(database)?;
    let (body, upsert) = (call.json()?, call.is_upsert());
    let (engine, database) = (call.state.engine.clone(), database.to_owned());
    let (user, created) = call.run(move || engine.create_user(&database, &body, upsert)).await??;
    let (status, charge) =
        if created { (StatusCode::CREATED, charge::CREATE) } else { (StatusCode::OK, charge::REPLACE) };
    let reply = Reply::json(status, json(&user)).etag(&user.etag);
    Ok(reply.owner(database_names(&owner), &owner.rid).charge(charge))
}

pub(crate) fn read(call: &Call<'_>, database: &str, user: &str) -> Handled {
    let owner = call.owner_database(database)?;
    let user = call.state.engine.user(database, user)?;
    let reply = call.read_reply(&user, || json(&user))?;
    Ok(reply.owner(database_names(&owner), &owner.rid).charge(charge::READ))
}

pub(crate) fn list(call: &Call<'_>, database: &str) -> Handled {
    let owner = call.owner_database(database)?;
    let users = call.state.engine.users(database)?;
    let reply = feeds::list(call, Feed::Users, &owner.rid.to_string(), users, |user| Ok(user.to_json()))?;
    Ok(reply.owner(database_names(&owner), &owner.rid))
}

pub(crate) async fn query(call: &Call<'_>, database: &str) -> Handled {
    let owner = call.owner_database(database)?;
    let rows = call.state.engine.users(database)?.iter().map(|user| user.to_json()).collect();
    let reply = feeds::query(call, Feed::Users, &owner.rid.to_string(), rows).await?;
    Ok(reply.owner(database_names(&owner), &owner.rid))
}

pub(crate) async fn replace(call: &Call<'_>, database: &str, user: &str) -> Handled {
    let owner = call.owner_database(database)?;
    let (body, precondition) = (call.json()?, call.precondition()?);
    let (engine, database, name) = (call.state.engine.clone(), database.to_owned(), user.to_owned());
    let user = call.run(move || engine.replace_user(&database, &name, &body, &precondition)).await??;
    let reply = Reply::json(StatusCode::OK, json(&user)).etag(&user.etag);
    Ok(reply.owner(database_names(&owner), &owner.rid).charge(charge::REPLACE))
}

pub(crate) async fn delete(call: &Call<'_>, database: &str, user: &str) -> Handled {
    let owner = call.owner_database(database)?;
    let precondition = call.precondition()?;
    let (engine, database, name) = (call.state.engine.clone(), database.to_owned(), user.to_owned());
    call.run(move || engine.delete_user(&database, &name, &precondition)).await??;
    let reply = Reply::empty(StatusCode::NO_CONTENT);
    Ok(reply.owner(database_names(&owner), &owner.rid).charge(charge::DELETE))
}

fn json(user: &Resource) -> String {
    Value::from(user.to_json()).to_json()
}
