//! Offers: the throughput of a container or of a whole database.

use std::sync::Arc;

use quire_resource::{ResourceId, Throughput};
use quire_value::{Object, Value};

use super::change::CatalogChange;
use super::state::{CatalogState, OfferEntry, OfferOwner};
use super::{Catalog, EngineError, body, check_precondition, not_found};
use crate::api::{Migrate, Precondition, Resource, corrupt};
use crate::catalog::Container;

const OFFER_NUMBER_MAX: u64 = (1 << 24) - 1;
/// Members of an offer that say what it is about; a replacement may leave them out but not change them.
/// The type is not among them: old clients write what they like, and it is given back as it was made.
const FIXED: [&str; 4] = ["id", "resource", "offerResourceId", "offerVersion"];
/// The service's increment when none is given.
const INCREMENT_PERCENT: u32 = 10;
const MANUAL_STEP: u32 = 100;
const AUTOSCALE_STEP: u32 = 1000;
/// Containers in a database that share its throughput without raising its minimum.
const SHARING_CONTAINERS: u32 = 25;
const GIGABYTE: u64 = 1 << 30;
/// Keeps the arithmetic of minimums in range.
const GIGABYTES_MAX: u64 = 1_000_000;

const TO_AUTOSCALE: &str = "x-ms-cosmos-migrate-offer-to-autopilot must be supplied and offercontent must not contain \
                            autopilotSettings for migration from manual throughput to autoscale.";
const TO_MANUAL: &str = "x-ms-cosmos-migrate-offer-to-manual-throughput must be supplied for migration from \
                         autoscale to manual throughput.";

impl Catalog {
    pub fn offer(&self, rid: &str) -> Result<Arc<Resource>, EngineError> {
        Ok(find(&self.state.load(), rid)?.resource.clone())
    }

    pub fn offers(&self) -> Vec<Arc<Resource>> {
        self.state.load().offers.values().map(|offer| offer.resource.clone()).collect()
    }

    pub fn replace_offer(
        &self,
        rid: &str,
        body: &Value,
        migrate: Option<Migrate>,
        precondition: &Precondition,
    ) -> Result<Arc<Resource>, EngineError> {
        let mut change = self.change()?;
        let existing = find(&change.state, rid)?;
        check_precondition(precondition, &existing.resource)?;
        let object = body::user_part(body)?;
        check_fixed(&existing.resource.body, &object)?;
        let content = object.get("content").cloned().unwrap_or(Value::Null);
        let minimum = |kind| minimum(&change.state, &existing, kind);
        let throughput = replacement(throughput_of(&existing.resource)?, &content, migrate, minimum)?;
        let highest = highest_ever(&existing.resource).max(throughput.maximum());
        let mut body = existing.resource.body.clone();
        body.set("content", throughput.to_offer_content(highest, change.ts()));
        let resource = change.stamp(existing.resource.rid, existing.resource.id.clone(), body);
        change.put_offer(existing.owner, &resource);
        change.state.insert_offer(OfferEntry { resource: resource.clone(), owner: existing.owner });
        change.commit()?;
        Ok(resource)
    }

    /// A container's own offer, or else its database's: rid, request units per second, whether it is shared.
    pub fn throughput_of(&self, container: &Container) -> Option<(String, u32, bool)> {
        let state = self.state.load();
        let own = OfferOwner::of(&container.resource.rid)?;
        [(own, false), (OfferOwner::of_database(own.database), true)].into_iter().find_map(
            |(owner, is_shared)| {
                let offer = state.offers.get(state.offers_by_owner.get(&owner)?)?;
                let throughput = throughput_of(&offer.resource).ok()?;
                Some((offer.resource.rid.to_string(), throughput.maximum(), is_shared))
            },
        )
    }

    /// The smallest throughput this offer may be set to.
    pub fn minimum_throughput(&self, offer: &Resource) -> u32 {
        let state = self.state.load();
        let Ok(throughput) = throughput_of(offer) else { return MANUAL_STEP };
        match find(&state, &offer.rid.to_string()) {
            Ok(entry) => minimum(&state, &entry, throughput),
            Err(_) => throughput.minimum(highest_ever(offer)),
        }
    }
}

impl CatalogChange<'_> {
    pub(super) fn create_offer(
        &mut self,
        owner: OfferOwner,
        throughput: Throughput,
    ) -> Result<(), EngineError> {
        let number = self.number(|counters| &mut counters.offer, OFFER_NUMBER_MAX)? as u32;
        let rid = ResourceId::Offer(number);
        let mut body = Object::new();
        body.set("resource", owner.rid().self_link());
        body.set("offerType", "Invalid");
        body.set("offerResourceId", owner.rid().to_string());
        body.set("offerVersion", "V2");
        body.set("content", throughput.to_offer_content(throughput.maximum(), self.ts()));
        body.set("id", rid.to_string());
        let resource = self.stamp(rid, rid.to_string(), body);
        self.put_offer(owner, &resource);
        self.state.insert_offer(OfferEntry { resource, owner });
        Ok(())
    }
}

fn find(state: &CatalogState, rid: &str) -> Result<Arc<OfferEntry>, EngineError> {
    let offer = match ResourceId::parse(rid) {
        Ok(ResourceId::Offer(number)) => state.offers.get(&number).cloned(),
        _ => None,
    };
    offer.ok_or_else(|| not_found("offer", rid))
}

fn check_fixed(existing: &Object, replacement: &Object) -> Result<(), EngineError> {
    for name in FIXED {
        match (replacement.get(name), existing.get(name)) {
            (Some(new), Some(old)) if !is_same(name, new, old) => {
                return Err(body::invalid(format!("The property '{name}' of an offer cannot be changed.")));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Clients write the link with or without its last slash.
fn is_same(name: &str, new: &Value, old: &Value) -> bool {
    match (name, new.as_str(), old.as_str()) {
        ("resource", Some(new), Some(old)) => new.trim_matches('/') == old.trim_matches('/'),
        _ => new == old,
    }
}

/// What the offer becomes. With a migration the service chooses the value; without one the kind must stay.
fn replacement(
    existing: Throughput,
    content: &Value,
    migrate: Option<Migrate>,
    minimum: impl Fn(Throughput) -> u32,
) -> Result<Throughput, EngineError> {
    let has_settings = matches!(content.get("offerAutopilotSettings"), Some(Value::Object(_)));
    match (existing, migrate) {
        (Throughput::Manual(_), Some(Migrate::ToAutoscale)) if has_settings => {
            Err(body::invalid(TO_AUTOSCALE))
        }
        (Throughput::Manual(value), Some(Migrate::ToAutoscale)) => {
            let autoscale = |max| Throughput::Autoscale { max, increment_percent: Some(INCREMENT_PERCENT) };
            let max = value.next_multiple_of(AUTOSCALE_STEP);
            Ok(autoscale(max.max(minimum(autoscale(max)))))
        }
        (Throughput::Autoscale { max, .. }, Some(Migrate::ToManual)) => Ok(Throughput::Manual(max)),
        (Throughput::Manual(_), Some(Migrate::ToManual)) => {
            Err(body::invalid("The offer has manual throughput already."))
        }
        (Throughput::Autoscale { .. }, Some(Migrate::ToAutoscale)) => {
            Err(body::invalid("The offer has autoscale throughput already."))
        }
        (Throughput::Manual(_), None) if has_settings => Err(body::invalid(TO_AUTOSCALE)),
        (Throughput::Autoscale { .. }, None) if !has_settings => Err(body::invalid(TO_MANUAL)),
        (_, None) => {
            let throughput = Throughput::from_offer_content(content)?;
            let minimum = minimum(throughput);
            if throughput.maximum() < minimum {
                return Err(body::invalid(format!(
                    "Requested throughput {} is less than required minimum throughput {minimum}",
                    throughput.maximum()
                )));
            }
            Ok(throughput)
        }
    }
}

/// The kind's own minimum, raised by the data that is there and by how many containers share it.
fn minimum(state: &CatalogState, offer: &OfferEntry, kind: Throughput) -> u32 {
    let own = kind.minimum(highest_ever(&offer.resource));
    let (bytes, sharing) = load(state, offer.owner);
    let gigabytes = bytes.div_ceil(GIGABYTE).min(GIGABYTES_MAX) as u32;
    match kind {
        Throughput::Manual(_) => {
            let shared = sharing.saturating_sub(SHARING_CONTAINERS).saturating_mul(MANUAL_STEP);
            own.max(gigabytes.next_multiple_of(MANUAL_STEP)).max(shared.saturating_add(400))
        }
        Throughput::Autoscale { .. } => {
            let shared = sharing.saturating_sub(SHARING_CONTAINERS).saturating_mul(AUTOSCALE_STEP);
            let stored = gigabytes.saturating_mul(10).next_multiple_of(AUTOSCALE_STEP);
            own.max(stored).max(shared.saturating_add(1000))
        }
    }
}

/// Bytes under an offer, and how many containers share it.
fn load(state: &CatalogState, owner: OfferOwner) -> (u64, u32) {
    let Some(database) = state.database(owner.database) else { return (0, 0) };
    let is_under = |number: u32| match owner.container {
        0 => state.offer_of(OfferOwner { database: owner.database, container: number }).is_none(),
        container => container == number,
    };
    let containers = database.containers.iter().filter(|container| is_under(container.number));
    containers.fold((0, 0), |(bytes, count), container| (bytes + container.usage().1, count + 1))
}

pub(super) fn throughput_of(offer: &Resource) -> Result<Throughput, EngineError> {
    let content = offer.body.get("content").unwrap_or(&Value::Null);
    Throughput::from_offer_content(content).map_err(|error| corrupt(format!("offer {}: {error}", offer.rid)))
}

fn highest_ever(offer: &Resource) -> u32 {
    let parameters =
        offer.body.get("content").and_then(|content| content.get("offerMinimumThroughputParameters"));
    let highest = parameters.and_then(|parameters| parameters.get("maxThroughputEverProvisioned"));
    highest.and_then(Value::as_i64).and_then(|highest| u32::try_from(highest).ok()).unwrap_or(0)
}
