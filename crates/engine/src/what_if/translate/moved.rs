//! Parts that moved: to items of their own, to a window, to another name.

use std::collections::{HashMap, HashSet};

use quire_model::Model;
use quire_profile::{ArrayLength, ItemChange, Operation, Replacement, join, parent, rewritten};
use quire_value::{Object, Value};

use super::super::plain::{changed_item, place, write, written};
use super::super::replay::{ITEM_GONE, NO_VALUES, RecordedOperation, Skip};
use super::super::requests::{ReplayContext, Request, Verb};
use super::super::scratch::Side;
use super::super::values::{Random, values_at, varied};
use super::{Translated, change_of, divided, same, text, touches, with_text};

/// Operations of one patch.
const PATCH_OPERATIONS_MAX: u64 = 10;

/// A part of S is an item T.
pub(crate) struct Extract {
    container: String,
    path: String,
    into: String,
    /// Where S has the id of T.
    reference: String,
    link: Option<String>,
    /// By hash of a T's key: the items whose copy of it was written since T was.
    written: HashMap<u64, HashSet<u64>>,
}

impl Extract {
    pub fn of(body: &Value, after: &Model) -> Extract {
        let (container, path) = (text(body, "container").to_owned(), text(body, "path").to_owned());
        let reference = join(parent(&path), text(body, "reference"));
        let link = after
            .links
            .iter()
            .find(|link| link.from.container == container && link.from.path.to_string() == reference);
        let link = link.map(|link| link.name.clone());
        Extract {
            container,
            path,
            into: text(body, "into").to_owned(),
            reference,
            link,
            written: HashMap::new(),
        }
    }

    pub fn requests(
        &mut self,
        context: &ReplayContext<'_>,
        recorded: &RecordedOperation<'_>,
        now: &Request,
    ) -> Translated {
        if recorded.container() != self.container {
            return Ok(None);
        }
        match recorded.record.operation {
            Operation::Read => {
                let mut requests = vec![same(context, recorded, now)?];
                let targets = self.targets(context, recorded)?.into_iter();
                let places = targets.filter_map(|id| context.place_of_id(Side::Then, &self.into, &id));
                requests.extend(places.map(|place| Request::Read { container: self.into.clone(), place }));
                Ok(Some(requests))
            }
            Operation::Query => self.query(recorded, now),
            _ => self.change(context, recorded),
        }
    }

    /// Ids of the T's that S refers to, each once.
    fn targets(
        &self,
        context: &ReplayContext<'_>,
        recorded: &RecordedOperation<'_>,
    ) -> Result<Vec<String>, Skip> {
        let place =
            context.place_on(Side::Then, &self.container, &place(context, recorded)?).ok_or(ITEM_GONE)?;
        let item = context.item(Side::Then, &self.container, &place).ok_or(ITEM_GONE)?;
        let mut ids: Vec<String> = values_at(&item, &self.reference)
            .into_iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect();
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }

    fn query(&self, recorded: &RecordedOperation<'_>, now: &Request) -> Translated {
        let (Request::Query { query, .. }, true) = (now, touches(recorded, &self.path)) else {
            return Ok(None);
        };
        let link = self.link.clone().ok_or(NO_VALUES)?;
        let follow = Replacement::Follow { from: self.path.clone(), link };
        let text = rewritten(&query.text, &follow).ok_or("query of the moved part")?;
        Ok(Some(vec![with_text(now, text)]))
    }

    /// What changed below the part changes T, once for each changed element.
    fn change(&mut self, context: &ReplayContext<'_>, recorded: &RecordedOperation<'_>) -> Translated {
        let Some(change) = change_of(recorded) else { return Ok(None) };
        let (below, rest) = divided(change, &self.path);
        if below.paths.is_empty() {
            return Ok(None);
        }
        let mut requests = Vec::new();
        if !rest.paths.is_empty() {
            requests.push(write(context, Side::Then, recorded, &rest)?);
        }
        let part = relative(&below, &self.path);
        let mut random = Random::new(context.seed, recorded.number);
        for id in self.changed_targets(context, recorded, change, &mut random)? {
            let place = context.place_of_id(Side::Then, &self.into, &id).ok_or(ITEM_GONE)?;
            let item = context.item(Side::Then, &self.into, &place).ok_or(ITEM_GONE)?;
            let item = changed_item(context, Side::Then, &self.into, (&item, &part), &mut random);
            requests.push(written(&self.into, Verb::Replace, place, item));
        }
        Ok(Some(requests))
    }

    /// The T's that a change is about. Where a T was copied into many items, each of them was written: T is written once, until
    /// one of them is written again.
    fn changed_targets(
        &mut self,
        context: &ReplayContext<'_>,
        recorded: &RecordedOperation<'_>,
        change: &ItemChange,
        random: &mut Random,
    ) -> Result<Vec<String>, Skip> {
        let targets = self.targets(context, recorded)?;
        let hash = |id: &String| context.shared.recorder.hash_text(id.as_bytes());
        let named: Vec<String> =
            targets.iter().filter(|id| change.element_keys.contains(&hash(id))).cloned().collect();
        if named.is_empty() {
            let first = random.below(targets.len());
            let count = change.element_keys.len().clamp(1, targets.len().max(1));
            return Ok(targets.iter().cycle().skip(first).take(count.min(targets.len())).cloned().collect());
        }
        let item = recorded.record.item.unwrap_or_default();
        let mut is_first = |id: &String| {
            let items = self.written.entry(hash(id)).or_default();
            let is_first = items.is_empty() || items.contains(&item);
            if is_first {
                items.clear();
            }
            items.insert(item);
            is_first
        };
        Ok(named.into_iter().filter(|id| is_first(id)).collect())
    }
}

/// A change below a path, as a change of the item that was there.
fn relative(change: &ItemChange, path: &str) -> ItemChange {
    let below = |own: &str| own.strip_prefix(path).unwrap_or(own).to_owned();
    let lengths = change.lengths.iter();
    let lengths = lengths.map(|own| ArrayLength { path: below(&own.path), ..own.clone() });
    ItemChange {
        paths: change.paths.iter().map(|own| below(own)).filter(|own| !own.is_empty()).collect(),
        lengths: lengths.collect(),
        element_keys: Vec::new(),
        ..change.clone()
    }
}

/// An array is a window, with pages behind it.
pub(crate) struct SplitArray {
    container: String,
    path: String,
    window: String,
}

impl SplitArray {
    pub fn of(body: &Value) -> SplitArray {
        let path = text(body, "path").to_owned();
        let window =
            Some(text(body, "rename")).filter(|window| !window.is_empty()).unwrap_or(&path).to_owned();
        SplitArray { container: text(body, "container").to_owned(), path, window }
    }

    pub fn requests(
        &self,
        context: &ReplayContext<'_>,
        recorded: &RecordedOperation<'_>,
        now: &Request,
    ) -> Translated {
        if recorded.container() != self.container {
            return Ok(None);
        }
        if let Request::Query { query, .. } = now {
            return Ok(renamed_query(recorded, now, &query.text, (&self.path, &self.window)));
        }
        let Some(change) = change_of(recorded) else { return Ok(None) };
        let (below, rest) = divided(change, &self.path);
        let grown = below.lengths.iter().find(|own| own.path == self.path && own.after > own.before);
        match grown {
            Some(grown) if rest.paths.is_empty() && grown.after - grown.before <= PATCH_OPERATIONS_MAX => {
                self.add(context, recorded, grown.after - grown.before)
            }
            _ if below.paths.is_empty() => Ok(None),
            _ => {
                let change = renamed(change, &self.path, &self.window);
                Ok(Some(vec![write(context, Side::Then, recorded, &change)?]))
            }
        }
    }

    /// New elements, by patch.
    fn add(&self, context: &ReplayContext<'_>, recorded: &RecordedOperation<'_>, count: u64) -> Translated {
        let place =
            context.place_on(Side::Then, &self.container, &place(context, recorded)?).ok_or(ITEM_GONE)?;
        let item = context.item(Side::Then, &self.container, &place).ok_or(ITEM_GONE)?;
        let window = values_at(&item, &self.window);
        let like = window.first().and_then(|window| window.as_array()?.last()).ok_or(NO_VALUES)?;
        let mut random = Random::new(context.seed, recorded.number);
        let path = format!("{}/-", self.window);
        let operations = (0..count).map(|_| {
            let members = [
                ("op", Value::from("add")),
                ("path", Value::from(path.as_str())),
                ("value", varied(like, &mut random)),
            ];
            Value::Object(Object::from_iter(members))
        });
        let patch = Value::Object(Object::from_iter([("operations", operations.collect::<Value>())]));
        Ok(Some(vec![written(&self.container, Verb::Patch, place, patch)]))
    }
}

/// A property has another name.
pub(crate) struct Rename {
    container: String,
    from: String,
    to: String,
}

impl Rename {
    pub fn of(body: &Value) -> Rename {
        let own = |name: &str| text(body, name).to_owned();
        Rename { container: own("container"), from: own("from"), to: own("to") }
    }

    pub fn requests(
        &self,
        context: &ReplayContext<'_>,
        recorded: &RecordedOperation<'_>,
        now: &Request,
    ) -> Translated {
        if recorded.container() != self.container {
            return Ok(None);
        }
        if let Request::Query { query, .. } = now {
            return Ok(renamed_query(recorded, now, &query.text, (&self.from, &self.to)));
        }
        let Some(change) = change_of(recorded) else { return Ok(None) };
        let change = renamed(change, &self.from, &self.to);
        Ok(Some(vec![write(context, Side::Then, recorded, &change)?]))
    }
}

/// The query by the new name; the same where it does not name the path.
fn renamed_query(
    recorded: &RecordedOperation<'_>,
    now: &Request,
    query: &str,
    (from, to): (&str, &str),
) -> Option<Vec<Request>> {
    if from == to || !touches(recorded, from) {
        return None;
    }
    let replacement = Replacement::Path { from: from.to_owned(), to: to.to_owned() };
    Some(vec![with_text(now, rewritten(query, &replacement)?)])
}

/// The same change where a path has another name.
fn renamed(change: &ItemChange, from: &str, to: &str) -> ItemChange {
    let new = |own: &str| match own.strip_prefix(from).filter(|rest| rest.is_empty() || rest.starts_with('/'))
    {
        Some(rest) => format!("{to}{rest}"),
        None => own.to_owned(),
    };
    let lengths = change.lengths.iter().map(|own| ArrayLength { path: new(&own.path), ..own.clone() });
    ItemChange {
        paths: change.paths.iter().map(|own| new(own)).collect(),
        lengths: lengths.collect(),
        ..change.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_by_other_names() {
        let length = |path: &str| ArrayLength { path: path.to_owned(), before: 1, after: 2 };
        let change = ItemChange {
            paths: vec!["/a/b".to_owned(), "/ab".to_owned(), "/a".to_owned()],
            lengths: vec![length("/a/b")],
            ..ItemChange::default()
        };
        let new = renamed(&change, "/a", "/x/y");
        assert_eq!(new.paths, ["/x/y/b", "/ab", "/x/y"]);
        assert_eq!(new.lengths, [length("/x/y/b")]);
        let (below, rest) = divided(&change, "/a");
        assert_eq!((below.paths.len(), rest.paths), (2, vec!["/ab".to_owned()]));
        assert_eq!(relative(&below, "/a").paths, ["/b"]);
    }
}
