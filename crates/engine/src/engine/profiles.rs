//! Profiles of containers, and advice about them.

use std::sync::Arc;

use quire_value::{Object, Value};

use super::Engine;
use crate::api::{Advisor, EngineError, ProfileRequest};
use crate::background::profiles::{ADVICE, PROFILE, ProfilePayload, profiled};
use crate::catalog::Container;
use crate::jobs::JobStatus;

impl Engine {
    /// What evaluates the rules. Without it, jobs of kind `advice` wait.
    pub fn set_advisor(&self, advisor: Arc<dyn Advisor>) {
        self.profiles.set_advisor(advisor);
    }

    /// Starts a build of the profiles of a database.
    pub fn build_profile(&self, database: &str, order: ProfileRequest) -> Result<JobStatus, EngineError> {
        self.start_profile_job(PROFILE, database, ProfilePayload { profile: order, advice: Value::Null })
    }

    /// Starts an evaluation of every rule; the body of the request has been checked.
    pub fn evaluate_advice(&self, database: &str, body: Value) -> Result<JobStatus, EngineError> {
        let names = body.get("containers").and_then(Value::as_array);
        let names: Vec<&str> = names.unwrap_or_default().iter().filter_map(Value::as_str).collect();
        self.check_profiled(database, names.into_iter())?;
        self.start_profile_job(
            ADVICE,
            database,
            ProfilePayload { profile: ProfileRequest::default(), advice: body },
        )
    }

    fn start_profile_job(
        &self,
        kind: &'static str,
        database: &str,
        order: ProfilePayload,
    ) -> Result<JobStatus, EngineError> {
        let (owner, _) = self.database_owner(database)?;
        let names = order.profile.containers.iter().flatten().map(String::as_str);
        self.check_profiled(database, names)?;
        let job = self.shared.jobs.order(order.job(kind, owner))?;
        self.job(&job.to_string())
    }

    fn check_profiled<'n>(
        &self,
        database: &str,
        mut names: impl Iterator<Item = &'n str>,
    ) -> Result<(), EngineError> {
        let containers = self.profiled_containers(database)?;
        let is_unknown = |name: &&str| !containers.iter().any(|own| own.definition.id == **name);
        match names.find(is_unknown) {
            Some(name) => Err(EngineError::ResourceNotFound { kind: "container", id: name.to_owned() }),
            None => Ok(()),
        }
    }

    pub(super) fn profiled_containers(&self, database: &str) -> Result<Vec<Arc<Container>>, EngineError> {
        let state = self.catalog.state();
        let entry = state
            .databases
            .find(database)
            .ok_or_else(|| EngineError::ResourceNotFound { kind: "database", id: database.to_owned() })?;
        Ok(profiled(entry.containers.iter()))
    }

    /// The profiles that are there, as JSON, by name of the container.
    pub fn profiles(&self, database: &str) -> Result<Vec<String>, EngineError> {
        let containers = self.profiled_containers(database)?;
        let texts = containers.iter().map(|container| match self.profiles.text(container) {
            // Deleted meanwhile.
            Err(EngineError::ResourceNotFound { .. }) => Ok(None),
            text => text,
        });
        texts.filter_map(Result::transpose).collect()
    }

    /// The profile of a container as JSON.
    pub fn profile(&self, database: &str, container: &str) -> Result<String, EngineError> {
        let container = self.catalog.container(database, container)?;
        let text = self.profiles.text(&container)?;
        text.ok_or_else(|| EngineError::ResourceNotFound {
            kind: "profile",
            id: container.definition.id.clone(),
        })
    }

    /// The last list of advice with the states of its findings, open ones first; nothing before the first evaluation.
    pub fn advice(&self, database: &str) -> Result<Option<Value>, EngineError> {
        let (owner, _) = self.database_owner(database)?;
        let stored = self.profiles.stored(owner.number)?;
        Ok(stored.list.map(|list| with_decisions(list, &stored.decisions)))
    }

    /// A finding is not shown as open any more.
    pub fn dismiss_finding(&self, database: &str, id: &str, reason: &str) -> Result<Value, EngineError> {
        let decision = Object::from_iter([("state", "dismissed"), ("reason", reason)]);
        self.decide(database, id, Some(decision))
    }

    /// A finding is being applied.
    pub fn accept_finding(&self, database: &str, id: &str) -> Result<Value, EngineError> {
        let mut decision = Object::new();
        decision.set("state", "accepted");
        decision.set("reason", Value::Null);
        self.decide(database, id, Some(decision))
    }

    /// A finding is open again.
    pub fn reopen_finding(&self, database: &str, id: &str) -> Result<Value, EngineError> {
        self.decide(database, id, None)
    }

    /// A finding of the last list.
    pub fn finding(&self, database: &str, id: &str) -> Result<Value, EngineError> {
        let list = self.advice(database)?.unwrap_or(Value::Null);
        let findings = list.get("findings").and_then(Value::as_array).unwrap_or_default();
        let found = findings.iter().find(|finding| finding.get("id").and_then(Value::as_str) == Some(id));
        let not_found = || EngineError::ResourceNotFound { kind: "finding", id: id.to_owned() };
        found.cloned().ok_or_else(not_found)
    }

    fn decide(&self, database: &str, id: &str, decision: Option<Object>) -> Result<Value, EngineError> {
        self.finding(database, id)?;
        let (owner, _) = self.database_owner(database)?;
        self.profiles.decide(owner.number, id, decision)?;
        self.finding(database, id)
    }
}

/// Open findings come first; within a state the order stays.
fn with_decisions(mut list: Value, decisions: &Object) -> Value {
    let findings = list.get("findings").and_then(Value::as_array).unwrap_or_default();
    let mut findings: Vec<Value> = findings.iter().map(|finding| decided(finding, decisions)).collect();
    let states = ["open", "accepted", "dismissed"];
    findings.sort_by_key(|finding| {
        let state = finding.get("state").and_then(Value::as_str);
        states.iter().position(|own| Some(*own) == state)
    });
    if let Some(list) = list.as_object_mut() {
        list.set("findings", Value::Array(findings));
    }
    list
}

fn decided(finding: &Value, decisions: &Object) -> Value {
    let mut finding = finding.clone();
    let id = finding.get("id").and_then(Value::as_str).unwrap_or_default();
    if let (Some(decision), Some(object)) = (decisions.get(id).cloned(), finding.as_object_mut()) {
        for member in ["state", "reason"] {
            object.set(member, decision.get(member).cloned().unwrap_or(Value::Null));
        }
    }
    finding
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use std::thread;
    use std::time::Duration;

    use quire_storage::memory::MemoryStorage;
    use quire_value::{Limits, text};

    use super::*;
    use crate::api::Precondition;
    use crate::runtime::stopped_clock::StoppedClock;

    /// A decision may come in while the database is deleted, and after its rows were removed.
    #[test]
    fn nothing_is_decided_about_a_database_that_is_gone() {
        let storage = MemoryStorage::new();
        let options = StoppedClock::default().into_options(1);
        let engine = Engine::open(Arc::new(storage.reopen()), options).unwrap();
        let database = text::parse(br#"{"id":"d"}"#, Limits::default()).unwrap();
        engine.catalog().create_database(&database, None).unwrap();
        let (owner, _) = engine.database_owner("d").unwrap();
        let decide = || engine.profiles.decide(owner.number, "a-1", Some(Object::new()));
        decide().unwrap();
        engine.catalog().delete_database("d", &Precondition { if_match: None }).unwrap();
        while !engine.catalog().state().jobs.is_empty() {
            thread::sleep(Duration::from_millis(2));
        }
        assert!(matches!(decide(), Err(EngineError::ResourceNotFound { kind: "database", .. })));
        engine.close().unwrap();
        let report = crate::verify(&storage.reopen()).unwrap();
        assert!(report.is_sound(), "{:#?}", report.problems);
    }
}
