//! The last profile of every database, in memory, and what is stored of profiles and advice.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use quire_model::Model;
use quire_profile::{
    ContainerProfile, DatabaseProfile, ItemExample, ItemReader, ItemSequence, Workload, remove_recorded_part,
};
use quire_resource::ContainerDefinition;
use quire_value::{Item, Node, Object, Value, iso_date};

use super::build::{BuiltProfile, CurrentItems, SCAN_MAX_DEFAULT, ScannedContainer};
use super::retained::{HELD_MAX, HELD_TOTAL_MAX, RetainedScans};
use super::rows::{self, StoredAdvice};
use crate::api::{AdviceInput, Advisor, EngineError};
use crate::catalog::{Catalog, Container};
use crate::runtime::Shared;

pub(crate) struct Profiles {
    shared: Arc<Shared>,
    catalog: Arc<Catalog>,
    /// By number of the database.
    built: Mutex<HashMap<u32, Arc<BuiltProfile>>>,
    /// The scans that a refresh continues with; absent while one is running.
    retained: Mutex<HashMap<u32, RetainedScans>>,
    advisor: OnceLock<Arc<dyn Advisor>>,
    /// One change of the decisions about findings at a time.
    deciding: Mutex<()>,
}

impl Profiles {
    pub fn new(shared: Arc<Shared>, catalog: Arc<Catalog>) -> Profiles {
        let (built, retained, advisor, deciding) = Default::default();
        Profiles { shared, catalog, built, retained, advisor, deciding }
    }

    /// The rules; the first one that is set stays.
    pub fn set_advisor(&self, advisor: Arc<dyn Advisor>) {
        let _known = self.advisor.set(advisor);
    }

    pub fn advisor(&self) -> Option<&Arc<dyn Advisor>> {
        self.advisor.get()
    }

    /// The last profile, if it is not of smaller samples than usual, nothing was written and no container came, went or changed
    /// since.
    pub fn current(&self, database: u32, containers: &[Arc<Container>]) -> Option<Arc<BuiltProfile>> {
        let built = self.built.lock().get(&database).map(Arc::clone)?;
        let is_same = built.scan_max >= SCAN_MAX_DEFAULT
            && built.scanned.len() == containers.len()
            && built.scanned.iter().zip(containers).all(|(made_of, container)| made_of.is_of(container));
        is_same.then_some(built)
    }

    /// The scans of the last build. Until they are stored again, all other jobs rebuild.
    pub fn take_retained(&self, database: u32) -> Option<RetainedScans> {
        self.retained.lock().remove(&database)
    }

    /// For the next refresh, within a bound for all databases; those of deleted databases go.
    fn retain(&self, database: u32, retained: Option<RetainedScans>) {
        let state = self.catalog.state();
        let mut all = self.retained.lock();
        all.retain(|number, _| *number != database && state.database(*number).is_some());
        let Some(own) = retained.filter(|own| own.held_bytes() <= HELD_MAX) else { return };
        while all.values().map(RetainedScans::held_bytes).sum::<usize>() + own.held_bytes() > HELD_TOTAL_MAX {
            let Some(oldest) =
                all.iter().min_by_key(|(_, other)| other.scanned_ms).map(|(number, _)| *number)
            else {
                break;
            };
            all.remove(&oldest);
        }
        all.insert(database, own);
    }

    /// The references that the last profile of a database has found.
    pub fn references(&self, database: u32) -> Vec<ItemSequence> {
        self.built.lock().get(&database).map_or_else(Vec::new, |built| built.sequences.clone())
    }

    /// Keeps a profile, and stores those of the named containers (`None`: of all).
    pub fn store(
        &self,
        database: u32,
        (mut built, retained): (BuiltProfile, Option<RetainedScans>),
        only: Option<&[String]>,
        workload: &mut Workload,
    ) -> Result<(Arc<BuiltProfile>, Vec<Value>), EngineError> {
        let containers = built.remove_deleted_containers();
        let snapshot = self.shared.storage.snapshot()?;
        for (profile, container) in built.profile.containers.iter_mut().zip(&containers) {
            profile.revision = revision(rows::profile_text(&*snapshot, container)?)?;
        }
        drop(snapshot);
        let joined = self.joined(&built, &containers, workload);
        let mut stored = Vec::new();
        for (profile, container) in joined.containers.iter().zip(&containers) {
            let is_wanted = only.is_none_or(|names| names.contains(&profile.container));
            let json = || self.json(&joined.database, profile, &containers);
            if is_wanted && rows::put_profile(&self.shared, container, &json())? {
                stored.push(summary(profile));
            }
        }
        let built = Arc::new(built);
        let mut all = self.built.lock();
        // Those of deleted databases go.
        all.retain(|_, built| built.scanned.iter().any(|own| own.container.strong_count() > 0));
        all.insert(database, Arc::clone(&built));
        drop(all);
        self.retain(database, retained);
        Ok((built, stored))
    }

    /// A profile with what was recorded.
    fn joined(
        &self,
        built: &BuiltProfile,
        containers: &[Arc<Container>],
        workload: &mut Workload,
    ) -> DatabaseProfile {
        workload.close_open_actions();
        workload.resolve_sequences(&built.sequences, &CurrentItems { shared: &self.shared, containers });
        let mut joined = built.profile.clone();
        for profile in &mut joined.containers {
            profile.set_workload(workload.container(&profile.container));
        }
        joined
    }

    fn json(&self, database: &str, profile: &ContainerProfile, containers: &[Arc<Container>]) -> Value {
        let items = CurrentItems { shared: &self.shared, containers };
        let id = |number: u64| Some(example_of(&items, containers, &profile.container, number)?.id);
        profile.to_json(database, &time, &id)
    }

    /// Evaluates every rule on a profile and stores the list.
    pub fn advise(
        &self,
        (database, model): (u32, &Model),
        built: &BuiltProfile,
        containers: &[Arc<Container>],
        workload: &mut Workload,
        order: &Value,
    ) -> Result<Value, EngineError> {
        let Some(advisor) = self.advisor() else {
            return Err(EngineError::NotSupported { feature: "Advice".to_owned() });
        };
        let joined = self.joined(built, containers, workload);
        let definitions: Vec<ContainerDefinition> =
            containers.iter().map(|container| container.definition.clone()).collect();
        let before = self.stored(database)?.list;
        let revision = before.as_ref().and_then(|list| list.get("revision")?.as_u64()).unwrap_or(0) + 1;
        let items = CurrentItems { shared: &self.shared, containers };
        let item = |container: &str, number: u64| example_of(&items, containers, container, number);
        let list = advisor.evaluate(&AdviceInput {
            profile: &joined,
            definitions: &definitions,
            model,
            order,
            generated: iso_date(self.shared.clock.now_ms()),
            revision,
            item: &item,
        })?;
        rows::put_list(&self.shared, &self.catalog, database, &list)?;
        if order.get("containers").is_none() {
            self.remove_applied(database, &list)?;
        }
        Ok(list)
    }

    /// A finding that was applied and no longer occurs is open if it occurs again. A dismissed one stays dismissed.
    fn remove_applied(&self, database: u32, list: &Value) -> Result<(), EngineError> {
        let findings = list.get("findings").and_then(Value::as_array).unwrap_or_default();
        let is_listed =
            |id: &str| findings.iter().any(|own| own.get("id").and_then(Value::as_str) == Some(id));
        let decisions = self.stored(database)?.decisions;
        let is_applied = |own: &Value| own.get("state").and_then(Value::as_str) == Some("accepted");
        let gone = decisions.iter().filter(|(id, own)| is_applied(own) && !is_listed(id));
        gone.into_iter().try_for_each(|(id, _)| self.decide(database, id, None))
    }

    /// Forgets what was made of recorded requests.
    pub fn remove_recorded_part(
        &self,
        database: u32,
        containers: &[Arc<Container>],
    ) -> Result<(), EngineError> {
        rows::remove_list(&self.shared, database)?;
        let snapshot = self.shared.storage.snapshot()?;
        for container in containers {
            let Some(text) = rows::profile_text(&*snapshot, container)? else { continue };
            let mut profile = rows::parse(&text)?;
            remove_recorded_part(&mut profile);
            rows::put_profile(&self.shared, container, &profile)?;
        }
        Ok(())
    }

    /// The stored text of a container's profile.
    pub fn text(&self, container: &Container) -> Result<Option<String>, EngineError> {
        rows::profile_text(&*container.snapshot(&self.shared)?, container)
    }

    pub fn stored(&self, database: u32) -> Result<StoredAdvice, EngineError> {
        rows::advice(&*self.shared.storage.snapshot()?, database)
    }

    /// Remembers what was decided about a finding; `None`: nothing any more.
    pub fn decide(&self, database: u32, finding: &str, decision: Option<Object>) -> Result<(), EngineError> {
        let _one = self.deciding.lock();
        // A decision whose outcome was not known is there now, or never will be.
        self.shared.advice.settle(&*self.shared.storage)?;
        let mut decisions = self.stored(database)?.decisions;
        match decision {
            Some(decision) => decisions.set(finding, decision),
            None => drop(decisions.remove(finding)),
        }
        rows::put_decisions(&self.shared, &self.catalog, database, decisions)
    }
}

impl BuiltProfile {
    /// Leaves out containers that were deleted since; those that are left, in the order of their profiles.
    fn remove_deleted_containers(&mut self) -> Vec<Arc<Container>> {
        let made_of = std::mem::take(&mut self.scanned);
        let profiles = std::mem::take(&mut self.profile.containers);
        let mut existing = Vec::new();
        for (made_of, profile) in made_of.into_iter().zip(profiles) {
            if let Some(container) = made_of.container.upgrade() {
                existing.push(container);
                self.scanned.push(made_of);
                self.profile.containers.push(profile);
            }
        }
        existing
    }
}

impl ScannedContainer {
    /// Whether the container is the same, and nothing was written to it since.
    fn is_of(&self, container: &Arc<Container>) -> bool {
        let lsns = |positions: &[crate::api::SessionPosition]| -> Vec<(String, u64)> {
            positions.iter().map(|position| (position.partition_id.to_string(), position.lsn)).collect()
        };
        Weak::ptr_eq(&self.container, &Arc::downgrade(container))
            && lsns(&self.positions) == lsns(&container.positions())
    }
}

fn example_of(
    items: &CurrentItems<'_>,
    containers: &[Arc<Container>],
    container: &str,
    number: u64,
) -> Option<ItemExample> {
    let item: Item = items.item(container, number)?;
    let definition = &containers.iter().find(|own| own.definition.id == container)?.definition;
    let id = item.root().get("id").and_then(Node::as_str)?.to_owned();
    Some(ItemExample { id, partition_key: definition.partition_key.extract(item.root()).ok()? })
}

/// One more than that of the stored profile.
fn revision(stored: Option<String>) -> Result<u64, EngineError> {
    let stored = stored.map(|text| rows::parse(&text)).transpose()?;
    Ok(stored.and_then(|profile| profile.get("revision")?.as_u64()).unwrap_or(0) + 1)
}

fn summary(profile: &ContainerProfile) -> Value {
    let mut json = Object::new();
    json.set("container", profile.container.as_str());
    json.set("revision", profile.revision);
    json.set("items", profile.items.count);
    json.set("scanned", profile.items.scanned);
    Value::Object(json)
}

fn time(ms: u64) -> String {
    iso_date(i64::try_from(ms).unwrap_or(i64::MAX))
}
