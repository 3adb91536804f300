//! Containers that take the place of others under another partition key: made, exchanged and dropped, each in one commit.
//!
//! A container with another key is made beside its source as `{name}~new`. When a refactoring has filled it, it gets the name,
//! and what had it stays as `{name}~old`. Both are closed for clients while they are not called `{name}`. Its partitions have ids
//! that the source never had and begin behind the source's LSNs: whatever a client knows of the source's partitions (ids,
//! session tokens, positions in the change feed) is unknown here, or behind everything that is here.

use std::sync::Arc;

use quire_resource::{ContainerDefinition, EpkRange};
use quire_storage::Op;
use quire_value::Value;

use super::change::CatalogChange;
use super::offers::throughput_of;
use super::permissions::container_in_link;
use super::row::ResourceRow;
use super::state::{DatabaseEntry, OfferOwner, UserEntry};
use super::{Catalog, Container, ContainerScripts, EngineError, already_exists, not_found};
use crate::api::{Resource, ScriptKind, corrupt};
use crate::partition::PartitionSet;
use crate::partition::access::AccessState;
use crate::store::keys::{self, CATALOG};
use crate::store::{PartitionLayout, open_refactorings};

/// Behind the name of a container that is being filled.
pub(crate) const NEW: &str = "~new";
/// Behind the name of a container that has been replaced.
pub(crate) const OLD: &str = "~old";
/// Writes that a source may take while it is copied. LSNs have 48 bits in ETags.
const LSN_MARGIN: u64 = 1 << 32;

/// Two containers of a database that exchange their names.
pub(crate) struct NameExchange<'a> {
    /// Has the name; its writers are held.
    pub current: u32,
    /// Is to have it, and is called `{name}~new`.
    pub target: u32,
    /// Is called `{name}~old`, and goes.
    pub dropped: Option<u32>,
    /// Of the database from then on, where it has one.
    pub model: Option<&'a Value>,
    /// Further rows of the commit.
    pub rows: Vec<Op>,
}

impl Catalog {
    /// The definition of a container but for its name and its partition key.
    pub(crate) fn rekeyed_definition(
        source: &Container,
        name: &str,
        key: &Value,
    ) -> Result<ContainerDefinition, EngineError> {
        let mut json = source.definition.json.clone();
        json.set("id", format!("{name}{NEW}"));
        json.set("partitionKey", key.clone());
        let definition = ContainerDefinition::create(&Value::Object(json))?;
        definition.check_new()?;
        Ok(definition)
    }

    /// An empty container beside its source. `row` says what else is true then, by its number.
    pub(crate) fn create_rekeyed(
        &self,
        source: &Container,
        key: &Value,
        row: impl FnOnce(u32) -> Op,
    ) -> Result<Arc<Container>, EngineError> {
        let mut change = self.change()?;
        let source = change.numbered(source.number)?;
        let definition = Catalog::rekeyed_definition(&source, &source.definition.id, key)?;
        let database = change.database_of(&source)?;
        if database.containers.named(&definition.id).is_some() {
            return Err(already_exists("container", &definition.id));
        }
        let layout = layout_beside(&source.partitions, &definition);
        let container = self.put_new_container(&mut change, &database, definition, &layout)?;
        container.partitions.access().set(AccessState::Closed);
        let lsn = change.lsn_floor().max(last_lsn(&source)?) + LSN_MARGIN;
        change.begin_partitions_at(container.number, &layout, lsn);
        let owner = OfferOwner { database: database.number(), container: container.number };
        change.copy_offer(&source, owner)?;
        change.push_op(row(container.number));
        change.publish_container(container)
    }

    /// Exchanges names, all at once: the container that is to have the name has it, with the scripts, the throughput and the
    /// permissions of what had it.
    pub(crate) fn exchange(&self, exchange: NameExchange<'_>) -> Result<(), EngineError> {
        let mut change = self.change()?;
        let current = change.numbered(exchange.current)?;
        let target = change.numbered(exchange.target)?;
        let dropped = exchange.dropped.and_then(|number| change.state.container(number).cloned());
        let name = current.definition.id.clone();
        if let Some(dropped) = &dropped {
            change.remove_container(dropped);
        }
        let database = change.database_of(&current)?;
        if database.containers.named(&format!("{name}{OLD}")).is_some() {
            return Err(already_exists("container", &format!("{name}{OLD}")));
        }
        change.move_permissions(&database, &current, &target, dropped.as_deref());
        change.rename_container(&current, &format!("{name}{OLD}"))?;
        let renamed = change.rename_container(&target, &name)?;
        change.move_scripts(&current, &renamed)?;
        change.move_offer(&current, &renamed)?;
        change.raise_rid_counter(&current, &target)?;
        change.switch_access(&current.partitions, AccessState::Closed);
        change.switch_access(&target.partitions, AccessState::Open);
        if let Some(model) = exchange.model {
            let database = change.database_of(&current)?;
            change.exchange_model(&database, &name, model)?;
        }
        exchange.rows.into_iter().for_each(|row| change.push_op(row));
        change.commit_retiring(&dropped)
    }

    /// Drops containers that a refactoring has made or left behind, as far as they are there.
    pub(crate) fn drop_rekeyed(&self, number: Option<u32>, row: Op) -> Result<(), EngineError> {
        let mut change = self.change()?;
        let dropped = number.and_then(|number| change.state.container(number).cloned());
        if let Some(dropped) = &dropped {
            change.remove_container(dropped);
        }
        change.push_op(row);
        change.commit_retiring(&dropped)
    }

    /// A container that is getting another key stays as it is until that is finished or undone, and so do those beside it.
    pub(super) fn check_not_rekeyed(&self, container: &Container) -> Result<(), EngineError> {
        let [database, _] = container.job_owners();
        let open = open_refactorings::rekeys(&*self.shared.storage.snapshot()?, database.number)?;
        match open.iter().find(|own| own.containers.contains(&container.number)) {
            Some(own) => Err(EngineError::RefactoringRunning { container: own.name.clone() }),
            None => Ok(()),
        }
    }

    /// Names that a refactoring is going to use are taken.
    pub(super) fn check_name_is_free(&self, database: &DatabaseEntry, name: &str) -> Result<(), EngineError> {
        let Some(own) = name.strip_suffix(OLD).or_else(|| name.strip_suffix(NEW)) else { return Ok(()) };
        let open = open_refactorings::rekeys(&*self.shared.storage.snapshot()?, database.number())?;
        if open.iter().any(|rekey| rekey.name == own) {
            Err(already_exists("container", name))
        } else {
            Ok(())
        }
    }
}

impl CatalogChange<'_> {
    fn numbered(&self, number: u32) -> Result<Arc<Container>, EngineError> {
        let found = self.state.container(number).cloned();
        found.ok_or_else(|| not_found("container", &number.to_string()))
    }

    fn database_of(&self, container: &Container) -> Result<Arc<DatabaseEntry>, EngineError> {
        let found = self.state.databases.get(&container.database.rid).cloned();
        found.ok_or_else(|| not_found("database", &container.database.id))
    }

    /// The throughput of a container for another one; none where it shares that of the database.
    fn copy_offer(&mut self, from: &Container, owner: OfferOwner) -> Result<(), EngineError> {
        let offer = OfferOwner::of(&from.resource.rid).and_then(|own| self.state.offer_of(own).cloned());
        let Some(offer) = offer else { return Ok(()) };
        self.create_offer(owner, throughput_of(&offer.resource)?)
    }

    fn move_offer(&mut self, from: &Container, to: &Container) -> Result<(), EngineError> {
        let Some(owner) = OfferOwner::of(&to.resource.rid) else { return Ok(()) };
        self.delete_offer_of(owner);
        self.copy_offer(from, owner)
    }

    fn rename_container(&mut self, container: &Container, id: &str) -> Result<Arc<Container>, EngineError> {
        let ResourceRow { layout, epochs, .. } = self.catalog.stored(container.resource.rid)?;
        let mut definition = container.definition.clone();
        definition.id = id.to_owned();
        definition.json.set("id", id);
        let resource = self.stamp(container.resource.rid, id.to_owned(), definition.json.clone());
        self.put_container(&resource, &layout, &epochs);
        let renamed = Arc::new(container.redefined(resource, definition, container.partitions.clone()));
        if let Some(database) = self.state.databases.edit(&container.database.rid) {
            database.containers.insert(renamed.clone());
        }
        Ok(renamed)
    }

    /// The same scripts, with rids of their own. What is left behind keeps its own.
    fn move_scripts(&mut self, from: &Container, to: &Container) -> Result<(), EngineError> {
        to.scripts().iter().for_each(|script| self.delete(script.rid));
        let mut scripts = ContainerScripts::default();
        for script in from.scripts().iter() {
            let kind = ScriptKind::of(&script.rid).ok_or_else(|| corrupt("rid of a script"))?;
            let rid = self.script_rid(to, kind)?;
            let copy = self.stamp(rid, script.id.clone(), script.body.clone());
            self.put(&copy);
            scripts.insert(copy);
        }
        self.switch_scripts(to, scripts);
        Ok(())
    }

    /// Items that were copied have the counters of their originals: new ones get others.
    fn raise_rid_counter(&mut self, from: &Container, to: &Container) -> Result<(), EngineError> {
        let snapshot = self.catalog.shared.storage.snapshot()?;
        let counter = |container: &Container| -> Result<u64, EngineError> {
            let row = snapshot.get(CATALOG, &keys::rid_counter(container.number))?;
            row.map_or(Ok(1), |row| keys::number(&row).ok_or_else(|| corrupt("counter of rids")))
        };
        let value = keys::number_value(counter(from)?.max(counter(to)?));
        self.push_op(Op::Put { space: CATALOG, key: keys::rid_counter(to.number), value });
        Ok(())
    }

    /// A permission goes with the name, whether it has the name or the rid. One for a partition key is for values of another
    /// property now: it stays with what had the key, and comes back with it (`back`).
    fn move_permissions(
        &mut self,
        database: &DatabaseEntry,
        from: &Container,
        to: &Container,
        back: Option<&Container>,
    ) {
        for user in database.users.iter() {
            for permission in user.permissions.iter() {
                if let Some(segment) = moved_to(permission, from, to, back) {
                    self.move_permission(database, user, permission, &segment);
                }
            }
        }
    }

    fn move_permission(
        &mut self,
        database: &DatabaseEntry,
        user: &UserEntry,
        permission: &Resource,
        segment: &str,
    ) {
        let link = permission.body.get("resource").and_then(Value::as_str).unwrap_or_default();
        let Some((old, rest)) = container_in_link(link) else { return };
        let before = &link[..link.len() - rest.len() - old.len()];
        let mut body = permission.body.clone();
        body.set("resource", format!("{before}{segment}{rest}"));
        let resource = self.stamp(permission.rid, permission.id.clone(), body);
        self.put(&resource);
        self.edit_user(database, user, |user| user.permissions.insert(resource.clone()));
    }
}

/// The name or rid that a permission is to have instead of the one it has.
fn moved_to(
    permission: &Resource,
    from: &Container,
    to: &Container,
    back: Option<&Container>,
) -> Option<String> {
    let (segment, _) = container_in_link(permission.body.get("resource")?.as_str()?)?;
    let names = |container: &Container| {
        [&container.definition.id, &container.resource.rid.to_string()].contains(&&segment.to_owned())
    };
    let is_rid = segment != from.definition.id;
    let has_key = permission.body.get("resourcePartitionKey").is_some_and(|key| !matches!(key, Value::Null));
    match (names(from), has_key) {
        (true, true) if is_rid => None,
        (true, true) => Some(format!("{segment}{OLD}")),
        (true, false) => is_rid.then(|| to.resource.rid.to_string()),
        (false, true) => back.filter(|back| names(back)).map(|_| from.definition.id.clone()),
        (false, false) => None,
    }
}

/// As many partitions as the source has, with other ids than it ever had.
fn layout_beside(source: &PartitionSet, definition: &ContainerDefinition) -> Vec<PartitionLayout> {
    let first = source.lineage().last().map_or(0, |last| last + 1);
    let ranges = EpkRange::split_evenly(&definition.partition_key, source.all().len());
    let layout = |(id, range)| PartitionLayout { id, range, parents: Vec::new() };
    (first..).zip(ranges).map(layout).collect()
}

fn last_lsn(container: &Container) -> Result<u64, EngineError> {
    let lsns = container.partitions.all().iter().map(|partition| partition.sequencer.lsn());
    Ok(lsns.collect::<Result<Vec<_>, _>>()?.into_iter().max().unwrap_or(0))
}
