//! What databases, users, permissions, client encryption keys and scripts have in common: resources of the catalog that an
//! owner lists and that are created, read, replaced and deleted as a whole.
//!
//! A kind of resource implements [`CatalogResource`], and [`Replace`] and [`Delete`] where the protocol has them; the
//! functions here serve its requests.

use std::sync::Arc;

use hyper::StatusCode;
use quire_engine::{Engine, EngineError, Resource};
use quire_value::{Object, Value};

use crate::handlers::{Call, HandlerResult, charge, feeds};
use crate::wire::Feed;
use crate::wire::headers::Reply;
use crate::wire::status::HandlerError;

/// A change of the catalog, with everything that it needs of its request.
pub(crate) type CatalogCall<T> = Box<dyn FnOnce(&Engine) -> Result<T, EngineError> + Send>;

/// From a resource to its body in an answer.
pub(crate) type ResourceBody = Box<dyn Fn(&Resource) -> Object + Send>;

/// The resources of one kind that one owner has.
pub(crate) trait CatalogResource: Sync {
    type Owner: Send + Sync;

    fn feed(&self) -> Feed;
    fn owner(&self, call: &Call<'_>) -> Result<Self::Owner, HandlerError>;
    /// In the body of a list; empty for the account.
    fn owner_rid(&self, owner: &Self::Owner) -> String;
    fn find(&self, engine: &Engine, name: &str) -> Result<Arc<Resource>, EngineError>;
    fn all(&self, engine: &Engine) -> Result<Vec<Arc<Resource>>, EngineError>;
    /// Gives the resource and whether it is new: an upsert may have replaced one.
    fn create(&self, call: &Call<'_>) -> Result<CatalogCall<(Arc<Resource>, bool)>, HandlerError>;

    /// What makes the body of a resource in an answer.
    fn body(&self, _call: &Call<'_>) -> Result<ResourceBody, HandlerError> {
        Ok(Box::new(Resource::to_json))
    }

    /// The answer with its charge and the headers about the owner.
    fn answer(&self, call: &Call<'_>, owner: &Self::Owner, outcome: ChargedReply) -> HandlerResult;
}

/// A reply and its charge, or the failure of the engine.
pub(crate) type ChargedReply = Result<(Reply, f64), EngineError>;

pub(crate) trait Replace: CatalogResource {
    fn replace(&self, call: &Call<'_>, name: &str) -> Result<CatalogCall<Arc<Resource>>, HandlerError>;
}

pub(crate) trait Delete: CatalogResource {
    fn delete(&self, call: &Call<'_>, name: &str) -> Result<CatalogCall<()>, HandlerError>;
}

pub(crate) async fn create(call: &Call<'_>, kind: &impl CatalogResource) -> HandlerResult {
    let owner = kind.owner(call)?;
    let outcome = match run(call, kind.create(call)?).await? {
        Ok((resource, true)) => Ok((whole(call, kind, StatusCode::CREATED, &resource)?, charge::CREATE)),
        Ok((resource, false)) => Ok((whole(call, kind, StatusCode::OK, &resource)?, charge::REPLACE)),
        Err(error) => Err(error),
    };
    kind.answer(call, &owner, outcome)
}

pub(crate) fn read(call: &Call<'_>, kind: &impl CatalogResource, name: &str) -> HandlerResult {
    let owner = kind.owner(call)?;
    let outcome = match kind.find(&call.state.engine, name) {
        Ok(resource) => {
            let body = kind.body(call)?;
            Ok((call.read_reply(&resource, || Value::from(body(&resource)).to_json())?, charge::READ))
        }
        Err(error) => Err(error),
    };
    kind.answer(call, &owner, outcome)
}

pub(crate) fn list(call: &Call<'_>, kind: &impl CatalogResource) -> HandlerResult {
    let owner = kind.owner(call)?;
    let resources = kind.all(&call.state.engine)?;
    let reply = feeds::list(call, kind.feed(), &kind.owner_rid(&owner), resources, kind.body(call)?)?;
    kind.answer(call, &owner, Ok((reply, charge::LIST)))
}

pub(crate) async fn query(call: &Call<'_>, kind: &impl CatalogResource) -> HandlerResult {
    let owner = kind.owner(call)?;
    let resources = kind.all(&call.state.engine)?;
    let body = kind.body(call)?;
    let body = move |resource: &Arc<Resource>| body(resource);
    let reply = feeds::query(call, kind.feed(), &kind.owner_rid(&owner), resources, body).await?;
    kind.answer(call, &owner, Ok((reply, charge::QUERY)))
}

pub(crate) async fn replace(call: &Call<'_>, kind: &impl Replace, name: &str) -> HandlerResult {
    let owner = kind.owner(call)?;
    let outcome = match run(call, kind.replace(call, name)?).await? {
        Ok(resource) => Ok((whole(call, kind, StatusCode::OK, &resource)?, charge::REPLACE)),
        Err(error) => Err(error),
    };
    kind.answer(call, &owner, outcome)
}

pub(crate) async fn delete(call: &Call<'_>, kind: &impl Delete, name: &str) -> HandlerResult {
    let owner = kind.owner(call)?;
    let deleted = run(call, kind.delete(call, name)?).await?;
    let outcome = deleted.map(|()| (Reply::empty(StatusCode::NO_CONTENT), charge::DELETE));
    kind.answer(call, &owner, outcome)
}

/// The outer error is that of the pool.
async fn run<T: Send + 'static>(
    call: &Call<'_>,
    change: CatalogCall<T>,
) -> Result<Result<T, EngineError>, EngineError> {
    let engine = call.state.engine.clone();
    call.run(move || change(&engine)).await
}

fn whole(
    call: &Call<'_>,
    kind: &impl CatalogResource,
    status: StatusCode,
    resource: &Resource,
) -> Result<Reply, HandlerError> {
    let body = Value::from(kind.body(call)?(resource)).to_json();
    Ok(Reply::json(status, body).etag(&resource.etag))
}
