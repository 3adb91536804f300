//! Jobs of kind `repair`: items whose owned values are wrong are written, under the locks of any write.
//!
//! Where it is asked for, references without a target are taken away first. What cannot be written is left, and listed in the
//! result. An item that is right is not written.

use std::sync::{Arc, Weak};
use std::time::Instant;

use quire_model::Pointer;
use quire_storage::Scan;
use quire_value::{Limits, Object, Value, text};

use super::builds::scope::{containers_to_write, referrer_containers};
use super::checks::CheckPayload;
use super::visits::visit_with_checkpoint;
use crate::api::{EngineError, corrupt};
use crate::catalog::{Catalog, Container};
use crate::integrity::item_example;
use crate::jobs::{JobClaim, JobKind, JobStep};
use crate::maintain::visit::VisitWork;
use crate::model::DatabaseModel;
use crate::runtime::Shared;
use crate::store::item_row::ItemRow;
use crate::store::keys::{self, ITEMS};
use crate::store::scan;
use crate::sync::chunk;

pub(crate) const REPAIR: &str = "repair";
/// Items of one commit.
const CHUNK: usize = 50;
const FAILED_MAX: usize = 1_000;
const LIMITS: Limits = Limits { depth_max: 256 };

pub(crate) struct Repairs {
    shared: Weak<Shared>,
    catalog: Weak<Catalog>,
}

/// Where a repair is.
#[derive(Clone, Debug, Default, PartialEq)]
struct RepairPosition {
    /// Of the containers to go over; first all of them for what dangles, if that is asked for, then for values.
    walk: usize,
    /// The next item.
    rid: u64,
    repaired: u64,
    failed: Vec<Value>,
}

struct Repair<'a> {
    shared: &'a Shared,
    catalog: &'a Catalog,
    model: Arc<DatabaseModel>,
    /// Names of the declarations.
    own: Vec<String>,
    removes_dangling: bool,
}

impl Repairs {
    pub fn new(shared: &Arc<Shared>, catalog: &Arc<Catalog>) -> Repairs {
        Repairs { shared: Arc::downgrade(shared), catalog: Arc::downgrade(catalog) }
    }
}

impl JobKind for Repairs {
    fn name(&self) -> &'static str {
        REPAIR
    }

    fn step(&self, claim: &mut JobClaim<'_>) -> Result<JobStep, EngineError> {
        let closed = || EngineError::Storage(quire_storage::StorageError::Closed);
        let (shared, catalog) =
            (self.shared.upgrade().ok_or_else(closed)?, self.catalog.upgrade().ok_or_else(closed)?);
        let order = CheckPayload::decode(&claim.body.payload)?.check;
        let database = claim.body.database.as_ref().map_or(0, |owner| owner.number);
        let place = RepairPosition::decode(claim.position())?;
        let Some(model) = catalog.database_model(database) else { return Ok(JobStep::Done(place.result())) };
        let all = || model.model().declarations().map(str::to_owned).collect();
        let own = order.declarations.unwrap_or_else(all);
        let removes_dangling = order.remove_dangling;
        Repair { shared: &shared, catalog: &catalog, model, own, removes_dangling }.step(claim, place)
    }
}

impl Repair<'_> {
    fn step(&self, claim: &mut JobClaim<'_>, place: RepairPosition) -> Result<JobStep, EngineError> {
        let links = self.removable_links();
        let links: Vec<&str> = links.iter().map(String::as_str).collect();
        let walks = self.walks(&links);
        let Some((number, work)) = walks.get(place.walk).copied() else {
            return Ok(match place.failed.is_empty() {
                true => JobStep::Done(place.result()),
                false => {
                    let error = format!("{} items could not be written.", place.failed.len());
                    JobStep::Failed { error, result: place.result() }
                }
            });
        };
        let state = self.catalog.state();
        let container = state.containers().find(|container| container.number == number).cloned();
        let mut rids =
            container.as_ref().map_or(Ok(Vec::new()), |container| self.rids(container, place.rid))?;
        rids.truncate(claim.items_at_once());
        let (Some(container), Some(last)) = (container, rids.last().copied()) else {
            let next = RepairPosition { walk: place.walk + 1, rid: 0, ..place };
            claim.commit(claim.advance(next.encode(), claim.done(), None), Vec::new())?;
            return Ok(JobStep::More);
        };
        let next = RepairPosition { rid: last + 1, ..place };
        let began = Instant::now();
        if self.visit(claim, &container, &rids, &next, work)?.is_some() {
            self.one_by_one(claim, &container, &rids, next, work)?;
        }
        claim.visited(rids.len(), began.elapsed());
        Ok(JobStep::More)
    }

    fn walks<'l>(&self, links: &'l [&'l str]) -> Vec<(u32, VisitWork<'l>)> {
        let mut walks = Vec::new();
        if self.removes_dangling {
            let containers = referrer_containers(&self.model, links);
            walks.extend(containers.into_iter().map(|number| (number, VisitWork::RemoveDangling { links })));
        }
        let containers = containers_to_write(&self.model, &self.own);
        walks.extend(containers.into_iter().map(|number| (number, VisitWork::Repair)));
        walks
    }

    /// Links whose references may be taken away: those that name no item, key or unique key themselves.
    fn removable_links(&self) -> Vec<String> {
        let state = self.catalog.state();
        let links = self.model.model().links.iter().filter(|link| self.own.contains(&link.name));
        let is_free = |container: &Container, path: &Pointer| {
            let definition = &container.definition;
            let unique = definition.unique_keys.iter().flat_map(|key| &key.paths);
            let reserved = definition.partition_key.paths.iter().chain(unique).map(Pointer::of_path);
            !reserved.chain([Pointer::of_name("id")]).any(|reserved| reserved.touches(path))
        };
        let removable = links.filter(|link| {
            let number = self.model.containers.get(&link.from.container);
            let container = state.containers().find(|own| Some(&own.number) == number);
            container.is_some_and(|container| is_free(container, &link.from.path))
        });
        removable.map(|link| link.name.clone()).collect()
    }

    fn rids(&self, container: &Container, from: u64) -> Result<Vec<u64>, EngineError> {
        let range = keys::items_from(container.number, from);
        let page = Scan { rows_max: chunk(CHUNK), keys_only: true, ..scan(ITEMS, range) };
        let page = container.snapshot(self.shared)?.scan(&page)?;
        let rid = |(key, _): &(Vec<u8>, Vec<u8>)| keys::rid_of_item_key(key);
        page.rows.iter().map(|row| rid(row).ok_or_else(|| corrupt("key of an item"))).collect()
    }

    /// The error of an item that cannot be written.
    fn visit(
        &self,
        claim: &mut JobClaim<'_>,
        container: &Container,
        rids: &[u64],
        next: &RepairPosition,
        work: VisitWork<'_>,
    ) -> Result<Option<String>, EngineError> {
        visit_with_checkpoint(self.shared, claim, (container, rids), work, |figures| {
            RepairPosition { repaired: next.repaired + figures.written, ..next.clone() }.encode()
        })
    }

    fn one_by_one(
        &self,
        claim: &mut JobClaim<'_>,
        container: &Container,
        rids: &[u64],
        mut next: RepairPosition,
        work: VisitWork<'_>,
    ) -> Result<(), EngineError> {
        for rid in rids {
            next.rid = rid + 1;
            if let Some(error) = self.visit(claim, container, &[*rid], &next, work)? {
                let bytes =
                    self.shared.storage.snapshot()?.get(ITEMS, &keys::item(container.number, *rid))?;
                if let (Some(bytes), true) = (bytes, next.failed.len() < FAILED_MAX) {
                    let row = ItemRow::parse(&bytes)?;
                    next.failed.push(item_example(container, &row, "", Some(Value::from(error)), None)?);
                }
                claim.commit(claim.advance(next.encode(), claim.done() + 1, None), Vec::new())?;
            }
            next = RepairPosition { repaired: RepairPosition::decode(claim.position())?.repaired, ..next };
        }
        Ok(())
    }
}

impl RepairPosition {
    fn result(&self) -> Value {
        let mut json = Object::new();
        json.set("repaired", self.repaired as i64);
        json.set("failed", Value::Array(self.failed.clone()));
        Value::Object(json)
    }

    fn encode(&self) -> Vec<u8> {
        let mut json = Object::new();
        json.set("walk", self.walk as i64);
        json.set("rid", self.rid.to_string());
        json.set("repaired", self.repaired as i64);
        json.set("failed", Value::Array(self.failed.clone()));
        Value::Object(json).to_json().into_bytes()
    }

    fn decode(position: &[u8]) -> Result<RepairPosition, EngineError> {
        if position.is_empty() {
            return Ok(RepairPosition::default());
        }
        RepairPosition::read(position).ok_or_else(|| corrupt("position of a repair"))
    }

    fn read(position: &[u8]) -> Option<RepairPosition> {
        let json = text::parse(position, LIMITS).ok()?;
        Some(RepairPosition {
            walk: usize::try_from(json.get("walk")?.as_u64()?).ok()?,
            rid: json.get("rid")?.as_str()?.parse().ok()?,
            repaired: json.get("repaired")?.as_u64()?,
            failed: json.get("failed")?.as_array()?.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let place = RepairPosition { walk: 2, rid: 1 << 60, repaired: 7, failed: vec![Value::from("x")] };
        assert_eq!(RepairPosition::decode(&place.encode()).unwrap(), place);
        assert_eq!(RepairPosition::decode(&[]).unwrap(), RepairPosition::default());
        assert!(RepairPosition::decode(b"{}").is_err());
    }
}
