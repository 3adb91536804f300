//! What a request for a refactoring asks for.

use quire_model::{Pointer, Segment};
use quire_resource::ContainerDefinition;
use quire_value::{Object, Value};

use super::forms::TargetType;
use super::rekey::{self, RekeyRule};
use super::structure::Structure;
use crate::api::{EngineError, OrderError, RefactoringInvalid};
use crate::catalog::Container;
use crate::store::SYSTEM_PROPERTIES;

/// What reads add to items whose links they follow; writes drop it.
const FOLLOW: &str = "_follow";

/// A refactoring, as its body says it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RefactoringOrder {
    pub kind: &'static str,
    pub container: String,
    pub rule: Rule,
    pub finishes_itself: bool,
    pub has_journal: bool,
}

/// What becomes of an item.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Rule {
    /// A member of an object gets another name.
    Rename {
        parent: Pointer,
        from: String,
        to: String,
    },
    Retype {
        path: Pointer,
        form: TargetType,
    },
    /// Items of several containers change together, along declarations.
    Structure(Structure),
    /// Items stay as they are; the container gets another partition key.
    Rekey(Box<RekeyRule>),
}

/// Reads a body, and collects what is wrong with it.
pub(super) struct OrderReader<'a> {
    pub body: &'a Object,
    errors: Vec<OrderError>,
}

impl RefactoringOrder {
    pub fn parse(body: &Value) -> Result<RefactoringOrder, EngineError> {
        let nothing = Object::new();
        let Some(body) = body.as_object() else {
            let error = OrderError::new("BadValue", "", "The body must be an object.");
            return Err(RefactoringInvalid(vec![error]).into());
        };
        let mut reading =
            OrderReader { body: if body.is_empty() { &nothing } else { body }, errors: Vec::new() };
        let order = reading.order();
        match order {
            Some(order) if reading.errors.is_empty() => Ok(order),
            _ => Err(RefactoringInvalid(reading.errors).into()),
        }
    }

    /// Names of all containers whose items change, the refactored one first.
    pub fn containers(&self, container: &str) -> Vec<String> {
        match &self.rule {
            Rule::Structure(structure) => structure.containers(container),
            Rule::Rename { .. } | Rule::Retype { .. } | Rule::Rekey(_) => vec![container.to_owned()],
        }
    }

    /// Whether the container can be changed like this.
    pub fn check(&self, container: &Container) -> Result<(), EngineError> {
        if let Rule::Rekey(rule) = &self.rule {
            return rule.check(container);
        }
        let definition = &container.definition;
        let unsupported = |feature: String| Err(EngineError::NotSupported { feature });
        if definition.view.is_some() {
            return unsupported(format!("Refactoring of the view '{}'", self.container));
        }
        if let Rule::Structure(structure) = &self.rule {
            return structure.check(container);
        }
        if container.partitions.is_modelled() {
            return unsupported(format!("'{}' in a container that the model names", self.kind));
        }
        let reserved = reserved_paths(definition);
        let is_reserved = |path: &Pointer| reserved.iter().any(|own| own.touches(path));
        let wrong = self.rule.paths().into_iter().filter(|(_, path)| is_reserved(path));
        let errors: Vec<OrderError> = wrong
            .map(|(member, path)| {
                let message = format!(
                    "'{path}' is part of the id, the ttl, the partition key or a unique key, or the server sets it."
                );
                OrderError::new("PathReserved", &format!("/{member}"), &message)
            })
            .collect();
        if errors.is_empty() { Ok(()) } else { Err(RefactoringInvalid(errors).into()) }
    }
}

/// Paths that are part of what an item is found by, or that the server sets.
pub(super) fn reserved_paths(definition: &ContainerDefinition) -> Vec<Pointer> {
    let unique = definition.unique_keys.iter().flat_map(|key| &key.paths);
    let paths = definition.partition_key.paths.iter().chain(unique).map(Pointer::of_path);
    let names = ["id", "ttl", FOLLOW].into_iter().chain(SYSTEM_PROPERTIES).map(Pointer::of_name);
    paths.chain(names).collect()
}

impl Rule {
    /// `None` for the kinds that change items.
    pub fn rekey(&self) -> Option<&RekeyRule> {
        match self {
            Rule::Rekey(rule) => Some(rule),
            Rule::Rename { .. } | Rule::Retype { .. } | Rule::Structure(_) => None,
        }
    }

    /// Paths that change, by member of the body.
    fn paths(&self) -> Vec<(&'static str, Pointer)> {
        match self {
            Rule::Rename { parent, from, to } => {
                let path = |name: &str| parent.join(&Pointer::of_name(name));
                vec![("from", path(from)), ("to", path(to))]
            }
            Rule::Retype { path, .. } => vec![("path", path.clone())],
            Rule::Structure(_) | Rule::Rekey(_) => Vec::new(),
        }
    }
}

impl OrderReader<'_> {
    fn order(&mut self) -> Option<RefactoringOrder> {
        let kind = self.body.get("kind").and_then(Value::as_str).unwrap_or_default();
        if kind == "rekey" {
            return rekey::read_order(self);
        }
        let (kind, members) = match kind {
            "rename" => ("rename", ["from", "to"].as_slice()),
            "retype" => ("retype", ["path", "as"].as_slice()),
            kind => match Structure::members(kind) {
                Some(found) => found,
                None => {
                    self.wrong("kind", "'kind' is not the name of a refactoring.");
                    return None;
                }
            },
        };
        self.check_members(members);
        // The link of an embed says it.
        let container = if kind == "embed" { Some(String::new()) } else { self.text("container") };
        let rule = match kind {
            "rename" => self.rename(),
            "retype" => self.retype(),
            kind => Structure::read(self, kind).map(Rule::Structure),
        };
        let finishes_itself = self.choice("finish", &["manual", "auto"]) == Some(1);
        let has_journal = match self.body.get("journal") {
            None | Some(Value::Bool(true)) => true,
            Some(Value::Bool(false)) => false,
            Some(_) => {
                self.wrong("journal", "'journal' must be true or false.");
                true
            }
        };
        let order =
            |(container, rule)| RefactoringOrder { kind, container, rule, finishes_itself, has_journal };
        container.zip(rule).map(order)
    }

    fn check_members(&mut self, own: &[&str]) {
        let names: Vec<String> = self.body.names().map(str::to_owned).collect();
        for name in names {
            match name.as_str() {
                "kind" | "container" | "finish" | "journal" => {}
                name if own.contains(&name) => {}
                "oldWriters" | "onConflict" => {
                    let why = "later writes are followed, and nothing is left to decide";
                    self.wrong(&name, &format!("'{name}' is not for this kind: {why}."));
                }
                name => self.wrong(name, &format!("'{name}' is not known here.")),
            }
        }
    }

    fn rename(&mut self) -> Option<Rule> {
        let (from, to) = (self.path("from"), self.path("to"));
        let (from, to) = (from?, to?);
        if from == to || from.parent() != to.parent() {
            self.wrong("to", "'to' must be another member of the object that 'from' is in.");
            return None;
        }
        match (from.0.last(), to.0.last()) {
            (Some(Segment::Name(own)), Some(Segment::Name(other))) => {
                Some(Rule::Rename { parent: from.parent(), from: own.clone(), to: other.clone() })
            }
            _ => {
                self.wrong("from", "'from' and 'to' must end with a name.");
                None
            }
        }
    }

    fn retype(&mut self) -> Option<Rule> {
        let names: Vec<&str> = TargetType::ALL.iter().map(|(name, _)| *name).collect();
        let path = self.path("path");
        let Some(form) = self.body.get("as").and_then(Value::as_str).and_then(TargetType::named) else {
            self.wrong("as", &format!("'as' must be one of {}.", names.join(", ")));
            return None;
        };
        Some(Rule::Retype { path: path?, form })
    }

    pub(super) fn path(&mut self, member: &str) -> Option<Pointer> {
        let text = self.text(member)?;
        match Pointer::parse(&text) {
            Ok(path) => Some(path),
            Err(why) => {
                self.error("BadPath", member, &format!("'{text}' is not a path: {why}."));
                None
            }
        }
    }

    pub(super) fn text(&mut self, member: &str) -> Option<String> {
        match self.body.get(member) {
            Some(Value::String(text)) => return Some(text.to_string()),
            Some(_) => self.wrong(member, &format!("'{member}' must be a text.")),
            None => self.error("BadValue", "", &format!("'{member}' is missing.")),
        }
        None
    }

    pub(super) fn choice(&mut self, member: &str, choices: &[&str]) -> Option<usize> {
        let value = self.body.get(member)?;
        let found = choices.iter().position(|choice| value.as_str() == Some(*choice));
        if found.is_none() {
            self.wrong(member, &format!("'{member}' must be one of {}.", choices.join(", ")));
        }
        found
    }

    pub(super) fn wrong(&mut self, member: &str, message: &str) {
        self.error("BadValue", member, message);
    }

    pub(super) fn error(&mut self, code: &'static str, member: &str, message: &str) {
        let at = if member.is_empty() { String::new() } else { format!("/{member}") };
        self.errors.push(OrderError::new(code, &at, message));
    }
}

#[cfg(test)]
mod tests {
    use quire_value::{Limits, text};

    use super::*;

    fn parse(body: &str) -> Result<RefactoringOrder, EngineError> {
        RefactoringOrder::parse(&text::parse(body.as_bytes(), Limits::default()).expect("JSON"))
    }

    #[test]
    fn bodies_as_they_are_sent() {
        let order = parse(r#"{"kind":"rename","container":"c","from":"/n/a","to":"/n/b","finish":"auto"}"#);
        let order = order.expect("an order");
        assert!(order.finishes_itself && order.has_journal);
        let parent = Pointer::parse("/n").expect("a path");
        assert_eq!(order.rule, Rule::Rename { parent, from: "a".to_owned(), to: "b".to_owned() });
        let order = parse(r#"{"kind":"retype","container":"c","path":"/l/*","as":"number","journal":false}"#);
        let order = order.expect("an order");
        assert!(!order.finishes_itself && !order.has_journal);
    }

    #[test]
    fn all_errors_are_reported() {
        for (body, places) in [
            ("[]", &[""][..]),
            ("{}", &["/kind"]),
            (r#"{"kind":"bend","container":"c"}"#, &["/kind"]),
            (r#"{"kind":"rename","container":1,"from":"a","x":1}"#, &["/x", "/container", "/from", ""]),
            (r#"{"kind":"rename","container":"c","from":"/a","to":"/b/c"}"#, &["/to"]),
            (r#"{"kind":"rename","container":"c","from":"/a/*","to":"/a/b"}"#, &["/from"]),
            (r#"{"kind":"rename","container":"c","from":"/a","to":"/a"}"#, &["/to"]),
            (
                r#"{"kind":"retype","container":"c","path":"/a","as":"date","finish":"x"}"#,
                &["/as", "/finish"],
            ),
            (
                r#"{"kind":"retype","container":"c","path":"/a","as":"number","oldWriters":"refuse"}"#,
                &["/oldWriters"],
            ),
        ] {
            let Err(EngineError::RefactoringInvalid(invalid)) = parse(body) else { panic!("{body}") };
            let found: Vec<&str> = invalid.0.iter().map(|error| error.at.as_str()).collect();
            assert_eq!(found, places, "{body}");
        }
    }
}
