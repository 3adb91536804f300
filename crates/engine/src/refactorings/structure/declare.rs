//! JSON of declarations.

use quire_model::Pointer;
use quire_resource::PartitionKeyDefinition;
use quire_value::{Object, Value};

use crate::model::OldWriters;

pub(super) fn object<const N: usize>(members: [(&str, Value); N]) -> Value {
    Value::Object(Object::from_iter(members))
}

/// A weak link; `route` says where the partition key of a target comes from.
pub(super) fn link(name: &str, (from, path): (&str, &Pointer), to: &str, route: Option<Value>) -> Value {
    let from = object([("container", Value::from(from)), ("path", Value::from(path.to_string()))]);
    let mut target = Object::from_iter([("container", to)]);
    route.into_iter().for_each(|route| target.set("partitionKey", route));
    object([
        ("name", Value::from(name)),
        ("from", from),
        ("to", Value::Object(target)),
        ("integrity", Value::from("weak")),
        ("onDelete", Value::from("allow")),
    ])
}

/// What a declaration does to a client's value at its paths. What is written through never meets it.
pub(super) fn on_write(old_writers: OldWriters) -> Value {
    Value::from(match old_writers {
        OldWriters::Refuse | OldWriters::Through => "refuse",
        OldWriters::Correct => "correct",
    })
}

/// An expression over an alias that reads a member.
pub(super) fn member(alias: &str, name: &str) -> String {
    format!("{alias}[{}]", Value::from(name).to_json())
}

pub(super) fn is_id_key(definition: &PartitionKeyDefinition) -> bool {
    definition.paths.len() == 1 && Pointer::of_path(&definition.paths[0]) == Pointer::of_name("id")
}

/// A name for a declaration, with room for a word and a number behind it.
pub(super) fn declaration_name(text: &str) -> String {
    quire_model::declaration_name(text, 48)
}
