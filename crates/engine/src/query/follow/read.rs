//! From lookups to items: all keys of a block in one read, then all items in another.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::sync::Arc;

use quire_model::TargetKey;

use super::followed_item::FollowedItem;
use super::link_containers::{LinkContainer, LinkContainers};
use crate::api::{EngineError, charge, corrupt};
use crate::items::logical_partition::LogicalPartition;
use crate::links::{Referrers, TargetHash, TargetRoute};
use crate::model::{BuildPhase, DatabaseModel, DeclarationState};
use crate::query::read_snapshot::ReadSnapshot;
use crate::runtime::Shared;
use crate::store::item_row::ItemRow;
use crate::store::keys;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lookup {
    /// Number of the link in the model.
    pub link: usize,
    pub kind: LookupKind,
    pub target: TargetKey,
}

impl Hash for Lookup {
    /// Few lookups differ in nothing else, and those are compared.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.link.hash(state);
        self.target.value.hash(state);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LookupKind {
    Target,
    /// The first of them.
    Referrers {
        count_max: usize,
    },
}

/// What was found. No item for a target that is not there.
pub(crate) struct LookupResult {
    pub items: Vec<Rc<FollowedItem>>,
    pub charge: f64,
}

/// The row by which a target is found.
struct Name<'a> {
    key: Vec<u8>,
    /// Where the link says it.
    logical_partition: Option<LogicalPartition<'a>>,
}

/// Reads in one snapshot.
pub(crate) struct LinkReader {
    pub model: Arc<DatabaseModel>,
    pub link_containers: LinkContainers,
    pub view: ReadSnapshot,
}

impl Name<'_> {
    /// The child id that the item had when it was last followed.
    fn guess(&self, shared: &Shared) -> Option<u64> {
        self.logical_partition.as_ref()?;
        shared.item_ids.get(&self.key)
    }

    /// Whether a row is the item that a lookup names.
    fn is_of(&self, lookup: &Lookup, row: &[u8]) -> Result<bool, EngineError> {
        let row = ItemRow::trusted(row)?;
        let Some(logical_partition) = &self.logical_partition else { return Ok(false) };
        Ok(row.id()? == lookup.target.value && logical_partition.has(&row)?)
    }
}

impl LinkReader {
    /// The container at the other end of a lookup.
    pub fn end_of(&self, lookup: &Lookup) -> Result<&LinkContainer, EngineError> {
        let link = &self.model.rules.links[lookup.link].link;
        match lookup.kind {
            LookupKind::Target => self.link_containers.get(&link.to.container),
            LookupKind::Referrers { .. } => self.link_containers.get(&link.from.container),
        }
    }

    /// What each lookup finds, in their order.
    pub fn read(&self, shared: &Shared, lookups: &[Rc<Lookup>]) -> Result<Vec<LookupResult>, EngineError> {
        let targets: Vec<&Lookup> = lookups
            .iter()
            .map(|lookup| &**lookup)
            .filter(|lookup| lookup.kind == LookupKind::Target)
            .collect();
        let mut targets = self.targets(shared, &targets)?.into_iter();
        let mut found = Vec::with_capacity(lookups.len());
        for lookup in lookups {
            found.push(match lookup.kind {
                LookupKind::Target => of_target(targets.next().flatten()),
                LookupKind::Referrers { count_max } => self.referrers(lookup, count_max)?,
            });
        }
        Ok(found)
    }

    fn targets(
        &self,
        shared: &Shared,
        lookups: &[&Lookup],
    ) -> Result<Vec<Option<Rc<FollowedItem>>>, EngineError> {
        let names = lookups.iter().map(|lookup| self.name_of(lookup)).collect::<Result<Vec<_>, _>>()?;
        let mut found: Vec<Option<Rc<FollowedItem>>> = vec![None; lookups.len()];
        let mut is_guessed = vec![false; lookups.len()];
        let guess = |(at, name): (usize, &Option<Name<'_>>)| Some((at, name.as_ref()?.guess(shared)?));
        let guesses: Vec<(usize, u64)> = names.iter().enumerate().filter_map(guess).collect();
        for ((at, rid), row) in guesses.iter().zip(self.rows(shared, lookups, &guesses)?) {
            let (Some(row), Some(name)) = (row, &names[*at]) else { continue };
            is_guessed[*at] = name.is_of(lookups[*at], &row)?;
            if is_guessed[*at] {
                found[*at] = self.visible_target(lookups[*at], *rid, row)?;
            }
        }
        let rest = names.iter().enumerate().filter(|(at, _)| !is_guessed[*at]);
        let rest: Vec<(usize, &Name<'_>)> =
            rest.filter_map(|(at, name)| Some((at, name.as_ref()?))).collect();
        let requested: Vec<&[u8]> = rest.iter().map(|(_, name)| name.key.as_slice()).collect();
        let mut places = Vec::with_capacity(rest.len());
        for ((at, name), rid) in rest.iter().zip(self.view.snapshot.multi_get(keys::LOOKUPS, &requested)?) {
            let Some(rid) = rid else { continue };
            let rid = keys::number(&rid).ok_or_else(|| corrupt("id row"))?;
            if name.logical_partition.is_some() {
                shared.item_ids.insert(&name.key, rid);
            }
            places.push((*at, rid));
        }
        for ((at, rid), row) in places.iter().zip(self.rows(shared, lookups, &places)?) {
            let row = row.ok_or_else(|| corrupt("id row without an item"))?;
            let Some(name) = &names[*at] else { continue };
            if self.is_named(lookups[*at], name, &row)? {
                found[*at] = self.visible_target(lookups[*at], *rid, row)?;
            }
        }
        Ok(found)
    }

    /// The rows of items, each with the number of its lookup.
    fn rows(
        &self,
        shared: &Shared,
        lookups: &[&Lookup],
        places: &[(usize, u64)],
    ) -> Result<Vec<Option<Arc<[u8]>>>, EngineError> {
        let mut by_container: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (place, (lookup, _)) in places.iter().enumerate() {
            let number = self.end_of(lookups[*lookup])?.container.number;
            by_container.entry(number).or_default().push(place);
        }
        let mut rows = vec![None; places.len()];
        for (container, own) in by_container {
            let rids: Vec<u64> = own.iter().map(|place| places[*place].1).collect();
            for (place, row) in own.into_iter().zip(self.container_rows(shared, container, &rids)?) {
                rows[place] = row;
            }
        }
        Ok(rows)
    }

    /// Rows of a container as the snapshot has them, from memory as far as they are there. Their checksums held.
    fn container_rows(
        &self,
        shared: &Shared,
        container: u32,
        rids: &[u64],
    ) -> Result<Vec<Option<Arc<[u8]>>>, EngineError> {
        let (kept, seen) = (&shared.row_spans, self.view.write_time);
        let mut rows = kept.rows(container, rids, seen);
        let unknown: Vec<usize> = (0..rids.len()).filter(|at| rows[*at].is_none()).collect();
        if unknown.is_empty() {
            return Ok(rows);
        }
        let item_keys: Vec<Vec<u8>> = unknown.iter().map(|at| keys::item(container, rids[*at])).collect();
        let item_keys: Vec<&[u8]> = item_keys.iter().map(Vec::as_slice).collect();
        for (at, bytes) in unknown.iter().zip(self.view.snapshot.multi_get(keys::ITEMS, &item_keys)?) {
            if let Some(bytes) = bytes {
                ItemRow::parse(&bytes)?;
                rows[*at] = Some(Arc::from(bytes));
            }
        }
        let read = unknown.iter().filter_map(|at| Some((rids[*at], rows[*at].as_ref()?)));
        kept.insert_rows(container, read, seen);
        Ok(rows)
    }

    fn route(&self, lookup: &Lookup) -> Result<TargetRoute<'_>, EngineError> {
        Ok(TargetRoute {
            link: &self.model.rules.links[lookup.link],
            declaration: self.model.declarations.links[lookup.link].number,
            container: &self.end_of(lookup)?.container,
        })
    }

    /// The row that names the item; `None`: no item can be there.
    fn name_of(&self, lookup: &Lookup) -> Result<Option<Name<'_>>, EngineError> {
        let route = self.route(lookup)?;
        if route.link.link.has_key_index() {
            self.check_built(lookup.link)?;
            let key = route.rows().link_key(&TargetHash::of(&lookup.target).0);
            return Ok(Some(Name { key, logical_partition: None }));
        }
        Ok(route
            .place_of(&lookup.target)
            .map(|(logical_partition, key)| Name { key, logical_partition: Some(logical_partition) }))
    }

    /// Whether a row that was found by its name is what a lookup asks for: hashes collide.
    fn is_named(&self, lookup: &Lookup, name: &Name<'_>, row: &[u8]) -> Result<bool, EngineError> {
        let row = ItemRow::trusted(row)?;
        match &name.logical_partition {
            Some(logical_partition) => logical_partition.has(&row),
            None => {
                let key = self.route(lookup)?.link.target_key(row.node()?, &row.partition_key()?);
                Ok(key.as_ref() == Some(&lookup.target))
            }
        }
    }

    /// `None`: it has expired, or its partition key was deleted.
    fn visible_target(
        &self,
        lookup: &Lookup,
        rid: u64,
        row: Arc<[u8]>,
    ) -> Result<Option<Rc<FollowedItem>>, EngineError> {
        let end = self.end_of(lookup)?;
        match end.container.is_invisible(&ItemRow::trusted(&row)?, &end.visibility_point) {
            true => Ok(None),
            false => FollowedItem::new(end, rid, row).map(Some),
        }
    }

    fn referrers(&self, lookup: &Lookup, count_max: usize) -> Result<LookupResult, EngineError> {
        self.check_built(lookup.link)?;
        let end = self.end_of(lookup)?;
        let referrers = Referrers {
            link: &self.model.rules.links[lookup.link],
            declaration: self.model.declarations.links[lookup.link].number,
            container: &end.container,
            target: &lookup.target,
        };
        let mut found = LookupResult { items: Vec::new(), charge: 0.0 };
        let mut after: Option<Vec<u8>> = None;
        while found.items.len() < count_max {
            let wanted = count_max - found.items.len();
            let page =
                referrers.page(&*self.view.snapshot, after.as_deref(), wanted, &end.visibility_point)?;
            for referrer in page.referrers.into_iter().filter(|referrer| !referrer.is_invisible) {
                let item = FollowedItem::new(end, referrer.stored.rid, Arc::from(referrer.stored.bytes))?;
                found.charge += charge::read(item.json_bytes as usize);
                found.items.push(item);
            }
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        Ok(found)
    }

    /// What is found by an index of the link needs the whole of it.
    fn check_built(&self, link: usize) -> Result<(), EngineError> {
        let declaration = &self.model.declarations.links[link];
        let is_building = match &declaration.state {
            DeclarationState::Active => return Ok(()),
            DeclarationState::Building { phase: BuildPhase::Values, .. } => return Ok(()),
            DeclarationState::Building { phase: BuildPhase::Index, .. } => true,
            DeclarationState::Failed { .. } => false,
        };
        Err(EngineError::LinkNotReady { link: declaration.name.clone(), is_building })
    }
}

fn of_target(item: Option<Rc<FollowedItem>>) -> LookupResult {
    let charge = item.as_ref().map_or(charge::REFUSED, |item| charge::read(item.json_bytes as usize));
    LookupResult { items: item.into_iter().collect(), charge }
}
