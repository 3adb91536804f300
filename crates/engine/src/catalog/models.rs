//! The model of a database: get, put, delete, and the states of its declarations.
//!
//! A change of a model is one commit: its row, the jobs that build what is new, and what is left to reclaim of what is gone.
//! Then every container that the old or the new model names has the new one, at once for all writes that begin then (see
//! `partition::write_rules`).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use quire_model::{Database, Difference, Model, ModelRules, Warning};
use quire_storage::Op;
use quire_value::{Object, Value};

use super::change::CatalogChange;
use super::keys;
use super::model_row::ModelRow;
use super::state::{DatabaseEntry, DropJob};
use super::{Catalog, Container, EngineError, not_found};
use crate::api::{ModelCondition, ModelResource, ModelWritten, corrupt};
use crate::jobs::{self, JobId, NewJob, PreparedJob};
use crate::model::{
    BuildPhase, ContainerModel, Conversion, DatabaseModel, Declaration, DeclarationKind, DeclarationState,
    Declarations,
};
use crate::partition::PartitionSet;
use crate::store::keys::CATALOG;
use crate::store::open_refactorings;

const DECLARATION_NUMBER_MAX: u64 = u32::MAX as u64;
/// The kind of job that builds declarations: all those whose state names the job.
pub(crate) const BUILD: &str = "build";

/// A container, and what the model says of it from a commit on.
pub(super) type ModelSwitch = (Arc<PartitionSet>, Option<Arc<ContainerModel>>);

/// A valid model of a database, and what it would change.
pub(crate) struct ParsedModel {
    pub rules: Arc<ModelRules>,
    pub difference: Difference,
    pub warnings: Vec<Warning>,
}

/// What a refactoring has in the model of its database.
pub(crate) struct ModelForm {
    pub refactoring: u32,
    /// All names that its declarations ever have.
    pub names: Vec<String>,
    /// Each with the list that it is in.
    pub declarations: Vec<(&'static str, Value)>,
    pub conversion: Option<Conversion>,
}

impl ModelForm {
    /// The model with these declarations, and no others of the refactoring.
    fn applied_to(&self, model: Option<&DatabaseModel>) -> Value {
        let mut body = model.map_or_else(|| Model::empty().to_json(), |model| model.model().to_json());
        for list in ["links", "copies", "mirrors", "rollups", "windows"] {
            let own = body.get(list).and_then(Value::as_array).unwrap_or_default().iter();
            let is_other = |own: &&Value| {
                let name = own.get("name").and_then(Value::as_str);
                !self.names.iter().any(|own| Some(own.as_str()) == name)
            };
            let added = self.declarations.iter().filter(|(name, _)| *name == list).map(|(_, own)| own);
            let all: Vec<Value> = own.filter(is_other).chain(added).cloned().collect();
            if all.is_empty() { _ = body.remove(list) } else { body.set(list, all) }
        }
        Value::Object(body)
    }

    fn conversions(&self, model: Option<&DatabaseModel>) -> Vec<Conversion> {
        let all = model.into_iter().flat_map(|model| &model.conversions);
        let others = all.filter(|other| other.refactoring != self.refactoring);
        others.chain(&self.conversion).cloned().collect()
    }
}

impl Catalog {
    /// Before any was put, the empty one.
    pub fn model(&self, database: &str) -> Result<ModelResource, EngineError> {
        let state = self.state.load();
        let database = state.databases.find(database).ok_or_else(|| not_found("database", database))?;
        Ok(resource(database))
    }

    /// The model of a database by its name or rid; `None` where there is none.
    pub(crate) fn named_model(&self, database: &str) -> Result<Option<Arc<DatabaseModel>>, EngineError> {
        let state = self.state.load();
        let database = state.databases.find(database).ok_or_else(|| not_found("database", database))?;
        Ok(database.model.clone())
    }

    /// The model of a database by its number; `None` where there is none.
    pub(crate) fn database_model(&self, database: u32) -> Option<Arc<DatabaseModel>> {
        self.state.load().database(database)?.model.clone()
    }

    /// A model of a database that is not put: valid, and what it would change.
    pub(crate) fn parse_model(
        &self,
        database: &DatabaseEntry,
        body: &Value,
    ) -> Result<ParsedModel, EngineError> {
        let (model, warnings) = Model::parse(body, &self.checked_against(database))?;
        let rules = ModelRules::new(&model, &as_database(database));
        let rules = Arc::new(rules.map_err(|error| corrupt(error.to_string()))?);
        let difference = difference(database.model.as_deref(), &model);
        Ok(ParsedModel { rules, difference, warnings })
    }

    /// A model as it is read back once a container has another partition key, where it is valid then.
    pub(crate) fn check_rekeyed_model(
        &self,
        container: &Container,
        key: &Value,
        body: &Value,
    ) -> Result<Value, EngineError> {
        let state = self.state();
        let database = state.databases.get(&container.database.rid).ok_or_else(|| container.not_found())?;
        let mut rekeyed = Catalog::rekeyed_definition(container, &container.definition.id, key)?;
        rekeyed.id.clone_from(&container.definition.id);
        let others = database.containers.iter().filter(|other| other.number != container.number);
        let definitions = others.map(|other| &other.definition).chain([&rekeyed]);
        let commits_across_partitions = self.shared.storage.caps().commit_spans_partitions;
        let database = Database::new(&database.resource.id, definitions);
        let (model, _) = Model::parse(body, &Database { commits_across_partitions, ..database })?;
        Ok(Value::Object(model.to_json()))
    }

    /// Every write that is answered after this has returned is made under the new model.
    pub fn put_model(
        &self,
        database: &str,
        body: &Value,
        condition: &ModelCondition,
    ) -> Result<ModelWritten, EngineError> {
        self.put_model_with_journal(database, body, condition, None)
    }

    /// The same; what items had before their declarations were built is in a journal.
    pub(crate) fn put_model_with_journal(
        &self,
        database: &str,
        body: &Value,
        condition: &ModelCondition,
        journal: Option<u32>,
    ) -> Result<ModelWritten, EngineError> {
        let mut change = self.change()?;
        let database = change.database_with_model(database)?;
        check_condition(condition, &database)?;
        let (model, warnings) = Model::parse(body, &self.checked_against(&database))?;
        let difference = difference(database.model.as_deref(), &model);
        if difference.is_unchanged() {
            let (model, created, jobs) = (resource(&database), false, Vec::new());
            return Ok(ModelWritten { model, created, difference, warnings, jobs });
        }
        let job = change.prepare_build(&database, &difference, journal)?;
        let conversions = kept_conversions(&database, &model)?;
        let new =
            change.new_model(&database, (model, conversions), &difference, job.as_ref().map(|job| job.id))?;
        self.check_not_refactored(&database, &new)?;
        let jobs = job.iter().map(|job| job.id.to_string()).collect();
        job.into_iter().for_each(|job| change.add_prepared_job(job));
        let created = database.model.is_none();
        let model = resource_of(&new);
        let containers = touched(database.model.as_deref(), new.model(), &difference);
        self.replace_model(change, &database, Some(new), &difference)?;
        self.begin_recording(database.number(), &containers);
        Ok(ModelWritten { model, created, difference, warnings, jobs })
    }

    /// A changed model starts a new recording for its containers. One that goes on is no reason to refuse the model.
    fn begin_recording(&self, database: u32, containers: &BTreeSet<String>) {
        for container in containers {
            let forgotten = self.shared.recorder.forget_container(&*self.shared.storage, database, container);
            if let Err(error) = forgotten {
                tracing::warn!(%error, container, "what was recorded under the old model is kept");
            }
        }
    }

    /// Whether a body could be put now.
    pub(crate) fn check_model(&self, database: &str, body: &Value) -> Result<(), EngineError> {
        let state = self.state.load();
        let entry = state.databases.find(database).ok_or_else(|| not_found("database", database))?;
        self.parse_model(entry, body).map(drop)
    }

    /// A body as a valid model of a database.
    pub(crate) fn parsed_model(&self, database: &str, body: &Value) -> Result<Model, EngineError> {
        let state = self.state.load();
        let entry = state.databases.find(database).ok_or_else(|| not_found("database", database))?;
        Ok(Model::parse(body, &self.checked_against(entry))?.0)
    }

    /// Its values stay in the items as ordinary properties.
    pub fn delete_model(&self, database: &str, condition: &ModelCondition) -> Result<(), EngineError> {
        let change = self.change()?;
        let database = change.database_with_model(database)?;
        check_condition(condition, &database)?;
        if database.model.is_none() {
            return Ok(());
        }
        let difference = difference(database.model.as_deref(), &Model::empty());
        kept_conversions(&database, &Model::empty())?;
        self.replace_model(change, &database, None, &difference)
    }

    /// Gives the model what a refactoring has in it from now on, and nothing else of it. Every write that is answered after
    /// this has returned is made under it. Doing it again changes nothing.
    pub(crate) fn put_form(&self, database: u32, form: &ModelForm) -> Result<(), EngineError> {
        let mut change = self.change()?;
        let entry = change.state.database(database).cloned();
        let entry = entry.ok_or_else(|| not_found("database", &database.to_string()))?;
        let body = form.applied_to(entry.model.as_deref());
        let (model, _) = Model::parse(&body, &self.checked_against(&entry))?;
        let conversions = form.conversions(entry.model.as_deref());
        let difference = difference(entry.model.as_deref(), &model);
        let old = entry.model.as_deref();
        if difference.is_unchanged() && old.map_or(&[][..], |old| old.conversions.as_slice()) == conversions {
            // An earlier call may have failed between its commit and the barrier.
            let sets = switches(&entry, entry.model.as_ref());
            return sets.iter().try_for_each(|(set, _)| set.wait_for_barrier());
        }
        let new = match old.filter(|_| difference.is_unchanged()) {
            Some(old) => open_model(ModelRow { conversions, ..row_of(old) }, &entry)?,
            None => {
                let job = change.prepare_build(&entry, &difference, None)?;
                let id = job.as_ref().map(|job| job.id);
                let new = change.new_model(&entry, (model, conversions), &difference, id)?;
                job.into_iter().for_each(|job| change.add_prepared_job(job));
                new
            }
        };
        self.check_not_refactored(&entry, &new)?;
        self.replace_model(change, &entry, Some(new), &difference)
    }

    /// Changes the states of declarations, such as those that a job has built. `change_states` says whether there is something
    /// to change: the model may be another one by now. Returns when no write of the older states is under way.
    pub(crate) fn change_declarations(
        &self,
        database: u32,
        change_states: impl FnOnce(&mut Declarations) -> bool,
    ) -> Result<bool, EngineError> {
        let change = self.change()?;
        let Some(entry) = change.state.database(database).cloned() else { return Ok(false) };
        let Some(model) = entry.model.as_deref() else { return Ok(false) };
        let mut declarations = model.declarations.clone();
        if !change_states(&mut declarations) {
            return Ok(false);
        }
        let new = DatabaseModel { declarations, ..model.duplicate() };
        self.replace_model(change, &entry, Some(Arc::new(new)), &Difference::default())?;
        Ok(true)
    }

    /// Refactorings write items without a model's rules. One that starts now looks for a model after this change (see
    /// `Refactorings::start`).
    fn check_not_refactored(&self, database: &DatabaseEntry, new: &DatabaseModel) -> Result<(), EngineError> {
        let open = open_refactorings::containers(&*self.shared.storage.snapshot()?, database.number())?;
        let mut named = database.containers.iter().filter(|container| new.names(container.number));
        match named.find(|container| open.contains(&container.number)) {
            Some(found) => Err(EngineError::RefactoringRunning { container: found.definition.id.clone() }),
            None => Ok(()),
        }
    }

    /// Commits the new model and switches to it.
    fn replace_model(
        &self,
        mut change: CatalogChange<'_>,
        database: &DatabaseEntry,
        new: Option<Arc<DatabaseModel>>,
        difference: &Difference,
    ) -> Result<(), EngineError> {
        if let Some(old) = database.model.as_deref() {
            reclaim(old, difference).into_iter().for_each(|job| change.add_job(job));
        }
        change.put_model(database.number(), new.as_deref());
        let switches = switches(database, new.as_ref());
        let sets: Vec<Arc<PartitionSet>> = switches.iter().map(|(set, _)| Arc::clone(set)).collect();
        if let Some(entry) = change.state.databases.edit(&database.resource.rid) {
            entry.model = new;
        }
        change.switch_models(switches);
        change.commit()?;
        // What is answered from now on is of the new model.
        sets.iter().try_for_each(|set| set.wait_for_barrier())
    }

    fn checked_against<'a>(&self, database: &'a DatabaseEntry) -> Database<'a> {
        let commits_across_partitions = self.shared.storage.caps().commit_spans_partitions;
        Database { commits_across_partitions, ..as_database(database) }
    }
}

impl CatalogChange<'_> {
    /// The model of a database in which another container has got a name: what has to do with it is rebuilt.
    pub(super) fn exchange_model(
        &mut self,
        database: &DatabaseEntry,
        name: &str,
        body: &Value,
    ) -> Result<(), EngineError> {
        let Some(old) = database.model.clone() else { return Ok(()) };
        let (model, _) = Model::parse(body, &self.catalog.checked_against(database))?;
        let is_built_anew = |declaration: &str| touches(&old, declaration, name);
        let difference = Difference::rebuilding(old.model(), &model, is_built_anew);
        let job = self.prepare_build(database, &difference, None)?;
        let conversions = kept_conversions(database, &model)?;
        let id = job.as_ref().map(|job| job.id);
        let new = self.new_model(database, (model, conversions), &difference, id)?;
        job.into_iter().for_each(|job| self.add_prepared_job(job));
        reclaim(&old, &difference).into_iter().for_each(|job| self.add_job(job));
        self.put_model(database.number(), Some(&new));
        let switches = switches(database, Some(&new));
        if let Some(entry) = self.state.databases.edit(&database.resource.rid) {
            entry.model = Some(new);
        }
        self.switch_models(switches);
        Ok(())
    }

    fn database_with_model(&self, segment: &str) -> Result<Arc<DatabaseEntry>, EngineError> {
        let found = self.state.databases.find(segment).cloned();
        found.ok_or_else(|| not_found("database", segment))
    }

    /// The job that builds what is new, if there is anything. Its payload is the number of its journal, if it has one.
    fn prepare_build(
        &self,
        database: &DatabaseEntry,
        difference: &Difference,
        journal: Option<u32>,
    ) -> Result<Option<PreparedJob>, EngineError> {
        let names: Vec<Value> = difference
            .added
            .iter()
            .chain(&difference.rebuilt)
            .map(|name| Value::from(name.as_str()))
            .collect();
        if names.is_empty() {
            return Ok(None);
        }
        let revision = database.model.as_ref().map_or(0, |model| model.revision) + 1;
        let mut about = Object::new();
        about.set("revision", revision as i64);
        about.set("declarations", names);
        let name = database.resource.id.clone();
        let database = Some(jobs::JobOwner { number: database.number(), name });
        let payload = journal.map_or_else(Vec::new, |journal| journal.to_be_bytes().to_vec());
        let job = NewJob { kind: BUILD, unit: "items", database, container: None, about, payload };
        self.catalog.shared.jobs.prepare(job).map(Some)
    }

    /// What a database has from this change on. What is added or rebuilt gets a new number and waits for the job.
    fn new_model(
        &mut self,
        database: &DatabaseEntry,
        (model, conversions): (Model, Vec<Conversion>),
        difference: &Difference,
        job: Option<JobId>,
    ) -> Result<Arc<DatabaseModel>, EngineError> {
        let old = database.model.as_deref();
        let declarations = Declarations::try_new(&model, |_, name| {
            let is_built = difference.added.iter().chain(&difference.rebuilt).any(|built| built == name);
            match (old.and_then(|old| old.declarations.named(name)), job) {
                (Some(kept), _) if !is_built => Ok(kept.clone()),
                (_, Some(job)) => {
                    let number = self.number(|counters| &mut counters.declaration, DECLARATION_NUMBER_MAX)?;
                    let state = DeclarationState::Building { job, phase: BuildPhase::Index };
                    Ok(Declaration { name: name.to_owned(), number: number as u32, state })
                }
                (_, None) => Err(corrupt(format!("the declaration {name:?} is new"))),
            }
        })?;
        let (etag, ts) = self.stamp_etag();
        let revision = old.map_or(0, |old| old.revision) + 1;
        open_model(ModelRow { ts, etag, revision, model, declarations, conversions }, database)
    }

    fn put_model(&mut self, database: u32, model: Option<&DatabaseModel>) {
        let key = keys::model_key(database);
        let Some(model) = model else { return self.delete_key(key) };
        let value = row_of(model).encode(&key);
        self.push_op(Op::Put { space: CATALOG, key, value });
    }
}

fn row_of(model: &DatabaseModel) -> ModelRow {
    ModelRow {
        ts: model.ts,
        etag: model.etag.clone(),
        revision: model.revision,
        model: model.model().clone(),
        declarations: model.declarations.clone(),
        conversions: model.conversions.clone(),
    }
}

/// A stored model, or one that was just checked, ready for writes.
pub(super) fn open_model(row: ModelRow, database: &DatabaseEntry) -> Result<Arc<DatabaseModel>, EngineError> {
    let rules = ModelRules::new(&row.model, &as_database(database));
    let rules = rules.map_err(|error| corrupt(error.to_string()))?;
    let mut containers = HashMap::new();
    for name in row.model.containers() {
        let container = database.containers.named(name);
        let container = container.ok_or_else(|| EngineError::Corrupt {
            what: format!("the model names the container {name:?}, which is not there"),
        })?;
        containers.insert(name.to_owned(), container.number);
    }
    // Where items are converted they are written under the model, too.
    for name in row.conversions.iter().flat_map(|own| own.rule.containers()) {
        let container = database.containers.named(name);
        containers.extend(container.map(|container| (name.to_owned(), container.number)));
    }
    let ModelRow { ts, etag, revision, declarations, conversions, .. } = row;
    let rules = Arc::new(rules);
    Ok(Arc::new(DatabaseModel { revision, etag, ts, rules, declarations, containers, conversions }))
}

/// What all containers that the old or the new model names have from the change on.
pub(super) fn switches(database: &DatabaseEntry, new: Option<&Arc<DatabaseModel>>) -> Vec<ModelSwitch> {
    let old = database.model.as_ref();
    let is_named = |number: u32| old.into_iter().chain(new).any(|model| model.names(number));
    let named = database.containers.iter().filter(|container| is_named(container.number));
    let switch = |name: &str| new.and_then(|model| ContainerModel::of(model, name));
    named.map(|container| (Arc::clone(&container.partitions), switch(&container.definition.id))).collect()
}

fn as_database(database: &DatabaseEntry) -> Database<'_> {
    let definitions = database.containers.iter().map(|container| &container.definition);
    Database::new(&database.resource.id, definitions)
}

/// Containers of declarations that come, go or are rebuilt.
fn touched(old: Option<&DatabaseModel>, new: &Model, difference: &Difference) -> BTreeSet<String> {
    let names: Vec<&String> =
        difference.added.iter().chain(&difference.removed).chain(&difference.rebuilt).collect();
    let models = old.map(DatabaseModel::model).into_iter().chain([new]);
    models.flat_map(|model| containers_of(model, &names)).collect()
}

fn containers_of(model: &Model, names: &[&String]) -> Vec<String> {
    let is_named = |name: &String| names.contains(&name);
    let copies = model.copies.iter().map(|own| (&own.name, &own.link));
    let mirrors = model.mirrors.iter().map(|own| (&own.name, &own.link));
    let rollups = model.rollups.iter().map(|own| (&own.name, &own.link));
    let users = copies.chain(mirrors).chain(rollups).filter(|(name, _)| is_named(name));
    let links: Vec<&String> = users.map(|(_, link)| link).collect();
    let links = model.links.iter().filter(|own| is_named(&own.name) || links.contains(&&own.name));
    let windows = model.windows.iter().filter(|own| is_named(&own.name)).map(|own| own.container.clone());
    links.flat_map(|own| [own.from.container.clone(), own.to.container.clone()]).chain(windows).collect()
}

/// Conversions go on under another model that leaves their declarations as they are.
fn kept_conversions(database: &DatabaseEntry, new: &Model) -> Result<Vec<Conversion>, EngineError> {
    let Some(old) = database.model.as_deref() else { return Ok(Vec::new()) };
    for own in &old.conversions {
        let is_same = |name: &String| declared(old.model(), name) == declared(new, name);
        if !own.declarations.iter().all(is_same) {
            let container = own.rule.containers()[0].to_owned();
            return Err(EngineError::RefactoringRunning { container });
        }
    }
    Ok(old.conversions.clone())
}

/// A declaration as it was put.
fn declared(model: &Model, name: &str) -> Option<Value> {
    let body = model.to_json();
    let lists = body.iter().filter_map(|(_, list)| list.as_array());
    let mut all = lists.flatten();
    all.find(|own| own.get("name").and_then(Value::as_str) == Some(name)).cloned()
}

/// What a new model changes. Where it is another one, a declaration that failed is built once more.
fn difference(old: Option<&DatabaseModel>, new: &Model) -> Difference {
    let Some(old) = old else { return Difference::between(&Model::empty(), new) };
    let difference = Difference::between(old.model(), new);
    if difference.is_unchanged() {
        return difference;
    }
    let has_failed = |name: &str| old.declarations.named(name).is_some_and(|own| own.state.is_failed());
    Difference::rebuilding(old.model(), new, has_failed)
}

/// What is left of declarations that are gone, or get another number.
fn reclaim(old: &DatabaseModel, difference: &Difference) -> Vec<DropJob> {
    let is_gone = |name: &str| difference.removed.iter().chain(&difference.rebuilt).any(|gone| gone == name);
    let mut jobs = Vec::new();
    for (kind, declaration) in old.declarations.iter().filter(|(_, declaration)| is_gone(&declaration.name)) {
        for container in containers_with_rows(old, kind, &declaration.name) {
            jobs.push(DropJob::Declaration { container, declaration: declaration.number });
        }
    }
    jobs
}

/// Whether a link or a window of a model has to do with a container; what is made of a link is rebuilt with it.
fn touches(model: &DatabaseModel, declaration: &str, container: &str) -> bool {
    let links = model.rules.links.iter().map(|own| &own.link);
    let links = links.filter(|link| link.from.container == container || link.to.container == container);
    let windows = model.model().windows.iter();
    let windows = windows.filter(|own| own.container == container || own.pages.container == container);
    links.map(|link| &link.name).chain(windows.map(|own| &own.name)).any(|name| name == declaration)
}

/// Where a declaration has rows of its own: with the targets, and with the referrers, whose marks are there while it is built.
fn containers_with_rows(model: &DatabaseModel, kind: DeclarationKind, name: &str) -> Vec<u32> {
    let rules = &model.rules;
    let links = rules.links.iter().enumerate().filter(|(_, own)| own.link.name == name);
    let mirrors = rules.mirrors.iter().filter(|own| own.mirror.name == name);
    let rollups = rules.rollups.iter().filter(|own| own.rollup.name == name);
    let links: Vec<usize> = match kind {
        DeclarationKind::Link => links.map(|(number, _)| number).collect(),
        DeclarationKind::Mirror => mirrors.map(|own| own.link).collect(),
        DeclarationKind::Rollup => rollups.map(|own| own.link).collect(),
        DeclarationKind::Copy | DeclarationKind::Window => Vec::new(),
    };
    let links = links.into_iter().map(|number| &rules.links[number].link);
    let mut names: Vec<&str> =
        links.flat_map(|link| [&link.from.container, &link.to.container]).map(String::as_str).collect();
    names.dedup();
    names.into_iter().filter_map(|name| model.containers.get(name).copied()).collect()
}

/// The model as clients see it; before any was put it is empty, and as old as the database.
fn resource(database: &DatabaseEntry) -> ModelResource {
    match database.model.as_deref() {
        Some(model) => resource_of(model),
        None => ModelResource {
            body: Model::empty().to_json(),
            etag: database.resource.etag.clone(),
            ts: database.resource.ts,
            revision: 0,
        },
    }
}

fn resource_of(model: &DatabaseModel) -> ModelResource {
    let (etag, ts, revision) = (model.etag.clone(), model.ts, model.revision);
    ModelResource { body: model.model().to_json(), etag, ts, revision }
}

pub(crate) fn check_condition(
    condition: &ModelCondition,
    database: &DatabaseEntry,
) -> Result<(), EngineError> {
    let (current, exists) = (resource(database), database.model.is_some());
    let is_etag = |tag: &str| tag == current.etag || tag == current.etag.trim_matches('"');
    let matches = |tag: &str| if tag == "*" { exists } else { is_etag(tag) };
    let fails = condition.if_match.as_deref().is_some_and(|tag| !matches(tag))
        || condition.if_none_match.as_deref().is_some_and(matches);
    if fails { Err(EngineError::PreconditionFailed) } else { Ok(()) }
}
