//! Permissions. Every answer that shows one carries a fresh `_token` for it.

use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::HeaderName;
use quire_engine::Resource;
use quire_value::{Object, Value};

use crate::auth;
use crate::handlers::call::{bad_header, owner_missing};
use crate::handlers::{Call, Handled, charge, feeds};
use crate::headers::{Reply, user_names};
use crate::status::HandlerError;
use crate::wire::Feed;

const EXPIRY: HeaderName = HeaderName::from_static("x-ms-documentdb-expiry-seconds");

pub(crate) async fn create(call: &Call<'_>, database: &str, user: &str) -> Handled {
    let owner = Owner::find(call, database, user)?;
    check_expiry(call)?;
    let (body, upsert) = (call.json()?, call.is_upsert());
    let (engine, database, user) = (call.state.engine.clone(), database.to_owned(), user.to_owned());
    let (permission, created) =
        call.run(move || engine.create_permission(&database, &user, &body, upsert)).await??;
    let (status, charge) =
        if created { (StatusCode::CREATED, charge::CREATE) } else { (StatusCode::OK, charge::REPLACE) };
    let reply = Reply::json(status, json(call, &permission)?).etag(&permission.etag);
    Ok(owner.name(reply).charge(charge))
}

pub(crate) fn read(call: &Call<'_>, database: &str, user: &str, permission: &str) -> Handled {
    let owner = Owner::find(call, database, user)?;
    check_expiry(call)?;
    let permission = call.state.engine.permission(database, user, permission)?;
    let body = json(call, &permission)?;
    Ok(owner.name(call.read_reply(&permission, || body)?).charge(charge::READ))
}

pub(crate) fn list(call: &Call<'_>, database: &str, user: &str) -> Handled {
    let owner = Owner::find(call, database, user)?;
    check_expiry(call)?;
    let permissions = call.state.engine.permissions(database, user)?;
    let render = |permission: &Resource| with_token(call, permission);
    let rid = owner.user.rid.to_string();
    Ok(owner.name(feeds::list(call, Feed::Permissions, &rid, permissions, render)?))
}

pub(crate) async fn query(call: &Call<'_>, database: &str, user: &str) -> Handled {
    let owner = Owner::find(call, database, user)?;
    check_expiry(call)?;
    let permissions = call.state.engine.permissions(database, user)?;
    let rows: Result<Vec<Object>, HandlerError> =
        permissions.iter().map(|permission| with_token(call, permission)).collect();
    let reply = feeds::query(call, Feed::Permissions, &owner.user.rid.to_string(), rows?).await?;
    Ok(owner.name(reply))
}

pub(crate) async fn replace(call: &Call<'_>, database: &str, user: &str, permission: &str) -> Handled {
    let owner = Owner::find(call, database, user)?;
    check_expiry(call)?;
    let (body, precondition) = (call.json()?, call.precondition()?);
    let engine = call.state.engine.clone();
    let (database, user, name) = (database.to_owned(), user.to_owned(), permission.to_owned());
    let replace = move || engine.replace_permission(&database, &user, &name, &body, &precondition);
    let permission = call.run(replace).await??;
    let reply = Reply::json(StatusCode::OK, json(call, &permission)?).etag(&permission.etag);
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

fn json(call: &Call<'_>, permission: &Resource) -> Result<String, HandlerError> {
    Ok(Value::from(with_token(call, permission)?).to_json())
}

fn with_token(call: &Call<'_>, permission: &Resource) -> Result<Object, HandlerError> {
    let token = auth::resource_token(call.state, permission, call.text(&EXPIRY)?)?;
    let mut body = permission.to_json();
    body.set("_token", token);
    Ok(body)
}

/// Before anything is written: a bad lifetime must not leave a permission behind.
fn check_expiry(call: &Call<'_>) -> Result<(), HandlerError> {
    match call.text(&EXPIRY)? {
        Some(text) if !text.trim().parse::<u32>().is_ok_and(|seconds| seconds > 0) => {
            Err(bad_header("x-ms-documentdb-expiry-seconds", text))
        }
        _ => Ok(()),
    }
}
