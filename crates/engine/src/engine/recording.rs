//! What is recorded of requests.

use std::sync::Arc;

use quire_value::{Value, iso_date};

use super::Engine;
use crate::api::EngineError;
use crate::catalog::Container;
use crate::recording::{AnsweredRequest, ObservedRequest};

impl Engine {
    /// Whether requests are recorded.
    pub fn is_recording(&self) -> bool {
        self.shared.recorder.is_on()
    }

    pub fn set_recording(&self, is_on: bool) {
        self.shared.recorder.switch(is_on);
    }

    /// Runs a call of the engine on this thread, and returns what it did.
    pub fn observe<T>(&self, call: impl FnOnce() -> T) -> (T, ObservedRequest) {
        self.shared.recorder.observe(call)
    }

    /// Whether requests of an action are recorded: where there are too many, some are left out.
    pub fn records_action(&self, action: u64) -> bool {
        self.is_recording() && self.shared.recorder.is_sampled(action)
    }

    /// A request to items of a container that was answered and left out.
    pub fn record_left_out(&self, container: &Container) {
        if self.is_recording() {
            self.shared.recorder.drop_request(container.recorded_place().database);
        }
    }

    /// A keyed hash, as records have them.
    pub fn recorded_hash(&self, text: &[u8]) -> u64 {
        self.shared.recorder.hash_text(text)
    }

    /// A request to items of a container that was answered.
    pub fn record(&self, container: &Container, request: AnsweredRequest) {
        if self.is_recording() {
            let time_ms = u64::try_from(self.shared.clock.now_ms()).unwrap_or(0);
            self.shared.recorder.add(container.recorded_place(), time_ms, request);
        }
    }

    /// Requests that this engine has answered, as if they had been at other times (milliseconds since 1970): a day of demo data.
    pub fn record_at(
        &self,
        requests: Vec<(Arc<Container>, u64, AnsweredRequest)>,
    ) -> Result<(), EngineError> {
        let requests = requests.into_iter();
        let requests = requests
            .map(|(container, time_ms, request)| (container.recorded_place().clone(), time_ms, request));
        self.shared.recorder.add_answered(&*self.shared.storage, requests.collect())
    }

    /// What is recorded of a database, as JSON.
    pub fn workload(&self, database: &str) -> Result<Value, EngineError> {
        let (owner, _) = self.database_owner(database)?;
        let record = self.shared.recorder.current(&*self.shared.storage, owner.number)?;
        let time = |ms: u64| iso_date(i64::try_from(ms).unwrap_or(i64::MAX));
        let record = record.lock();
        Ok(record.workload.to_json(self.is_recording(), &time))
    }

    /// The last requests to a database, one JSON value a line, the oldest first.
    pub fn workload_lines(&self, database: &str) -> Result<String, EngineError> {
        let (owner, _) = self.database_owner(database)?;
        let record = self.shared.recorder.current(&*self.shared.storage, owner.number)?;
        let time = |ms: u64| iso_date(i64::try_from(ms).unwrap_or(i64::MAX));
        let record = record.lock();
        let lines = record.workload.records().map(|record| record.to_json(&time).to_json() + "\n");
        Ok(lines.collect())
    }

    /// Forgets what was recorded of a database and what was made of it: the last list of advice, and parts of profiles. Decisions
    /// about findings stay.
    pub fn forget_workload(&self, database: &str) -> Result<(), EngineError> {
        let (owner, _) = self.database_owner(database)?;
        self.shared.recorder.remove_recorded(&*self.shared.storage, owner.number)?;
        self.profiles.remove_recorded_part(owner.number, &self.profiled_containers(database)?)
    }
}
