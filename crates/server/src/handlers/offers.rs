//! Offers: the throughput of containers and databases.

use hyper::StatusCode;
use hyper::header::{HeaderName, HeaderValue};
use quire_engine::{Migrate, Resource};
use quire_value::Value;

use crate::handlers::{Call, HandlerResult, charge, feeds};
use crate::wire::Feed;
use crate::wire::headers::Reply;
use crate::wire::status::{HandlerError, RequestError};

const MIGRATE_TO_AUTOSCALE: HeaderName = HeaderName::from_static("x-ms-cosmos-migrate-offer-to-autopilot");
const MIGRATE_TO_MANUAL: HeaderName =
    HeaderName::from_static("x-ms-cosmos-migrate-offer-to-manual-throughput");
const MINIMUM: HeaderName = HeaderName::from_static("x-ms-cosmos-min-throughput");
const REPLACE_PENDING: HeaderName = HeaderName::from_static("x-ms-offer-replace-pending");

pub(crate) fn read(call: &Call<'_>, offer: &str) -> HandlerResult {
    let offer = call.state.engine.catalog().offer(offer)?;
    let reply = call.read_reply(&offer, || json(&offer))?;
    Ok(with_limits(call, &offer, reply).charge(charge::READ))
}

pub(crate) fn list(call: &Call<'_>) -> HandlerResult {
    feeds::list(call, Feed::Offers, "", call.state.engine.catalog().offers(), Resource::to_json)
}

/// How every client finds the offer of a container: an empty answer means there is none.
pub(crate) async fn query(call: &Call<'_>) -> HandlerResult {
    feeds::query(call, Feed::Offers, "", call.state.engine.catalog().offers(), |offer| offer.to_json()).await
}

pub(crate) async fn replace(call: &Call<'_>, offer: &str) -> HandlerResult {
    let (body, precondition, migrate) = (call.json()?, call.precondition()?, migrate(call)?);
    let (engine, rid) = (call.state.engine.clone(), offer.to_owned());
    let offer =
        call.run(move || engine.catalog().replace_offer(&rid, &body, migrate, &precondition)).await??;
    let reply = Reply::json(StatusCode::OK, json(&offer)).etag(&offer.etag);
    Ok(with_limits(call, &offer, reply).charge(charge::REPLACE))
}

fn migrate(call: &Call<'_>) -> Result<Option<Migrate>, HandlerError> {
    match (call.is_true(&MIGRATE_TO_AUTOSCALE), call.is_true(&MIGRATE_TO_MANUAL)) {
        (false, false) => Ok(None),
        (true, false) => Ok(Some(Migrate::ToAutoscale)),
        (false, true) => Ok(Some(Migrate::ToManual)),
        (true, true) => {
            let message =
                "An offer cannot be migrated to autoscale and to manual throughput at once.".to_owned();
            Err(RequestError::BadRequest { message }.into())
        }
    }
}

/// A change takes effect at once, so none is ever pending.
fn with_limits(call: &Call<'_>, offer: &Resource, reply: Reply) -> Reply {
    reply
        .with(MINIMUM, HeaderValue::from(call.state.engine.catalog().minimum_throughput(offer)))
        .with(REPLACE_PENDING, HeaderValue::from_static("false"))
}

fn json(offer: &Resource) -> String {
    Value::from(offer.to_json()).to_json()
}
