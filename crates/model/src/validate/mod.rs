//! Whether a model is valid for a database: every error, each with a pointer to where it is.

mod expressions; // what copies, mirrors and rollups evaluate
mod links; // containers, routes, deletes
mod owned; // which paths are maintained, and that nothing reads them
mod path_index; // paths, found by what touches them
mod windows; // windows and their pages

use std::collections::{BTreeSet, HashMap};

use quire_resource::ContainerDefinition;
use quire_value::{Object, Value};

use crate::declare::{self, Draft, Link, Model};
use crate::problem::{ModelError, ModelInvalid, Problem};

pub(crate) use self::expressions::names_of;
pub(crate) use self::owned::{OwnedKind, owned_paths};

/// Properties that the server gives to items: never the client's, so never part of a model. `_follow` is put into answers.
pub(crate) const SYSTEM_NAMES: &[&str] =
    &["_rid", "_self", "_etag", "_ts", "_attachments", "_lsn", FOLLOW_MEMBER];
/// Dropped from what clients write where the model has links.
pub const FOLLOW_MEMBER: &str = "_follow";

/// What a model is checked against.
#[derive(Clone)]
pub struct Database<'a> {
    pub name: &'a str,
    pub containers: HashMap<&'a str, &'a ContainerDefinition>,
    /// Whether the storage can commit over several partitions.
    pub commits_across_partitions: bool,
}

/// Something that a client should know of a model that is valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    pub code: &'static str,
    /// A pointer into the body.
    pub at: String,
    pub message: String,
}

impl Warning {
    pub fn to_json(&self) -> Value {
        let members = [("code", self.code), ("at", &self.at), ("message", &self.message)];
        Value::Object(Object::from_iter(members))
    }
}

impl<'a> Database<'a> {
    pub fn new(name: &'a str, containers: impl IntoIterator<Item = &'a ContainerDefinition>) -> Database<'a> {
        let containers = containers.into_iter().map(|container| (container.id.as_str(), container));
        Database { name, containers: containers.collect(), commits_across_partitions: true }
    }
}

/// Errors that are reported; a small body can have a hundred thousand.
const ERRORS_MAX: usize = 1_000;

impl Model {
    /// Reads the body of a `PUT` and checks it against the database.
    pub fn parse(body: &Value, database: &Database<'_>) -> Result<(Model, Vec<Warning>), ModelInvalid> {
        let Draft { model, errors, broken } = declare::read(body);
        let mut checker = Checker { model: &model, database, broken, errors };
        checker.check();
        let mut errors = checker.errors;
        if errors.is_empty() {
            let warnings = owned::warnings(&model, database);
            return Ok((model, warnings));
        }
        sort(&mut errors);
        errors.truncate(ERRORS_MAX);
        Err(ModelInvalid(errors))
    }
}

/// In the order of the canonical body: an object before its members, members as they are written, entries of lists by number.
fn sort(errors: &mut [ModelError]) {
    let rank = |error: &ModelError| -> Vec<usize> {
        let segments = error.at.split('/').skip(1);
        segments.map(|segment| segment.parse().unwrap_or_else(|_| declare::member_place(segment))).collect()
    };
    errors.sort_by_cached_key(rank);
}

struct Checker<'a> {
    model: &'a Model,
    database: &'a Database<'a>,
    /// Places that could not be read: what needs them is not checked.
    broken: BTreeSet<String>,
    errors: Vec<ModelError>,
}

impl<'a> Checker<'a> {
    fn check(&mut self) {
        if !self.database.commits_across_partitions && !self.model.is_empty() {
            self.report("", Problem::StorageCannot);
        }
        self.check_names();
        self.check_links();
        self.check_uses_of_links();
        self.check_windows();
        self.check_expressions();
        self.check_owned();
    }

    fn report(&mut self, at: impl Into<String>, problem: Problem) {
        self.errors.push(ModelError { at: at.into(), problem });
    }

    /// Whether the value at a place, and what it is in, could be read.
    fn was_read(&self, at: &str) -> bool {
        let ends = at.match_indices('/').map(|(end, _)| end).chain([at.len()]);
        !ends.into_iter().any(|end| self.broken.contains(&at[..end]))
    }

    /// Every declaration with its place.
    fn places(&self) -> impl Iterator<Item = (String, &'a str)> + use<'a> {
        let model = self.model;
        let counts = [
            ("links", model.links.len()),
            ("copies", model.copies.len()),
            ("mirrors", model.mirrors.len()),
            ("rollups", model.rollups.len()),
            ("windows", model.windows.len()),
        ];
        let places = counts
            .into_iter()
            .flat_map(|(list, count)| (0..count).map(move |index| format!("/{list}/{index}")));
        places.zip(model.declarations())
    }

    fn check_names(&mut self) {
        let mut names = BTreeSet::new();
        for (at, name) in self.places() {
            let at = format!("{at}/name");
            if self.was_read(&at) && !names.insert(name) {
                self.report(at, Problem::DuplicateName { name: name.to_owned() });
            }
        }
    }

    /// The container of a name that could be read, and that can take part.
    fn container(&mut self, at: &str, name: &str) -> Option<&'a ContainerDefinition> {
        if !self.was_read(at) {
            return None;
        }
        match self.database.containers.get(name) {
            Some(container) if container.view.is_none() => Some(container),
            Some(_) => {
                self.report(at, Problem::ViewInModel { container: name.to_owned() });
                None
            }
            None => {
                let (container, database) = (name.to_owned(), self.database.name.to_owned());
                self.report(at, Problem::UnknownContainer { container, database });
                None
            }
        }
    }

    /// The same, without a report.
    fn known_container(&self, at: &str, name: &str) -> Option<&'a ContainerDefinition> {
        let container = self.database.containers.get(name)?;
        (self.was_read(at) && container.view.is_none()).then_some(*container)
    }

    /// The link of a declaration, with its number; one that several have is the first.
    fn link(&self, at: &str, name: &str) -> Option<(usize, &'a Link)> {
        let link = self.model.links.iter().enumerate().find(|(_, link)| link.name == name)?;
        self.was_read(&format!("{at}/link")).then_some(link)
    }

    /// Each name of a link, with the place of the declaration that has it.
    fn uses_of_links(&self) -> Vec<(String, &'a str)> {
        let model = self.model;
        let copies =
            model.copies.iter().enumerate().map(|(index, copy)| (format!("/copies/{index}"), &copy.link));
        let mirrors =
            model.mirrors.iter().enumerate().map(|(index, own)| (format!("/mirrors/{index}"), &own.link));
        let rollups =
            model.rollups.iter().enumerate().map(|(index, own)| (format!("/rollups/{index}"), &own.link));
        copies.chain(mirrors).chain(rollups).map(|(at, link)| (at, link.as_str())).collect()
    }

    fn check_uses_of_links(&mut self) {
        for (at, link) in self.uses_of_links() {
            let at = format!("{at}/link");
            if self.was_read(&at) && self.model.link(link).is_none() {
                self.report(at, Problem::UnknownLink { link: link.to_owned() });
            }
        }
    }
}
