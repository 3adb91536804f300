//! What a model must have made of the items of a database, recomputed from scratch: the expected values for tests of the engine.
//!
//! It shares nothing with `quire-model` or the engine but the parser of expressions: the model is read as plain JSON, every
//! reference is found by looking through all items, values are made by the second interpreter. Slow, short, and only for
//! models that are valid.

mod owned; // which places are owned, and what must be there
mod paths; // pointers with `*`
pub mod random; // random models and items
mod references; // who refers to whom
mod rows; // an item with those that it refers to, or that refer to it
mod sums; // exact sums by fractions
mod windows; // windows and their pages

use std::collections::BTreeMap;

use crate::interpreter::{Interpreter, Json, JsonOrUndefined};

pub use self::sums::exact_sum;

/// A model, and the key paths of the containers.
pub struct ModelOracle {
    model: Json,
    keys: BTreeMap<String, Vec<String>>,
    interpreter: Interpreter,
    /// Names of declarations; `None`: all.
    judged: Option<Vec<String>>,
}

/// All items of a database: container and item.
pub type Items = [(String, Json)];

/// What must be at a place.
#[derive(Clone, Debug)]
pub struct ExpectedValue {
    pub declaration: String,
    pub container: String,
    pub id: String,
    pub path: String,
    pub value: JsonOrUndefined,
    pub found: JsonOrUndefined,
}

/// A reference without a target.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dangling {
    pub link: String,
    pub container: String,
    pub id: String,
    pub path: String,
}

impl ExpectedValue {
    /// What is wrong there, as text.
    pub fn problem(&self) -> Option<String> {
        if crate::interpreter::same(&self.value, &self.found) {
            return None;
        }
        let text = |value: &JsonOrUndefined| value.as_ref().map_or("nothing".to_owned(), Json::to_text);
        let ExpectedValue { declaration, container, id, path, value, found } = self;
        let (found, value) = (text(found), text(value));
        Some(format!("{declaration}: {path} of {container} {id} is {found} and must be {value}"))
    }
}

impl ModelOracle {
    /// `keys` are pointers to the partition key of each container.
    pub fn new(model: &str, keys: &[(&str, &[&str])]) -> ModelOracle {
        let keys = keys.iter().map(|(container, paths)| {
            ((*container).to_owned(), paths.iter().map(|path| (*path).to_owned()).collect())
        });
        ModelOracle {
            model: crate::interpreter::parse_json(model).expect("the model is JSON"),
            keys: keys.collect(),
            interpreter: Interpreter::default(),
            judged: None,
        }
    }

    /// Judges some declarations only. The others own their paths all the same.
    pub fn only<'n>(self, names: impl IntoIterator<Item = &'n str>) -> ModelOracle {
        ModelOracle { judged: Some(names.into_iter().map(str::to_owned).collect()), ..self }
    }

    fn is_checked(&self, declaration: &Json) -> bool {
        self.is_name_checked(text(declaration, "name"))
    }

    pub fn is_name_checked(&self, name: &str) -> bool {
        self.judged.as_ref().is_none_or(|names| names.iter().any(|own| own == name))
    }

    /// Everything that is not as it must be, as text.
    pub fn problems(&self, items: &Items) -> Vec<String> {
        let values = self.expected(items);
        values.iter().filter_map(ExpectedValue::problem).chain(self.window_problems(items)).collect()
    }

    fn list(&self, name: &str) -> &[Json] {
        self.model.get(name).and_then(Json::as_array).unwrap_or_default()
    }

    fn link(&self, name: &str) -> &Json {
        self.list("links").iter().find(|link| text(link, "name") == name).expect("a link of that name")
    }

    /// The value of an expression over named values.
    fn evaluate(&self, expression: &str, names: &[(&str, JsonOrUndefined)]) -> JsonOrUndefined {
        match self.interpreter.expression(expression, names) {
            Ok(Some(value)) if !value.has_non_finite() => Some(value),
            _ => None,
        }
    }

    fn partition_key(&self, container: &str, item: &Json) -> Vec<JsonOrUndefined> {
        let keys = self.keys.get(container).expect("a container that is known");
        keys.iter()
            .map(|path| paths::find(item, path).filter(|value| value.is_primitive()).cloned())
            .collect()
    }
}

/// A text that is always there, or has this default.
fn text<'j>(json: &'j Json, name: &str) -> &'j str {
    text_or(json, name, "")
}

fn text_or<'j>(json: &'j Json, name: &str, default: &'j str) -> &'j str {
    json.get(name).and_then(Json::as_str).unwrap_or(default)
}

fn number_or(json: &Json, name: &str, default: usize) -> usize {
    json.get(name).and_then(Json::as_i64).and_then(|number| usize::try_from(number).ok()).unwrap_or(default)
}

fn id_of(item: &Json) -> &str {
    text(item, "id")
}
