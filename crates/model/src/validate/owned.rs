//! Owned paths: no two declarations have one, none is needed by something else, and none is read. So maintenance is one step
//! deep, and every owned value is a function of what clients wrote.

use quire_resource::ContainerDefinition;
use quire_sql::{Expression, ReadStep};

use super::expressions::{ModelExpression, TARGET};
use super::path_index::PathIndex;
use super::{Checker, Database, SYSTEM_NAMES, Warning};
use crate::Pointer;
use crate::declare::{Level, Link, Model, Route};
use crate::pointer::{Segment, escape};
use crate::problem::{Problem, ReservedPath};

/// A path that a declaration maintains in the items of a container.
#[derive(Clone, Debug)]
pub(crate) struct OwnedPath<'m> {
    pub container: &'m str,
    pub path: Pointer,
    pub owner: &'m str,
    pub at: String,
    /// The link of the declaration; windows have none.
    pub link: Option<&'m Link>,
    pub kind: OwnedKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnedKind {
    /// Fields beside references.
    Copy,
    /// A mirror, a rollup, the count of a window.
    Value,
    /// The array of a window.
    Window,
    /// Part of the pages of a window.
    Page,
}

/// A place that a declaration reads.
struct ReadPath<'m> {
    container: &'m str,
    path: Pointer,
    reader: &'m str,
    at: String,
    /// The link whose own path it is.
    path_of: Option<&'m str>,
}

/// All owned paths of a model, in the order of the body. What names an unknown link has none.
pub(crate) fn owned_paths(model: &Model) -> Vec<OwnedPath<'_>> {
    let mut owned = Vec::new();
    for (index, copy) in model.copies.iter().enumerate() {
        let Some(link) = model.link(&copy.link).filter(|link| !link.from.path.ends_in_elements()) else {
            continue;
        };
        owned.extend(copy.fields.iter().map(|field| OwnedPath {
            container: &link.from.container,
            path: link.holder().join(&field.path),
            owner: &copy.name,
            at: format!("/copies/{index}/fields/{}", escape(&field.name)),
            link: Some(link),
            kind: OwnedKind::Copy,
        }));
    }
    let mirrors = model.mirrors.iter().enumerate();
    let mirrors =
        mirrors.map(|(index, own)| (format!("/mirrors/{index}/into"), &own.name, &own.link, &own.into));
    let rollups = model.rollups.iter().enumerate();
    let rollups =
        rollups.map(|(index, own)| (format!("/rollups/{index}/into"), &own.name, &own.link, &own.into));
    owned.extend(mirrors.chain(rollups).filter_map(|(at, owner, link, into)| {
        let link = model.link(link)?;
        let (container, path, kind) = (&*link.to.container, into.clone(), OwnedKind::Value);
        Some(OwnedPath { container, path, owner, at, link: Some(link), kind })
    }));
    for (index, window) in model.windows.iter().enumerate() {
        let pages = &window.pages;
        let count = window.count.as_ref().map(|count| ("count", count, OwnedKind::Value));
        let paths = [
            Some(("path", &window.path, OwnedKind::Window)),
            count,
            Some(("pages/path", &pages.path, OwnedKind::Page)),
            Some(("pages/parent", &pages.parent, OwnedKind::Page)),
            Some(("pages/number", &pages.number, OwnedKind::Page)),
        ];
        owned.extend(paths.into_iter().flatten().map(|(member, path, kind)| OwnedPath {
            container: if kind == OwnedKind::Page { &pages.container } else { &window.container },
            path: path.clone(),
            owner: &window.name,
            at: format!("/windows/{index}/{member}"),
            link: None,
            kind,
        }));
    }
    owned
}

impl<'a> Checker<'a> {
    pub(super) fn check_owned(&mut self) {
        self.check_copies_have_objects();
        let owned = owned_paths(self.model).into_iter().filter(|owned| self.is_readable(owned));
        let owned: Vec<OwnedPath<'_>> = owned.collect();
        let (mut earlier, mut allowed) = (PathIndex::default(), PathIndex::default());
        for (number, later) in owned.iter().enumerate() {
            self.check_single_owner(&owned, &earlier, later);
            earlier.insert(later.container, &later.path, number);
            if self.check_allowed(later) {
                allowed.insert(later.container, &later.path, number);
            }
        }
        for read in self.reads() {
            self.check_not_owned(&owned, &allowed, read);
        }
    }

    fn check_copies_have_objects(&mut self) {
        for (index, copy) in self.model.copies.iter().enumerate() {
            let at = format!("/copies/{index}");
            let ends = self.link(&at, &copy.link).is_some_and(|(_, link)| link.from.path.ends_in_elements());
            if ends {
                self.report(at, Problem::CopyNeedsObject { link: copy.link.clone() });
            }
        }
    }

    /// Whether the path and the container of an owned path could be read.
    fn is_readable(&self, owned: &OwnedPath<'_>) -> bool {
        let declaration: String = owned.at.splitn(4, '/').take(3).collect::<Vec<_>>().join("/");
        let container_at = match (owned.link, owned.kind) {
            (Some(link), _) => {
                let Some((number, _)) = self.link(&declaration, &link.name) else { return false };
                let end = if owned.kind == OwnedKind::Copy { "from" } else { "to" };
                if owned.kind == OwnedKind::Copy && !self.was_read(&format!("/links/{number}/from/path")) {
                    return false;
                }
                format!("/links/{number}/{end}/container")
            }
            (None, OwnedKind::Page) => format!("{declaration}/pages/container"),
            (None, _) => format!("{declaration}/container"),
        };
        self.was_read(&owned.at) && self.known_container(&container_at, owned.container).is_some()
    }

    fn check_single_owner(
        &mut self,
        owned: &[OwnedPath<'_>],
        earlier: &PathIndex<'_>,
        later: &OwnedPath<'_>,
    ) {
        let collides = |number: usize| {
            let other = &owned[number];
            // Windows may share a container of pages; paths within one window are its own business.
            let same_window =
                other.kind != OwnedKind::Copy && other.owner == later.owner && other.link.is_none();
            let both_pages = other.kind == OwnedKind::Page && later.kind == OwnedKind::Page;
            !both_pages && !same_window
        };
        if let Some(other) = earlier.find(later.container, &later.path, &collides) {
            let other = &owned[other];
            let (path, container) = (later.path.to_string(), later.container.to_owned());
            let (one, other) = (other.owner.to_owned(), later.owner.to_owned());
            self.report(&later.at, Problem::OwnedTwice { path, container, one, other });
        }
    }

    fn check_allowed(&mut self, owned: &OwnedPath<'_>) -> bool {
        let Some(container) = self.database.containers.get(owned.container) else { return false };
        let is_link_path = owned.link.is_some_and(|link| {
            link.from.container == owned.container && link.from.path.touches(&owned.path)
        });
        let what = reserved(container, &owned.path).or(is_link_path.then_some(ReservedPath::LinkPath));
        // Pages are placed by their keys: the checks of windows say which.
        let is_page_key = owned.kind == OwnedKind::Page && what == Some(ReservedPath::PartitionKey);
        let Some(what) = what.filter(|_| !is_page_key) else { return true };
        let (path, container) = (owned.path.to_string(), owned.container.to_owned());
        self.report(&owned.at, Problem::OwnedNotAllowed { path, container, what });
        false
    }

    fn check_not_owned(&mut self, owned: &[OwnedPath<'_>], allowed: &PathIndex<'_>, read: ReadPath<'_>) {
        let is_read = |number: usize| {
            read.path_of.is_none() || owned[number].link.map(|link| &*link.name) != read.path_of
        };
        if let Some(found) = allowed.find(read.container, &read.path, &is_read) {
            let found = &owned[found];
            let (reader, path) = (read.reader.to_owned(), found.path.to_string());
            let (container, owner) = (found.container.to_owned(), found.owner.to_owned());
            self.report(read.at, Problem::OwnedIsRead { reader, path, container, owner });
        }
    }

    fn reads(&self) -> Vec<ReadPath<'a>> {
        let mut reads = Vec::new();
        for (index, link) in self.model.links.iter().enumerate() {
            reads.extend(self.reads_of_link(&format!("/links/{index}"), link));
        }
        for model_expression in self.expressions() {
            reads.extend(self.reads_of_expression(&model_expression));
        }
        reads
    }

    fn reads_of_link(&self, at: &str, link: &'a Link) -> Vec<ReadPath<'a>> {
        let (from, to) = (&*link.from.container, &*link.to.container);
        let read = |container, path: &Pointer, at: String, path_of| ReadPath {
            container,
            path: path.clone(),
            reader: &link.name,
            at,
            path_of,
        };
        let mut reads = vec![
            read(from, &link.from.path, format!("{at}/from/path"), Some(&*link.name)),
            read(to, &link.to.key, format!("{at}/to/key"), None),
        ];
        if let Some(Route::Levels(levels)) = &link.to.partition_key {
            for (index, level) in levels.iter().enumerate() {
                if let Level::Path(path) = level {
                    reads.push(read(from, path, format!("{at}/to/partitionKey/{index}/path"), None));
                }
            }
        }
        reads.retain(|read| self.was_read(&read.at));
        reads
    }

    fn reads_of_expression(&self, model_expression: &ModelExpression<'a>) -> Vec<ReadPath<'a>> {
        let compiled = Expression::compile(model_expression.text, model_expression.names)
            .ok()
            .filter(|_| self.was_read(&model_expression.at));
        let link = self.link(&model_expression.declaration_at, model_expression.link);
        let (Some(expression), Some((number, link))) = (compiled, link) else { return Vec::new() };
        let is_target = model_expression.names == TARGET;
        let container = if is_target { &*link.to.container } else { &*link.from.container };
        let holder = Some(link.holder()).filter(|_| self.was_read(&format!("/links/{number}/from/path")));
        let item = expression.reads(0).iter().map(|place| pointer_of(place));
        let holder =
            expression.reads(1).iter().filter_map(|place| Some(holder.as_ref()?.join(&pointer_of(place))));
        let paths = item.chain(holder).filter(|path| !path.0.is_empty());
        let read = |path| ReadPath {
            container,
            path,
            reader: model_expression.declaration,
            at: model_expression.at.clone(),
            path_of: None,
        };
        paths.map(read).collect()
    }
}

fn pointer_of(place: &[ReadStep]) -> Pointer {
    let segment = |step: &ReadStep| match step {
        ReadStep::Name(name) => Segment::Name(name.clone()),
        ReadStep::Element => Segment::Each,
    };
    Pointer(place.iter().map(segment).collect())
}

/// What a path of a container is needed for.
pub(super) fn reserved(container: &ContainerDefinition, path: &Pointer) -> Option<ReservedPath> {
    let touches = |own: &quire_value::Path| Pointer::of_path(own).touches(path);
    let is_ttl = path.touches(&Pointer::of_name("ttl")) || container.ttl_path.as_ref().is_some_and(touches);
    match () {
        () if path.touches(&Pointer::of_name("id")) => Some(ReservedPath::Id),
        () if container.partition_key.paths.iter().any(touches) => Some(ReservedPath::PartitionKey),
        () if container.unique_keys.iter().any(|key| key.paths.iter().any(touches)) => {
            Some(ReservedPath::UniqueKey)
        }
        () if is_ttl => Some(ReservedPath::Ttl),
        () if path.top().is_some_and(|top| SYSTEM_NAMES.contains(&top)) => Some(ReservedPath::SystemProperty),
        () => None,
    }
}

/// Of a valid model.
pub(super) fn warnings(model: &Model, database: &Database<'_>) -> Vec<Warning> {
    let mut warned: Vec<(&str, &str)> = Vec::new();
    let mut warnings = Vec::new();
    for owned in owned_paths(model) {
        let expires =
            database.containers.get(owned.container).is_some_and(|container| container.default_ttl.is_some());
        if expires && !warned.contains(&(owned.container, owned.owner)) {
            warned.push((owned.container, owned.owner));
            warnings.push(Warning {
                code: "MaintainedExpires",
                at: owned.at,
                message: format!(
                    "The items of '{}' have a time to live: every change that '{}' makes to one starts it again.",
                    owned.container, owned.owner
                ),
            });
        }
    }
    warnings
}
