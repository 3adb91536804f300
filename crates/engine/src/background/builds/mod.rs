//! Jobs of kind `build`: what declarations of a model maintain, made of the items that are there already.
//!
//! A build goes over the containers twice. First every item is counted: its rows in the link's index, and what it adds to
//! totals and mirrors, with a mark that it was counted. Writers do the same for what they write, so builder and writers may
//! come in any order. Then the declarations change to their second phase, in which every write stores the right values, and
//! every item is written whose values are not right. Then they are active. Which references of a link dangle is counted in the
//! first pass, where the link finds its targets without an index of its own.
//!
//! Where the build is stands in its checkpoint, which moves in the commits that do the work: a kill repeats nothing.
//! A declaration that cannot be built fails, with those that depend on it; the others go on.

mod position; // where a build is
pub(super) mod scope; // which containers a build goes over

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::{Arc, Weak};
use std::time::Instant;

use quire_model::ItemError;
use quire_storage::{KeyRange, Op, Scan, Snapshot};
use quire_value::{Object, Value};

use self::position::{BuildPosition, BuildStage};
use self::scope::{
    containers_to_count, containers_to_fill, containers_to_write, dependents, links_counted_at_once,
    own_names,
};
use super::work_rate::WorkRate;
use crate::api::{EngineError, corrupt};
use crate::catalog::models::BUILD;
use crate::catalog::{Catalog, Container};
use crate::integrity::item_example;
use crate::jobs::{JobClaim, JobId, JobKind, JobStep};
use crate::maintain::link_index::{LinkIndexOrder, counts_only_links, index_links};
use crate::maintain::visit::{VisitFigures, VisitOrder, VisitOutcome, VisitWork, visit_items};
use crate::model::{BuildPhase, DatabaseModel, DeclarationState};
use crate::runtime::Shared;
use crate::store::item_row::ItemRow;
use crate::store::keys::{self, DeclarationKeys, ITEMS, LOOKUPS};
use crate::store::scan;
use crate::sync::chunk;
#[cfg(feature = "schedules")]
use crate::sync::races::{Race, is_put_back};

/// Items of one commit, and their bytes: writers of these items wait for it.
const CHUNK: usize = 1_000;
const CHUNK_BYTES: usize = 1 << 20;
/// The same where only rows of links are made of them.
const LINK_CHUNK: usize = 4_000;
const LINK_CHUNK_BYTES: usize = 4 << 20;
/// So often nothing is written before the checkpoint moves by itself.
const UNWRITTEN_CHUNKS: usize = 20;
/// Marks that one commit removes.
const MARKS: usize = 4_000;
/// Commits of one step that removes marks.
const MARK_PAGES: usize = 50;

pub(crate) struct Builds {
    shared: Weak<Shared>,
    catalog: Weak<Catalog>,
}

/// One step of one build.
struct Build<'a> {
    shared: &'a Shared,
    catalog: &'a Catalog,
    database: u32,
    model: Arc<DatabaseModel>,
}

/// What became of some items.
enum BuildVisit {
    /// With the checkpoint.
    Committed,
    /// All of them were right: how far the build is now.
    Nothing(BuildPosition),
    Problem(Problem),
    /// Together they are more than a commit may have.
    TooLarge,
    NoModel,
}

/// Why an item cannot be part of what is built.
enum Problem {
    Refused(ItemError),
    DuplicateKey { link: String, rid: u64, value: String },
}

impl Builds {
    pub fn new(shared: &Arc<Shared>, catalog: &Arc<Catalog>) -> Builds {
        Builds { shared: Arc::downgrade(shared), catalog: Arc::downgrade(catalog) }
    }
}

impl JobKind for Builds {
    fn name(&self) -> &'static str {
        BUILD
    }

    fn step(&self, claim: &mut JobClaim<'_>) -> Result<JobStep, EngineError> {
        let closed = || EngineError::Storage(quire_storage::StorageError::Closed);
        let (shared, catalog) =
            (self.shared.upgrade().ok_or_else(closed)?, self.catalog.upgrade().ok_or_else(closed)?);
        let database = claim.body.database.as_ref().map_or(0, |owner| owner.number);
        let position = BuildPosition::decode(claim.position())?;
        if position.stage == BuildStage::Ended {
            return end(&catalog, database, claim, &position);
        }
        let Some(model) = own_model(&catalog, database, claim.id)? else {
            // Everything failed, or was replaced by another model.
            return Ok(if position.failed.is_empty() { JobStep::Cancelled } else { position.failure() });
        };
        let rate = WorkRate::begin(&shared, groups_max(&catalog, &model));
        let step = Build { shared: &shared, catalog: &catalog, database, model }.step(claim, position)?;
        Ok(rate.after(&shared, step))
    }

    /// What is not built is not going to be: the next put rebuilds it.
    fn cancel(&self, claim: &mut JobClaim<'_>) -> Result<(), EngineError> {
        let Some(catalog) = self.catalog.upgrade() else { return Ok(()) };
        let database = claim.body.database.as_ref().map_or(0, |owner| owner.number);
        let id = claim.id;
        catalog.change_declarations(database, |declarations| {
            let own = declarations.iter_mut().filter(|own| own.state.job() == Some(id));
            let cancelled = own.map(|own| {
                let error = "The build was cancelled.".to_owned();
                own.state = DeclarationState::Failed { error, examples: Vec::new() };
            });
            cancelled.count() > 0
        })?;
        Ok(())
    }
}

/// One commit of a step may have all partitions of the model's containers.
fn groups_max(catalog: &Catalog, model: &DatabaseModel) -> u64 {
    let state = catalog.state();
    let own = state.containers().filter(|container| model.names(container.number));
    own.map(|container| container.partitions.all().len() as u64).sum()
}

/// The model, if it has declarations that the job builds. The job's row is in the commit of the model: who reads it there may
/// do so before the model is published.
fn own_model(
    catalog: &Catalog,
    database: u32,
    job: JobId,
) -> Result<Option<Arc<DatabaseModel>>, EngineError> {
    let own = || catalog.database_model(database).filter(|model| !own_names(model, job).is_empty());
    if let Some(model) = own() {
        return Ok(Some(model));
    }
    catalog.settle_unresolved()?;
    Ok(own())
}

/// All declarations that were not replaced meanwhile are active.
fn end(
    catalog: &Catalog,
    database: u32,
    claim: &JobClaim<'_>,
    position: &BuildPosition,
) -> Result<JobStep, EngineError> {
    let id = claim.id;
    catalog.change_declarations(database, |declarations| {
        let own = declarations.iter_mut().filter(|own| own.state.job() == Some(id));
        own.map(|own| own.state = DeclarationState::Active).count() > 0
    })?;
    Ok(if position.failed.is_empty() { JobStep::Done(position.result()) } else { position.failure() })
}

impl Build<'_> {
    fn step(&self, claim: &mut JobClaim<'_>, position: BuildPosition) -> Result<JobStep, EngineError> {
        let own = own_names(&self.model, claim.id);
        match position.stage {
            BuildStage::Count => match next(containers_to_count(&self.model, &own), &position) {
                Some(number) => self.chunk(claim, position, number, VisitWork::Count { job: claim.id }),
                None => self.begin_values(claim, position),
            },
            BuildStage::Marks => self.remove_marks(claim, position),
            BuildStage::Write => match next(containers_to_fill(&self.model, &own), &position) {
                Some(number) => self.chunk(claim, position, number, VisitWork::Write),
                None => self.move_to(claim, position.at(BuildStage::Ended)),
            },
            BuildStage::Ended => Ok(JobStep::Done(position.result())),
        }
    }

    /// The next items of a container.
    fn chunk(
        &self,
        claim: &mut JobClaim<'_>,
        mut position: BuildPosition,
        number: u32,
        work: VisitWork<'_>,
    ) -> Result<JobStep, EngineError> {
        if position.container != number {
            (position.container, position.rid) = (number, 0);
        }
        let state = self.catalog.state();
        let Some(container) = state.containers().find(|container| container.number == number).cloned() else {
            return self.move_to(claim, position.after_container());
        };
        if position.rid == 0 && matches!(work, VisitWork::Count { .. }) {
            // An item of a write from before the declarations is shown by the snapshot, or it counts by itself.
            self.wait_for_barrier(&container)?;
        }
        let from = claim.done();
        let (mut done, mut count_max) = (from, claim.items_at_once());
        for _ in 0..UNWRITTEN_CHUNKS {
            let (mut rids, mut rows) = self.page(&container, position.rid, work)?;
            rids.truncate(count_max);
            rows.truncate(count_max);
            if rids.is_empty() {
                return self.checkpoint(claim, &position.after_container(), done);
            }
            let began = Instant::now();
            let visited = self.visit(claim, &container, (&rids, &rows), &position, (work, done))?;
            if matches!(visited, BuildVisit::Committed | BuildVisit::Nothing(_)) {
                claim.visited(rids.len(), began.elapsed());
            }
            match visited {
                BuildVisit::Committed => return Ok(JobStep::More),
                BuildVisit::Nothing(next) => {
                    (position, done) = (next, done + rids.len() as u64);
                    count_max = claim.items_at_once();
                }
                // Their new versions may be much larger than they are.
                BuildVisit::TooLarge => count_max = rids.len() / 2,
                BuildVisit::Problem(_) if done > from => break,
                // Which of them is it, and is it still so?
                BuildVisit::Problem(_) => return self.one_by_one(claim, &container, &rids, position, work),
                // The next step looks at the model again.
                BuildVisit::NoModel => return Ok(JobStep::More),
            }
        }
        self.checkpoint(claim, &position, done)
    }

    fn one_by_one(
        &self,
        claim: &mut JobClaim<'_>,
        container: &Container,
        rids: &[u64],
        mut position: BuildPosition,
        work: VisitWork<'_>,
    ) -> Result<JobStep, EngineError> {
        for rid in rids {
            let done = claim.done();
            match self.visit(claim, container, (&[*rid], &[]), &position, (work, done))? {
                BuildVisit::Committed => position = BuildPosition::decode(claim.position())?,
                BuildVisit::Nothing(next) => {
                    self.checkpoint(claim, &next, done + 1)?;
                    position = next;
                }
                BuildVisit::Problem(problem) => return self.fail(claim, container, position, *rid, problem),
                BuildVisit::TooLarge | BuildVisit::NoModel => return Ok(JobStep::More),
            }
        }
        Ok(JobStep::More)
    }

    /// The next items, and their rows as they are now.
    fn page(
        &self,
        container: &Container,
        from: u64,
        work: VisitWork<'_>,
    ) -> Result<(Vec<u64>, Vec<Vec<u8>>), EngineError> {
        let range = keys::items_from(container.number, from);
        let (rows_max, bytes_max) = match work {
            VisitWork::Count { .. } if counts_only_links(container) => (LINK_CHUNK, LINK_CHUNK_BYTES),
            _ => (CHUNK, CHUNK_BYTES),
        };
        let page = Scan { rows_max: chunk(rows_max), bytes_max, ..scan(ITEMS, range) };
        let page = container.snapshot(self.shared)?.scan(&page)?;
        let rid = |key: &[u8]| keys::rid_of_item_key(key).ok_or_else(|| corrupt("key of an item"));
        page.rows.into_iter().map(|(key, row)| Ok((rid(&key)?, row))).collect()
    }

    /// Visits items. Where something is written, the checkpoint behind the last of them is in the commit. `done` items were
    /// visited before.
    fn visit(
        &self,
        claim: &mut JobClaim<'_>,
        container: &Container,
        (rids, rows): (&[u64], &[Vec<u8>]),
        position: &BuildPosition,
        (work, done): (VisitWork<'_>, u64),
    ) -> Result<BuildVisit, EngineError> {
        let own = own_names(&self.model, claim.id);
        let at_once = links_counted_at_once(&self.model, &own);
        let counted: Vec<String> = match work {
            VisitWork::Count { .. } => at_once,
            _ => own.iter().filter(|name| !at_once.contains(name)).cloned().collect(),
        };
        let (total, done) = (self.total(&own), done + rids.len() as u64);
        let behind = rids.last().map_or(0, |rid| rid + 1);
        let advance = RefCell::new(None);
        let also = |snapshot: &dyn Snapshot, figures: &VisitFigures| {
            let next = position.after_items(container.number, behind, Some(figures), &counted);
            let moved = claim.advance(next.encode(), done, Some(total));
            let op = moved.op(snapshot)?;
            *advance.borrow_mut() = Some((moved, next));
            Ok(vec![op])
        };
        let journal = claim.body.payload.as_slice().try_into().ok().map(u32::from_be_bytes);
        let visited = match work {
            VisitWork::Count { job } if !rows.is_empty() && counts_only_links(container) => {
                index_links(self.shared, &LinkIndexOrder { container, job, rids, rows, also: &also })?
            }
            _ => visit_items(self.shared, &VisitOrder { container, rids, rows, work, also: &also, journal })?,
        };
        Ok(match (visited, advance.into_inner()) {
            (VisitOutcome::Done { is_committed: true }, Some((advance, _))) => {
                claim.advanced(advance);
                BuildVisit::Committed
            }
            (VisitOutcome::Done { .. }, Some((_, next))) => BuildVisit::Nothing(next),
            (VisitOutcome::Refused(error), _) => BuildVisit::Problem(Problem::Refused(error)),
            (VisitOutcome::DuplicateKey { link, rid, value }, _) => {
                BuildVisit::Problem(Problem::DuplicateKey { link, rid, value })
            }
            (VisitOutcome::TooLarge, _) => BuildVisit::TooLarge,
            (VisitOutcome::NoModel | VisitOutcome::Done { .. }, _) => BuildVisit::NoModel,
        })
    }

    /// Items of both passes.
    fn total(&self, own: &[String]) -> u64 {
        let (count, write) = (containers_to_count(&self.model, own), containers_to_fill(&self.model, own));
        let state = self.catalog.state();
        let items = |number: &u32| {
            state.containers().find(|own| own.number == *number).map_or(0, |own| own.usage().0)
        };
        count.iter().chain(&write).map(items).sum()
    }

    fn move_to(&self, claim: &mut JobClaim<'_>, position: BuildPosition) -> Result<JobStep, EngineError> {
        let done = claim.done();
        self.checkpoint(claim, &position, done)
    }

    fn checkpoint(
        &self,
        claim: &mut JobClaim<'_>,
        position: &BuildPosition,
        done: u64,
    ) -> Result<JobStep, EngineError> {
        claim.commit(claim.advance(position.encode(), done, None), Vec::new())?;
        Ok(JobStep::More)
    }

    /// Every item counts: from now on every write stores the right values.
    fn begin_values(
        &self,
        claim: &mut JobClaim<'_>,
        position: BuildPosition,
    ) -> Result<JobStep, EngineError> {
        let id = claim.id;
        self.catalog.change_declarations(self.database, |declarations| {
            let own = declarations.iter_mut().filter(|own| own.state.job() == Some(id));
            let own = own.filter(|own| own.state.is_counting());
            let next = DeclarationState::Building { job: id, phase: BuildPhase::Values };
            own.map(|own| own.state = next.clone()).count() > 0
        })?;
        self.wait_for_barriers()?;
        self.move_to(claim, position.at(BuildStage::Marks))
    }

    /// Returns when no write of older states is under way: an earlier step may have failed after it had changed them.
    fn wait_for_barriers(&self) -> Result<(), EngineError> {
        let state = self.catalog.state();
        let mut own = state.containers().filter(|container| self.model.names(container.number));
        own.try_for_each(|container| self.wait_for_barrier(container))
    }

    fn wait_for_barrier(&self, container: &Container) -> Result<(), EngineError> {
        #[cfg(feature = "schedules")]
        if is_put_back(Race::CountBesideOlderWrites) {
            return Ok(());
        }
        container.partitions.wait_for_barrier()
    }

    /// Nobody looks at the marks any more.
    fn remove_marks(
        &self,
        claim: &mut JobClaim<'_>,
        position: BuildPosition,
    ) -> Result<JobStep, EngineError> {
        let snapshot = self.shared.storage.snapshot()?;
        let own = own_names(&self.model, claim.id);
        let mut pages = 0;
        for rows in self.mark_rows(&own) {
            let mut range = KeyRange::prefix(&rows.counted_marks());
            loop {
                let page = Scan { rows_max: MARKS, keys_only: true, ..scan(LOOKUPS, range.clone()) };
                let marks = snapshot.scan(&page)?.rows;
                let Some((last, _)) = marks.last() else { break };
                if pages == MARK_PAGES {
                    return Ok(JobStep::More);
                }
                pages += 1;
                // From the first one on it would look through all that are removed already.
                range.start = Bound::Excluded(last.clone());
                let ops = marks.into_iter().map(|(key, _)| Op::Delete { space: LOOKUPS, key }).collect();
                let advance = claim.advance(position.encode(), claim.done(), None);
                claim.commit(advance, ops)?;
            }
        }
        self.move_to(claim, position.at(BuildStage::Write))
    }

    /// Where the marks of declarations are: in the containers of the referrers.
    fn mark_rows(&self, own: &[String]) -> Vec<DeclarationKeys> {
        let (rules, declarations) = (&self.model.rules, &self.model.declarations);
        let links = declarations.links.iter().enumerate();
        let mirrors = declarations.mirrors.iter().zip(&rules.mirrors).map(|(own, rules)| (rules.link, own));
        let rollups = declarations.rollups.iter().zip(&rules.rollups).map(|(own, rules)| (rules.link, own));
        let all =
            links.chain(mirrors).chain(rollups).filter(|(_, declaration)| own.contains(&declaration.name));
        let rows = all.filter_map(|(link, declaration)| {
            let container = *self.model.containers.get(&rules.links[link].link.from.container)?;
            Some(DeclarationKeys { container, declaration: declaration.number })
        });
        rows.collect()
    }

    /// A declaration cannot be built: it fails, and so does what depends on it.
    fn fail(
        &self,
        claim: &mut JobClaim<'_>,
        container: &Container,
        mut position: BuildPosition,
        rid: u64,
        problem: Problem,
    ) -> Result<JobStep, EngineError> {
        let (name, error) = problem.declaration();
        let own = own_names(&self.model, claim.id);
        let example = self.example(container, rid, &problem)?;
        let failed = name.filter(|name| own.contains(name)).map_or_else(
            // Something else is in the way of the item: nothing of it can be written.
            || own.iter().filter(|own| self.writes(own, container.number)).cloned().collect(),
            |name| vec![name],
        );
        let mut names: Vec<String> = failed.iter().flat_map(|name| dependents(&self.model, name)).collect();
        names.retain(|name| own.contains(name));
        if names.is_empty() && position.stage == BuildStage::Count {
            // The item has too many references of a link that another job builds: that job is about to give the link up.
            return Err(EngineError::TransactionConflict);
        }
        if names.is_empty() {
            let behind = position.after_items(container.number, rid + 1, None, &[]);
            tracing::warn!(%error, container = container.definition.id, "a build leaves an item as it is");
            return self.move_to(claim, behind);
        }
        let job = claim.id;
        let examples = vec![example];
        self.catalog.change_declarations(self.database, |declarations| {
            let own = declarations.iter_mut().filter(|own| own.state.job() == Some(job));
            let failed = own.filter(|own| names.contains(&own.name)).map(|own| {
                own.state = DeclarationState::Failed { error: error.clone(), examples: examples.clone() };
            });
            failed.count() > 0
        })?;
        for name in &names {
            position.remove_figures(name);
            let mut failed = Object::new();
            failed.set("declaration", name.as_str());
            failed.set("error", error.as_str());
            failed.set("examples", Value::Array(examples.clone()));
            position.failed.push(Value::Object(failed));
        }
        self.move_to(claim, position)
    }

    /// Whether a declaration has values in the items of a container. A link has none.
    fn writes(&self, name: &String, container: u32) -> bool {
        let is_link = self.model.model().link(name).is_some();
        !is_link && containers_to_write(&self.model, std::slice::from_ref(name)).contains(&container)
    }

    fn example(&self, container: &Container, rid: u64, problem: &Problem) -> Result<Value, EngineError> {
        let (rid, path, found) = match problem {
            Problem::DuplicateKey { link, rid, value } => {
                let link = self.model.model().link(link).map(|link| link.to.key.to_string());
                (*rid, link.unwrap_or_default(), Some(Value::from(value.as_str())))
            }
            Problem::Refused(_) => (rid, String::new(), None),
        };
        let bytes = self.shared.storage.snapshot()?.get(ITEMS, &keys::item(container.number, rid))?;
        match bytes {
            Some(bytes) => item_example(container, &ItemRow::parse(&bytes)?, &path, found, None),
            None => Ok(Value::Null),
        }
    }
}

impl Problem {
    /// Which declaration cannot be built, and why.
    fn declaration(&self) -> (Option<String>, String) {
        match self {
            Problem::DuplicateKey { link, value, .. } => {
                (Some(link.clone()), format!("Two items have the key '{value}' of the link '{link}'."))
            }
            Problem::Refused(error) => {
                let owner = match error {
                    ItemError::MaintainedTooLarge { owner, .. } => Some(owner.clone()),
                    ItemError::TooManyReferences { link } => Some(link.clone()),
                    ItemError::WindowIdTooLong { window } => Some(window.clone()),
                    _ => None,
                };
                (owner, error.to_string())
            }
        }
    }
}

/// The container that a build is at, or the next one.
fn next(containers: BTreeSet<u32>, position: &BuildPosition) -> Option<u32> {
    let is_at = |number: &&u32| **number == position.container && position.rid != u64::MAX;
    let is_behind = |number: &&u32| **number > position.container;
    containers.iter().find(|number| is_at(number) || is_behind(number)).copied()
}
