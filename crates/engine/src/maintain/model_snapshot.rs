//! The base of a unit: the containers of the model, the rules of their writes, and one snapshot.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use quire_model::{LinkRules, WindowRules};
use quire_storage::Snapshot;

use crate::api::{EngineError, corrupt};
use crate::catalog::Container;
use crate::items::visibility::VisibilityPoint;
use crate::links::{Referrers, TargetRoute};
use crate::model::{ContainerModel, DatabaseModel, Declaration};
use crate::partition::Partition;
use crate::partition::write_rules::WriteRules;
use crate::runtime::Shared;
use crate::store::keys::{self, DeclarationKeys, LOOKUPS};

pub(crate) struct ModelSnapshot<'a> {
    pub shared: &'a Shared,
    pub model: Arc<DatabaseModel>,
    pub sites: Vec<ModelContainer<'a>>,
    pub snapshot: Box<dyn Snapshot>,
    /// By link: the sites of its referrers and of its targets.
    ends: Vec<(usize, usize)>,
    /// By window: the sites of its items and of its pages.
    window_ends: Vec<(usize, usize)>,
    /// Below which rid all items count, by declaration that is being built.
    counted_below_rid: RefCell<HashMap<DeclarationKeys, u64>>,
}

/// A container, and what a write in it depends on.
pub(crate) struct ModelContainer<'a> {
    pub container: &'a Container,
    pub rules: Arc<WriteRules>,
    pub visibility_point: VisibilityPoint,
    /// By partition, in the order of the container's.
    generations: Vec<u64>,
}

/// The containers of a model as they are now.
pub(crate) fn siblings(
    container: &Container,
    model: &DatabaseModel,
) -> Result<Vec<Arc<Container>>, EngineError> {
    let sibling = |number: &u32| container.sibling(*number).ok_or(EngineError::Overloaded);
    model.containers.values().map(sibling).collect()
}

impl<'a> ModelSnapshot<'a> {
    /// `own` are containers that the caller has open, `others` all of the model. `None`: the model is just being replaced.
    ///
    /// To be taken under the locks: then no commit that concerns what is locked is under way, and none of them has an unknown
    /// outcome.
    pub fn take(
        shared: &'a Shared,
        own: &[&'a Container],
        others: &'a [Arc<Container>],
    ) -> Result<Option<ModelSnapshot<'a>>, EngineError> {
        let is_other = |other: &&'a Container| own.iter().all(|own| own.number != other.number);
        let others = others.iter().map(|other| &**other).filter(is_other);
        let containers: Vec<&'a Container> = own.iter().copied().chain(others).collect();
        if let Some(first) = containers.first() {
            first.partitions.commit_queue().settle()?;
        }
        let sites = containers.into_iter().map(|container| ModelContainer::of(shared, container));
        let sites: Vec<ModelContainer<'a>> = sites.collect::<Result<_, EngineError>>()?;
        let snapshot = shared.storage.snapshot()?;
        sites.iter().try_for_each(|site| site.container.check_open())?;
        let Some(model) =
            sites.iter().find_map(|site| Some(Arc::clone(&site.rules.model.as_ref()?.database)))
        else {
            return Ok(None);
        };
        let is_of_model = |site: &ModelContainer<'_>| match &site.rules.model {
            Some(own) => Arc::ptr_eq(&own.database, &model),
            None => !model.names(site.container.number),
        };
        let both = ends(&model, &sites).zip(window_ends(&model, &sites));
        let Some((ends, window_ends)) = both.filter(|_| sites.iter().all(is_of_model)) else {
            return Ok(None);
        };
        let counted_below_rid = RefCell::default();
        Ok(Some(ModelSnapshot { shared, model, sites, snapshot, ends, window_ends, counted_below_rid }))
    }

    pub fn link(&self, link: usize) -> &LinkRules {
        &self.model.rules.links[link]
    }

    pub fn link_declaration(&self, link: usize) -> &Declaration {
        &self.model.declarations.links[link]
    }

    /// Of the referrers of a link.
    pub fn referrer_site(&self, link: usize) -> usize {
        self.ends[link].0
    }

    /// Of its targets.
    pub fn target_site(&self, link: usize) -> usize {
        self.ends[link].1
    }

    pub fn window(&self, window: usize) -> &WindowRules {
        &self.model.rules.windows[window]
    }

    pub fn window_declaration(&self, window: usize) -> &Declaration {
        &self.model.declarations.windows[window]
    }

    /// Of the items of a window.
    pub fn windowed_site(&self, window: usize) -> usize {
        self.window_ends[window].0
    }

    /// Of its pages.
    pub fn page_site(&self, window: usize) -> usize {
        self.window_ends[window].1
    }

    pub fn route(&self, link: usize) -> TargetRoute<'_> {
        let declaration = self.link_declaration(link).number;
        let container = self.sites[self.target_site(link)].container;
        TargetRoute { link: self.link(link), declaration, container }
    }

    pub fn referrers<'g>(&'g self, link: usize, target: &'g quire_model::TargetKey) -> Referrers<'g> {
        let declaration = self.link_declaration(link).number;
        let container = self.sites[self.referrer_site(link)].container;
        Referrers { link: self.link(link), declaration, container, target }
    }

    /// Rows of a declaration in the container of a link's referrers.
    pub fn referrer_rows(&self, link: usize, declaration: &Declaration) -> DeclarationKeys {
        let container = self.sites[self.referrer_site(link)].container.number;
        DeclarationKeys { container, declaration: declaration.number }
    }

    /// Whether an item counts already for a declaration that is being built of the referrers of a link. To be asked under the
    /// item's lock: a build moves `counted_below_rid` in the commit that counts the items below it.
    pub fn is_counted(&self, link: usize, declaration: &Declaration, rid: u64) -> Result<bool, EngineError> {
        let rows = self.referrer_rows(link, declaration);
        if rid < self.counted_below_rid(rows)? {
            return Ok(true);
        }
        Ok(self.snapshot.get(LOOKUPS, &rows.counted_mark(rid))?.is_some())
    }

    /// The rid below which all items count.
    pub fn counted_below_rid(&self, rows: DeclarationKeys) -> Result<u64, EngineError> {
        if let Some(until) = self.counted_below_rid.borrow().get(&rows) {
            return Ok(*until);
        }
        let until = match self.snapshot.get(LOOKUPS, &rows.counted_below_rid())? {
            Some(row) => keys::number(&row).ok_or_else(|| corrupt("row of what a build has counted"))?,
            None => 0,
        };
        self.counted_below_rid.borrow_mut().insert(rows, until);
        Ok(until)
    }
}

impl<'a> ModelContainer<'a> {
    fn of(shared: &Shared, container: &'a Container) -> Result<ModelContainer<'a>, EngineError> {
        let partitions = container.partitions.all();
        partitions.iter().try_for_each(|partition| partition.sequencer.ensure_settled())?;
        let generations = partitions.iter().map(|partition| partition.sequencer.generation()).collect();
        let rules = container.partitions.write_rules();
        Ok(ModelContainer {
            container,
            rules,
            visibility_point: container.visibility_point(shared),
            generations,
        })
    }

    /// `None`: no model names the container.
    pub fn model(&self) -> Option<&ContainerModel> {
        self.rules.model.as_deref()
    }

    /// Of one of its partitions, noted before the rules and the snapshot.
    pub fn generation(&self, partition: &Partition) -> u64 {
        let partitions = self.container.partitions.all();
        let at = partitions.iter().position(|other| std::ptr::eq(&**other, partition));
        at.and_then(|at| self.generations.get(at).copied()).unwrap_or(u64::MAX)
    }
}

/// Rows of a declaration in the container of a link's targets.
pub(super) fn target_rows(model: &DatabaseModel, link: usize, declaration: &Declaration) -> DeclarationKeys {
    let name = &model.rules.links[link].link.to.container;
    let container = model.containers.get(name).copied().unwrap_or_default();
    DeclarationKeys { container, declaration: declaration.number }
}

fn site_of(model: &DatabaseModel, sites: &[ModelContainer<'_>], name: &str) -> Option<usize> {
    let number = *model.containers.get(name)?;
    sites.iter().position(|site| site.container.number == number)
}

fn window_ends(model: &DatabaseModel, sites: &[ModelContainer<'_>]) -> Option<Vec<(usize, usize)>> {
    let site = |name: &str| site_of(model, sites, name);
    let ends = |own: &WindowRules| Some((site(&own.window.container)?, site(&own.window.pages.container)?));
    model.rules.windows.iter().map(ends).collect()
}

fn ends(model: &DatabaseModel, sites: &[ModelContainer<'_>]) -> Option<Vec<(usize, usize)>> {
    let site = |name: &str| site_of(model, sites, name);
    let ends = |rules: &LinkRules| Some((site(&rules.link.from.container)?, site(&rules.link.to.container)?));
    model.rules.links.iter().map(ends).collect()
}
