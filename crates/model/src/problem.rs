//! What can be wrong with a model: the one table of codes and their texts.

use std::fmt;

use quire_value::{Object, Value};

/// One entry of `errors`: what is wrong, and a pointer into the body to where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelError {
    pub at: String,
    pub problem: Problem,
}

/// What is wrong with a model, in the order of [`sort`], the first errors where there are very many; never empty.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", summary(.0))]
pub struct ModelInvalid(pub Vec<ModelError>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    UnknownMember { member: String },
    WrongValue { member: String, what: String },
    Missing { member: String },
    BadName { name: String },
    DuplicateName { name: String },
    UnknownContainer { container: String, database: String },
    UnknownLink { link: String },
    ViewInModel { container: String },
    BadPath { path: String, why: String },
    PartitionKeyRoute { link: String, container: String, levels: usize },
    RouteNotBeside { path: String, link_path: String },
    BadExpression { code: &'static str, position: usize, message: String },
    ExpressionNotAllowed { what: String },
    OwnedTwice { path: String, container: String, one: String, other: String },
    OwnedNotAllowed { path: String, container: String, what: ReservedPath },
    OwnedIsRead { reader: String, path: String, container: String, owner: String },
    CopyNeedsObject { link: String },
    EnforcedAllows,
    RemoveNotAllowed { path: String, container: String, what: ReservedPath },
    CascadeRestricted { link: String, container: String, other: String },
    BadWindow { window: String, why: String },
    TooMany { what: &'static str, limit: String },
    StorageCannot,
}

/// What a path of an item is to others, so that no declaration can have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservedPath {
    Id,
    PartitionKey,
    UniqueKey,
    Ttl,
    SystemProperty,
    LinkPath,
}

impl ModelError {
    pub fn to_json(&self) -> Value {
        let members = [
            ("code", self.problem.code().to_owned()),
            ("at", self.at.clone()),
            ("message", self.problem.to_string()),
        ];
        Value::Object(Object::from_iter(members))
    }
}

impl Problem {
    pub fn code(&self) -> &'static str {
        use Problem::*;
        match self {
            UnknownMember { .. } | WrongValue { .. } | Missing { .. } => "BadValue",
            BadName { .. } => "BadName",
            DuplicateName { .. } => "DuplicateName",
            UnknownContainer { .. } => "UnknownContainer",
            UnknownLink { .. } => "UnknownLink",
            ViewInModel { .. } => "ViewInModel",
            BadPath { .. } => "BadPath",
            PartitionKeyRoute { .. } => "PartitionKeyRoute",
            RouteNotBeside { .. } => "RouteNotBeside",
            BadExpression { .. } => "BadExpression",
            ExpressionNotAllowed { .. } => "ExpressionNotAllowed",
            OwnedTwice { .. } => "OwnedTwice",
            OwnedNotAllowed { .. } => "OwnedNotAllowed",
            OwnedIsRead { .. } => "OwnedIsRead",
            CopyNeedsObject { .. } => "CopyNeedsObject",
            EnforcedAllows => "EnforcedAllows",
            RemoveNotAllowed { .. } => "RemoveNotAllowed",
            CascadeRestricted { .. } => "CascadeRestricted",
            BadWindow { .. } => "BadWindow",
            TooMany { .. } => "TooMany",
            StorageCannot => "StorageCannot",
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        use Problem::*;
        match self {
            UnknownMember { member } => write!(formatter, "'{member}' is not known here."),
            WrongValue { member, what } => write!(formatter, "'{member}' must be {what}."),
            Missing { member } => write!(formatter, "'{member}' is missing."),
            BadName { name } => write!(formatter, "'{name}' is not a name: [a-z][a-z0-9-]{{0,63}}."),
            DuplicateName { name } => write!(formatter, "The name '{name}' is used twice."),
            UnknownContainer { container, database } => {
                write!(formatter, "There is no container '{container}' in the database '{database}'.")
            }
            UnknownLink { link } => write!(formatter, "There is no link '{link}'."),
            ViewInModel { container } => {
                write!(formatter, "'{container}' is a view; its items cannot take part in a model.")
            }
            BadPath { path, why } => write!(formatter, "'{path}' is not a path: {why}."),
            PartitionKeyRoute { link, container, levels } => write!(
                formatter,
                "The link '{link}' does not say where the partition key of '{container}' comes from: \
                 'to.partitionKey' needs {levels} entries, or \"lookup\"."
            ),
            RouteNotBeside { path, link_path } => write!(
                formatter,
                "'{path}' is not beside '{link_path}': up to its last '*' it must be the same."
            ),
            BadExpression { code, position, message } => write!(formatter, "{code} at {position}: {message}"),
            ExpressionNotAllowed { what } => write!(formatter, "{what} cannot be used in a model."),
            OwnedTwice { path, container, one, other } => {
                write!(formatter, "'{path}' of '{container}' is owned by '{one}' and by '{other}'.")
            }
            OwnedNotAllowed { path, container, what } => {
                write!(formatter, "'{path}' of '{container}' cannot be owned: it is {what}.")
            }
            OwnedIsRead { reader, path, container, owner } => {
                write!(formatter, "'{reader}' reads '{path}' of '{container}', which '{owner}' maintains.")
            }
            CopyNeedsObject { link } => write!(
                formatter,
                "The link '{link}' ends in array elements; a copy needs an object beside the reference."
            ),
            EnforcedAllows => write!(formatter, "An enforced link cannot have onDelete \"allow\"."),
            RemoveNotAllowed { path, container, what } => {
                write!(formatter, "'{path}' of '{container}' cannot be removed: it is {what}.")
            }
            CascadeRestricted { link, container, other } => write!(
                formatter,
                "'{link}' cannot cascade: items of '{container}' are restricted by '{other}'."
            ),
            BadWindow { window, why } => write!(formatter, "The window '{window}': {why}."),
            TooMany { what, limit } => write!(formatter, "{what}: at most {limit}."),
            StorageCannot => write!(formatter, "This storage cannot commit over several partitions."),
        }
    }
}

impl fmt::Display for ReservedPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            ReservedPath::Id => "the id",
            ReservedPath::PartitionKey => "a partition key",
            ReservedPath::UniqueKey => "a unique key",
            ReservedPath::Ttl => "ttl",
            ReservedPath::SystemProperty => "a system property",
            ReservedPath::LinkPath => "a link's own path",
        })
    }
}

fn summary(errors: &[ModelError]) -> String {
    let first = errors.first().map_or(String::new(), |error| error.problem.to_string());
    match errors.len() {
        1 => format!("The model has 1 error. The first: {first}"),
        count => format!("The model has {count} errors. The first: {first}"),
    }
}
