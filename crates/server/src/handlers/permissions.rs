//! Permissions. Every answer that shows one carries a fresh `_token` for it.

use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::HeaderName;
use quire_engine::Resource;
use quire_value::{Object, Value};

use crate::auth;
use crate::handlers::call::owner_missing;
use crate::handlers::{Call, Handled, charge, feeds};
use crate::wire::Feed;
use crate::wire::headers::{Reply, user_names};
use crate::wire::status::HandlerError;

const EXPIRY: HeaderName = HeaderName::from_static("x-ms-documentdb-expiry-seconds");

pub(crate) async fn create(call: &Call<'_>, database: &str, user: &str) -> Handled {
    let owner = Owner::find(call, database, user)?;
    let lifetime = lifetime(call)?;
    let (body, upsert) = (call.json()?, call.is_upsert());
    let (engine, database, user) = (call.state.engine.clone(), database.to_owned(), user.to_owned());
    let (permission, created) =
        call.run(move || engine.create_permission(&database, &user, &body, upsert)).await??;
    let (status, charge) =
        if created { (StatusCode::CREATED, charge::CREATE) } else { (StatusCode::OK, charge::REPLACE) };
    let reply = Reply::json(status, json(call, &permission, lifetime)).etag(&permission.etag);
    Ok(owner.name(reply).charge(charge))
}

pub(crate) fn read(call: &Call<'_>, database: &str, user: &str, permission: &str) -> Handled {
    let owner = Owner::find(call, database, user)?;
    let lifetime = lifetime(call)?;
    let permission = call.state.engine.permission(database, user, permission)?;
    let body = json(call, &permission, lifetime);
    Ok(owner.name(call.read_reply(&permission, || body)?).charge(charge::READ))
}

pub(crate) fn list(call: &Call<'_>, database: &str, user: &str) -> Handled {
    let owner = Owner::find(call, database, user)?;
    let lifetime = lifetime(call)?;
    let permissions = call.state.engine.permissions(database, user)?;
    let render = |permission: &Resource| Ok(with_token(call, permission, lifetime));
    let rid = owner.user.rid.to_string();
    Ok(owner.name(feeds::list(call, Feed::Permissions, &rid, permissions, render)?))
}

pub(crate) async fn query(call: &Call<'_>, database: &str, user: &str) -> Handled {
    let owner = Owner::find(call, database, user)?;
    let lifetime = lifetime(call)?;
    let permissions = call.state.engine.permissions(database, user)?;
    let rows = permissions.iter().map(|permission| with_token(call, permission, lifetime)).collect();
    let reply = feeds::query(call, Feed::Permissions, &owner.user.rid.to_string(), rows).await?;
    Ok(owner.name(reply))
}

pub(crate) async fn replace(call: &Call<'_>, database: &str, user: &str, permission: &str) -> Handled {
    let owner = Owner::find(call, database, user)?;
    let lifetime = lifetime(call)?;
    let (body, precondition) = (call.json()?, call.precondition()?);
    let engine = call.state.engine.clone();
    let (database, user, name) = (database.to_owned(), user.to_owned(), permission.to_owned());
    let replace = move || engine.replace_permission(&database, &user, &name, &body, &precondition);
    let permission = call.run(replace).await??;
    let reply = Reply::json(StatusCode::OK, json(call, &permission, lifetime)).etag(&permission.etag);
    Ok(owner.name(reply).charge(charge::REPLACE))
}

pub(crate) async fn delete(call: &Call<'_>, database: &str, user: &str, permission: &str) -> Handled {
    let owner = Owner::find(call, database, user)?;
    let precondition = call.precondition()?;
    let engine = call.state.engine.clone();
    let (database, user, name) = (database.to_owned(), user.to_owned(), permission.to_owned());
    let delete = move || engine.delete_permission(&database, &user, &name, &precondition);
    call.run(delete).await??;
    Ok(owner.name(Reply::empty(StatusCode::NO_CONTENT)).charge(charge::DELETE))
}

/// Whose permissions they are.
struct Owner {
    database: Arc<Resource>,
    user: Arc<Resource>,
}

impl Owner {
    fn find(call: &Call<'_>, database: &str, user: &str) -> Result<Owner, HandlerError> {
        let owner = call.owner_database(database)?;
        let user = call.state.engine.user(database, user).map_err(|error| owner_missing(error.into()))?;
        Ok(Owner { database: owner, user })
    }

    fn name(&self, reply: Reply) -> Reply {
        reply.owner(user_names(&self.database, &self.user), &self.user.rid)
    }
}

fn json(call: &Call<'_>, permission: &Resource, lifetime: i64) -> String {
    Value::from(with_token(call, permission, lifetime)).to_json()
}

fn with_token(call: &Call<'_>, permission: &Resource, lifetime: i64) -> Object {
    let mut body = permission.to_json();
    body.set("_token", auth::resource_token(call.state, permission, lifetime));
    body
}

/// Of the tokens to be made. Before anything is written: a bad lifetime must not leave a permission behind.
fn lifetime(call: &Call<'_>) -> Result<i64, HandlerError> {
    Ok(auth::lifetime_seconds(call.text(&EXPIRY)?)?)
}
