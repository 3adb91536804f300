//! Jobs of kind `profile` and `advice`: profile the containers of a database, and evaluate the rules over the profile.
//!
//! Where the last profile can be brought up to date from what was touched since, that is done; otherwise, and when a job says how
//! many items to scan, it is rebuilt. Both read one snapshot, which they keep between their steps. After a restart, or when a job
//! was paused, it starts again with another one; what it shows of its progress does not fall.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use quire_model::Model;
use quire_profile::Workload;
use quire_value::{Limits, Object, Value, text};

use super::checks::subject;
use crate::api::{EngineError, ProfileRequest, corrupt};
use crate::catalog::{Catalog, Container};
use crate::jobs::{JobClaim, JobId, JobKind, JobOwner, JobStep, NewJob};
use crate::profiles::{
    BuildOptions, BuiltProfile, ProfileBuild, ProfileFollow, Profiles, RetainedScans, SCAN_MAX_DEFAULT,
};
use crate::recording::DatabaseRecord;
use crate::runtime::Shared;

pub(crate) const PROFILE: &str = "profile";
pub(crate) const ADVICE: &str = "advice";
/// Items of one step.
const STEP_ITEMS: usize = 500;
/// Between two commits of how far a build is.
const SHOWN_EVERY: Duration = Duration::from_secs(1);
/// Until the program around the engine has said what evaluates the rules.
const ADVISOR_WAIT: Duration = Duration::from_millis(100);
const PAYLOAD_LIMITS: Limits = Limits { depth_max: 256 };

pub(crate) struct ProfileJobs {
    kind: &'static str,
    shared: Weak<Shared>,
    catalog: Weak<Catalog>,
    profiles: Weak<Profiles>,
    running: Mutex<HashMap<JobId, RunningProfile>>,
}

struct RunningProfile {
    refresh: Refresh,
    shown: Instant,
}

enum Refresh {
    Build(Box<ProfileBuild>),
    Follow(Box<ProfileFollow>),
}

/// What a job uses while it runs.
struct ProfileContext {
    shared: Arc<Shared>,
    catalog: Arc<Catalog>,
    profiles: Arc<Profiles>,
    database: JobOwner,
    order: ProfilePayload,
}

/// The payload of a profile or advice job.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProfilePayload {
    pub profile: ProfileRequest,
    /// The body of a request for advice.
    pub advice: Value,
}

impl ProfileJobs {
    /// Both kinds.
    pub fn kinds(shared: &Arc<Shared>, catalog: &Arc<Catalog>, profiles: &Arc<Profiles>) -> [ProfileJobs; 2] {
        [PROFILE, ADVICE].map(|kind| ProfileJobs {
            kind,
            shared: Arc::downgrade(shared),
            catalog: Arc::downgrade(catalog),
            profiles: Arc::downgrade(profiles),
            running: Mutex::default(),
        })
    }

    fn context(&self, claim: &JobClaim<'_>) -> Result<ProfileContext, EngineError> {
        let closed = || EngineError::Storage(quire_storage::StorageError::Closed);
        Ok(ProfileContext {
            shared: self.shared.upgrade().ok_or_else(closed)?,
            catalog: self.catalog.upgrade().ok_or_else(closed)?,
            profiles: self.profiles.upgrade().ok_or_else(closed)?,
            database: claim.body.database.clone().ok_or_else(|| corrupt("a job without a database"))?,
            order: ProfilePayload::decode(&claim.body.payload)?,
        })
    }

    fn begin(&self, context: &ProfileContext) -> Result<RunningProfile, EngineError> {
        let refresh = match context.follow()? {
            Some(follow) => Refresh::Follow(Box::new(follow)),
            None => Refresh::Build(Box::new(context.build()?)),
        };
        Ok(RunningProfile { refresh, shown: Instant::now() })
    }

    fn run(&self, claim: &mut JobClaim<'_>, context: &ProfileContext) -> Result<JobStep, EngineError> {
        let under_way = self.running.lock().remove(&claim.id);
        let mut under_way = match under_way {
            Some(under_way) => under_way,
            None if self.kind == ADVICE => match context.current()? {
                Some(built) => return context.advise(&built),
                None => self.begin(context)?,
            },
            None => self.begin(context)?,
        };
        if under_way.refresh.step()? {
            claim.complete(under_way.refresh.progress().0);
            return context.finish(under_way.refresh, self.kind);
        }
        if under_way.shown.elapsed() >= SHOWN_EVERY {
            let (done, total) = under_way.refresh.progress();
            claim.commit(claim.advance(Vec::new(), done, Some(total)), Vec::new())?;
            under_way.shown = Instant::now();
        }
        self.running.lock().insert(claim.id, under_way);
        Ok(JobStep::More)
    }
}

impl JobKind for ProfileJobs {
    fn name(&self) -> &'static str {
        self.kind
    }

    fn step(&self, claim: &mut JobClaim<'_>) -> Result<JobStep, EngineError> {
        let context = self.context(claim)?;
        if self.kind == ADVICE && context.profiles.advisor().is_none() {
            return Ok(JobStep::Rest(ADVISOR_WAIT));
        }
        match self.run(claim, &context) {
            Err(EngineError::ResourceNotFound { .. }) => Ok(JobStep::Cancelled),
            Err(error @ (EngineError::BadRequest { .. } | EngineError::NotSupported { .. })) => {
                Ok(JobStep::Failed { error: error.to_string(), result: Value::Null })
            }
            step => step,
        }
    }

    fn cancel(&self, claim: &mut JobClaim<'_>) -> Result<(), EngineError> {
        self.release(claim.id);
        Ok(())
    }

    fn release(&self, job: JobId) {
        self.running.lock().remove(&job);
    }
}

impl Refresh {
    fn step(&mut self) -> Result<bool, EngineError> {
        match self {
            Refresh::Build(build) => build.step(STEP_ITEMS),
            Refresh::Follow(follow) => follow.step(STEP_ITEMS),
        }
    }

    fn progress(&self) -> (u64, u64) {
        match self {
            Refresh::Build(build) => build.progress(),
            Refresh::Follow(follow) => follow.progress(),
        }
    }

    fn finish(self, model: &Model) -> Result<(BuiltProfile, Option<RetainedScans>), EngineError> {
        match self {
            Refresh::Build(build) => build.finish(Some(model)),
            Refresh::Follow(follow) => Ok(follow.finish(Some(model))),
        }
    }
}

impl ProfileContext {
    /// `None` where all is rebuilt.
    fn follow(&self) -> Result<Option<ProfileFollow>, EngineError> {
        let retained = self.profiles.take_retained(self.database.number);
        let is_usual = self.order.profile.scan_max.is_none();
        let usual = |retained: &RetainedScans| is_usual && retained.scan_max == SCAN_MAX_DEFAULT;
        let Some(retained) = retained.filter(usual) else { return Ok(None) };
        ProfileFollow::start(&self.shared, &self.database.name, self.containers()?, retained)
    }

    fn build(&self) -> Result<ProfileBuild, EngineError> {
        let scan_max = self.order.profile.scan_max.unwrap_or(SCAN_MAX_DEFAULT);
        let options = BuildOptions { scan_max };
        ProfileBuild::start(&self.shared, &self.database.name, self.containers()?, &options)
    }

    /// The current containers of the database, without views: their items are those of the source.
    fn containers(&self) -> Result<Vec<Arc<Container>>, EngineError> {
        let name = || self.database.name.clone();
        let state = self.catalog.state();
        let database = state
            .database(self.database.number)
            .ok_or_else(|| EngineError::ResourceNotFound { kind: "database", id: name() })?;
        Ok(profiled(database.containers.iter()))
    }

    fn model(&self) -> Result<Arc<quire_model::ModelRules>, EngineError> {
        Ok(subject(&self.catalog, self.database.number, None)?.rules)
    }

    fn current(&self) -> Result<Option<Arc<BuiltProfile>>, EngineError> {
        Ok(self.profiles.current(self.database.number, &self.containers()?))
    }

    /// The workload that was recorded so far.
    fn recorded(&self) -> Result<Arc<Mutex<DatabaseRecord>>, EngineError> {
        self.shared.recorder.current(&*self.shared.storage, self.database.number)
    }

    fn finish(&self, refresh: Refresh, kind: &str) -> Result<JobStep, EngineError> {
        let (rules, only) = (self.model()?, self.order.profile.containers.as_deref());
        let built = refresh.finish(&rules.model)?;
        let recorded = self.recorded()?;
        let workload = &mut recorded.lock().workload;
        let (built, stored) = self.profiles.store(self.database.number, built, only, workload)?;
        match kind {
            ADVICE => self.advise_on(&built, workload),
            _ => Ok(JobStep::Done(Value::Object(Object::from_iter([("containers", Value::Array(stored))])))),
        }
    }

    fn advise(&self, built: &BuiltProfile) -> Result<JobStep, EngineError> {
        let recorded = self.recorded()?;
        self.advise_on(built, &mut recorded.lock().workload)
    }

    fn advise_on(&self, built: &BuiltProfile, workload: &mut Workload) -> Result<JobStep, EngineError> {
        let rules = self.model()?;
        let model: (u32, &Model) = (self.database.number, &rules.model);
        let containers = self.containers()?;
        let list = self.profiles.advise(model, built, &containers, workload, &self.order.advice)?;
        let count = |member: &str| list.get(member).and_then(Value::as_array).map_or(0, <[Value]>::len);
        let mut result = Object::new();
        result.set("revision", list.get("revision").cloned().unwrap_or(Value::Null));
        result.set("findings", count("findings") as u64);
        result.set("notEnough", count("notEnough") as u64);
        Ok(JobStep::Done(Value::Object(result)))
    }
}

/// Containers that have a profile, by name.
pub(crate) fn profiled<'a>(containers: impl Iterator<Item = &'a Arc<Container>>) -> Vec<Arc<Container>> {
    let mut own: Vec<Arc<Container>> =
        containers.filter(|container| container.definition.view.is_none()).map(Arc::clone).collect();
    own.sort_by(|one, other| one.definition.id.cmp(&other.definition.id));
    own
}

impl ProfilePayload {
    /// A job for a database.
    pub fn job(&self, kind: &'static str, database: JobOwner) -> NewJob {
        let mut about = Object::new();
        if let Some(names) = &self.profile.containers {
            about.set("containers", names.iter().map(|name| Value::from(name.as_str())).collect::<Value>());
        }
        let payload = self.encode();
        NewJob { kind, unit: "items", database: Some(database), container: None, about, payload }
    }

    fn encode(&self) -> Vec<u8> {
        let mut json = Object::new();
        if let Some(names) = &self.profile.containers {
            json.set("containers", names.iter().map(|name| Value::from(name.as_str())).collect::<Value>());
        }
        if let Some(scan_max) = self.profile.scan_max {
            json.set("scanMax", scan_max);
        }
        json.set("advice", self.advice.clone());
        Value::Object(json).to_json().into_bytes()
    }

    fn decode(payload: &[u8]) -> Result<ProfilePayload, EngineError> {
        let json = text::parse(payload, PAYLOAD_LIMITS).map_err(|_| corrupt("payload of a profile"))?;
        let names = json.get("containers").and_then(Value::as_array);
        let containers =
            names.map(|names| names.iter().filter_map(Value::as_str).map(str::to_owned).collect());
        let scan_max = json.get("scanMax").and_then(Value::as_u64);
        let advice = json.get("advice").cloned().unwrap_or(Value::Null);
        Ok(ProfilePayload { profile: ProfileRequest { containers, scan_max }, advice })
    }
}
