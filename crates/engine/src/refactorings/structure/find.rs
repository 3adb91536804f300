//! Items of other containers that a dry run looks at: by their ids, and along a link.

use quire_model::{LinkRules, TargetKey};
use quire_resource::{Component, PartitionKey};
use quire_value::{Item, Value};

use crate::api::EngineError;
use crate::catalog::Container;
use crate::items::logical_partition::LogicalPartition;
use crate::links::{Referrers, TargetRoute, find_target};
use crate::model::DatabaseModel;
use crate::runtime::Shared;

/// Referrers of one target that are read.
const REFERRERS_MAX: usize = 10_000;

pub(crate) struct ItemFinder<'a> {
    pub shared: &'a Shared,
    pub container: &'a Container,
}

/// What the `*` of a link's path stand for, a text that distinguishes targets, and the target.
pub(crate) type FoundReference = (Vec<usize>, String, Option<Value>);

impl ItemFinder<'_> {
    /// An item of a container whose partition key is its id.
    pub fn by_id(&self, container: &str, id: &str) -> Result<Option<Value>, EngineError> {
        let Some(other) = self.container.named_sibling(container) else { return Ok(None) };
        let key = PartitionKey(vec![Component::String(id.to_owned())]);
        let Ok(logical_partition) = LogicalPartition::of(&other, key) else { return Ok(None) };
        let visibility_point = other.visibility_point(self.shared);
        let Some(stored) =
            logical_partition.find(&*other.snapshot(self.shared)?, &logical_partition.id_key(id))?
        else {
            return Ok(None);
        };
        let (_, row) = stored.parse()?;
        if other.is_invisible(&row, &visibility_point) { Ok(None) } else { Ok(Some(row.node()?.to_value())) }
    }

    /// What an item refers to by a link.
    pub fn targets(&self, link: &str, item: &Value) -> Result<Vec<FoundReference>, EngineError> {
        let Some((model, number)) = self.link(link) else { return Ok(Vec::new()) };
        let rules = &model.rules.links[number];
        let Some(container) = self.container.named_sibling(&rules.link.to.container) else {
            return Ok(Vec::new());
        };
        let declaration = model.declarations.links[number].number;
        let (visibility_point, snapshot) =
            (container.visibility_point(self.shared), container.snapshot(self.shared)?);
        let mut found = Vec::new();
        for reference in rules.references(Item::from_value(item).root())? {
            let route = TargetRoute { link: rules, declaration, container: &container };
            let target = find_target(&*snapshot, route, &reference.target, &visibility_point)?;
            let target = match target.filter(|target| !target.is_invisible) {
                Some(target) => {
                    let (_, row) = target.stored.parse()?;
                    Some(model.rules.without_owned(&container.definition.id, row.node()?))
                }
                None => None,
            };
            found.push((reference.positions, name_of(&reference.target), target));
        }
        Ok(found)
    }

    /// What refers to an item by a link, with a text that distinguishes them.
    pub fn referrers(&self, link: &str, item: &Value) -> Result<Vec<(String, Value)>, EngineError> {
        let Some((model, number)) = self.link(link) else { return Ok(Vec::new()) };
        let rules: &LinkRules = &model.rules.links[number];
        let Some(container) = self.container.named_sibling(&rules.link.from.container) else {
            return Ok(Vec::new());
        };
        let root = Item::from_value(item);
        let key = self.container.definition.partition_key.extract(root.root())?;
        let Some(target) = rules.target_key(root.root(), &key) else { return Ok(Vec::new()) };
        let declaration = model.declarations.links[number].number;
        let (visibility_point, snapshot) =
            (container.visibility_point(self.shared), container.snapshot(self.shared)?);
        let referrers = Referrers { link: rules, declaration, container: &container, target: &target };
        let page = referrers.page(&*snapshot, None, REFERRERS_MAX, &visibility_point)?;
        let mut found = Vec::new();
        for referrer in page.referrers.iter().filter(|own| !own.is_invisible) {
            let (rid, row) = referrer.stored.parse()?;
            let value = model.rules.without_owned(&container.definition.id, row.node()?);
            found.push((rid.to_string(), value));
        }
        Ok(found)
    }

    fn link(&self, name: &str) -> Option<(std::sync::Arc<DatabaseModel>, usize)> {
        let model = std::sync::Arc::clone(&self.container.partitions.model()?.database);
        let number = model.rules.links.iter().position(|own| own.link.name == name)?;
        Some((model, number))
    }
}

fn name_of(target: &TargetKey) -> String {
    format!("{} {:?}", target.value, target.partition_key)
}
