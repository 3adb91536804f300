//! The member of an item that says what follows from it: for every link one item or null, or an array.

use quire_sql::{FOLLOWED_MEMBER, Item, LinkedItem};
use quire_value::{Node, Object, Value};

use super::branches::Branch;
use super::followed_item::FollowedItem;
use super::link_containers::LinkContainer;
use super::page_links::{PageLinks, too_many};
use super::read::{Lookup, LookupKind};
use super::{BYTES_MAX, ITEMS_MAX};
use crate::api::EngineError;

/// Referrers of one item, for a link that is followed backward.
const REFERRERS_MAX: usize = 100;

/// What one item has come to.
#[derive(Default)]
pub(super) struct FollowedTotals {
    pub items: u64,
    pub bytes: u64,
    /// Something is not known yet.
    pub is_pending: bool,
}

impl FollowedTotals {
    fn add(&mut self, item: &FollowedItem) -> Result<(), EngineError> {
        self.items += 1;
        self.bytes += u64::from(item.json_bytes);
        if self.items > ITEMS_MAX || self.bytes > BYTES_MAX {
            return Err(EngineError::FollowTooLarge);
        }
        Ok(())
    }
}

impl PageLinks<'_> {
    /// `None` while lookups are collected: something is not known yet.
    pub(super) fn member(&self, item: &Item<'_>) -> Result<Option<Value>, EngineError> {
        let stored;
        let node = match item.node() {
            Some(node) => node,
            None => {
                stored = quire_value::Item::from_value(&item.to_value());
                stored.root()
            }
        };
        let mut totals = FollowedTotals::default();
        let member = self.member_of(&self.branches, &self.container.definition.id, node, &mut totals)?;
        Ok((!totals.is_pending).then_some(member))
    }

    /// Of an item of a container, by these links.
    pub(super) fn member_of(
        &self,
        branches: &[Branch],
        container: &str,
        node: Node<'_>,
        totals: &mut FollowedTotals,
    ) -> Result<Value, EngineError> {
        let mut member = Object::new();
        for branch in branches {
            let value = self.branch(branch, container, node, totals)?;
            member.set(branch.name.as_str(), value);
        }
        Ok(Value::Object(member))
    }

    fn branch(
        &self,
        branch: &Branch,
        container: &str,
        node: Node<'_>,
        totals: &mut FollowedTotals,
    ) -> Result<Value, EngineError> {
        let reader = self.reader()?;
        let rules = &reader.model.rules.links[branch.link];
        if branch.is_reversed {
            let kind = LookupKind::Referrers { count_max: REFERRERS_MAX };
            let end = reader.link_containers.get(container)?;
            let lookup = self.lookup_referrers(branch.link, kind, node, &end.container)?;
            return Ok(Value::Array(match lookup {
                Some(lookup) => self.items(branch, lookup, totals)?,
                None => Vec::new(),
            }));
        }
        let references = rules.references(node).map_err(too_many)?;
        let mut values = Vec::with_capacity(references.len());
        for reference in references {
            let lookup = Lookup { link: branch.link, kind: LookupKind::Target, target: reference.target };
            values.push(self.items(branch, lookup, totals)?.pop().unwrap_or(Value::Null));
        }
        let is_array = rules.link.from.path.each_count() > 0;
        Ok(if is_array { Value::Array(values) } else { values.pop().unwrap_or(Value::Null) })
    }

    fn items(
        &self,
        branch: &Branch,
        lookup: Lookup,
        totals: &mut FollowedTotals,
    ) -> Result<Vec<Value>, EngineError> {
        let end = self.reader()?.end_of(&lookup)?;
        let Some(cached) = self.find(lookup)? else {
            totals.is_pending = true;
            return Ok(Vec::new());
        };
        let mut values = Vec::with_capacity(cached.result.items.len());
        for item in &cached.result.items {
            totals.add(item)?;
            values.push(self.item(branch, end, item, totals)?);
        }
        Ok(values)
    }

    /// The item, with what follows from it where the chain goes on.
    fn item(
        &self,
        branch: &Branch,
        end: &LinkContainer,
        item: &FollowedItem,
        totals: &mut FollowedTotals,
    ) -> Result<Value, EngineError> {
        let mut value = item.item().to_value();
        if !branch.then.is_empty()
            && let Value::Object(object) = &mut value
        {
            let container = &end.container.definition.id;
            let member = self.member_of(&branch.then, container, item.node(), totals)?;
            object.set(FOLLOWED_MEMBER, member);
        }
        Ok(value)
    }
}

/// How many items a row has in such members, also inside the payload of rows that clients merge.
pub(crate) fn followed_in(value: &Value) -> u64 {
    match value {
        Value::Object(object) => {
            let own = object.get(FOLLOWED_MEMBER).and_then(Value::as_object);
            let followed = own.into_iter().flat_map(Object::iter).map(|(_, end)| count(end));
            let payload = object.get("payload").filter(|_| own.is_none()).map_or(0, followed_in);
            followed.sum::<u64>() + payload
        }
        _ => 0,
    }
}

fn count(end: &Value) -> u64 {
    match end {
        Value::Array(items) => items.iter().map(count).sum(),
        item @ Value::Object(_) => 1 + followed_in(item),
        _ => 0,
    }
}
