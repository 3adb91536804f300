//! Requests to the scratch databases, by the calls that serve clients, and what they cost.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use quire_resource::{EpkRange, PartitionKey};
use quire_value::{Item, Limits, Value, text};

use super::query::ReplayedQuery;
use super::sample::{Reference, Sample, SampledItem};
use super::scratch::{Scratch, Side};
use crate::api::{EngineError, ItemRead, PageRequest, ReadItem, Scope, WriteItem, WriteKind};
use crate::catalog::{Catalog, Container};
use crate::items::read::{find_item, read_item};
use crate::maintain::write::write_any;
use crate::query::query_items;
use crate::runtime::Shared;
use crate::store::SYSTEM_PROPERTIES;

/// Pages of one query.
const PAGES_MAX: usize = 1_000;
/// Of items as they are stored.
const ITEM_LIMITS: Limits = Limits { depth_max: 256 };

/// What a replay works on.
pub(super) struct ReplayContext<'a> {
    pub shared: &'a Shared,
    pub catalog: &'a Catalog,
    pub scratch: &'a Scratch,
    pub sample: &'a Sample,
    pub references: &'a [Reference],
    pub seed: u64,
}

/// A request of a replay.
#[derive(Clone, Debug)]
pub(super) enum Request {
    Read {
        container: String,
        place: SampledItem,
    },
    Write {
        container: String,
        verb: Verb,
        id: String,
        key: Option<PartitionKey>,
        body: Value,
    },
    Query {
        container: String,
        query: ReplayedQuery,
        scope: QueryScope,
    },
    /// One that is not sent: what it would cost.
    Priced {
        charge: f64,
        bytes: u64,
        round_trips: u64,
    },
    /// One that costs what it did in the old form, and this much more.
    AsNow {
        more: f64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Create,
    Upsert,
    Replace,
    Patch,
}

#[derive(Clone, Debug, Default)]
pub(super) struct QueryScope {
    pub key: Option<PartitionKey>,
    pub range: Option<EpkRange>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Cost {
    pub charge: f64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub round_trips: u64,
    pub millis: f64,
}

impl Cost {
    pub fn add(&mut self, other: Cost) {
        self.charge += other.charge;
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
        self.round_trips += other.round_trips;
        self.millis += other.millis;
    }
}

impl ReplayContext<'_> {
    pub fn container(&self, side: Side, name: &str) -> Result<Arc<Container>, EngineError> {
        self.scratch.container(self.catalog, side, name)
    }

    /// An item as it is there now, without system properties. It costs nothing.
    pub fn item(&self, side: Side, container: &str, place: &SampledItem) -> Option<Value> {
        let container = self.container(side, container).ok()?;
        let found = find_item(self.shared, &container, &place.id, &place.key)?;
        let mut item = text::parse(&found.body, ITEM_LIMITS).ok()?;
        let object = item.as_object_mut()?;
        SYSTEM_PROPERTIES.iter().for_each(|name| drop(object.remove(name)));
        Some(item)
    }

    /// Where an item of the sample is: another partition key may find it in the new form.
    pub fn place_on(&self, side: Side, container: &str, place: &SampledItem) -> Option<SampledItem> {
        let now = self.container(Side::Now, container).ok()?;
        let own = self.container(side, container).ok()?;
        let key = &own.definition.partition_key;
        if key.paths == now.definition.partition_key.paths {
            return Some(place.clone());
        }
        let item = self.item(Side::Now, container, place)?;
        let key = key.extract(Item::from_value(&item).root()).ok()?;
        Some(SampledItem { id: place.id.clone(), key })
    }

    /// Where the item with this id is, in a container whose partition key is the id; else by the sample.
    pub fn place_of_id(&self, side: Side, container: &str, id: &str) -> Option<SampledItem> {
        let own = self.container(side, container).ok()?;
        let definition = &own.definition.partition_key;
        if definition.paths.len() == 1 && definition.paths[0].to_string() == "/id" {
            let item = Value::Object(quire_value::Object::from_iter([("id", id)]));
            let key = definition.extract(Item::from_value(&item).root()).ok()?;
            return Some(SampledItem { id: id.to_owned(), key });
        }
        let sampled = self.sample.container(container)?.items.values().find(|place| place.id == id)?;
        self.place_on(side, container, sampled)
    }

    pub fn send(&self, side: Side, request: &Request) -> Result<Cost, EngineError> {
        let started = Instant::now();
        let mut cost = match request {
            Request::Read { container, place } => self.read(side, container, place)?,
            Request::Write { container, verb, id, key, body } => {
                self.write(side, container, (*verb, id, key.clone()), body)?
            }
            Request::Query { container, query, scope } => self.query(side, container, query, scope)?,
            Request::Priced { charge, bytes, round_trips } => {
                Cost { charge: *charge, bytes_read: *bytes, round_trips: *round_trips, ..Cost::default() }
            }
            Request::AsNow { more } => Cost { charge: *more, ..Cost::default() },
        };
        cost.millis = started.elapsed().as_secs_f64() * 1_000.0;
        Ok(cost)
    }

    fn read(&self, side: Side, container: &str, place: &SampledItem) -> Result<Cost, EngineError> {
        let container = self.container(side, container)?;
        let read = ReadItem { id: &place.id, partition_key: &place.key, if_none_match: None, session: None };
        let answer = read_item(self.shared, &container, &read);
        let bytes_read = match answer.result? {
            ItemRead::Found { body, .. } => body.len() as u64,
            ItemRead::NotModified { .. } => 0,
        };
        Ok(Cost { charge: answer.charge, bytes_read, round_trips: 1, ..Cost::default() })
    }

    fn write(
        &self,
        side: Side,
        container: &str,
        (verb, id, partition_key): (Verb, &str, Option<PartitionKey>),
        body: &Value,
    ) -> Result<Cost, EngineError> {
        let container = self.container(side, container)?;
        let id = id.to_owned();
        let kind = match verb {
            Verb::Create => WriteKind::Create,
            Verb::Upsert => WriteKind::Upsert,
            Verb::Replace => WriteKind::Replace { id },
            Verb::Patch => WriteKind::Patch { id, if_none_match: None },
        };
        let body = Bytes::from(body.to_json());
        let bytes_written = body.len() as u64;
        let write = WriteItem::new(kind, partition_key, body);
        let answer = write_any(self.shared, &container, &write);
        answer.result?;
        Ok(Cost { charge: answer.charge, bytes_written, round_trips: 1, ..Cost::default() })
    }

    /// All its pages.
    fn query(
        &self,
        side: Side,
        container: &str,
        query: &ReplayedQuery,
        scope: &QueryScope,
    ) -> Result<Cost, EngineError> {
        let container = self.container(side, container)?;
        let mut cost = Cost::default();
        let mut continuation = None;
        for _ in 0..PAGES_MAX {
            let request = PageRequest {
                scope: Scope {
                    partition_key: scope.key.clone(),
                    partition_id: None,
                    range: scope.range.clone(),
                },
                continuation: continuation.take(),
                ..PageRequest::default()
            };
            let ReplayedQuery { text, parameters } = query;
            let answer = query_items(self.shared, self.catalog, &container, text, parameters, &request);
            let page = answer.result?;
            let bytes_read = page.rows.len() as u64;
            cost.add(Cost { charge: answer.charge, bytes_read, round_trips: 1, ..Cost::default() });
            continuation = page.continuation;
            if continuation.is_none() {
                break;
            }
        }
        Ok(cost)
    }
}
