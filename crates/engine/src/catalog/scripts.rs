//! Scripts: stored procedures, triggers and user-defined functions of a container.
//!
//! Their text is kept as it was sent and not examined before it runs. A container's scripts are not in the catalog's
//! [`CatalogState`](super::state::CatalogState) but beside its partitions, which every definition of the container shares: whoever
//! holds a container, however long, finds the newest. Invariant: they change only when a change of the catalog is
//! published, so what a change sees is what the last one left.

use std::sync::{Arc, LazyLock};

use quire_resource::{ChildKind, ResourceId};
use quire_value::{Object, Value};

use super::change::CatalogChange;
use super::state::Children;
use super::{Catalog, EngineError, already_exists, body, check_precondition, not_found, owner_not_found};
use crate::api::{Precondition, Resource, ScriptKind};
use crate::catalog::Container;

/// A script's number shares a rid with its kind.
const SCRIPT_NUMBER_MAX: u64 = (1 << 60) - 1;
/// All are in memory, and go in one commit with their container.
const SCRIPTS_PER_KIND_MAX: usize = 500;
const SCRIPT_BYTES_MAX: usize = 2 << 20;
/// Of all scripts of a container.
const CONTAINER_BYTES_MAX: usize = 64 << 20;

/// Ids that begin so belong to the server.
const RESERVED: &str = "__.sys.";
const ECHO: &str = "__.sys.echo";
const ECHO_BODY: &str = "function (value) { getContext().getResponse().setBody(value); }";

const TRIGGER_TYPES: [&str; 2] = ["Pre", "Post"];
const TRIGGER_OPERATIONS: [&str; 6] = ["All", "Create", "Replace", "Update", "Delete", "Upsert"];

/// The scripts of one container at one moment.
#[derive(Clone, Default)]
pub struct ContainerScripts {
    procedures: Children<Resource>,
    triggers: Children<Resource>,
    functions: Children<Resource>,
}

impl ContainerScripts {
    /// What runs when a client names this procedure, by id or rid; also the one that every container has.
    pub fn procedure(&self, segment: &str) -> Option<Arc<Resource>> {
        match segment {
            ECHO => Some(Arc::clone(&ECHO_PROCEDURE)),
            _ => self.procedures.find(segment).cloned(),
        }
    }

    /// By id or rid.
    pub fn trigger(&self, segment: &str) -> Option<Arc<Resource>> {
        self.triggers.find(segment).cloned()
    }

    /// By the name that queries call it.
    pub fn function(&self, name: &str) -> Option<Arc<Resource>> {
        self.functions.named(name).cloned()
    }

    pub(crate) fn len(&self) -> usize {
        self.procedures.len() + self.triggers.len() + self.functions.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.procedures.iter().chain(self.triggers.iter()).chain(self.functions.iter())
    }

    pub(crate) fn insert(&mut self, script: Arc<Resource>) {
        if let Some(kind) = ScriptKind::of(&script.rid) {
            self.of_mut(kind).insert(script);
        }
    }

    fn remove(&mut self, rid: &ResourceId) {
        if let Some(kind) = ScriptKind::of(rid) {
            self.of_mut(kind).remove(rid);
        }
    }

    fn of(&self, kind: ScriptKind) -> &Children<Resource> {
        match kind {
            ScriptKind::StoredProcedure => &self.procedures,
            ScriptKind::Trigger => &self.triggers,
            ScriptKind::UserDefinedFunction => &self.functions,
        }
    }

    fn of_mut(&mut self, kind: ScriptKind) -> &mut Children<Resource> {
        match kind {
            ScriptKind::StoredProcedure => &mut self.procedures,
            ScriptKind::Trigger => &mut self.triggers,
            ScriptKind::UserDefinedFunction => &mut self.functions,
        }
    }
}

/// Its number is never given out; it can be run, but not read, replaced or deleted.
static ECHO_PROCEDURE: LazyLock<Arc<Resource>> = LazyLock::new(|| {
    let kind = ChildKind::StoredProcedure;
    let rid = ResourceId::Child { database: 0, container: 0, kind, child: 0 };
    let mut body = Object::new();
    body.set("id", ECHO);
    body.set("body", ECHO_BODY);
    Arc::new(Resource { rid, id: ECHO.to_owned(), body, etag: "\"0\"".to_owned(), ts: 0 })
});

impl ScriptKind {
    pub(crate) fn of(rid: &ResourceId) -> Option<ScriptKind> {
        match rid {
            ResourceId::Child { kind: ChildKind::StoredProcedure, .. } => Some(ScriptKind::StoredProcedure),
            ResourceId::Child { kind: ChildKind::Trigger, .. } => Some(ScriptKind::Trigger),
            ResourceId::Child { kind: ChildKind::UserDefinedFunction, .. } => {
                Some(ScriptKind::UserDefinedFunction)
            }
            _ => None,
        }
    }

    fn child(self) -> ChildKind {
        match self {
            ScriptKind::StoredProcedure => ChildKind::StoredProcedure,
            ScriptKind::Trigger => ChildKind::Trigger,
            ScriptKind::UserDefinedFunction => ChildKind::UserDefinedFunction,
        }
    }

    /// As messages say it.
    pub fn name(self) -> &'static str {
        match self {
            ScriptKind::StoredProcedure => "stored procedure",
            ScriptKind::Trigger => "trigger",
            ScriptKind::UserDefinedFunction => "user-defined function",
        }
    }
}

impl Catalog {
    /// Also whether it was created: an upsert may replace.
    pub fn create_script(
        &self,
        database: &str,
        container: &str,
        kind: ScriptKind,
        body: &Value,
    ) -> Result<Arc<Resource>, EngineError> {
        self.put_script(database, container, kind, body, None).map(|(script, _)| script)
    }

    /// Creates or replaces; true if it was created. `If-Match` is asked of one that is there.
    pub fn upsert_script(
        &self,
        database: &str,
        container: &str,
        kind: ScriptKind,
        body: &Value,
        precondition: &Precondition,
    ) -> Result<(Arc<Resource>, bool), EngineError> {
        self.put_script(database, container, kind, body, Some(precondition))
    }

    /// `upsert`: on what condition one that is there is replaced.
    fn put_script(
        &self,
        database: &str,
        container: &str,
        kind: ScriptKind,
        body: &Value,
        upsert: Option<&Precondition>,
    ) -> Result<(Arc<Resource>, bool), EngineError> {
        self.owner_container(database, container)?;
        let (id, object) = read_script(kind, body)?;
        let mut change = self.change()?;
        let container = change.owner_container(database, container)?;
        let scripts = container.scripts();
        match scripts.of(kind).named(&id) {
            Some(existing) => {
                let precondition = upsert.ok_or_else(|| already_exists(kind.name(), &id))?;
                check_precondition(precondition, existing)?;
                Ok((change.publish_script(&container, existing.rid, id, object)?, false))
            }
            None => {
                check_count(kind, &scripts)?;
                let rid = change.script_rid(&container, kind)?;
                Ok((change.publish_script(&container, rid, id, object)?, true))
            }
        }
    }

    pub fn script(
        &self,
        database: &str,
        container: &str,
        kind: ScriptKind,
        script: &str,
    ) -> Result<Arc<Resource>, EngineError> {
        let scripts = self.owner_container(database, container)?.scripts();
        scripts.of(kind).find(script).cloned().ok_or_else(|| not_found(kind.name(), script))
    }

    pub fn scripts(
        &self,
        database: &str,
        container: &str,
        kind: ScriptKind,
    ) -> Result<Vec<Arc<Resource>>, EngineError> {
        let scripts = self.owner_container(database, container)?.scripts();
        Ok(scripts.of(kind).iter().cloned().collect())
    }

    /// Everything but the id may change.
    pub fn replace_script(
        &self,
        database: &str,
        container: &str,
        kind: ScriptKind,
        script: &str,
        body: &Value,
        precondition: &Precondition,
    ) -> Result<Arc<Resource>, EngineError> {
        let change = self.change()?;
        let container = change.owner_container(database, container)?;
        let existing = find(&container, kind, script)?;
        check_precondition(precondition, &existing)?;
        let (id, object) = read_script(kind, body)?;
        body::check_same_id(&existing.id, &id)?;
        change.publish_script(&container, existing.rid, id, object)
    }

    pub fn delete_script(
        &self,
        database: &str,
        container: &str,
        kind: ScriptKind,
        script: &str,
        precondition: &Precondition,
    ) -> Result<(), EngineError> {
        let mut change = self.change()?;
        let container = change.owner_container(database, container)?;
        let existing = find(&container, kind, script)?;
        check_precondition(precondition, &existing)?;
        change.delete(existing.rid);
        let mut scripts = ContainerScripts::clone(&container.scripts());
        scripts.remove(&existing.rid);
        change.switch_scripts(&container, scripts);
        change.commit()
    }
}

impl CatalogChange<'_> {
    fn owner_container(&self, database: &str, container: &str) -> Result<Arc<Container>, EngineError> {
        let database = self.database(database)?;
        database.containers.find(container).cloned().ok_or_else(|| owner_not_found("container", container))
    }

    pub(super) fn script_rid(
        &mut self,
        container: &Container,
        kind: ScriptKind,
    ) -> Result<ResourceId, EngineError> {
        let child = self.number(|counters| &mut counters.script, SCRIPT_NUMBER_MAX)?;
        let ResourceId::Container { database, container } = container.resource.rid else {
            unreachable!("a container has a container's rid")
        };
        Ok(ResourceId::Child { database, container, kind: kind.child(), child })
    }

    fn publish_script(
        mut self,
        container: &Container,
        rid: ResourceId,
        id: String,
        object: Object,
    ) -> Result<Arc<Resource>, EngineError> {
        let resource = self.stamp(rid, id, object);
        self.put(&resource);
        let mut scripts = ContainerScripts::clone(&container.scripts());
        scripts.insert(resource.clone());
        check_size(&scripts)?;
        self.switch_scripts(container, scripts);
        self.commit()?;
        Ok(resource)
    }
}

fn find(container: &Container, kind: ScriptKind, script: &str) -> Result<Arc<Resource>, EngineError> {
    let found = container.scripts().of(kind).find(script).cloned();
    found.ok_or_else(|| not_found(kind.name(), script))
}

fn check_count(kind: ScriptKind, scripts: &ContainerScripts) -> Result<(), EngineError> {
    if scripts.of(kind).len() < SCRIPTS_PER_KIND_MAX {
        return Ok(());
    }
    let reason = format!("a container holds at most {SCRIPTS_PER_KIND_MAX} scripts of a kind");
    Err(EngineError::Forbidden { reason })
}

fn check_size(scripts: &ContainerScripts) -> Result<(), EngineError> {
    if scripts.iter().map(|script| script.body.approximate_size()).sum::<usize>() <= CONTAINER_BYTES_MAX {
        return Ok(());
    }
    let reason =
        format!("the scripts of a container take at most {CONTAINER_BYTES_MAX} bytes of memory together");
    Err(EngineError::Forbidden { reason })
}

fn read_script(kind: ScriptKind, body: &Value) -> Result<(String, Object), EngineError> {
    check_script(kind, &body::user_part(body)?)?;
    let (id, object) = body::named(body, &["body"])?;
    if id.starts_with(RESERVED) {
        return Err(body::invalid(format!("Ids that begin with '{RESERVED}' are reserved.")));
    }
    Ok((id, object))
}

/// The members that make a script; its text is not compiled here.
pub(crate) fn check_script(kind: ScriptKind, object: &Object) -> Result<(), EngineError> {
    let required: &[&str] = match kind {
        ScriptKind::Trigger => &["id", "body", "triggerType", "triggerOperation"],
        ScriptKind::StoredProcedure | ScriptKind::UserDefinedFunction => &["id", "body"],
    };
    body::check_required(object, required)?;
    let bytes = body::string(object, "body")?.len();
    if bytes > SCRIPT_BYTES_MAX {
        return Err(EngineError::ScriptTooLarge { bytes, bytes_max: SCRIPT_BYTES_MAX });
    }
    if kind == ScriptKind::Trigger {
        check_one_of(object, "triggerType", &TRIGGER_TYPES)?;
        check_one_of(object, "triggerOperation", &TRIGGER_OPERATIONS)?;
    }
    Ok(())
}

/// In any case: SDKs disagree about it, and get back what they sent.
fn check_one_of(object: &Object, name: &str, allowed: &[&str]) -> Result<(), EngineError> {
    let value = body::string(object, name)?;
    if allowed.iter().any(|allowed| allowed.eq_ignore_ascii_case(value)) {
        return Ok(());
    }
    let allowed = allowed.join(", ");
    Err(body::invalid(format!("The value '{value}' of '{name}' is invalid: it must be one of {allowed}.")))
}
