//! What a refactoring of structure would make of items, one by one. Nothing is written.

use std::collections::HashMap;

use quire_model::{ExpectedPathValue, OnWrite, OwnedValue, Pointer};
use quire_value::{Object, Value};

use super::find::ItemFinder;
use super::{EmbedOrder, ExtractOrder, FlipOrder, MergeOrder, RefactoringPlan, SplitOrder, Structure};
use crate::api::EngineError;
use crate::items::body::ITEM_BYTES_MAX;
use crate::maintain::{holders, key_of_part, part_of};
use crate::model::EmbedSide;

const MISSING: &str = "the array names an item that is not there";
const TWO_OWNERS: &str = "the item has another owner already";
const DANGLING: &str = "the reference names an item that is not there";
const SEVERAL: &str = "several items would have it as a part";
const TOO_LARGE: &str = "the item would be larger than 2 MB";
const DIFFERS: &str = "the part differs from the item with its key";

/// What was seen until now.
#[derive(Clone, Debug, Default)]
pub(crate) struct Preview {
    /// By key: what the part is, in short. Of `embed`: how many items would have it as a part.
    targets: HashMap<String, u64>,
}

/// What would become of one item.
#[derive(Clone, Debug, Default)]
pub(crate) struct PreviewedItem {
    /// All items that would be written, with their containers; none where nothing changes.
    pub after: Vec<(String, Value)>,
    pub unconverted: Vec<(String, &'static str)>,
    pub journal_bytes: u64,
}

impl Preview {
    pub fn preview_item(
        &mut self,
        structure: &Structure,
        container: &str,
        item: &Value,
        find: &ItemFinder<'_>,
    ) -> Result<PreviewedItem, EngineError> {
        match structure {
            Structure::Extract(order) => self.extract(order, container, item, find),
            Structure::Flip(order) => self.flip(order, item, find),
            Structure::Merge(order) => merge(order, item, find),
            Structure::Split(order) => Ok(split(order, container, item)),
            Structure::Embed(order) => self.embed(order, item, find),
        }
    }

    /// Items that would be made, or that would be parts of others.
    pub fn created(&self) -> u64 {
        self.targets.len() as u64
    }

    fn extract(
        &mut self,
        order: &ExtractOrder,
        container: &str,
        item: &Value,
        find: &ItemFinder<'_>,
    ) -> Result<PreviewedItem, EngineError> {
        let mut plan = order.plan(container, None);
        let mut found =
            PreviewedItem { unconverted: order.survey(&mut plan, item), ..PreviewedItem::default() };
        let rule = order.rule(container, &plan);
        let mut after = item.clone();
        let mut made = Vec::new();
        for positions in holders(&order.holder, item) {
            let path = || order.holder.join(&Pointer::of_name(&order.part)).at(&positions);
            let Some(part) = order.holder.find(item, &positions).and_then(|own| own.get(&order.part)) else {
                continue;
            };
            let key = match plan.of_owner {
                true => Ok(item.get("id").and_then(Value::as_str).unwrap_or_default().to_owned()),
                false => key_of_part(&rule, part),
            };
            let key = match key {
                Ok(key) => key,
                Err(why) => {
                    found.unconverted.push((path(), why));
                    continue;
                }
            };
            let there = find.by_id(&order.into, &key)?.map(|own| part_of(&rule, own));
            let known = there.as_ref().map(digest).or_else(|| self.targets.get(&key).copied());
            match known {
                Some(known) if known != digest(part) => {
                    found.unconverted.push((path(), DIFFERS));
                    continue;
                }
                Some(_) => {}
                None => {
                    self.targets.insert(key.clone(), digest(part));
                    made.push((order.into.clone(), created_item(order, plan.of_owner, &key, part)));
                    found.journal_bytes += part.to_json().len() as u64;
                }
            }
            let holder = order.holder.find_mut(&mut after, &positions).and_then(Value::as_object_mut);
            holder.into_iter().for_each(|holder| holder.set(order.reference.as_str(), key.as_str()));
            found.journal_bytes += key.len() as u64 + 24;
        }
        if after != *item {
            found.after = std::iter::once((container.to_owned(), after)).chain(made).collect();
        }
        Ok(found)
    }
}

impl Preview {
    fn flip(
        &mut self,
        order: &FlipOrder,
        item: &Value,
        find: &ItemFinder<'_>,
    ) -> Result<PreviewedItem, EngineError> {
        let mut found = PreviewedItem::default();
        let owner = item.get("id").and_then(Value::as_str).unwrap_or_default();
        let array = order.path.find(item, &[]).and_then(Value::as_array).unwrap_or_default();
        for (position, element) in array.iter().enumerate() {
            let path = format!("{}/{position}", order.path);
            let id = element.as_str().unwrap_or_default();
            let Some(mut other) = find.by_id(&order.to, id)? else {
                found.unconverted.push((path, MISSING));
                continue;
            };
            let digest_of = digest(&Value::from(owner));
            let known = match order.into.find(&other, &[]) {
                Some(known) if !known.is_null() => Some(digest(known)),
                _ => self.targets.get(id).copied(),
            };
            match known {
                Some(known) if known != digest_of => found.unconverted.push((path, TWO_OWNERS)),
                Some(_) => {}
                None => {
                    self.targets.insert(id.to_owned(), digest_of);
                    put(&mut other, &order.into, Value::from(owner));
                    found.after.push((order.to.clone(), other));
                    found.journal_bytes += 32;
                }
            }
        }
        found.journal_bytes += array.len() as u64 * 24;
        Ok(found)
    }
}

impl Preview {
    fn embed(
        &mut self,
        order: &EmbedOrder,
        item: &Value,
        find: &ItemFinder<'_>,
    ) -> Result<PreviewedItem, EngineError> {
        let left = order.survey(&RefactoringPlan::default(), item);
        let mut found = PreviewedItem { unconverted: left, ..PreviewedItem::default() };
        if !found.unconverted.is_empty() {
            return Ok(found);
        }
        let mut after = item.clone();
        match order.side {
            EmbedSide::Referrer => {
                for (positions, key, target) in find.targets(&order.link, item)? {
                    let path = order.into.at(&positions);
                    match target {
                        Some(target) => {
                            self.count_part(&key, (&path, &mut found));
                            put_at(&mut after, &order.into, &positions, target);
                        }
                        None => found.unconverted.push((path, DANGLING)),
                    }
                }
            }
            EmbedSide::Target => {
                let parts = find.referrers(&order.link, item)?;
                for (key, _) in &parts {
                    self.count_part(key, (&order.into.to_string(), &mut found));
                }
                let parts = parts.into_iter().map(|(_, part)| part).collect::<Value>();
                put_at(&mut after, &order.into, &[], parts);
            }
        }
        if after.to_json().len() > ITEM_BYTES_MAX {
            found.unconverted.push((order.into.to_string(), TOO_LARGE));
            return Ok(found);
        }
        if after != *item {
            found.after = vec![(order.holder.clone(), after)];
        }
        Ok(found)
    }

    /// A part that was seen before has several holders.
    fn count_part(&mut self, key: &str, (path, found): (&str, &mut PreviewedItem)) {
        let count = self.targets.entry(key.to_owned()).or_default();
        *count += 1;
        if *count > 1 {
            found.unconverted.push((path.to_owned(), SEVERAL));
        }
    }
}

/// The item with its newest elements, and the first page of the others.
fn split(order: &SplitOrder, container: &str, item: &Value) -> PreviewedItem {
    let array = order.path.find(item, &[]).and_then(Value::as_array).unwrap_or_default();
    let older = array.len().saturating_sub(order.keep as usize);
    if older == 0 {
        return PreviewedItem { unconverted: order.survey(item), ..PreviewedItem::default() };
    }
    let mut after = item.clone();
    put(&mut after, &order.path, Value::Array(array[older..].to_vec()));
    let mut page = Value::Object(Object::new());
    let id = item.get("id").cloned().unwrap_or(Value::Null);
    put(&mut page, &order.pages.parent, id);
    put(&mut page, &order.pages.number, Value::from(0));
    put(&mut page, &order.pages.path, Value::Array(array[..older.min(order.pages.size as usize)].to_vec()));
    let after = vec![(container.to_owned(), after), (order.pages.container.clone(), page)];
    PreviewedItem { after, unconverted: order.survey(item), journal_bytes: 0 }
}

/// Both ends of a join item, with each other's id.
fn merge(order: &MergeOrder, item: &Value, find: &ItemFinder<'_>) -> Result<PreviewedItem, EngineError> {
    let mut found = PreviewedItem { journal_bytes: item.to_json().len() as u64, ..PreviewedItem::default() };
    let id = |path: &Pointer| path.find(item, &[]).and_then(Value::as_str).unwrap_or_default();
    let (left, right) = (id(&order.left), id(&order.right));
    for (at, (own, other)) in [(left, right), (right, left)].into_iter().enumerate() {
        match find.by_id(&order.ends[at], own)? {
            Some(mut end) => {
                let mut array =
                    order.into[at].find(&end, &[]).and_then(Value::as_array).unwrap_or_default().to_vec();
                array.push(Value::from(other));
                put(&mut end, &order.into[at], Value::Array(array));
                found.after.push((order.ends[at].clone(), end));
            }
            None => found.unconverted.push(([&order.left, &order.right][at].to_string(), MISSING)),
        }
    }
    Ok(found)
}

fn put(item: &mut Value, path: &Pointer, value: Value) {
    put_at(item, path, &[], value);
}

fn put_at(item: &mut Value, path: &Pointer, positions: &[usize], value: Value) {
    let (owner, positions, right) = (String::new(), positions.to_vec(), ExpectedPathValue::Value(value));
    OwnedValue { owner, path: path.clone(), positions, right, on_write: OnWrite::Correct }.put(item);
}

fn created_item(order: &ExtractOrder, of_owner: bool, key: &str, part: &Value) -> Value {
    let mut made = Object::from_iter([("id", key)]);
    match (of_owner, part.as_object()) {
        (false, Some(part)) => part.iter().for_each(|(name, value)| made.set(name, value.clone())),
        _ => made.set(order.part.as_str(), part.clone()),
    }
    Value::Object(made)
}

/// Equal values have one digest, whatever the order of their members.
fn digest(value: &Value) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
