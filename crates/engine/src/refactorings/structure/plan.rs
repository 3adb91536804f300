//! What was decided about a refactoring of structure when it started, and how far it is.

use quire_value::{Object, Value};

use crate::model::DatabaseModel;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RefactoringPlan {
    /// Which phase of its state it is in.
    pub phase: usize,
    /// Names of its declarations.
    pub names: Vec<String>,
    /// Containers that it makes.
    pub makes: Vec<String>,
    /// Its declarations are in the model, or may be.
    pub is_declared: bool,
    pub was_finished: bool,
    /// All items have lost the old form.
    pub is_contracted: bool,
    /// Of `extract`: the items that it makes have the id and the key of their part's owner.
    pub of_owner: bool,
    /// Of `merge-join-items`: the containers of its ends. Of `embed`: the container that gets parts, and that of the parts.
    pub ends: Vec<String>,
    /// Of `embed`: its link as it was declared.
    pub link: Value,
    /// Of `embed`: a declaration owns the parts, or may.
    pub is_kept: bool,
    /// Places that wait for a decision.
    pub undecided: u64,
    /// Why it is blocked.
    pub error: Option<String>,
}

impl RefactoringPlan {
    pub fn to_json(&self) -> Value {
        let texts = |all: &[String]| all.iter().map(|text| Value::from(text.as_str())).collect::<Value>();
        let mut json = Object::new();
        json.set("phase", self.phase as u64);
        json.set("names", texts(&self.names));
        json.set("makes", texts(&self.makes));
        json.set("isDeclared", self.is_declared);
        json.set("wasFinished", self.was_finished);
        json.set("isContracted", self.is_contracted);
        json.set("ofOwner", self.of_owner);
        json.set("ends", texts(&self.ends));
        if self.link != Value::default() {
            json.set("link", self.link.clone());
        }
        json.set("isKept", self.is_kept);
        json.set("undecided", self.undecided);
        json.set("error", self.error.as_deref().map_or(Value::Null, Value::from));
        Value::Object(json)
    }

    pub fn from_json(json: &Value) -> Option<RefactoringPlan> {
        let texts = |name: &str| -> Option<Vec<String>> {
            json.get(name)?.as_array()?.iter().map(|text| text.as_str().map(str::to_owned)).collect()
        };
        let was_finished = json.get("wasFinished")?.as_bool()?;
        Some(RefactoringPlan {
            phase: usize::try_from(json.get("phase")?.as_u64()?).ok()?,
            names: texts("names")?,
            makes: texts("makes")?,
            is_declared: json.get("isDeclared")?.as_bool()?,
            was_finished,
            is_contracted: json.get("isContracted").and_then(Value::as_bool).unwrap_or(was_finished),
            of_owner: json.get("ofOwner")?.as_bool()?,
            ends: texts("ends").unwrap_or_default(),
            link: json.get("link").cloned().unwrap_or_default(),
            is_kept: json.get("isKept").and_then(Value::as_bool).unwrap_or(false),
            undecided: json.get("undecided")?.as_u64()?,
            error: json.get("error")?.as_str().map(str::to_owned),
        })
    }
}

/// Names for declarations that the model does not have.
pub(super) fn free_names(model: Option<&DatabaseModel>, wanted: &[String]) -> Vec<String> {
    let is_taken =
        |name: &str| model.is_some_and(|model| model.model().declarations().any(|own| own == name));
    let numbered = |name: &String, number: usize| match number {
        1 => name.clone(),
        number => format!("{name}-{number}"),
    };
    let all = (1..).map(|number| wanted.iter().map(|name| numbered(name, number)).collect::<Vec<_>>());
    let mut free = all.filter(|names| !names.iter().any(|name| is_taken(name)));
    free.next().unwrap_or_default()
}
