//! Requests that apply a finding.

use quire_model::declaration_name;
use quire_profile::{ReferenceProfile, names, parent, policy_path};
use quire_resource::IndexingPolicy;
use quire_value::{Object, Value};

use crate::case::Case;

const NAME_MAX: usize = 64;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ApplyKind {
    Model,
    Refactoring,
    IndexingPolicy,
    Container,
    /// For people.
    #[default]
    Steps,
}

#[derive(Clone, Debug, Default)]
pub struct Apply {
    pub kind: ApplyKind,
    /// Method, path and body. The body of a model holds what is added to the model as it then is.
    pub request: Option<(&'static str, String, Value)>,
    pub steps: Vec<String>,
    /// Declarations that a refactoring needs first.
    pub link: Option<Value>,
    /// Of a definition: the members that change, as they were. They are changed in the definition as it then is.
    pub base: Option<Value>,
}

impl ApplyKind {
    pub fn name(self) -> &'static str {
        match self {
            ApplyKind::Model => "model",
            ApplyKind::Refactoring => "refactoring",
            ApplyKind::IndexingPolicy => "indexing-policy",
            ApplyKind::Container => "container",
            ApplyKind::Steps => "steps",
        }
    }
}

impl Apply {
    pub fn steps<S: Into<String>>(steps: impl IntoIterator<Item = S>) -> Apply {
        Apply { steps: steps.into_iter().map(Into::into).collect(), ..Apply::default() }
    }
}

pub fn object<const N: usize>(members: [(&str, Value); N]) -> Value {
    Value::from(Object::from_iter(members))
}

pub fn list(values: impl IntoIterator<Item = Value>) -> Value {
    Value::from(values.into_iter().collect::<Vec<_>>())
}

impl Case<'_> {
    pub fn refactoring(&self, body: Value) -> Apply {
        let path = format!("/_quire/dbs/{}/refactorings", self.database.database);
        Apply { kind: ApplyKind::Refactoring, request: Some(("POST", path, body)), ..Apply::default() }
    }

    /// Declarations to add.
    pub fn model(&self, additions: Value) -> Apply {
        let path = format!("/_quire/dbs/{}/model", self.database.database);
        Apply { kind: ApplyKind::Model, request: Some(("PUT", path, additions)), ..Apply::default() }
    }

    /// The same definition with another indexing policy.
    pub fn indexing(&self, policy: Value) -> Apply {
        Apply { kind: ApplyKind::IndexingPolicy, ..self.replace_container("indexingPolicy", policy) }
    }

    pub fn replace_container(&self, member: &str, value: Value) -> Apply {
        self.replace_members([(member, value)])
    }

    /// The same definition with other members.
    pub fn replace_members<const N: usize>(&self, members: [(&str, Value); N]) -> Apply {
        let (mut body, mut base) = (self.definition.json.clone(), Object::new());
        for (member, value) in members {
            let nothing = if value.as_array().is_some() { Value::Array(Vec::new()) } else { Value::Null };
            base.set(member, body.get(member).cloned().unwrap_or(nothing));
            body.set(member, value);
        }
        let path = format!("/dbs/{}/colls/{}", self.database.database, self.name());
        Apply {
            kind: ApplyKind::Container,
            request: Some(("PUT", path, Value::from(body))),
            base: Some(Value::from(base)),
            ..Apply::default()
        }
    }

    pub fn create_container(&self, body: Value) -> Apply {
        let path = format!("/dbs/{}/colls", self.database.database);
        Apply { kind: ApplyKind::Container, request: Some(("POST", path, body)), ..Apply::default() }
    }

    /// The policy without an index on these paths and all below.
    pub fn policy_without(&self, paths: &[String]) -> Value {
        let excluded = paths.iter().map(|path| format!("{}/*", policy_path(path)));
        changed_policy(&self.definition.indexing, "excludedPaths", excluded)
    }

    /// The policy with an index on this path.
    pub fn policy_with(&self, path: &str) -> Value {
        let wanted = format!("{}/?", policy_path(path));
        let kept = without_path(&self.definition.indexing, "excludedPaths", &wanted);
        with_members(kept, "includedPaths", [wanted])
    }

    pub fn policy_with_composite(&self, paths: &[(String, bool)]) -> Value {
        let composite = paths.iter().map(|(path, descending)| {
            let order = if *descending { "descending" } else { "ascending" };
            object([("path", Value::from(policy_path(path).to_string())), ("order", Value::from(order))])
        });
        let mut policy = policy_object(&self.definition.indexing);
        let mut all = policy.get("compositeIndexes").and_then(Value::as_array).unwrap_or_default().to_vec();
        all.push(list(composite));
        policy.set("compositeIndexes", Value::from(all));
        Value::from(policy)
    }

    /// The window that a `split-array` makes: three stay, the rest in pages of 100.
    pub fn split_array(&self, path: &str, has_id: bool) -> Apply {
        let pages = format!("{}-pages", self.name());
        let name = names(path).pop().unwrap_or_default();
        let pages = object([
            ("container", Value::from(pages)),
            ("path", Value::from(format!("/{name}"))),
            ("parent", Value::from("/itemId")),
            ("number", Value::from("/page")),
            ("size", Value::from(100)),
        ]);
        let mut body = Object::from_iter([
            ("kind", Value::from("split-array")),
            ("container", Value::from(self.name())),
            ("path", Value::from(path)),
            ("keep", Value::from(3)),
        ]);
        if has_id {
            body.set("key", "/id");
        }
        if parent(path).is_empty() {
            body.set("rename", format!("/recent{}", capital(&name)));
        }
        body.set("pages", pages);
        self.refactoring(Value::from(body))
    }

    /// Moves a part of items to items of their own, under their owner's id and key.
    pub fn extract(&self, path: &str, key: Option<&str>) -> Apply {
        let name = names(path).into_iter().rfind(|name| name != "*").unwrap_or_default();
        let (key, into) = match key {
            Some(key) => (key, plural(&name)),
            None => ("/id", format!("{}-{name}", self.name())),
        };
        self.refactoring(object([
            ("kind", Value::from("extract")),
            ("container", Value::from(self.name())),
            ("path", Value::from(path)),
            ("key", Value::from(key)),
            ("into", Value::from(into)),
            ("reference", Value::from(format!("{name}Id"))),
        ]))
    }

    /// The link of a reference, weak, with its name.
    pub fn link(&self, reference: &ReferenceProfile) -> (String, Value) {
        let name = self.link_name(reference);
        let mut to = Object::from_iter([("container", Value::from(reference.to.as_str()))]);
        if reference.key != "/id" {
            to.set("key", reference.key.as_str());
        }
        if let Some(route) = self.route(reference) {
            to.set("partitionKey", route);
        }
        let from =
            object([("container", Value::from(self.name())), ("path", Value::from(reference.path.as_str()))]);
        let link = object([
            ("name", Value::from(name.as_str())),
            ("from", from),
            ("to", Value::from(to)),
            ("integrity", Value::from("weak")),
            ("onDelete", Value::from("allow")),
        ]);
        (name, link)
    }

    fn link_name(&self, reference: &ReferenceProfile) -> String {
        let last: Vec<String> =
            names(&reference.path).into_iter().filter(|name| name != "*" && name != "id").collect();
        let last = last.last().map_or("ref", String::as_str);
        name_of(&format!("{}-{}", self.name(), last.trim_end_matches("Id")))
    }

    /// `None` where the target's key is the reference itself.
    fn route(&self, reference: &ReferenceProfile) -> Option<Value> {
        let target = self.other_definition(&reference.to)?;
        let key_paths: Vec<String> = target.partition_key.paths.iter().map(|path| path.to_string()).collect();
        if key_paths == [reference.key.clone()] {
            return None;
        }
        let entry = |path: &String| match path.as_str() {
            "" => object([("reference", Value::from(true))]),
            path => object([("path", Value::from(path))]),
        };
        Some(match &reference.route {
            Some(route) => list(route.iter().map(entry)),
            None => Value::from("lookup"),
        })
    }

    /// A body for `PUT model`: a link unless the model has it, and what uses it.
    pub fn model_with(&self, reference: &ReferenceProfile, kind: &str, mut declaration: Object) -> Apply {
        let declared =
            self.model.links.iter().find(|link| {
                link.from.container == self.name() && link.from.path.to_string() == reference.path
            });
        let (name, link) = self.link(reference);
        let name = declared.map_or(name, |link| link.name.clone());
        declaration.set("link", name);
        let mut body = Object::from_iter([("version", Value::from(1))]);
        if declared.is_none() {
            body.set("links", list([link]));
        }
        body.set(kind, list([Value::from(declaration)]));
        self.model(Value::from(body))
    }

    pub fn rekey(&self, path: &str) -> Apply {
        let key = object([("paths", list([Value::from(path)])), ("version", Value::from(2))]);
        self.refactoring(object([
            ("kind", Value::from("rekey")),
            ("container", Value::from(self.name())),
            ("partitionKey", key),
        ]))
    }
}

fn policy_object(policy: &IndexingPolicy) -> Object {
    policy.to_json().into_object().unwrap_or_default()
}

fn changed_policy(policy: &IndexingPolicy, member: &str, paths: impl IntoIterator<Item = String>) -> Value {
    with_members(policy_object(policy), member, paths)
}

fn with_members(mut policy: Object, member: &str, paths: impl IntoIterator<Item = String>) -> Value {
    let mut all = policy.get(member).and_then(Value::as_array).unwrap_or_default().to_vec();
    all.extend(paths.into_iter().map(|path| object([("path", Value::from(path))])));
    policy.set(member, Value::from(all));
    Value::from(policy)
}

fn without_path(policy: &IndexingPolicy, member: &str, path: &str) -> Object {
    let mut found = policy_object(policy);
    let all = found.get(member).and_then(Value::as_array).unwrap_or_default().to_vec();
    let kept = all.into_iter().filter(|own| own.get("path").and_then(Value::as_str) != Some(path));
    found.set(member, Value::from(kept.collect::<Vec<_>>()));
    found
}

/// A name as declarations have it.
pub fn name_of(text: &str) -> String {
    declaration_name(text, NAME_MAX)
}

fn plural(name: &str) -> String {
    if name.ends_with('s') { name.to_owned() } else { format!("{name}s") }
}

pub fn capital(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// Path of a field beside the reference, as copies name it.
pub fn beside(reference: &ReferenceProfile, path: &str) -> String {
    let above = parent(&reference.path);
    path.strip_prefix(above).unwrap_or(path).trim_start_matches('/').to_owned()
}

/// An expression over an alias that reads a path.
pub fn expression(alias: &str, path: &str) -> String {
    names(path).iter().fold(alias.to_owned(), |text, name| {
        let is_bare = name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
            && !name.starts_with(|letter: char| letter.is_ascii_digit());
        if is_bare {
            format!("{text}.{name}")
        } else {
            format!("{text}[{}]", Value::from(name.as_str()).to_json())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declaration_names() {
        assert_eq!(name_of("bookWriters-writerId"), "book-writers-writer-id");
        assert_eq!(expression("t", "/name/first-name"), "t.name[\"first-name\"]");
    }
}
