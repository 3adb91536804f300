//! Containers, items and models for tests.

use quire_model::{Database, Model, ModelRules};
use quire_resource::ContainerDefinition;
use quire_value::{Item, Limits, Value, text};

pub fn parse(json: &str) -> Value {
    text::parse(json.as_bytes(), Limits::default()).unwrap_or_else(|error| panic!("{error}: {json}"))
}

pub fn item(json: &str) -> Item {
    Item::from_value(&parse(json))
}

pub fn container(id: &str, keys: &[&str]) -> ContainerDefinition {
    let kind = if keys.len() > 1 { "MultiHash" } else { "Hash" };
    let json = format!(r#"{{"id":"{id}","partitionKey":{{"paths":{keys:?},"kind":"{kind}","version":2}}}}"#);
    ContainerDefinition::create(&parse(&json)).unwrap_or_else(|error| panic!("{error}: {json}"))
}

pub fn rules(model: &str, containers: &[ContainerDefinition]) -> ModelRules {
    let database = Database::new("library", containers);
    let (model, _) =
        Model::parse(&parse(model), &database).unwrap_or_else(|error| panic!("{error}: {model}"));
    ModelRules::new(&model, &database).expect("it was checked against this database")
}
