//! Walks over the items of one snapshot.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quire_sql::ThreadWatch;
use quire_storage::{KeyRange, Scan, Snapshot};

use super::findings::SurveyReport;
use super::links::LinkState;
use super::windows::WindowState;
use super::{SurveySubject, links, targets, windows};
use crate::api::{EngineError, corrupt};
use crate::catalog::Container;
use crate::items::visibility::VisibilityPoint;
use crate::links::TargetHash;
use crate::runtime::Shared;
use crate::store::item_row::ItemRow;
use crate::store::keys::{self, DeclarationKeys, ITEMS, LOOKUPS};
use crate::store::{for_each_row, scan};

/// A step ends after this time.
const STEP_TIME: Duration = Duration::from_millis(50);
/// Referrers whose contributions are added up at once; the targets of more are done in several rounds.
const REFERRERS_PER_ROUND: u64 = 500_000;

#[derive(Clone, Debug, Default)]
pub(crate) struct SurveyOptions {
    /// Names of declarations; `None`: all.
    pub declarations: Option<Vec<String>>,
    pub examples_max: usize,
}

/// A survey that is under way.
pub(crate) struct Survey {
    base: SurveySnapshot,
    walks: VecDeque<SurveyWalk>,
    /// The rest of the current walk.
    range: Option<KeyRange>,
    state: SurveyState,
    /// Containers whose items are counted.
    counted: HashSet<u32>,
    done: u64,
    total: u64,
}

/// The input of a survey, which does not change.
pub(super) struct SurveySnapshot {
    pub subject: SurveySubject,
    pub snapshot: Box<dyn Snapshot>,
    visibility_points: HashMap<u32, VisibilityPoint>,
    /// Links and targets whose referrers a job is about to write.
    pending: HashSet<(u32, TargetHash)>,
}

/// The results so far.
pub(super) struct SurveyState {
    pub report: SurveyReport,
    pub link: LinkState,
    pub window: WindowState,
}

/// One pass over a container. `round` of `rounds` is the share of all targets that it checks.
#[derive(Clone, Copy, Debug)]
enum SurveyWalk {
    /// Targets of a link that are found by a key of their own.
    Keys {
        link: usize,
    },
    Referrers {
        link: usize,
        round: TargetRound,
    },
    Targets {
        link: usize,
        round: TargetRound,
    },
    Pages {
        window: usize,
    },
    Windowed {
        window: usize,
    },
}

/// A part of all targets, by their hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TargetRound {
    pub number: u64,
    pub count: u64,
}

/// An item that a walk comes to.
pub(super) struct VisitedItem<'a> {
    pub container: &'a Container,
    pub rid: u64,
    pub row: ItemRow<'a>,
    /// It is no longer visible; the sweep has not removed it yet.
    pub is_invisible: bool,
}

impl Survey {
    /// Of the items as they are now.
    pub fn start(
        shared: &Arc<Shared>,
        subject: SurveySubject,
        options: &SurveyOptions,
    ) -> Result<Survey, EngineError> {
        let wanted = wanted(&subject, options)?;
        // Before the snapshot: see `Container::visibility_point`.
        let marks: Vec<_> = subject.containers.values().map(|own| own.partitions.deleted_keys()).collect();
        let snapshot = shared.storage.snapshot()?;
        let mut visibility_points = HashMap::new();
        for (container, before) in subject.containers.values().zip(marks) {
            if container.partitions.is_retired() {
                return Err(container.not_found());
            }
            visibility_points
                .insert(container.number, container.visibility_point_in(shared, &*snapshot, before)?);
        }
        let pending = pending_targets(&*snapshot, &subject)?;
        let report = SurveyReport::new(wanted, options.examples_max);
        let walks = walks(&subject, &report)?;
        let base = SurveySnapshot { subject, snapshot, visibility_points, pending };
        let total = walks.iter().map(|walk| Ok(walk.container(&base.subject)?.usage().0));
        let total = total.sum::<Result<u64, EngineError>>()?;
        let state = SurveyState { report, link: LinkState::default(), window: WindowState::default() };
        Ok(Survey { base, walks, range: None, state, counted: HashSet::new(), done: 0, total })
    }

    /// Looks at some more items; true when that was the last of them. After an error, such as that the work of the thread is to end
    /// (see [`ThreadWatch`]), the survey is of no use.
    pub fn step(&mut self, items_max: usize) -> Result<bool, EngineError> {
        let Some(walk) = self.walks.front().copied() else { return Ok(true) };
        let container = Arc::clone(walk.container(&self.base.subject)?);
        let range = match self.range.take() {
            Some(range) => range,
            None => {
                self.begin(walk);
                KeyRange::prefix(&keys::container_prefix(container.number))
            }
        };
        let page = self.base.snapshot.scan(&Scan { rows_max: items_max, ..scan(ITEMS, range.clone()) })?;
        let (end, mut checked) = (Instant::now() + STEP_TIME, 0);
        for (key, bytes) in &page.rows {
            let rid = keys::rid_of_item_key(key).ok_or_else(|| corrupt("key of an item"))?;
            let visited = self.base.visit(&container, rid, bytes)?;
            self.count(&visited);
            self.check_item(walk, &visited)?;
            ThreadWatch::check()?;
            checked += 1;
            if Instant::now() >= end {
                break;
            }
        }
        self.done += checked as u64;
        let has_more = page.more || checked < page.rows.len();
        match page.rows.into_iter().take(checked).next_back() {
            Some((last, _)) if has_more => {
                self.range = Some(KeyRange { start: Bound::Excluded(last), ..range });
            }
            _ => self.end(walk, container.number)?,
        }
        Ok(self.walks.is_empty())
    }

    /// Looks at everything.
    pub fn run(mut self, items_max: usize) -> Result<SurveyReport, EngineError> {
        while !self.step(items_max)? {}
        Ok(self.into_report())
    }

    /// Items that were checked, and all items to check.
    pub fn progress(&self) -> (u64, u64) {
        (self.done, self.total.max(self.done))
    }

    pub fn into_report(self) -> SurveyReport {
        self.state.report
    }

    fn begin(&mut self, walk: SurveyWalk) {
        match walk {
            SurveyWalk::Keys { .. } => self.state.link = LinkState::default(),
            SurveyWalk::Referrers { link, round } => {
                let has_keys = self.base.subject.rules.links[link].link.has_key_index();
                match (has_keys, round.number) {
                    (false, 0) => self.state.link = LinkState::default(),
                    _ => self.state.link.discard_sums(),
                }
            }
            SurveyWalk::Pages { .. } => self.state.window = WindowState::default(),
            SurveyWalk::Targets { .. } | SurveyWalk::Windowed { .. } => {}
        }
    }

    /// Items of a container count once, however many walks there are over it.
    fn count(&mut self, visited: &VisitedItem<'_>) {
        if !visited.is_invisible && !self.counted.contains(&visited.container.number) {
            self.state.report.items += 1;
        }
    }

    fn check_item(&mut self, walk: SurveyWalk, visited: &VisitedItem<'_>) -> Result<(), EngineError> {
        let (base, state) = (&self.base, &mut self.state);
        match walk {
            SurveyWalk::Keys { link } => links::check_key(base, state, link, visited),
            SurveyWalk::Referrers { link, round } => links::check_referrer(base, state, link, round, visited),
            SurveyWalk::Targets { link, round } => targets::check_target(base, state, link, round, visited),
            SurveyWalk::Pages { window } => windows::check_page(base, state, window, visited),
            SurveyWalk::Windowed { window } => windows::check_windowed_item(base, state, window, visited),
        }
    }

    fn end(&mut self, walk: SurveyWalk, container: u32) -> Result<(), EngineError> {
        self.counted.insert(container);
        self.walks.pop_front();
        match walk {
            SurveyWalk::Referrers { link, round } => links::end(&self.base, &mut self.state, link, round),
            SurveyWalk::Windowed { window } => windows::end(&self.base, &mut self.state, window)?,
            SurveyWalk::Keys { .. } | SurveyWalk::Targets { .. } | SurveyWalk::Pages { .. } => {}
        }
        Ok(())
    }
}

impl SurveySnapshot {
    /// An item of the snapshot.
    pub fn visit<'a>(
        &self,
        container: &'a Container,
        rid: u64,
        bytes: &'a [u8],
    ) -> Result<VisitedItem<'a>, EngineError> {
        let row = ItemRow::parse(bytes)?;
        let is_invisible = container.is_invisible(&row, self.visibility_point(container)?);
        Ok(VisitedItem { container, rid, row, is_invisible })
    }

    pub fn visibility_point(&self, container: &Container) -> Result<&VisibilityPoint, EngineError> {
        self.visibility_points.get(&container.number).ok_or_else(|| container.not_found())
    }

    /// Whether a job is about to write the referrers of a target.
    pub fn is_pending(&self, link: usize, target: TargetHash) -> bool {
        let number = self.subject.link_number(link);
        number.is_some_and(|number| self.pending.contains(&(number, target)))
    }
}

impl SurveyWalk {
    fn container<'s>(&self, subject: &'s SurveySubject) -> Result<&'s Arc<Container>, EngineError> {
        let rules = &subject.rules;
        subject.container(match *self {
            SurveyWalk::Keys { link } | SurveyWalk::Targets { link, .. } => {
                &rules.links[link].link.to.container
            }
            SurveyWalk::Referrers { link, .. } => &rules.links[link].link.from.container,
            SurveyWalk::Pages { window } => &rules.windows[window].window.pages.container,
            SurveyWalk::Windowed { window } => &rules.windows[window].window.container,
        })
    }
}

impl TargetRound {
    pub fn has(self, target: TargetHash) -> bool {
        u64::from(target.0[0]) % self.count == self.number
    }
}

/// Names of the declarations to check, in the order of the model.
fn wanted(subject: &SurveySubject, options: &SurveyOptions) -> Result<Vec<String>, EngineError> {
    let all: Vec<String> = subject.rules.model.declarations().map(str::to_owned).collect();
    let Some(asked) = &options.declarations else { return Ok(all) };
    if let Some(unknown) = asked.iter().find(|name| !all.contains(name)) {
        let message = format!("There is no declaration '{unknown}' in the model.");
        return Err(EngineError::BadRequest { message });
    }
    Ok(all.into_iter().filter(|name| asked.contains(name)).collect())
}

fn walks(subject: &SurveySubject, report: &SurveyReport) -> Result<VecDeque<SurveyWalk>, EngineError> {
    let mut walks = VecDeque::new();
    for (link, own) in subject.rules.links.iter().enumerate() {
        let rules = &subject.rules;
        let copies = subject.copies_of(link).into_iter().map(|own| rules.copies[own].copy.name.as_str());
        let mirrors = subject.mirrors_of(link).into_iter().map(|own| rules.mirrors[own].mirror.name.as_str());
        let rollups = subject.rollups_of(link).into_iter().map(|own| rules.rollups[own].rollup.name.as_str());
        let of_targets = mirrors.chain(rollups).any(|name| report.wants(name));
        if !of_targets && !report.wants(&own.link.name) && !copies.into_iter().any(|name| report.wants(name))
        {
            continue;
        }
        if own.link.has_key_index() {
            walks.push_back(SurveyWalk::Keys { link });
        }
        let referrers = subject.container(&own.link.from.container)?.usage().0;
        let count = if of_targets { (1 + referrers / REFERRERS_PER_ROUND).min(256) } else { 1 };
        for number in 0..count {
            let round = TargetRound { number, count };
            walks.push_back(SurveyWalk::Referrers { link, round });
            if of_targets {
                walks.push_back(SurveyWalk::Targets { link, round });
            }
        }
    }
    for (window, own) in subject.rules.windows.iter().enumerate() {
        if report.wants(&own.window.name) {
            walks.extend([SurveyWalk::Pages { window }, SurveyWalk::Windowed { window }]);
        }
    }
    Ok(walks)
}

/// What fan-out jobs have still to do, as the snapshot has it.
fn pending_targets(
    snapshot: &dyn Snapshot,
    subject: &SurveySubject,
) -> Result<HashSet<(u32, TargetHash)>, EngineError> {
    let mut pending = HashSet::new();
    for (link, rules) in subject.rules.links.iter().enumerate() {
        let Some(declaration) = subject.link_number(link) else { continue };
        let container = subject.container(&rules.link.to.container)?.number;
        let rows = DeclarationKeys { container, declaration };
        for_each_row(snapshot, LOOKUPS, &rows.fan_outs(), |key, _| {
            let hash = key.last_chunk().ok_or_else(|| corrupt("row of a fan-out"))?;
            pending.insert((declaration, TargetHash(*hash)));
            Ok(())
        })?;
    }
    Ok(pending)
}
