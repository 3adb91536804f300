//! A store in memory that keeps a model true by differences, one write at a time, as an engine would: indexes from targets to
//! referrers, totals, values of min and max, values of mirrors. Nothing is ever recomputed from all items.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use quire_model::window::{Page, StoredPages};
use quire_model::{
    Integrity, ItemError, MirrorChange, ModelRules, OnDelete, Operation, OwnedValue, Reference, ReferrerKey,
    RollupChange, RollupTotals, SizeLimit, TargetKey, WindowRules, added_references, put_owned_values,
};
use quire_resource::ContainerDefinition;
use quire_value::{Item, Value};

/// A container and an item in it.
pub type ItemKey = (String, ReferrerKey);

pub struct Store {
    pub rules: ModelRules,
    containers: HashMap<String, ContainerDefinition>,
    pub state: State,
}

/// Totals, and how often each value is there.
type RolledUp = (RollupTotals, BTreeMap<Vec<u8>, i64>);

#[derive(Clone, Default)]
pub struct State {
    pub items: BTreeMap<ItemKey, Value>,
    targets: HashMap<(usize, TargetKey), ReferrerKey>,
    referrers: HashMap<(usize, TargetKey), BTreeSet<ReferrerKey>>,
    rollups: HashMap<(usize, TargetKey), RolledUp>,
    mirrors: HashMap<(usize, TargetKey), BTreeMap<ReferrerKey, Value>>,
    /// Differences that wait to be applied, merged.
    waiting_rollups: HashMap<(usize, TargetKey), RollupChange>,
    waiting_mirrors: HashMap<(usize, TargetKey), MirrorChange>,
    /// Items whose owned values may have changed.
    dirty: BTreeSet<ItemKey>,
}

struct PagesOf<'s> {
    state: &'s State,
    rules: &'s WindowRules,
    definition: &'s ContainerDefinition,
    item: &'s Value,
    id: &'s str,
}

impl PagesOf<'_> {
    fn key(&self, number: u32) -> ItemKey {
        let page = self.rules.page_item(self.item, self.id, &Page { number, elements: Vec::new() });
        (self.definition.id.clone(), key_of(self.definition, &page))
    }
}

impl StoredPages for PagesOf<'_> {
    type Error = ItemError;
    fn newest_below(&self, number: Option<u32>) -> Result<Option<Page>, ItemError> {
        let numbers = self.state.items.keys().filter(|(container, _)| *container == self.definition.id);
        let numbers = numbers.filter_map(|(_, key)| self.rules.parse_page_id(&key.id));
        let numbers = numbers.filter(|(id, own)| *id == self.id && number.is_none_or(|number| *own < number));
        let found = numbers
            .map(|(_, number)| number)
            .filter(|number| self.state.items.contains_key(&self.key(*number)))
            .max();
        Ok(found.map(|number| Page {
            number,
            elements: self.rules.page_elements(&self.state.items[&self.key(number)]),
        }))
    }
}

fn key_of(definition: &ContainerDefinition, item: &Value) -> ReferrerKey {
    let id = item.get("id").and_then(Value::as_str).expect("an item has an id").to_owned();
    let stored = Item::from_value(item);
    let partition_key = definition.partition_key.extract(stored.root()).expect("short keys");
    ReferrerKey { id, partition_key }
}

impl Store {
    pub fn new(rules: ModelRules, containers: &[ContainerDefinition]) -> Store {
        let containers = containers.iter().map(|own| (own.id.clone(), own.clone())).collect();
        Store { rules, containers, state: State::default() }
    }

    pub fn key(&self, container: &str, body: &Value) -> ItemKey {
        (container.to_owned(), key_of(&self.containers[container], body))
    }

    /// Creates or replaces an item as a client does. A write that fails changes nothing.
    pub fn upsert(&mut self, container: &str, body: Value) -> Result<(), ItemError> {
        let key = self.key(container, &body);
        self.whole(|store| store.write(&key, Some(body), true))
    }

    pub fn delete(&mut self, key: &ItemKey) -> Result<(), ItemError> {
        self.whole(|store| store.write(key, None, true))
    }

    fn whole(&mut self, write: impl FnOnce(&mut Store) -> Result<(), ItemError>) -> Result<(), ItemError> {
        let before = self.state.clone();
        let result = write(self).and_then(|()| self.check_dirty());
        if result.is_err() {
            self.state = before;
        }
        result
    }

    /// Applies what waits, and writes every item whose owned values changed.
    pub fn flush(&mut self) {
        for ((rollup, target), change) in std::mem::take(&mut self.state.waiting_rollups) {
            let (totals, keys) = self.state.rollups.entry((rollup, target)).or_default();
            totals.apply(&change);
            for (key, count) in change.keys {
                *keys.entry(key).or_default() += count;
            }
            keys.retain(|_, count| *count != 0);
        }
        for (target, change) in std::mem::take(&mut self.state.waiting_mirrors) {
            change.apply(self.state.mirrors.entry(target).or_default());
        }
        for key in std::mem::take(&mut self.state.dirty) {
            let Some(mut item) = self.state.items.get(&key).cloned() else { continue };
            for owned in self.owned(&key, &item).expect("checked when it was written") {
                owned.put(&mut item);
            }
            self.state.items.insert(key, item);
        }
    }

    fn check_dirty(&self) -> Result<(), ItemError> {
        for key in &self.state.dirty {
            if let Some(item) = self.state.items.get(key) {
                self.owned(key, item)?;
            }
        }
        Ok(())
    }

    fn write(&mut self, key: &ItemKey, body: Option<Value>, by_client: bool) -> Result<(), ItemError> {
        let old = self.state.items.get(key).cloned();
        let mut new = body;
        if old.is_none() && new.is_none() {
            return Ok(());
        }
        if by_client && self.check_page(key, old.as_ref(), new.as_ref())? {
            new = None;
        }
        if let Some(item) = &mut new {
            self.rules.drop_follow(&key.0, item);
        }
        self.write_windows(key, old.as_ref(), &mut new)?;
        match &new {
            Some(item) => _ = self.state.items.insert(key.clone(), item.clone()),
            None => _ = self.state.items.remove(key),
        }
        let (stored_old, stored_new) =
            (old.as_ref().map(Item::from_value), new.as_ref().map(Item::from_value));
        let gone = self.move_target(key, stored_old.as_ref(), stored_new.as_ref())?;
        self.move_references(key, stored_old.as_ref(), stored_new.as_ref())?;
        self.add_differences(key, stored_old.as_ref(), stored_new.as_ref())?;
        self.delete_by_links(gone)?;
        self.state.dirty.insert(key.clone());
        if let (true, Some(item)) = (by_client, self.state.items.get(key)) {
            let owned = self.owned(key, item)?;
            put_owned_values(&mut item.clone(), old.as_ref(), &owned)?;
        }
        Ok(())
    }

    /// What a client may do to pages; the count of their item follows. True when the page goes.
    fn check_page(
        &mut self,
        key: &ItemKey,
        old: Option<&Value>,
        new: Option<&Value>,
    ) -> Result<bool, ItemError> {
        let mut windows = self.rules.windows.iter().filter(|rules| rules.window.pages.container == key.0);
        let found = windows.find_map(|rules| Some((rules, rules.parse_page_id(&key.1.id)?)));
        let Some((rules, (parent, number))) = found else { return Ok(false) };
        let refused = ItemError::WindowPage { window: rules.window.name.clone() };
        let (Some(old), Some(new)) = (old, new) else { return Err(refused) };
        let change = rules.check_page(old, new)?;
        let items = self.state.items.iter_mut();
        let mut parents = items.filter(|(own, _)| own.0 == rules.window.container && own.1.id == parent);
        if let Some((_, item)) = parents.next() {
            let count = rules.stored_count(item).unwrap_or(0) - change.taken as i64;
            let array = rules.array(item).unwrap_or_default();
            let stored = item.clone();
            rules.place(item, Some(&stored), &array, count)?;
        }
        let mut keys = self.state.items.keys().filter(|(container, _)| *container == key.0);
        let is_later =
            |id: &str| rules.parse_page_id(id).is_some_and(|(own, later)| own == parent && later > number);
        Ok(change.is_empty && keys.any(|(_, key)| is_later(&key.id)))
    }

    fn write_windows(
        &mut self,
        key: &ItemKey,
        old: Option<&Value>,
        new: &mut Option<Value>,
    ) -> Result<(), ItemError> {
        let numbers: Vec<usize> = self.rules.windows_of(&key.0).map(|(number, _)| number).collect();
        for number in numbers {
            let rules = &self.rules.windows[number];
            let definition = &self.containers[&rules.window.pages.container];
            let item = &new.as_ref().or(old).expect("one of them").clone();
            let pages = PagesOf { state: &self.state, rules, definition, item, id: &key.1.id };
            let mut written: Vec<(ItemKey, Option<Value>)> = Vec::new();
            match new {
                None => {
                    let mut below = None;
                    while let Some(page) = pages.newest_below(below)? {
                        below = Some(page.number);
                        written.push((pages.key(page.number), None));
                    }
                }
                Some(item) => {
                    let write = rules.write(&key.1.id, old, item, &pages)?;
                    let made = write.written.iter();
                    written.extend(
                        made.map(|page| {
                            (pages.key(page.number), Some(rules.page_item(item, &key.1.id, page)))
                        }),
                    );
                    written.extend(write.removed.iter().map(|number| (pages.key(*number), None)));
                    let count = old.and_then(|old| rules.stored_count(old)).unwrap_or(0) + write.count_change;
                    rules.place(item, old, &write.array, count)?;
                }
            }
            for (key, page) in written {
                match page {
                    Some(page) => _ = self.state.items.insert(key, page),
                    None => _ = self.state.items.remove(&key),
                }
            }
        }
        Ok(())
    }

    /// Keeps the index of targets. Gives the targets that are gone.
    fn move_target(
        &mut self,
        key: &ItemKey,
        old: Option<&Item>,
        new: Option<&Item>,
    ) -> Result<Vec<(usize, TargetKey)>, ItemError> {
        let mut gone = Vec::new();
        for (number, rules) in self.rules.links_to(&key.0) {
            let target = |item: Option<&Item>| rules.target_key(item?.root(), &key.1.partition_key);
            let (old, new) = (target(old), target(new));
            if old == new {
                if let Some(target) = new {
                    self.state.dirty.extend(referrers(&self.state, rules, number, &target));
                }
                continue;
            }
            if let Some(old) = old {
                self.state.targets.remove(&(number, old.clone()));
                self.state.dirty.extend(referrers(&self.state, rules, number, &old));
                gone.push((number, old));
            }
            if let Some(new) = new {
                self.state.dirty.extend(referrers(&self.state, rules, number, &new));
                let value = new.value.clone();
                if self.state.targets.insert((number, new), key.1.clone()).is_some() {
                    return Err(ItemError::LinkKeyTaken {
                        value,
                        key: rules.link.to.key.to_string(),
                        container: key.0.clone(),
                        link: rules.link.name.clone(),
                    });
                }
            }
        }
        Ok(gone)
    }

    fn move_references(
        &mut self,
        key: &ItemKey,
        old: Option<&Item>,
        new: Option<&Item>,
    ) -> Result<(), ItemError> {
        for (number, rules) in self.rules.links_from(&key.0) {
            let references =
                |item: Option<&Item>| item.map_or(Ok(Vec::new()), |item| rules.references(item.root()));
            let (old, new) = (references(old)?, references(new)?);
            if rules.link.integrity == Integrity::Enforced {
                for added in added_references(&old, &new) {
                    if !self.state.targets.contains_key(&(number, added.target.clone())) {
                        return Err(ItemError::LinkTargetMissing {
                            link: rules.link.name.clone(),
                            path: rules.link.from.path.at(&added.positions),
                            value: added.target.value.clone(),
                            container: rules.link.to.container.clone(),
                        });
                    }
                }
            }
            for reference in old {
                self.state.referrers.entry((number, reference.target)).or_default().remove(&key.1);
            }
            for reference in new {
                self.state.referrers.entry((number, reference.target)).or_default().insert(key.1.clone());
            }
        }
        Ok(())
    }

    fn add_differences(
        &mut self,
        key: &ItemKey,
        old: Option<&Item>,
        new: Option<&Item>,
    ) -> Result<(), ItemError> {
        let (old, new) = (old.map(Item::root), new.map(Item::root));
        let Store { rules, state, .. } = self;
        for (number, rollup) in rules.rollups.iter().enumerate() {
            if rules.links[rollup.link].link.from.container != key.0 {
                continue;
            }
            for (target, change) in rules.rollup_changes(rollup, old, new)? {
                mark_target(state, rules, rollup.link, &target);
                state.waiting_rollups.entry((number, target)).or_default().merge(&change);
            }
        }
        for (number, mirror) in rules.mirrors.iter().enumerate() {
            let link = &rules.links[mirror.link];
            if link.link.from.container != key.0 {
                continue;
            }
            for (item, is_new) in [(old, false), (new, true)] {
                let Some(item) = item else { continue };
                for reference in link.references(item)? {
                    mark_target(state, rules, mirror.link, &reference.target);
                    let value = is_new.then(|| rules.mirrored(mirror, item));
                    let change = MirrorChange([(key.1.clone(), value)].into());
                    state.waiting_mirrors.entry((number, reference.target)).or_default().merge(change);
                }
            }
        }
        Ok(())
    }

    fn delete_by_links(&mut self, gone: Vec<(usize, TargetKey)>) -> Result<(), ItemError> {
        for (number, target) in gone {
            if self.state.targets.contains_key(&(number, target.clone())) {
                continue;
            }
            let link = self.rules.links[number].link.clone();
            let referrers = self.state.referrers.get(&(number, target.clone())).cloned().unwrap_or_default();
            if link.on_delete == OnDelete::Restrict && !referrers.is_empty() {
                let (count, container, link) = (referrers.len() as u64, link.from.container, link.name);
                return Err(ItemError::LinkRestricted { count, container, link });
            }
            for referrer in referrers {
                let key = (link.from.container.clone(), referrer);
                match link.on_delete {
                    OnDelete::Cascade => self.write(&key, None, false)?,
                    OnDelete::Remove => {
                        let Some(mut item) = self.state.items.get(&key).cloned() else { continue };
                        let rules = &self.rules.links[number];
                        let mut references = rules.references(Item::from_value(&item).root())?;
                        references.retain(|reference| reference.target == target);
                        rules.remove_references(&mut item, &references);
                        self.write(&key, Some(item), false)?;
                    }
                    OnDelete::Allow | OnDelete::Restrict => {}
                }
            }
        }
        Ok(())
    }

    /// The right values of an item, with what waits.
    fn owned(&self, key: &ItemKey, item: &Value) -> Result<Vec<OwnedValue>, ItemError> {
        let stored = Item::from_value(item);
        let mut owned = Vec::new();
        for copy in &self.rules.copies {
            let link = &self.rules.links[copy.link];
            if link.link.from.container == key.0 {
                let references = link.references(stored.root())?;
                owned.extend(self.copied(copy, &references));
            }
        }
        let target_of = |number: usize| {
            let link = &self.rules.links[number];
            let target = link.target_key(stored.root(), &key.1.partition_key);
            (link.link.to.container == key.0).then_some(target)
        };
        for (number, rollup) in self.rules.rollups.iter().enumerate() {
            let Some(target) = target_of(rollup.link) else { continue };
            let (mut totals, mut keys) = (RollupTotals::default(), BTreeMap::new());
            if let Some(place) = target.map(|target| (number, target)) {
                (totals, keys) = self.state.rollups.get(&place).cloned().unwrap_or_default();
                if let Some(waiting) = self.state.waiting_rollups.get(&place) {
                    totals.apply(waiting);
                    waiting
                        .keys
                        .iter()
                        .for_each(|(key, count)| *keys.entry(key.clone()).or_default() += count);
                    keys.retain(|_, count| *count != 0);
                }
            }
            let is_min = rollup.rollup.op == Operation::Min;
            let extreme = if is_min { keys.keys().next() } else { keys.keys().next_back() };
            owned.push(self.rules.rolled_up(rollup, &totals, extreme.map(Vec::as_slice)));
        }
        for (number, mirror) in self.rules.mirrors.iter().enumerate() {
            let Some(target) = target_of(mirror.link) else { continue };
            let mut values = BTreeMap::new();
            if let Some(place) = target.map(|target| (number, target)) {
                values = self.state.mirrors.get(&place).cloned().unwrap_or_default();
                self.state.waiting_mirrors.get(&place).cloned().unwrap_or_default().apply(&mut values);
            }
            let value = self.rules.mirror_value(mirror, values.into_values());
            owned.push(value.ok_or_else(|| ItemError::MaintainedTooLarge {
                owner: mirror.mirror.name.clone(),
                id: key.1.id.clone(),
                container: key.0.clone(),
                limit: SizeLimit::Elements(mirror.mirror.max),
            })?);
        }
        Ok(owned)
    }

    fn copied(&self, copy: &quire_model::CopyRules, references: &[Reference]) -> Vec<OwnedValue> {
        let container = &self.rules.links[copy.link].link.to.container;
        let found = references.iter().map(|reference| {
            let key = self.state.targets.get(&(copy.link, reference.target.clone()))?;
            self.state.items.get(&(container.clone(), key.clone())).map(Item::from_value)
        });
        let found: Vec<Option<Item>> = found.collect();
        let target = |reference: &Reference| {
            let place = references.iter().position(|own| own == reference)?;
            found[place].as_ref().map(Item::root)
        };
        self.rules.copied(copy, references, &target).collect()
    }

    /// References without a target: link, container, id and place.
    pub fn dangling(&self) -> BTreeSet<(String, String, String, String)> {
        let mut dangling = BTreeSet::new();
        for (key, item) in &self.state.items {
            for (number, rules) in self.rules.links_from(&key.0) {
                for reference in rules.references(Item::from_value(item).root()).expect("accepted") {
                    let path = rules.link.from.path.at(&reference.positions);
                    if !self.state.targets.contains_key(&(number, reference.target)) {
                        dangling.insert((rules.link.name.clone(), key.0.clone(), key.1.id.clone(), path));
                    }
                }
            }
        }
        dangling
    }
}

fn referrers(state: &State, rules: &quire_model::LinkRules, link: usize, target: &TargetKey) -> Vec<ItemKey> {
    let referrers = state.referrers.get(&(link, target.clone())).into_iter().flatten();
    referrers.map(|referrer| (rules.link.from.container.clone(), referrer.clone())).collect()
}

fn mark_target(state: &mut State, rules: &ModelRules, link: usize, target: &TargetKey) {
    if let Some(key) = state.targets.get(&(link, target.clone())) {
        let container = rules.links[link].link.to.container.clone();
        state.dirty.insert((container, key.clone()));
    }
}
