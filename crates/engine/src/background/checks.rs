//! Jobs of kind `check`: compare items with a model, and estimate models that are not declared.
//!
//! A check reads one snapshot, which it keeps between its steps. After a restart or a pause it starts again with a new
//! snapshot; the progress that it reports does not decrease.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use quire_value::{Limits, Object, Value, text};

use crate::api::{CheckModel, EngineError, corrupt};
use crate::catalog::Catalog;
use crate::integrity::{Survey, SurveyOptions, SurveySubject};
use crate::jobs::{JobClaim, JobId, JobKind, JobOwner, JobStep, NewJob};
use crate::runtime::Shared;

pub(crate) const CHECK: &str = "check";
/// Items of one step.
const STEP_ITEMS: usize = 500;
/// Between two commits of the progress.
const SHOWN_EVERY: Duration = Duration::from_secs(1);
const PAYLOAD_LIMITS: Limits = Limits { depth_max: 256 };

pub(crate) struct Checks {
    shared: Weak<Shared>,
    catalog: Weak<Catalog>,
    running: Mutex<HashMap<JobId, RunningCheck>>,
}

struct RunningCheck {
    survey: Survey,
    shown: Instant,
}

/// The payload of a check job.
#[derive(Clone, Debug)]
pub(crate) struct CheckPayload {
    pub check: CheckModel,
    /// The estimates of a model that is not put.
    pub is_dry_run: bool,
}

impl Checks {
    pub fn new(shared: &Arc<Shared>, catalog: &Arc<Catalog>) -> Checks {
        let under_way = Mutex::default();
        Checks { shared: Arc::downgrade(shared), catalog: Arc::downgrade(catalog), running: under_way }
    }

    fn start(&self, claim: &JobClaim<'_>) -> Result<RunningCheck, EngineError> {
        let closed = || EngineError::Storage(quire_storage::StorageError::Closed);
        let shared = self.shared.upgrade().ok_or_else(closed)?;
        let catalog = self.catalog.upgrade().ok_or_else(closed)?;
        let order = CheckPayload::decode(&claim.body.payload)?;
        let database = claim.body.database.as_ref().map_or(0, |owner| owner.number);
        let subject = subject(&catalog, database, order.check.model.as_ref())?;
        let survey = Survey::start(&shared, subject, &order.options())?;
        Ok(RunningCheck { survey, shown: Instant::now() })
    }
}

impl JobKind for Checks {
    fn name(&self) -> &'static str {
        CHECK
    }

    fn step(&self, claim: &mut JobClaim<'_>) -> Result<JobStep, EngineError> {
        let under_way = self.running.lock().remove(&claim.id);
        let started = match under_way {
            Some(under_way) => Ok(under_way),
            None => self.start(claim),
        };
        let mut under_way = match started {
            Ok(under_way) => under_way,
            Err(error) if is_final(&error) => return Ok(failed(&error)),
            Err(error) => return Err(error),
        };
        if under_way.survey.step(STEP_ITEMS)? {
            let order = CheckPayload::decode(&claim.body.payload)?;
            let report = under_way.survey.into_report();
            return Ok(JobStep::Done(match order.is_dry_run {
                true => Value::Object(Object::from_iter([("estimates", report.estimates())])),
                false => report.to_json(),
            }));
        }
        if under_way.shown.elapsed() >= SHOWN_EVERY {
            let (done, total) = under_way.survey.progress();
            claim.commit(claim.advance(Vec::new(), done, Some(total)), Vec::new())?;
            under_way.shown = Instant::now();
        }
        self.running.lock().insert(claim.id, under_way);
        Ok(JobStep::More)
    }

    fn cancel(&self, claim: &mut JobClaim<'_>) -> Result<(), EngineError> {
        self.release(claim.id);
        Ok(())
    }

    fn release(&self, job: JobId) {
        self.running.lock().remove(&job);
    }
}

/// The model of a database, or one that is not declared, with its containers.
pub(crate) fn subject(
    catalog: &Catalog,
    database: u32,
    model: Option<&Value>,
) -> Result<SurveySubject, EngineError> {
    let not_found = || EngineError::ResourceNotFound { kind: "database", id: database.to_string() };
    let state = catalog.state();
    let database = state.database(database).ok_or_else(not_found)?;
    let (rules, declared) = match (model, &database.model) {
        (Some(model), _) => (catalog.parse_model(database, model)?.rules, None),
        (None, Some(model)) => (Arc::clone(&model.rules), Some(Arc::clone(model))),
        (None, None) => (catalog.parse_model(database, &empty_model())?.rules, None),
    };
    let mut containers = HashMap::new();
    for name in rules.model.containers() {
        let container = database.containers.named(name);
        let container = container
            .ok_or_else(|| EngineError::ResourceNotFound { kind: "container", id: name.to_owned() })?;
        containers.insert(name.to_owned(), Arc::clone(container));
    }
    Ok(SurveySubject { rules, containers, declared })
}

fn empty_model() -> Value {
    Value::Object(Object::from_iter([("version", 1)]))
}

/// Whether a retry would fail in the same way.
fn is_final(error: &EngineError) -> bool {
    matches!(
        error,
        EngineError::ModelInvalid(_) | EngineError::ResourceNotFound { .. } | EngineError::BadRequest { .. }
    )
}

fn failed(error: &EngineError) -> JobStep {
    JobStep::Failed { error: error.to_string(), result: Value::Null }
}

impl CheckPayload {
    pub fn options(&self) -> SurveyOptions {
        let CheckModel { declarations, examples_max, .. } = self.check.clone();
        SurveyOptions { declarations, examples_max }
    }

    /// A job for a database.
    pub fn job(&self, kind: &'static str, database: JobOwner, revision: u64) -> NewJob {
        let mut about = Object::new();
        match &self.check.model {
            None => about.set("revision", revision as i64),
            Some(_) => about.set("declared", false),
        }
        if self.is_dry_run {
            about.set("dryRun", true);
        }
        if let Some(names) = &self.check.declarations {
            about.set("declarations", names.iter().map(|name| Value::from(name.as_str())).collect::<Value>());
        }
        let payload = self.encode();
        NewJob { kind, unit: "items", database: Some(database), container: None, about, payload }
    }

    fn encode(&self) -> Vec<u8> {
        let CheckModel { declarations, examples_max, model, remove_dangling } = &self.check;
        let mut json = Object::new();
        json.set("examples", *examples_max as i64);
        json.set("dryRun", self.is_dry_run);
        json.set("removeDangling", *remove_dangling);
        if let Some(names) = declarations {
            json.set("declarations", names.iter().map(|name| Value::from(name.as_str())).collect::<Value>());
        }
        if let Some(model) = model {
            json.set("model", model.clone());
        }
        Value::Object(json).to_json().into_bytes()
    }

    pub fn decode(payload: &[u8]) -> Result<CheckPayload, EngineError> {
        let json = text::parse(payload, PAYLOAD_LIMITS).map_err(|_| corrupt("payload of a check"))?;
        let is = |member: &str| json.get(member).and_then(Value::as_bool) == Some(true);
        let names = json.get("declarations").and_then(Value::as_array);
        let names = names.map(|names| names.iter().filter_map(Value::as_str).map(str::to_owned).collect());
        let examples = json.get("examples").and_then(Value::as_u64).unwrap_or(0);
        let check = CheckModel {
            declarations: names,
            examples_max: usize::try_from(examples).unwrap_or(0),
            model: json.get("model").cloned(),
            remove_dangling: is("removeDangling"),
        };
        Ok(CheckPayload { check, is_dry_run: is("dryRun") })
    }
}
