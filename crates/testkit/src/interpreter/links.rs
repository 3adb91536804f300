//! `FOLLOW` and `REFERRERS`: every container is a list, and every reference is looked for from its beginning.

use quire_sql::ast::{Expr, ExprKind};
use quire_value::Value;

use super::json::{Json, JsonOrUndefined};
use super::queries::NameScope;
use super::{Interpreter, QueryFailure, QueryResult};

/// The container of the queries.
const OWN_CONTAINER: &str = "items";

impl Interpreter {
    /// Links as a model declares them, and the items of the containers that they name.
    pub fn with_links<'v>(
        mut self,
        links: &[Value],
        others: impl IntoIterator<Item = (&'v String, &'v Vec<Value>)>,
    ) -> Interpreter {
        self.links = links.iter().filter_map(Json::of).collect();
        let list = |items: &[Value]| items.iter().filter_map(Json::of).collect();
        self.others = others.into_iter().map(|(name, items)| (name.clone(), list(items))).collect();
        self
    }

    pub(super) fn follow(
        &self,
        name: &str,
        arguments: &[Expr],
        scope: &NameScope,
    ) -> QueryResult<JsonOrUndefined> {
        let [from, link] = arguments else { return Err(QueryFailure::Unknown("two arguments".to_owned())) };
        let (ExprKind::Identifier(alias), ExprKind::Literal(Value::String(link))) =
            (&*from.kind, &*link.kind)
        else {
            return Err(QueryFailure::Unknown("an alias and a name".to_owned()));
        };
        let link = self.links.iter().find(|own| text(own, &["name"]).as_ref() == Some(link));
        let (Some(link), Some(from)) = (link, scope.find(alias)) else {
            return Err(QueryFailure::Unknown("no such link or name".to_owned()));
        };
        let Some(value) = &from.value else { return Ok(None) };
        let path = text(link, &["from", "path"]).unwrap_or_default();
        let steps: Vec<&str> = path.split('/').skip(1).collect();
        if name == "REFERRERS" {
            return Ok(Some(self.referrers(link, &steps, value)));
        }
        let last = steps.iter().rposition(|step| *step == "*");
        match (from.is_item, last) {
            (true, Some(_)) => {
                let targets = places(value, &steps).into_iter().filter_map(|at| self.target(link, at));
                Ok(Some(Json::Array(targets.collect())))
            }
            (true, None) => Ok(places(value, &steps).first().and_then(|at| self.target(link, at))),
            // An element: the rest of the path is inside it.
            (false, last) => {
                let rest = &steps[last.map_or(0, |last| last + 1)..];
                Ok(places(value, rest).first().and_then(|at| self.target(link, at)))
            }
        }
    }

    fn list(&self, container: &str) -> &[Json] {
        if container == OWN_CONTAINER {
            return &self.items;
        }
        self.others.iter().find(|(name, _)| name == container).map_or(&[], |(_, items)| items)
    }

    fn target(&self, link: &Json, reference: &Json) -> JsonOrUndefined {
        let wanted = named(link, reference)?;
        let to = text(link, &["to", "container"])?;
        self.list(&to).iter().find(|item| key_of(link, item) == Some(wanted.clone())).cloned()
    }

    fn referrers(&self, link: &Json, steps: &[&str], target: &Json) -> Json {
        let (Some(key), Some(from)) = (key_of(link, target), text(link, &["from", "container"])) else {
            return Json::Array(Vec::new());
        };
        let refers =
            |item: &&Json| places(item, steps).into_iter().any(|at| named(link, at).as_ref() == Some(&key));
        let mut found: Vec<Json> = self.list(&from).iter().filter(refers).cloned().collect();
        found.sort_by_key(|item| item.get("id").and_then(|id| id.as_str().map(str::to_owned)));
        Json::Array(found)
    }
}

/// The text that a reference names; numbers only where the link converts them.
fn named(link: &Json, reference: &Json) -> Option<String> {
    match reference {
        Json::String(name) if !name.is_empty() => Some(name.clone()),
        Json::Integer(number) if text(link, &["to", "convert"]).as_deref() == Some("string") => {
            Some(number.to_string())
        }
        _ => None,
    }
}

fn key_of(link: &Json, item: &Json) -> Option<String> {
    let key = text(link, &["to", "key"]).unwrap_or_else(|| "/id".to_owned());
    item.get(&key[1..])?.as_str().filter(|key| !key.is_empty()).map(str::to_owned)
}

fn places<'v>(value: &'v Json, steps: &[&str]) -> Vec<&'v Json> {
    match (steps.split_first(), value) {
        (None, value) => vec![value],
        (Some((&"*", rest)), Json::Array(elements)) => {
            elements.iter().flat_map(|element| places(element, rest)).collect()
        }
        (Some((name, rest)), object @ Json::Object(_)) => {
            object.get(name).map_or_else(Vec::new, |value| places(value, rest))
        }
        _ => Vec::new(),
    }
}

fn text(json: &Json, names: &[&str]) -> Option<String> {
    names.iter().try_fold(json, |value, name| value.get(name))?.as_str().map(str::to_owned)
}
