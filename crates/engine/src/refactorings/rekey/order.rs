//! What a request for another partition key asks for, and whether a container can have it.

use quire_resource::PartitionKeyDefinition;
use quire_value::Value;

use crate::api::{EngineError, OrderError, RefactoringInvalid};
use crate::catalog::rekey::{NEW, OLD};
use crate::catalog::views::views_of;
use crate::catalog::{Catalog, Container};
use crate::refactorings::order::{OrderReader, RefactoringOrder, Rule};

const MEMBERS: [&str; 6] = ["kind", "container", "partitionKey", "onConflict", "model", "finish"];

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RekeyRule {
    /// As it was sent.
    pub key: Value,
    pub on_conflict: Option<OnConflict>,
    /// Of the database once the container has the key.
    pub model: Option<Value>,
}

/// Which of several items that can be there once are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnConflict {
    /// The one that was created first.
    First,
    /// The one that was written last.
    Newest,
    /// None of them.
    Skip,
}

impl OnConflict {
    const ALL: [OnConflict; 3] = [OnConflict::First, OnConflict::Newest, OnConflict::Skip];
    const NAMES: [&'static str; 3] = ["first", "newest", "skip"];
}

/// All errors are noted; `None` where there is one.
pub(in crate::refactorings) fn read_order(reading: &mut OrderReader<'_>) -> Option<RefactoringOrder> {
    let names: Vec<String> = reading.body.names().map(str::to_owned).collect();
    for name in names.iter().filter(|name| !MEMBERS.contains(&name.as_str())) {
        match name.as_str() {
            "journal" | "oldWriters" => {
                let why = "the container stays as it was beside the new one";
                reading.wrong(name, &format!("'{name}' is not for this kind: {why}."));
            }
            _ => reading.wrong(name, &format!("'{name}' is not known here.")),
        }
    }
    let container = reading.text("container");
    let on_conflict = reading.choice("onConflict", &OnConflict::NAMES).map(|at| OnConflict::ALL[at]);
    let finishes_itself = reading.choice("finish", &["manual", "auto"]) == Some(1);
    let key = read_key(reading);
    let model = reading.body.get("model").cloned();
    if model.as_ref().is_some_and(|model| model.as_object().is_none()) {
        reading.wrong("model", "'model' must be an object.");
    }
    let rule = Rule::Rekey(Box::new(RekeyRule { key: key?, on_conflict, model }));
    Some(RefactoringOrder { kind: "rekey", container: container?, rule, finishes_itself, has_journal: false })
}

fn read_key(reading: &mut OrderReader<'_>) -> Option<Value> {
    let Some(key) = reading.body.get("partitionKey").cloned() else {
        reading.error("BadValue", "", "'partitionKey' is missing.");
        return None;
    };
    match PartitionKeyDefinition::from_json(&key) {
        Ok(_) => Some(key),
        Err(error) => {
            reading.wrong("partitionKey", &format!("'partitionKey' is not a partition key: {error}."));
            None
        }
    }
}

impl RekeyRule {
    /// Whether the container can have this key.
    pub fn check(&self, container: &Container) -> Result<(), EngineError> {
        let name = &container.definition.id;
        let unsupported = |feature: String| Err(EngineError::NotSupported { feature });
        if container.definition.view.is_some() {
            return unsupported(format!("Refactoring of the view '{name}'"));
        }
        self.check_key(container)?;
        let Some(state) = container.catalog.upgrade().map(|catalog| catalog.load_full()) else {
            return Err(container.not_found());
        };
        if let Some(view) = views_of(&state, container).first() {
            return unsupported(format!(
                "'rekey' of a container that has views, such as '{}',",
                view.definition.id
            ));
        }
        let database = state.databases.get(&container.database.rid).ok_or_else(|| container.not_found())?;
        for taken in [NEW, OLD].map(|suffix| format!("{name}{suffix}")) {
            if database.containers.named(&taken).is_some() {
                return Err(EngineError::AlreadyExists { kind: "container", id: taken });
            }
        }
        match (container.partitions.is_modelled(), &self.model) {
            (true, None) => Err(EngineError::ModelInUse { container: name.clone() }),
            (false, Some(_)) => Err(invalid("model", "'model' is for a container that the model names.")),
            _ => Ok(()),
        }
    }

    fn check_key(&self, container: &Container) -> Result<(), EngineError> {
        let name = &container.definition.id;
        let definition = match Catalog::rekeyed_definition(container, name, &self.key) {
            Ok(definition) => definition,
            Err(error) => return Err(invalid("partitionKey", &error.to_string())),
        };
        if definition.partition_key.same_as(&container.definition.partition_key) {
            return Err(invalid("partitionKey", &format!("'{name}' has this partition key.")));
        }
        Ok(())
    }
}

fn invalid(member: &str, message: &str) -> EngineError {
    RefactoringInvalid(vec![OrderError::new("BadValue", &format!("/{member}"), message)]).into()
}
