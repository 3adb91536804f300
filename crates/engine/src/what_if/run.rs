//! From the sample to the result, some work at a time.

use std::sync::Arc;

use quire_model::Model;
use quire_value::{Object, Value};

use super::concerned;
use super::order::{WhatIfChange, WhatIfOrder};
use super::replay::{RecordedOperations, Replay};
use super::requests::ReplayContext;
use super::sample::{Reference, Sample};
use super::scratch::{Scratch, Side};
use super::translate::Translation;
use crate::api::{EngineError, ModelCondition, Precondition};
use crate::applies::Additions;
use crate::catalog::state::DatabaseEntry;
use crate::catalog::{Catalog, Container};
use crate::jobs::{JobId, JobState};
use crate::profiles::Profiles;
use crate::refactorings::Refactorings;
use crate::runtime::Shared;

/// Items and operations of one step.
const LOADED_ITEMS: usize = 100;
const REPLAYED_OPERATIONS: usize = 20;
const INDEXED: u8 = 100;

/// The parts of an engine that a run uses.
#[derive(Clone)]
pub(crate) struct WhatIfServices {
    pub shared: Arc<Shared>,
    pub catalog: Arc<Catalog>,
    pub profiles: Arc<Profiles>,
    pub refactorings: Arc<Refactorings>,
}

pub(crate) struct WhatIfRun {
    order: WhatIfOrder,
    scratch: Scratch,
    sample: Sample,
    references: Vec<Reference>,
    /// The model of the database; `None` where it names none of the sampled containers.
    model: Option<Value>,
    recorded: Option<RecordedOperations>,
    stage: WhatIfStage,
    replay: Option<Replay>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WhatIfStage {
    /// How many items are there.
    Load(usize),
    /// The model of the database is declared in both.
    Declare,
    Declared,
    /// The change is made in the second one.
    Change,
    /// The job that makes it, where there is one.
    Changed(Option<JobId>),
    Replay,
}

/// How far a run is.
pub(crate) enum RunProgress {
    /// Operations that were replayed, and all that are to be.
    More(u64, u64),
    /// Others are at work.
    Wait,
    Done(Value),
}

impl WhatIfRun {
    /// Chooses the sample and makes the scratch databases.
    pub fn start(
        services: &WhatIfServices,
        database: u32,
        order: WhatIfOrder,
        scratch: Scratch,
    ) -> Result<WhatIfRun, EngineError> {
        let WhatIfServices { shared, catalog, profiles, .. } = services;
        let state = catalog.state();
        let gone = || EngineError::ResourceNotFound { kind: "database", id: database.to_string() };
        let entry = state.database(database).ok_or_else(gone)?;
        let before = entry.model.as_ref().map_or_else(Model::empty, |model| model.model().clone());
        let after = match &order.declarations {
            Some(declarations) => model_with(catalog, &entry.resource.id, &before, declarations)?,
            None => model_after(catalog, entry, &order.change)?,
        };
        let references = concerned::references([&before, &after], profiles.references(database));
        let existing: Vec<Arc<Container>> = entry.containers.iter().cloned().collect();
        check_exists(&order.change, &existing)?;
        let names = concerned::containers(&order.change, [&before, &after], &references, &existing);
        let recorded = {
            let record = shared.recorder.current(&*shared.storage, database)?;
            let count = usize::try_from(order.limits.operations).unwrap_or(usize::MAX);
            RecordedOperations::of(&mut record.lock().workload, &names, count)
        };
        let wanted = existing.into_iter().filter(|own| names.contains(&own.definition.id)).collect();
        let mut sample = Sample::new(shared, wanted)?;
        let limits = (order.limits.sample_items, order.limits.seed);
        sample.choose((shared, catalog), &references, &recorded.records, limits)?;
        scratch.create(catalog, &sample.containers)?;
        let is_modelled = before.containers().into_iter().any(|name| names.contains(name));
        let model = is_modelled.then(|| Value::Object(before.to_json()));
        let (recorded, stage, replay) = (Some(recorded), WhatIfStage::Load(0), None);
        Ok(WhatIfRun { order, scratch, sample, references, model, recorded, stage, replay })
    }

    pub fn step(&mut self, services: &WhatIfServices) -> Result<RunProgress, EngineError> {
        let (done, total) = self.progress();
        match self.stage {
            WhatIfStage::Load(from) => self.load(services, from)?,
            WhatIfStage::Declare => self.declare(services)?,
            WhatIfStage::Declared if self.is_busy(services)? => return Ok(RunProgress::Wait),
            WhatIfStage::Declared => {
                self.check_built(services)?;
                self.stage = WhatIfStage::Change;
            }
            WhatIfStage::Change => self.stage = WhatIfStage::Changed(self.change(services)?),
            WhatIfStage::Changed(job) if self.is_busy(services)? => {
                job.map_or(Ok(()), |job| check_job(services, job))?;
                return Ok(RunProgress::Wait);
            }
            WhatIfStage::Changed(job) => self.begin_replay(services, job)?,
            WhatIfStage::Replay => return self.replay_some(services),
        }
        Ok(RunProgress::More(done, total))
    }

    fn progress(&self) -> (u64, u64) {
        let waiting = self.recorded.as_ref().map_or(0, |recorded| recorded.records.len() as u64);
        self.replay.as_ref().map_or((0, waiting), Replay::progress)
    }

    fn load(&mut self, services: &WhatIfServices, from: usize) -> Result<(), EngineError> {
        let (container, bodies, count) = self.sample.bodies(from, LOADED_ITEMS)?;
        if !bodies.is_empty() {
            self.scratch.load((&services.shared, &services.catalog), &container, &bodies)?;
        }
        let is_over = from + count >= self.sample.load_count();
        self.stage = if is_over { WhatIfStage::Declare } else { WhatIfStage::Load(from + count) };
        Ok(())
    }

    fn declare(&mut self, services: &WhatIfServices) -> Result<(), EngineError> {
        for side in Side::BOTH {
            let model = self.model.clone().and_then(Value::into_object);
            let first = self.order.declarations.as_ref().filter(|_| side == Side::Then);
            let model = match (model, first) {
                (model, Some(first)) => {
                    let model = model.unwrap_or_else(|| Model::empty().to_json());
                    Some(Additions::plan(&model, first).apply_to(model))
                }
                (model, None) => model,
            };
            if let Some(model) = model {
                let name = self.scratch.name(side);
                services.catalog.put_model(&name, &Value::Object(model), &ModelCondition::default())?;
            }
        }
        self.stage = WhatIfStage::Declared;
        Ok(())
    }

    /// Makes the change as a client would.
    fn change(&self, services: &WhatIfServices) -> Result<Option<JobId>, EngineError> {
        let database = self.scratch.name(Side::Then);
        match &self.order.change {
            WhatIfChange::Model(body) => {
                services.catalog.put_model(&database, body, &ModelCondition::default())?;
                Ok(None)
            }
            WhatIfChange::Container(body) => {
                let id = body.get("id").and_then(Value::as_str).unwrap_or_default();
                let any = Precondition { if_match: None };
                match self.sample.container(id) {
                    Some(_) => services.catalog.replace_container(&database, id, body, &any)?,
                    None => services.catalog.create_container(&database, body, None)?,
                };
                Ok(None)
            }
            WhatIfChange::Refactoring(body) => {
                let mut body = body.as_object().cloned().unwrap_or_else(Object::new);
                body.set("finish", "auto");
                let started = services.refactorings.start_named(&database, Value::Object(body))?;
                Ok(started.jobs.last().and_then(|job| job.parse().ok()))
            }
        }
    }

    /// Whether something is still at work in the scratch databases.
    fn is_busy(&self, services: &WhatIfServices) -> Result<bool, EngineError> {
        for side in Side::BOTH {
            let number = self.scratch.number(&services.catalog, side)?;
            let is_indexing = |own: &Arc<Container>| own.index_progress() < INDEXED;
            let is_busy = !services.shared.jobs.unfinished_of(number).is_empty()
                || services.catalog.containers(&self.scratch.name(side))?.iter().any(is_indexing);
            if is_busy {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A declaration that could not be built measures nothing.
    fn check_built(&self, services: &WhatIfServices) -> Result<(), EngineError> {
        for side in Side::BOTH {
            let Some(model) = services.catalog.named_model(&self.scratch.name(side))? else { continue };
            let mut failed = model.declarations.iter().filter(|(_, own)| own.state.is_failed());
            if let Some((_, own)) = failed.next() {
                return Err(refused(format!(
                    "The declaration '{}' could not be built on the sample.",
                    own.name
                )));
            }
        }
        Ok(())
    }

    fn begin_replay(&mut self, services: &WhatIfServices, job: Option<JobId>) -> Result<(), EngineError> {
        job.map_or(Ok(()), |job| check_job(services, job))?;
        self.check_built(services)?;
        let model = |side: Side| {
            let model = services.catalog.named_model(&self.scratch.name(side))?;
            Ok::<_, EngineError>(model.map_or_else(Model::empty, |model| model.model().clone()))
        };
        // A link that an embed needs is declared first, and gone when it is finished.
        let mut before = model(Side::Now)?;
        if let Some(declarations) = &self.order.declarations {
            before = model_with(&services.catalog, &self.scratch.name(Side::Now), &before, declarations)?;
        }
        let translation = Translation::of(&self.order.change, &before, &model(Side::Then)?);
        self.replay = self.recorded.take().map(|recorded| Replay::new(recorded, translation));
        self.stage = WhatIfStage::Replay;
        Ok(())
    }

    fn replay_some(&mut self, services: &WhatIfServices) -> Result<RunProgress, EngineError> {
        let (limits, predicted) = (self.order.limits, self.order.predicted);
        let context = ReplayContext {
            shared: &services.shared,
            catalog: &services.catalog,
            scratch: &self.scratch,
            sample: &self.sample,
            references: &self.references,
            seed: limits.seed,
        };
        let Some(replay) = &mut self.replay else { return Ok(RunProgress::Wait) };
        if replay.step(&context, limits.seconds, REPLAYED_OPERATIONS)? {
            let (done, total) = replay.progress();
            return Ok(RunProgress::More(done, total));
        }
        let sample = (self.sample.items, self.sample.total);
        Ok(RunProgress::Done(replay.result(sample, predicted, self.order.days)))
    }
}

/// The model that the database would have.
/// A model with declarations that a change needs first.
fn model_with(
    catalog: &Catalog,
    database: &str,
    model: &Model,
    declarations: &Value,
) -> Result<Model, EngineError> {
    let model = model.to_json();
    let planned = Additions::plan(&model, declarations).apply_to(model);
    catalog.parsed_model(database, &Value::Object(planned))
}

fn model_after(
    catalog: &Catalog,
    entry: &DatabaseEntry,
    change: &WhatIfChange,
) -> Result<Model, EngineError> {
    match change {
        WhatIfChange::Model(body) => Ok(catalog.parse_model(entry, body)?.rules.model.clone()),
        _ => Ok(entry.model.as_ref().map_or_else(Model::empty, |model| model.model().clone())),
    }
}

/// The container that a change names is still there.
fn check_exists(change: &WhatIfChange, existing: &[Arc<Container>]) -> Result<(), EngineError> {
    let body = change.body();
    let is_there = |name: &str| existing.iter().any(|own| own.definition.id == name);
    let view = body.get("materializedViewDefinition");
    let name = match (change, view) {
        (WhatIfChange::Refactoring(_), _) => body.get("container"),
        (WhatIfChange::Container(_), Some(view)) => view.get("sourceCollectionId"),
        (WhatIfChange::Container(_), None) => body.get("id"),
        (WhatIfChange::Model(_), _) => None,
    };
    match name.and_then(Value::as_str).filter(|name| !is_there(name)) {
        Some(name) => Err(refused(format!("There is no container '{name}' any more."))),
        None => Ok(()),
    }
}

/// A job that makes the change and has come to nothing.
fn check_job(services: &WhatIfServices, job: JobId) -> Result<(), EngineError> {
    let Some(status) = services.shared.jobs.status(job)? else { return Ok(()) };
    match status.state {
        JobState::Failed | JobState::Blocked | JobState::Cancelled => {
            let why = status.error.unwrap_or_else(|| status.result.to_json());
            Err(refused(format!("The change could not be made on the sample: {why}")))
        }
        _ => Ok(()),
    }
}

fn refused(message: String) -> EngineError {
    EngineError::BadRequest { message }
}
