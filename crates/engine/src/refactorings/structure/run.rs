//! The phases of a refactoring of structure, a little at a time.

use std::cell::RefCell;
use std::sync::Arc;

use quire_storage::{Scan, Snapshot};
use quire_value::{Object, Value};

use super::super::order::RefactoringOrder;
use super::super::rows::{self, Refactoring};
use super::{FormContext, FormName, Phase, RefactoringPlan, Structure};
use crate::api::{EngineError, Precondition, corrupt};
use crate::catalog::{Catalog, Container};
use crate::integrity::key_json;
use crate::jobs::JobClaim;
use crate::maintain::UnconvertedPath;
use crate::maintain::visit::{VisitFigures, VisitOrder, VisitOutcome, VisitWork, visit_items};
use crate::model::DeclarationState;
use crate::refactorings::JOURNAL_BYTES_MAX;
use crate::runtime::Shared;
use crate::store::item_row::ItemRow;
use crate::store::keys::{self, ITEMS};
use crate::store::scan;

/// Rows of the items of one commit.
const PAGE_BYTES: usize = 1 << 20;
/// So many pages are visited in which nothing is to be written, before the position is stored by itself.
const UNCHANGED_PAGES: usize = 20;
/// Pages of a survey between two commits of its position.
const SURVEY_PAGES: usize = 20;
const SURVEY_ITEMS: usize = 500;
const JOURNAL_ROWS: usize = 500;

pub(in crate::refactorings) struct StructureRun<'a, 'j> {
    pub shared: &'a Shared,
    pub catalog: &'a Catalog,
    pub container: &'a Container,
    pub order: &'a RefactoringOrder,
    pub structure: &'a Structure,
    pub own: &'a mut Refactoring,
    /// Of the job that does it.
    pub claim: Option<&'a mut JobClaim<'j>>,
    /// Of one commit: writers of these items wait for it.
    pub items_max: usize,
}

/// What a step came to.
pub(in crate::refactorings) enum StructureProgress {
    More,
    /// Something else is under way that it waits for.
    Waiting,
    /// All phases of its state are done.
    Ended,
    Blocked(String),
}

/// Whether a phase is done.
enum PhaseProgress {
    Done,
    More,
    Waiting,
    Blocked(String),
}

impl StructureRun<'_, '_> {
    pub fn step(&mut self) -> Result<StructureProgress, EngineError> {
        let plan = self.plan()?;
        let phases = self.structure.phases(self.own.state, plan);
        let Some(phase) = phases.get(plan.phase).copied() else { return Ok(StructureProgress::Ended) };
        let done = match self.run(phase) {
            // What it needs of the model or the containers is missing: a client has to restore it.
            Err(error) if is_permanent(&error) => PhaseProgress::Blocked(error.to_string()),
            done => done?,
        };
        match done {
            PhaseProgress::More => Ok(StructureProgress::More),
            PhaseProgress::Waiting => Ok(StructureProgress::Waiting),
            PhaseProgress::Blocked(why) => Ok(StructureProgress::Blocked(why)),
            PhaseProgress::Done => {
                let plan = self.plan_mut()?;
                plan.phase += 1;
                self.own.position = None;
                rows::put(self.shared, self.catalog, self.own)?;
                Ok(StructureProgress::More)
            }
        }
    }

    fn run(&mut self, phase: Phase) -> Result<PhaseProgress, EngineError> {
        let more = |has_more: bool| if has_more { PhaseProgress::More } else { PhaseProgress::Done };
        match phase {
            Phase::Survey(which) => self.survey(which).map(more),
            Phase::Decide => self.decide(),
            Phase::CreateContainers => self.make(),
            Phase::SetForm(name) => self.form(name),
            Phase::AwaitBuild => self.built(),
            Phase::Walk(which) => self.walk(which),
            Phase::RemoveContainers => self.remove_empty_containers(),
            Phase::RemoveJournal => self.remove_some_journal().map(more),
        }
    }

    fn plan(&self) -> Result<&RefactoringPlan, EngineError> {
        self.own.plan.as_ref().ok_or_else(|| corrupt("plan of a refactoring"))
    }

    fn plan_mut(&mut self) -> Result<&mut RefactoringPlan, EngineError> {
        self.own.plan.as_mut().ok_or_else(|| corrupt("plan of a refactoring"))
    }

    fn from(&self) -> u64 {
        self.own.position.as_deref().and_then(|position| position.parse().ok()).unwrap_or(0)
    }

    /// Looks at some items; whether there are more.
    fn survey(&mut self, which: usize) -> Result<bool, EngineError> {
        let names = self.structure.containers(&self.container.definition.id);
        let Some(container) = names.get(which).and_then(|name| self.container.named_sibling(name)) else {
            return Ok(false);
        };
        let mut plan = self.plan()?.clone();
        let mut from = self.from();
        let mut has_more = true;
        for _ in 0..SURVEY_PAGES {
            let (rids, rows) = self.page(&container, from, SURVEY_ITEMS)?;
            let visibility_point = container.visibility_point(self.shared);
            for bytes in &rows {
                let row = ItemRow::parse(bytes)?;
                if container.is_invisible(&row, &visibility_point) {
                    continue;
                }
                for (path, why) in self.structure.survey(which, &mut plan, &row.node()?.to_value()) {
                    plan.undecided += 1;
                    let conflict = conflict(&container, &row, &path, why)?;
                    self.own.add_conflict(conflict);
                }
            }
            has_more = !rids.is_empty();
            from = rids.last().map_or(from, |rid| rid + 1);
            if !has_more {
                break;
            }
        }
        self.own.plan = Some(plan);
        self.own.position = Some(from.to_string());
        rows::put(self.shared, self.catalog, self.own)?;
        Ok(has_more)
    }

    fn decide(&self) -> Result<PhaseProgress, EngineError> {
        Ok(match self.plan()?.undecided {
            0 => PhaseProgress::Done,
            count => PhaseProgress::Blocked(format!(
                "{count} places have to be decided: change the items and resume the job, or undo it and say 'onConflict'"
            )),
        })
    }

    /// What it makes is in the row before it is there, so that an undo finds it.
    fn make(&mut self) -> Result<PhaseProgress, EngineError> {
        let database = self.container.database.id.clone();
        for (name, body) in self.structure.new_containers(self.container, self.plan()?) {
            if self.container.named_sibling(&name).is_some() {
                continue;
            }
            let plan = self.plan_mut()?;
            if !plan.makes.contains(&name) {
                plan.makes.push(name.clone());
                rows::put(self.shared, self.catalog, self.own)?;
            }
            match self.catalog.create_container(&database, &body, None) {
                Ok(_) | Err(EngineError::AlreadyExists { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        match self.structure.check(self.container) {
            Err(EngineError::RefactoringInvalid(invalid)) => Ok(PhaseProgress::Blocked(invalid.to_string())),
            checked => checked.map(|()| PhaseProgress::Done),
        }
    }

    fn form(&mut self, name: FormName) -> Result<PhaseProgress, EngineError> {
        let plan = self.plan_mut()?;
        let before = plan.clone();
        plan.is_declared |= name != FormName::Absent;
        plan.is_kept |= name == FormName::BothMaintained;
        // From here on items may lack the old form: an undo makes it from the new one.
        plan.was_finished |= matches!(name, FormName::Removing | FormName::Removed);
        plan.is_contracted |= name == FormName::Removed;
        if *plan != before {
            rows::put(self.shared, self.catalog, self.own)?;
        }
        let of = FormContext {
            refactoring: self.own.number,
            has_journal: self.order.has_journal,
            container: self.container,
            plan: self.plan()?,
        };
        self.catalog.put_form(self.own.database, &self.structure.form(name, &of))?;
        Ok(PhaseProgress::Done)
    }

    /// Whether what it has declared maintains its paths.
    fn built(&self) -> Result<PhaseProgress, EngineError> {
        let Some(model) = self.catalog.database_model(self.own.database) else {
            return Ok(PhaseProgress::Done);
        };
        let names = &self.plan()?.names;
        let own = model.declarations.iter().map(|(_, own)| own).filter(|own| names.contains(&own.name));
        for declaration in own {
            match &declaration.state {
                DeclarationState::Active => {}
                DeclarationState::Building { .. } => return Ok(PhaseProgress::Waiting),
                DeclarationState::Failed { error, .. } => {
                    let why = format!("'{}' cannot be built: {error}", declaration.name);
                    return Ok(PhaseProgress::Blocked(why));
                }
            }
        }
        Ok(PhaseProgress::Done)
    }

    /// Visits some items of a container.
    fn walk(&mut self, which: usize) -> Result<PhaseProgress, EngineError> {
        if self.own.journal_bytes > JOURNAL_BYTES_MAX {
            return Ok(PhaseProgress::Blocked("its journal has more than 1 GB".to_owned()));
        }
        let names = self.structure.containers(&self.container.definition.id);
        let Some(container) = names.get(which).and_then(|name| self.container.named_sibling(name)) else {
            return Ok(PhaseProgress::Done);
        };
        for _ in 0..UNCHANGED_PAGES {
            let (rids, rows) = self.page(&container, self.from(), self.items_max)?;
            if rids.is_empty() {
                return Ok(PhaseProgress::Done);
            }
            if self.visit(&container, &rids, &rows)? {
                return Ok(PhaseProgress::More);
            }
        }
        rows::put(self.shared, self.catalog, self.own)?;
        Ok(PhaseProgress::More)
    }

    /// Whether the position is stored: it is not where nothing was to be written.
    fn visit(
        &mut self,
        container: &Arc<Container>,
        rids: &[u64],
        rows: &[Vec<u8>],
    ) -> Result<bool, EngineError> {
        let next = RefCell::new(None);
        let also = |snapshot: &dyn Snapshot, figures: &VisitFigures| {
            let moved = self.advanced(container, snapshot, rids, figures)?;
            let mut ops = vec![moved.op()];
            let advance = self.claim.as_ref().map(|claim| claim.advance(Vec::new(), moved.converted, None));
            if let Some(advance) = &advance {
                ops.push(advance.op(snapshot)?);
            }
            *next.borrow_mut() = Some((moved, advance));
            Ok(ops)
        };
        let work = VisitWork::Convert { refactoring: self.own.number };
        let visited = visit_items(
            self.shared,
            &VisitOrder { container, rids, rows, work, also: &also, journal: None },
        )?;
        match (visited, next.into_inner()) {
            (VisitOutcome::Done { is_committed }, Some((moved, advance))) => {
                *self.own = moved;
                if !is_committed {
                    return Ok(false);
                }
                if let (Some(claim), Some(advance)) = (&mut self.claim, advance) {
                    claim.advanced(advance);
                }
                Ok(true)
            }
            (VisitOutcome::Refused(_) | VisitOutcome::TooLarge, _) if rids.len() > 1 => {
                let half = rids.len() / 2;
                self.visit(container, &rids[..half], rows.get(..half).unwrap_or_default())
            }
            (VisitOutcome::Refused(error), _) => {
                let snapshot = self.shared.storage.snapshot()?;
                if let Some(bytes) = snapshot.get(ITEMS, &keys::item(container.number, rids[0]))? {
                    self.own.add_conflict(conflict(
                        container,
                        &ItemRow::parse(&bytes)?,
                        "",
                        &error.to_string(),
                    )?);
                }
                self.own.position = rids.last().map(|rid| (rid + 1).to_string());
                rows::put(self.shared, self.catalog, self.own).map(|()| true)
            }
            // It is checked again.
            _ => Err(EngineError::Contended),
        }
    }

    /// The refactoring behind some items.
    fn advanced(
        &self,
        container: &Container,
        snapshot: &dyn Snapshot,
        rids: &[u64],
        figures: &VisitFigures,
    ) -> Result<Refactoring, EngineError> {
        let mut moved = self.own.clone();
        moved.position = rids.last().map(|rid| (rid + 1).to_string());
        moved.converted += figures.converted;
        moved.journal_bytes += figures.journal_bytes;
        for UnconvertedPath { container: number, rid, path, why, is_undecided } in &figures.unconverted {
            if let Some(plan) = moved.plan.as_mut().filter(|_| *is_undecided) {
                plan.undecided += 1;
            }
            if let Some(bytes) = snapshot.get(ITEMS, &keys::item(*number, *rid))? {
                moved.add_conflict(conflict(container, &ItemRow::parse(&bytes)?, path, why)?);
            }
        }
        Ok(moved)
    }

    /// The next items of a container, and their rows as they are now.
    fn page(
        &self,
        container: &Container,
        from: u64,
        rows_max: usize,
    ) -> Result<(Vec<u64>, Vec<Vec<u8>>), EngineError> {
        let range = keys::items_from(container.number, from);
        let page = Scan { rows_max, bytes_max: PAGE_BYTES, ..scan(ITEMS, range) };
        let page = container.snapshot(self.shared)?.scan(&page)?;
        let rid = |key: &[u8]| keys::rid_of_item_key(key).ok_or_else(|| corrupt("key of an item"));
        page.rows.into_iter().map(|(key, row)| Ok((rid(&key)?, row))).collect()
    }

    fn remove_empty_containers(&mut self) -> Result<PhaseProgress, EngineError> {
        let database = self.container.database.id.clone();
        for name in &self.plan()?.makes {
            let Some(container) = self.container.named_sibling(name) else { continue };
            if container.usage().0 > 0 {
                continue;
            }
            match self.catalog.delete_container(&database, name, &Precondition::default()) {
                Ok(()) | Err(EngineError::ModelInUse { .. } | EngineError::ResourceNotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(PhaseProgress::Done)
    }

    /// Forgets some of the journal; whether there is more.
    pub fn remove_some_journal(&self) -> Result<bool, EngineError> {
        for name in self.structure.containers(&self.container.definition.id) {
            let Some(container) = self.container.named_sibling(&name) else { continue };
            let snapshot = self.shared.storage.snapshot()?;
            let found = rows::journal_keys(&*snapshot, container.number, self.own.number, JOURNAL_ROWS)?;
            if !found.is_empty() {
                let ops = found.into_iter().map(crate::store::journal::delete).collect();
                rows::commit_journal(self.shared, &container, ops)?;
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn conflict(container: &Container, row: &ItemRow<'_>, path: &str, why: &str) -> Result<Value, EngineError> {
    let mut conflict = Object::new();
    conflict.set("container", container.definition.id.as_str());
    conflict.set("id", row.id()?);
    conflict.set("partitionKey", key_json(&row.partition_key()?));
    conflict.set("path", path);
    conflict.set("reason", why);
    Ok(Value::Object(conflict))
}

/// It will not go away by itself.
fn is_permanent(error: &EngineError) -> bool {
    matches!(
        error,
        EngineError::ModelInvalid(_)
            | EngineError::RefactoringRunning { .. }
            | EngineError::BadRequest { .. }
    )
}
