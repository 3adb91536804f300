//! What a model declares: the types, and their JSON in and out.

mod names; // names that programs make up
mod read; // strict JSON to declarations, with every error
mod write; // declarations back to JSON, and the stored form

use quire_value::{Object, Value};

use crate::Pointer;

pub use self::names::declaration_name;
pub(crate) use self::read::{Draft, grouped, read};
pub use self::write::StoredModelError;
pub(crate) use self::write::place as member_place;

pub const LINKS_MAX: usize = 100;
pub const DECLARATIONS_MAX: usize = 200;
pub const MODEL_BYTES_MAX: usize = 256 << 10;
pub const REFERENCES_MAX: usize = 1_000;
pub const FAN_OUT_MAX: u32 = 1_000;
pub const FAN_OUT_DEFAULT: u32 = 100;
pub const MIRROR_MAX: u32 = 10_000;
pub const MIRROR_MAX_DEFAULT: u32 = 1_000;
pub const WINDOW_KEEP_MAX: u32 = 1_000;
pub const PAGE_SIZE_MIN: u32 = 10;
pub const PAGE_SIZE_MAX: u32 = 1_000;

/// A model. Two are equal when they mean the same, whatever of the defaults is written out.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub on_write: OnWrite,
    pub fan_out_max: u32,
    pub if_match: IfMatch,
    pub links: Vec<Link>,
    pub copies: Vec<Copy>,
    pub mirrors: Vec<Mirror>,
    pub rollups: Vec<Rollup>,
    pub windows: Vec<Window>,
    /// As the client wrote it, without what is ignored, members in the order of the contract.
    pub(crate) json: Object,
}

/// What happens to a client's value at an owned path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnWrite {
    #[default]
    Correct,
    Refuse,
}

/// Which versions of an item a client's `If-Match` holds for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IfMatch {
    /// The one with this ETag.
    #[default]
    Exact,
    /// Every one since a client, and not maintenance, last wrote the item.
    Client,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    pub name: String,
    pub from: ContainerPath,
    pub to: Target,
    pub integrity: Integrity,
    pub on_delete: OnDelete,
}

/// A path of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerPath {
    pub container: String,
    pub path: Pointer,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub container: String,
    /// The property that equals the reference.
    pub key: Pointer,
    /// `None`: the reference is the partition key, too.
    pub partition_key: Option<Route>,
    pub convert: Convert,
}

/// Where the partition key of a target comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// The target is found by an index of the link's own.
    Lookup,
    /// One entry for each level of the key.
    Levels(Vec<Level>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Level {
    /// A value of the referrer; `*` is the same element as in the link's path.
    Path(Pointer),
    Value(Value),
    /// The reference itself.
    Reference,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Convert {
    #[default]
    None,
    /// A number refers to the string of its JSON text.
    String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Integrity {
    #[default]
    Weak,
    Enforced,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDelete {
    Allow,
    Restrict,
    Cascade,
    Remove,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copy {
    pub name: String,
    pub link: String,
    /// Places beside the reference, each with its expression over `t`, in the order of their texts.
    pub fields: Vec<Field>,
    pub on_missing: OnMissing,
    pub on_write: Option<OnWrite>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// As it is written: a pointer without the leading `/`.
    pub name: String,
    pub path: Pointer,
    pub expression: String,
}

/// What becomes of the fields of a reference without a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnMissing {
    #[default]
    Remove,
    Keep,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    pub name: String,
    pub link: String,
    pub into: Pointer,
    /// Over `r`.
    pub value: String,
    pub max: u32,
    pub when_full: WhenFull,
    pub on_write: Option<OnWrite>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    #[default]
    Refuse,
    Cut,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rollup {
    pub name: String,
    pub link: String,
    pub op: Operation,
    pub into: Pointer,
    /// Over `r`, and `e` with [`RollupOf::References`]; not for [`Operation::Count`].
    pub value: Option<String>,
    pub filter: Option<String>,
    pub of: RollupOf,
    pub on_write: Option<OnWrite>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Count,
    Sum,
    Min,
    Max,
    Avg,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RollupOf {
    /// Every referrer once.
    #[default]
    Items,
    /// Every reference.
    References,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    pub name: String,
    pub container: String,
    pub path: Pointer,
    pub keep: u32,
    /// In the element; without it elements are distinguished by their value.
    pub key: Option<Pointer>,
    /// In the element; without it the order is that of arrival.
    pub by: Option<Pointer>,
    pub newest: NewestAt,
    pub slack: u32,
    pub pages: Pages,
    pub count: Option<Pointer>,
    pub on_write: Option<OnWrite>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NewestAt {
    #[default]
    Last,
    First,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pages {
    pub container: String,
    pub path: Pointer,
    /// Where a page has the id of its item, and its own number.
    pub parent: Pointer,
    pub number: Pointer,
    pub size: u32,
}

impl Model {
    /// Of a database that declares nothing.
    pub fn empty() -> Model {
        let json = Object::from_iter([("version", 1)]);
        Model { fan_out_max: FAN_OUT_DEFAULT, json, ..Model::default() }
    }

    pub fn link(&self, name: &str) -> Option<&Link> {
        self.links.iter().find(|link| link.name == name)
    }

    /// Whether nothing is declared.
    pub fn is_empty(&self) -> bool {
        self.declarations().next().is_none()
    }

    /// Names of all declarations, in the order of the contract.
    pub fn declarations(&self) -> impl Iterator<Item = &str> {
        let links = self.links.iter().map(|link| link.name.as_str());
        let copies = self.copies.iter().map(|copy| copy.name.as_str());
        let mirrors = self.mirrors.iter().map(|mirror| mirror.name.as_str());
        let rollups = self.rollups.iter().map(|rollup| rollup.name.as_str());
        let windows = self.windows.iter().map(|window| window.name.as_str());
        links.chain(copies).chain(mirrors).chain(rollups).chain(windows)
    }

    /// Names of all containers that take part, each once.
    pub fn containers(&self) -> Vec<&str> {
        let links = self.links.iter().flat_map(|link| [&link.from.container, &link.to.container]);
        let windows = self.windows.iter().flat_map(|window| [&window.container, &window.pages.container]);
        let mut names: Vec<&str> = links.chain(windows).map(String::as_str).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

impl PartialEq for Model {
    fn eq(&self, other: &Model) -> bool {
        self.on_write == other.on_write
            && self.fan_out_max == other.fan_out_max
            && self.if_match == other.if_match
            && self.links == other.links
            && self.copies == other.copies
            && self.mirrors == other.mirrors
            && self.rollups == other.rollups
            && self.windows == other.windows
    }
}

impl Link {
    /// Targets are found by an index of the link's own on their key.
    pub fn has_key_index(&self) -> bool {
        self.to.partition_key == Some(Route::Lookup) || self.to.key != Pointer::of_name("id")
    }

    /// The place that holds the reference: the object around it, or the element that it is.
    pub fn holder(&self) -> Pointer {
        if self.from.path.ends_in_elements() { self.from.path.clone() } else { self.from.path.parent() }
    }
}

impl OnDelete {
    pub fn default_of(integrity: Integrity) -> OnDelete {
        match integrity {
            Integrity::Weak => OnDelete::Allow,
            Integrity::Enforced => OnDelete::Restrict,
        }
    }
}
