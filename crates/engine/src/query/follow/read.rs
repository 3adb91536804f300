//! From lookups to items: all keys of a block in one read, then all items in another.

use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;

use quire_model::TargetKey;
use quire_sql::Item;
use quire_value::Value;

use super::ends::{End, Ends};
use crate::api::{EngineError, charge, corrupt};
use crate::items::body::StampedItem;
use crate::items::logical_partition::LogicalPartition;
use crate::links::{Referrers, TargetHash, TargetRoute};
use crate::model::{BuildPhase, DatabaseModel, DeclarationState};
use crate::query::read_snapshot::ReadSnapshot;
use crate::store::item_row::ItemRow;
use crate::store::keys;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Lookup {
    /// Number of the link in the model.
    pub link: usize,
    pub kind: LookupKind,
    pub target: TargetKey,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LookupKind {
    Target,
    /// The first of them.
    Referrers {
        count_max: usize,
    },
}

/// What was found. No item for a target that is not there.
pub(crate) struct Found {
    pub items: Vec<Rc<FollowedItem>>,
    pub charge: f64,
}

/// An item of another container as it is stored.
pub(crate) struct FollowedItem {
    pub rid: u64,
    row: Vec<u8>,
    pub json_bytes: u32,
    value: OnceCell<Arc<Value>>,
}

/// The row by which a target is found.
struct Name<'a> {
    key: Vec<u8>,
    /// Where the link says it.
    home: Option<LogicalPartition<'a>>,
}

/// Reads in one snapshot.
pub(crate) struct LinkReader {
    pub model: Arc<DatabaseModel>,
    pub ends: Ends,
    pub view: ReadSnapshot,
}

impl FollowedItem {
    fn new(rid: u64, row: Vec<u8>) -> Result<Rc<FollowedItem>, EngineError> {
        let json_bytes = ItemRow::trusted(&row)?.json_bytes;
        Ok(Rc::new(FollowedItem { rid, row, json_bytes, value: OnceCell::new() }))
    }

    /// Was checked when it was read.
    pub fn row(&self) -> Result<ItemRow<'_>, EngineError> {
        ItemRow::trusted(&self.row)
    }

    pub fn memory_bytes(&self) -> usize {
        // Twice more once it is a value.
        3 * self.row.len() + 256
    }

    /// The whole item, with system properties.
    pub fn value(&self, end: &End) -> Result<Value, EngineError> {
        let row = self.row()?;
        let system = StampedItem { links: &end.links, child: self.rid, stamp: row.stamp };
        Ok(Item::stored(row.node()?, &system).to_value())
    }

    /// The same, made once.
    pub fn shared_value(&self, end: &End) -> Result<Arc<Value>, EngineError> {
        if let Some(value) = self.value.get() {
            return Ok(Arc::clone(value));
        }
        let value = Arc::new(self.value(end)?);
        Ok(Arc::clone(self.value.get_or_init(|| value)))
    }
}

impl LinkReader {
    /// The container at the other end of a lookup.
    pub fn end_of(&self, lookup: &Lookup) -> Result<&End, EngineError> {
        let link = &self.model.rules.links[lookup.link].link;
        match lookup.kind {
            LookupKind::Target => self.ends.get(&link.to.container),
            LookupKind::Referrers { .. } => self.ends.get(&link.from.container),
        }
    }

    /// Whether a lookup is one of several of its item.
    pub fn is_array(&self, lookup: &Lookup) -> bool {
        let link = &self.model.rules.links[lookup.link].link;
        lookup.kind != LookupKind::Target || link.from.path.each_count() > 0
    }

    /// What each lookup finds, in their order.
    pub fn read(&self, lookups: &[Rc<Lookup>]) -> Result<Vec<Found>, EngineError> {
        let targets: Vec<&Lookup> = lookups
            .iter()
            .map(|lookup| &**lookup)
            .filter(|lookup| lookup.kind == LookupKind::Target)
            .collect();
        let mut targets = self.targets(&targets)?.into_iter();
        let mut found = Vec::with_capacity(lookups.len());
        for lookup in lookups {
            found.push(match lookup.kind {
                LookupKind::Target => of_target(targets.next().flatten()),
                LookupKind::Referrers { count_max } => self.referrers(lookup, count_max)?,
            });
        }
        Ok(found)
    }

    fn targets(&self, lookups: &[&Lookup]) -> Result<Vec<Option<Rc<FollowedItem>>>, EngineError> {
        let names = lookups.iter().map(|lookup| self.name_of(lookup)).collect::<Result<Vec<_>, _>>()?;
        let asked: Vec<&[u8]> = names.iter().flatten().map(|name| name.key.as_slice()).collect();
        let mut rids = self.view.snapshot.multi_get(keys::LOOKUPS, &asked)?.into_iter();
        let mut places = Vec::with_capacity(lookups.len());
        for (lookup, name) in lookups.iter().zip(&names) {
            let rid = match name {
                Some(_) => rids.next().flatten(),
                None => None,
            };
            let rid = rid.map(|rid| keys::number(&rid).ok_or_else(|| corrupt("id row"))).transpose()?;
            let number = self.end_of(lookup)?.container.number;
            places.push(rid.map(|rid| (rid, keys::item(number, rid))));
        }
        let asked: Vec<&[u8]> = places.iter().flatten().map(|(_, key)| key.as_slice()).collect();
        let mut rows = self.view.snapshot.multi_get(keys::ITEMS, &asked)?.into_iter();
        let mut found = Vec::with_capacity(lookups.len());
        for ((lookup, name), place) in lookups.iter().zip(&names).zip(&places) {
            found.push(match (name, place) {
                (Some(name), Some((rid, _))) => {
                    let row = rows.next().flatten().ok_or_else(|| corrupt("id row without an item"))?;
                    self.visible_target(lookup, name, *rid, row)?
                }
                _ => None,
            });
        }
        Ok(found)
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
            return Ok(Some(Name { key, home: None }));
        }
        Ok(route.place_of(&lookup.target).map(|(home, key)| Name { key, home: Some(home) }))
    }

    /// Hashes collide, and items expire.
    fn visible_target(
        &self,
        lookup: &Lookup,
        name: &Name<'_>,
        rid: u64,
        bytes: Vec<u8>,
    ) -> Result<Option<Rc<FollowedItem>>, EngineError> {
        let end = self.end_of(lookup)?;
        let row = ItemRow::parse(&bytes)?;
        let is_named = match &name.home {
            Some(home) => home.has(&row)?,
            None => {
                let key = self.route(lookup)?.link.target_key(row.node()?, &row.partition_key()?);
                key.as_ref() == Some(&lookup.target)
            }
        };
        if !is_named || end.container.is_gone(&row, &end.moment) {
            return Ok(None);
        }
        FollowedItem::new(rid, bytes).map(Some)
    }

    fn referrers(&self, lookup: &Lookup, count_max: usize) -> Result<Found, EngineError> {
        self.check_built(lookup.link)?;
        let end = self.end_of(lookup)?;
        let referrers = Referrers {
            link: &self.model.rules.links[lookup.link],
            declaration: self.model.declarations.links[lookup.link].number,
            container: &end.container,
            target: &lookup.target,
        };
        let mut found = Found { items: Vec::new(), charge: 0.0 };
        let mut after: Option<Vec<u8>> = None;
        while found.items.len() < count_max {
            let wanted = count_max - found.items.len();
            let page = referrers.page(&*self.view.snapshot, after.as_deref(), wanted, &end.moment)?;
            for referrer in page.referrers.into_iter().filter(|referrer| !referrer.is_gone) {
                let item = FollowedItem::new(referrer.stored.rid, referrer.stored.bytes)?;
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

fn of_target(item: Option<Rc<FollowedItem>>) -> Found {
    let charge = item.as_ref().map_or(charge::REFUSED, |item| charge::read(item.json_bytes as usize));
    Found { items: item.into_iter().collect(), charge }
}
