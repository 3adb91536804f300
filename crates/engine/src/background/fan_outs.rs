//! Jobs of kind `fan-out`: a change of a target that more referrers have to follow than one request rewrites.
//!
//! A job goes through the referrers in the order of the link's index, some of them to a commit: it locks them, and the target
//! shared, and writes what the target says then. When the target has changed since the walk began, it begins another one: see
//! `maintain::fan_out`. What cannot be written is left, and listed in the result.

use std::sync::{Arc, Weak};

use quire_storage::Op;
use quire_value::{Limits, Object, Value, text};

use super::visits::visit_with_checkpoint;
use crate::api::{EngineError, corrupt};
use crate::catalog::{Catalog, Container};
use crate::integrity::item_example;
use crate::jobs::{JobClaim, JobKind, JobOutcome, JobStep};
use crate::links::{Referrer, Referrers, TargetHash};
use crate::maintain::fan_out::{FAN_OUT, FanOutPayload, FanOutRow};
use crate::maintain::visit::{VisitWork, lock_target};
use crate::model::DatabaseModel;
use crate::runtime::Shared;
use crate::store::keys::{DeclarationKeys, LOOKUPS};
use crate::sync::chunk;

/// Referrers of one commit.
const CHUNK: usize = 50;
/// Referrers that could not be written are listed up to this number.
const FAILED_MAX: usize = 1_000;
const LIMITS: Limits = Limits { depth_max: 256 };

pub(crate) struct FanOuts {
    shared: Weak<Shared>,
    catalog: Weak<Catalog>,
}

/// One job, in one step.
struct FanOutWalk<'a> {
    shared: &'a Shared,
    model: Arc<DatabaseModel>,
    /// Number of the link in the model.
    link: usize,
    payload: FanOutPayload,
    referrers: Arc<Container>,
    targets: Arc<Container>,
}

/// The position of a job.
#[derive(Clone, Debug, Default, PartialEq)]
struct FanOutPosition {
    /// Of the target, when the walk began; 0 before the first.
    rounds: u64,
    /// The last referrer that was visited.
    after: Option<Vec<u8>>,
    failed: Vec<Value>,
}

impl FanOuts {
    pub fn new(shared: &Arc<Shared>, catalog: &Arc<Catalog>) -> FanOuts {
        FanOuts { shared: Arc::downgrade(shared), catalog: Arc::downgrade(catalog) }
    }
}

impl JobKind for FanOuts {
    fn name(&self) -> &'static str {
        FAN_OUT
    }

    /// Without it copies would stay wrong, so it cannot be cancelled.
    fn can_stop(&self) -> bool {
        false
    }

    fn step(&self, claim: &mut JobClaim<'_>) -> Result<JobStep, EngineError> {
        let closed = || EngineError::Storage(quire_storage::StorageError::Closed);
        let (shared, catalog) =
            (self.shared.upgrade().ok_or_else(closed)?, self.catalog.upgrade().ok_or_else(closed)?);
        let place = FanOutPosition::decode(claim.position())?;
        // Without the declaration there is nothing to keep right.
        match FanOutWalk::of(&shared, &catalog, claim)? {
            Some(walk) => walk.step(claim, place),
            None => Ok(JobStep::Cancelled),
        }
    }
}

impl<'a> FanOutWalk<'a> {
    fn of(
        shared: &'a Shared,
        catalog: &Catalog,
        claim: &JobClaim<'_>,
    ) -> Result<Option<FanOutWalk<'a>>, EngineError> {
        let payload = FanOutPayload::decode(&claim.body.payload)?;
        let database = claim.body.database.as_ref().map_or(0, |owner| owner.number);
        let Some(model) = catalog.database_model(database) else { return Ok(None) };
        let links = &model.declarations.links;
        let Some(link) = links.iter().position(|own| own.number == payload.declaration) else {
            return Ok(None);
        };
        let state = catalog.state();
        let container = |name: &str| {
            let number = model.containers.get(name)?;
            state.containers().find(|container| container.number == *number).cloned()
        };
        let rules = &model.rules.links[link].link;
        let (from, to) = (container(&rules.from.container), container(&rules.to.container));
        let (Some(referrers), Some(targets)) = (from, to) else { return Ok(None) };
        Ok(Some(FanOutWalk { shared, model, link, payload, referrers, targets }))
    }

    fn step(&self, claim: &mut JobClaim<'_>, place: FanOutPosition) -> Result<JobStep, EngineError> {
        if place.rounds == 0 {
            return self.begin(claim, place);
        }
        let visibility_point = self.referrers.visibility_point(self.shared);
        let snapshot = self.referrers.snapshot(self.shared)?;
        let page = self.index().page(&*snapshot, place.after.as_deref(), chunk(CHUNK), &visibility_point)?;
        drop(snapshot);
        let Some(last) = page.referrers.last() else { return self.end(claim, place) };
        let next = FanOutPosition { after: Some(last.place.clone()), ..place };
        let live: Vec<&Referrer> = page.referrers.iter().filter(|referrer| !referrer.is_invisible).collect();
        let rids: Vec<u64> = live.iter().map(|referrer| referrer.stored.rid).collect();
        if self.visit(claim, &rids, &next)?.is_none() {
            return Ok(JobStep::More);
        }
        self.one_by_one(claim, &live, next)
    }

    /// A walk begins: what the target says then, or later, is written.
    fn begin(&self, claim: &mut JobClaim<'_>, place: FanOutPosition) -> Result<JobStep, EngineError> {
        let Some(row) = self.row()? else { return Ok(JobStep::Done(result(&place))) };
        let snapshot = self.referrers.snapshot(self.shared)?;
        let total = claim.done() + self.index().rows_up_to(&*snapshot, usize::MAX)? as u64;
        let begun = FanOutPosition { rounds: row.rounds, after: None, ..place };
        claim.commit(claim.advance(begun.encode(), claim.done(), Some(total)), Vec::new())?;
        Ok(JobStep::More)
    }

    /// Writes some referrers and moves behind them. The error of one that cannot be written.
    fn visit(
        &self,
        claim: &mut JobClaim<'_>,
        rids: &[u64],
        next: &FanOutPosition,
    ) -> Result<Option<String>, EngineError> {
        let work = VisitWork::FanOut { link: self.payload.declaration, target: &self.payload.target };
        visit_with_checkpoint(self.shared, claim, (&self.referrers, rids), work, |_| next.encode())
    }

    /// Writes them one by one, because one of them cannot be written.
    fn one_by_one(
        &self,
        claim: &mut JobClaim<'_>,
        referrers: &[&Referrer],
        mut next: FanOutPosition,
    ) -> Result<JobStep, EngineError> {
        for referrer in referrers {
            next.after = Some(referrer.place.clone());
            let Some(error) = self.visit(claim, &[referrer.stored.rid], &next)? else { continue };
            if next.failed.len() < FAILED_MAX {
                let (_, row) = referrer.stored.parse()?;
                let found = Some(Value::from(error));
                next.failed.push(item_example(&self.referrers, &row, "", found, None)?);
            }
            let done = claim.done() + 1;
            claim.commit(claim.advance(next.encode(), done, None), Vec::new())?;
        }
        Ok(JobStep::More)
    }

    /// All referrers were visited: the job ends, unless the target has changed since the walk began.
    fn end(&self, claim: &mut JobClaim<'_>, place: FanOutPosition) -> Result<JobStep, EngineError> {
        let _held = lock_target(self.shared, &self.model, self.link, &self.targets, &self.payload.target)?;
        // A change of the target that is in doubt has another round.
        self.targets.partitions.commit_queue().settle()?;
        self.targets.partitions.settle_doubts()?;
        let row = self.row()?;
        if row.is_some_and(|row| row.rounds > place.rounds) {
            let again = FanOutPosition { rounds: 0, after: None, ..place };
            claim.commit(claim.advance(again.encode(), claim.done(), None), Vec::new())?;
            return Ok(JobStep::More);
        }
        let outcome = match place.failed.is_empty() {
            true => JobOutcome::Done(result(&place)),
            false => {
                let error = format!("{} referrers could not be written.", place.failed.len());
                JobOutcome::Failed { error, result: result(&place) }
            }
        };
        let mut ops = claim.finish_ops(&outcome);
        ops.push(Op::Delete { space: LOOKUPS, key: self.row_key() });
        claim.commit_end(ops)?;
        claim.finished(&outcome);
        Ok(JobStep::Committed)
    }

    fn index(&self) -> Referrers<'_> {
        let (link, target) = (&self.model.rules.links[self.link], &self.payload.target);
        Referrers { link, declaration: self.payload.declaration, container: &self.referrers, target }
    }

    fn row_key(&self) -> Vec<u8> {
        let rows = DeclarationKeys { container: self.targets.number, declaration: self.payload.declaration };
        rows.fan_out(&TargetHash::of(&self.payload.target).0)
    }

    fn row(&self) -> Result<Option<FanOutRow>, EngineError> {
        let row = self.shared.storage.snapshot()?.get(LOOKUPS, &self.row_key())?;
        row.as_deref().map(FanOutRow::decode).transpose()
    }
}

fn result(place: &FanOutPosition) -> Value {
    Value::Object(Object::from_iter([("failed", Value::Array(place.failed.clone()))]))
}

impl FanOutPosition {
    fn encode(&self) -> Vec<u8> {
        let mut json = Object::new();
        json.set("rounds", self.rounds as i64);
        let hex = |bytes: &Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        json.set("after", self.after.as_ref().map_or(Value::Null, |after| Value::from(hex(after))));
        json.set("failed", Value::Array(self.failed.clone()));
        Value::Object(json).to_json().into_bytes()
    }

    fn decode(position: &[u8]) -> Result<FanOutPosition, EngineError> {
        if position.is_empty() {
            return Ok(FanOutPosition::default());
        }
        FanOutPosition::read(position).ok_or_else(|| corrupt("position of a fan-out"))
    }

    fn read(position: &[u8]) -> Option<FanOutPosition> {
        let json = text::parse(position, LIMITS).ok()?;
        let after = match json.get("after")? {
            Value::String(hex) => {
                let byte = |at: usize| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok();
                Some((0..hex.len()).step_by(2).map(byte).collect::<Option<Vec<u8>>>()?)
            }
            _ => None,
        };
        Some(FanOutPosition {
            rounds: json.get("rounds")?.as_u64()?,
            after,
            failed: json.get("failed")?.as_array()?.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        for after in [None, Some(vec![0, 255, 7])] {
            let place = FanOutPosition { rounds: 3, after, failed: vec![Value::from("x")] };
            assert_eq!(FanOutPosition::decode(&place.encode()).unwrap(), place);
        }
        assert_eq!(FanOutPosition::decode(&[]).unwrap(), FanOutPosition::default());
        assert!(FanOutPosition::decode(b"{}").is_err());
    }
}
