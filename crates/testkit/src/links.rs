//! Links over items in memory, for queries that follow them without an engine.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use quire_sql::{FollowCall, Item, LinkDirection, LinkShape, LinkStep, LinkedItem, Links, SqlError};
use quire_value::{Number, Object, Value};

use crate::qt::QuerySetup;

/// The links of a `.qt` file. Targets are found by their key alone: keys are unique in these files.
pub struct ItemLinks {
    links: Vec<Link>,
    containers: BTreeMap<String, Vec<Arc<Value>>>,
}

struct Link {
    name: String,
    from: String,
    path: Vec<LinkStep>,
    to: String,
    key: String,
    converts: bool,
}

/// The container of the queries.
pub const OWN_CONTAINER: &str = "items";

impl ItemLinks {
    pub fn of(setup: &QuerySetup) -> ItemLinks {
        let shared = |items: &[Value]| items.iter().cloned().map(Arc::new).collect();
        let mut containers: BTreeMap<String, Vec<Arc<Value>>> =
            setup.others.iter().map(|(name, items)| (name.clone(), shared(items))).collect();
        containers.insert(OWN_CONTAINER.to_owned(), shared(&setup.items));
        ItemLinks { links: setup.links.iter().map(link).collect(), containers }
    }

    fn items(&self, container: &str) -> &[Arc<Value>] {
        self.containers.get(container).map_or(&[], Vec::as_slice)
    }

    fn target(&self, link: &Link, reference: &str) -> Option<Arc<Value>> {
        let has_key = |item: &&Arc<Value>| item.get(&link.key).and_then(Value::as_str) == Some(reference);
        self.items(&link.to).iter().find(has_key).cloned()
    }

    fn referrers(&self, link: &Link, item: &Value) -> Vec<Arc<Value>> {
        let Some(key) = item.get(&link.key).and_then(Value::as_str) else { return Vec::new() };
        let refers = |item: &&Arc<Value>| {
            references(item, &link.path)
                .iter()
                .any(|(_, value)| link.reference(value).as_deref() == Some(key))
        };
        let mut found: Vec<Arc<Value>> = self.items(&link.from).iter().filter(refers).cloned().collect();
        found.sort_by_key(|item| item.get("id").map(Value::to_json));
        found
    }
}

impl Link {
    fn reference(&self, value: &Value) -> Option<String> {
        match value {
            Value::String(text) if !text.is_empty() => Some(text.clone()),
            Value::Number(Number::Int(number)) if self.converts => Some(number.to_string()),
            _ => None,
        }
    }
}

impl Links for ItemLinks {
    fn find(&self, name: &str, direction: LinkDirection) -> Option<LinkShape> {
        let number = self.links.iter().position(|link| {
            let own = match direction {
                LinkDirection::Follow => &link.from,
                LinkDirection::Referrers => &link.to,
            };
            link.name == name && own == OWN_CONTAINER
        })?;
        Some(LinkShape { number, path: self.links[number].path.clone() })
    }

    fn follow(&self, call: &FollowCall<'_>) -> Result<Vec<Rc<dyn LinkedItem>>, SqlError> {
        let link = &self.links[call.link];
        let item = call.item.to_value();
        let linked = |item: Arc<Value>| -> Rc<dyn LinkedItem> { Rc::new(Value::clone(&item)) };
        if call.direction == LinkDirection::Referrers {
            return Ok(self.referrers(link, &item).into_iter().map(linked).collect());
        }
        let references = references(&item, &link.path);
        let wanted = references
            .iter()
            .filter(|(positions, _)| call.element.is_none_or(|element| *element == **positions));
        Ok(wanted.filter_map(|(_, value)| self.target(link, &link.reference(value)?).map(linked)).collect())
    }

    fn followed_member(&self, _: &Item<'_>) -> Result<Value, SqlError> {
        Ok(Value::Object(Object::new()))
    }
}

/// The values at the path of a link, each with its positions.
fn references<'v>(item: &'v Value, path: &[LinkStep]) -> Vec<(Vec<usize>, &'v Value)> {
    let mut found = vec![(Vec::new(), item)];
    for step in path {
        let mut next = Vec::new();
        for (positions, value) in found {
            match step {
                LinkStep::Name(name) => next.extend(value.get(name).map(|value| (positions, value))),
                LinkStep::Element => {
                    for (at, element) in value.as_array().unwrap_or_default().iter().enumerate() {
                        next.push(([positions.as_slice(), &[at]].concat(), element));
                    }
                }
            }
        }
        found = next;
    }
    found
}

fn link(json: &Value) -> Link {
    let text = |end: &str, name: &str| {
        json.get(end).and_then(|end| end.get(name)).and_then(Value::as_str).map(str::to_owned)
    };
    let step = |name: &str| match name {
        "*" => LinkStep::Element,
        name => LinkStep::Name(name.to_owned()),
    };
    let path = text("from", "path").expect("a link has a path");
    Link {
        name: json.get("name").and_then(Value::as_str).expect("a link has a name").to_owned(),
        from: text("from", "container").expect("a link comes from a container"),
        path: path.split('/').skip(1).map(step).collect(),
        to: text("to", "container").expect("a link goes to a container"),
        key: text("to", "key").map_or("id".to_owned(), |key| key.trim_start_matches('/').to_owned()),
        converts: text("to", "convert").as_deref() == Some("string"),
    }
}
