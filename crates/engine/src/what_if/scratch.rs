//! Scratch databases: the sample in its old form and in its new one.
//!
//! They are called `_quire-what-if-{job}-now` and `-then`, names that no client can take, and say in their body of which job they
//! are. Whoever runs the job begins by removing them: what an earlier run left goes.

use std::sync::Arc;

use bytes::Bytes;
use quire_value::{Object, Value};

use super::sample::SampledContainer;
use crate::api::{Cancel, EngineError, IndexingDirective, Precondition};
use crate::catalog::databases::OWN_DATABASES;
use crate::catalog::{Catalog, Container};
use crate::jobs::JobId;
use crate::runtime::Shared;
use crate::transactions::batch::{BatchOperation, BatchVerb, Bulk, bulk};

/// The member of a scratch database that names its job.
const MARK: &str = "whatIf";
/// Members of a definition that a copy does without: keys of clients are not in the scratch database.
const LEFT_OUT: [&str; 1] = ["clientEncryptionPolicy"];

/// In which form a database has the sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Now,
    Then,
}

impl Side {
    pub const BOTH: [Side; 2] = [Side::Now, Side::Then];

    fn name(self) -> &'static str {
        match self {
            Side::Now => "now",
            Side::Then => "then",
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Scratch {
    job: JobId,
}

impl Scratch {
    pub fn of(job: JobId) -> Scratch {
        Scratch { job }
    }

    pub fn name(&self, side: Side) -> String {
        format!("{OWN_DATABASES}what-if-{}-{}", self.job, side.name())
    }

    /// Removes both, where they are there.
    pub fn remove(&self, catalog: &Catalog) -> Result<(), EngineError> {
        for side in Side::BOTH {
            let name = self.name(side);
            let is_own = catalog.database(&name).is_ok_and(|found| self.is_own(&found.body));
            if !is_own {
                continue;
            }
            match catalog.delete_database(&name, &Precondition { if_match: None }) {
                Ok(()) | Err(EngineError::ResourceNotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn is_own(&self, body: &Object) -> bool {
        body.get(MARK).and_then(Value::as_str) == Some(self.job.to_string().as_str())
    }

    /// Both, with empty containers like the sampled ones.
    pub fn create(&self, catalog: &Catalog, containers: &[SampledContainer]) -> Result<(), EngineError> {
        for side in Side::BOTH {
            let name = self.name(side);
            let body = Object::from_iter([("id", name.clone()), (MARK, self.job.to_string())]);
            catalog.create_own_database(&Value::Object(body), None)?;
            for container in containers {
                let source = &container.source;
                let ranges = source.partitions.all().iter().map(|own| own.layout.range.clone());
                catalog.create_container_with(&name, &copied_definition(source), ranges.collect())?;
            }
        }
        Ok(())
    }

    pub fn number(&self, catalog: &Catalog, side: Side) -> Result<u32, EngineError> {
        let name = self.name(side);
        let state = catalog.state();
        let found = state.databases.find(&name).map(|database| database.number());
        found.ok_or(EngineError::ResourceNotFound { kind: "database", id: name })
    }

    pub fn container(
        &self,
        catalog: &Catalog,
        side: Side,
        container: &str,
    ) -> Result<Arc<Container>, EngineError> {
        catalog.container(&self.name(side), container)
    }

    /// Writes items to both.
    pub fn load(
        &self,
        (shared, catalog): (&Shared, &Catalog),
        container: &str,
        bodies: &[Bytes],
    ) -> Result<(), EngineError> {
        for side in Side::BOTH {
            let container = self.container(catalog, side, container)?;
            let operations = bodies.iter().map(|body| create(body.clone())).collect();
            let bulk = Bulk {
                operations,
                partition_key: None,
                partition_id: None,
                continue_on_error: true,
                session: None,
                cancel: Cancel::default(),
            };
            let results = bulk::run(shared, &container, bulk, 0).result?;
            results.into_iter().try_for_each(|own| own.result.map(drop))?;
        }
        Ok(())
    }
}

fn create(body: Bytes) -> BatchOperation {
    BatchOperation {
        verb: BatchVerb::Create,
        body,
        if_match: None,
        if_none_match: None,
        indexing: IndexingDirective::Default,
        partition_key: None,
        want_body: false,
    }
}

fn copied_definition(source: &Container) -> Value {
    let mut definition = source.definition.json.clone();
    LEFT_OUT.iter().for_each(|name| drop(definition.remove(name)));
    Value::Object(definition)
}
