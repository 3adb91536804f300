//! SQL over a container's items.
//!
//! Every query has its own order, whichever index finds its items: sorted queries order by their sort keys and then by
//! child id, ascending or descending ([`order::TieOrder`](exec::order::TieOrder)); all others by partition and child
//! id. So an index only changes how long a page takes, and a continuation stays valid when indexes are added or
//! removed.
//!
//! | kind      | queries                                   | a page                                                |
//! |-----------|-------------------------------------------|-------------------------------------------------------|
//! | streaming | rows come from single items               | stops anywhere, goes on there                         |
//! | sorted    | the same with ORDER BY over plain paths   | walks an index; or the first keeps the few that come next, the second sorts all and [caches](crate::memory::result_cache) their order |
//! | whole     | aggregates, GROUP BY, DISTINCT, and so on | the first runs it and holds the other rows            |
//!
//! A page whose result is no longer cached does all the work again.

pub(crate) mod client_plan; // plans for clients that merge partitions themselves
pub(crate) mod compile; // queries of a container, compiled once where that is possible
pub(crate) mod continuation; // where the next page starts, under a MAC
mod exec; // from the items that were found to rows
pub(crate) mod follow; // items of other containers, along links
pub(crate) mod functions; // user-defined functions
pub(crate) mod meter; // what a page costs
pub(crate) mod page; // budgets of a page, lists
pub(crate) mod partition_scope; // what of a container a request covers
mod plan; // choosing how to find the items
pub(crate) mod read_snapshot; // the committed state at one moment
pub(crate) mod reader; // the visible items of a scope, in order or by child id
pub(crate) mod resources; // queries over resources in memory

use std::sync::Arc;
use std::time::{Duration, Instant};

use quire_sql::{Allowance, Analysis, IndexMetrics, Parameters, Query, QueryShape, Schema};
use quire_value::Value;

use self::plan::{IndexChooser, PageNeed, SortMethod};
use crate::api::charge::{self, PageCost};
use crate::api::{Answer, EngineError, Page, PageRequest};
use crate::catalog::{Catalog, Container};
use crate::memory::result_cache::{CachedResult, ResultKey};
use crate::query::client_plan::{MarkedRequest, check_crossing, marked_request};
use crate::query::compile::{CompiledQuery, compiled};
use crate::query::continuation::{CachedRowRef, QueryIdentity, Resume, SortPosition};
use crate::query::exec::blocking::{BlockingInput, BlockingNext, BlockingStart, ResultCaching};
use crate::query::exec::evaluate::ItemEvaluator;
use crate::query::exec::order::{SortOrder, SortStart};
use crate::query::exec::output::PageOutput;
use crate::query::exec::sort::SortedQuery;
use crate::query::follow::PageLinks;
use crate::query::functions::PageFunctions;
use crate::query::meter::{PageMeter, ScanBudget};
use crate::query::page::{FilledPage, PageRows, answer_page};
use crate::query::partition_scope::{ItemPosition, PartitionScope, narrowed};
use crate::query::plan::candidates::Candidates;
use crate::query::plan::explain::PlanNode;
use crate::query::plan::scores::RankedTexts;
use crate::query::plan::snapshot_indexes::SnapshotIndexes;
use crate::query::plan::vector_search::VectorSearch;
use crate::query::read_snapshot::ReadSnapshot;
use crate::query::reader::ScopeReader;
use crate::recording::{PageRecord, record_query};
use crate::runtime::{Shared, allowance};

pub(crate) fn query_items(
    shared: &Shared,
    catalog: &Catalog,
    container: &Container,
    text: &str,
    parameters: &Parameters,
    request: &PageRequest,
) -> Answer<Page> {
    let run =
        |request: &PageRequest| query_in(shared, (Some(catalog), None), container, text, parameters, request);
    let answer = match marked_request(container, text, request) {
        Ok(None) => run(request),
        Ok(Some(MarkedRequest::Whole(whole))) => run(&whole),
        Ok(Some(MarkedRequest::Nothing(part))) => {
            answer_page(shared, container, &part, |_, _| FilledPage::nothing(&part))
        }
        Err(error) => Answer { charge: charge::REFUSED, position: None, result: Err(error) },
    };
    record_query(|| page_record(shared, container, (text, parameters), request, &answer));
    answer
}

/// What the recording of requests takes from a page.
fn page_record<'a>(
    shared: &Shared,
    container: &Container,
    query: (&str, &Parameters),
    request: &'a PageRequest,
    answer: &'a Answer<Page>,
) -> PageRecord<'a> {
    let key = request.scope.partition_key.as_ref();
    let page = answer.result.as_ref();
    PageRecord {
        shape: shared.recorder.shape(container.recorded_place(), query, key.is_some()),
        key,
        continued: request.continuation.as_deref(),
        continues: page.ok().and_then(|page| page.continuation.as_deref()),
        rows_read: page.map_or(0, |page| page.metrics.loaded_count.max(page.metrics.index_rows)),
        returned: page.map_or(0, |page| page.count as u64),
        is_order_refused: page.is_err_and(lacks_composite_index),
    }
}

/// An ORDER BY that no index of the policy serves.
fn lacks_composite_index(error: &EngineError) -> bool {
    matches!(error, EngineError::Sql(error) if error.to_string().contains("corresponding composite index"))
}

/// The same in the state of a snapshot. It follows no links.
pub(crate) fn query_snapshot(
    shared: &Shared,
    container: &Container,
    snapshot: &ReadSnapshot,
    text: &str,
    parameters: &Parameters,
    request: &PageRequest,
) -> Answer<Page> {
    query_in(shared, (None, Some(snapshot)), container, text, parameters, request)
}

fn query_in(
    shared: &Shared,
    (catalog, snapshot): (Option<&Catalog>, Option<&ReadSnapshot>),
    container: &Container,
    text: &str,
    parameters: &Parameters,
    request: &PageRequest,
) -> Answer<Page> {
    answer_page(shared, container, request, |scopes, resume| {
        let started = Instant::now();
        let allowance = allowance::of_page(shared, &request.cancel);
        let environment = allowance::environment(shared, container.definition.geospatial, allowance.clone())?;
        let functions = PageFunctions::of(shared, container, &allowance);
        let links = PageLinks::new(shared, catalog, container, &allowance);
        let links = links.with_page(request)?;
        let schema = Schema::of(&container.definition).with_functions(&functions).with_links(&links);
        let schema = Schema { adds_followed: request.follow.is_some(), ..schema };
        let CompiledQuery { query, analysis } =
            compiled(shared, container, (text, parameters), schema, environment)?;
        links.check()?;
        if links.are_used() {
            functions.stop_prefetch();
        }
        let compile = started.elapsed();
        check_crossing(container, &query, request)?;
        let narrow = partition_scope::keys_of(container, &query, &request.scope)
            .map(|keys| narrowed(container, scopes, keys));
        let scopes = narrow.as_deref().unwrap_or(scopes);
        // A script that queries has already entered a gate.
        if snapshot.is_none() {
            functions.enter(container)?;
        }
        let identity = &QueryIdentity { container, scope: &request.scope, text, parameters };
        let (query, functions, links) = (&query, &functions, &links);
        let run = PageExecution {
            shared,
            container,
            request,
            allowance,
            query,
            analysis,
            identity,
            functions,
            links,
            scopes,
            snapshot,
        };
        run.fill(resume, compile).map_err(|error| links.explain(functions.explain(error)))
    })
}

/// How a page is executed.
enum PagePlan {
    Stream { candidates: Candidates, from: Option<(ItemPosition, u64)>, node: PlanNode },
    Sorted { order: SortOrder, sorting: SortMethod, place: Option<SortPosition>, node: PlanNode },
    Whole { feed: BlockingInput, from: BlockingStart, newest: u32, node: PlanNode },
}

fn no_order() -> EngineError {
    let message = "A resumeFilter names a place in an order; the query has no ORDER BY.".to_owned();
    EngineError::BadRequest { message }
}

struct PageExecution<'a> {
    shared: &'a Shared,
    container: &'a Container,
    request: &'a PageRequest,
    allowance: Allowance,
    query: &'a Query,
    /// Of a query that was prepared.
    analysis: Option<Arc<Analysis>>,
    identity: &'a QueryIdentity<'a>,
    functions: &'a PageFunctions<'a>,
    links: &'a PageLinks<'a>,
    scopes: &'a [PartitionScope<'a>],
    /// A snapshot to read, instead of a new one.
    snapshot: Option<&'a ReadSnapshot>,
}

/// The start of a page, and when it began.
struct PageBeginning {
    resume: Option<Resume>,
    positions: Vec<(u32, u64)>,
    compile: Duration,
    started: Instant,
}

impl PageExecution<'_> {
    fn fill(&self, resume: Option<Resume>, compile: Duration) -> Result<FilledPage, EngineError> {
        let started = Instant::now();
        let analysis = self.analysis.clone().unwrap_or_else(|| Arc::new(self.query.analysis()));
        self.allowance.check_cancelled()?;
        if let Some(refusal) = analysis.order_refusal(&self.container.definition.indexing) {
            return Err(refusal.into());
        }
        let meter = PageMeter::new(ScanBudget::PAGE, &self.allowance);
        if let Some((row, result)) = self.cached_rows(&resume) {
            let mut output = self.output(&None)?;
            if let Some(next) = self.fill_from_cache(&meter, &resume, row, &result, &mut output)? {
                let node = PlanNode::new("Rows of a result that is held");
                let times = (compile, started.elapsed());
                return Ok(self.filled(&analysis, output, meter.cost(), times, next, &node));
            }
        }
        let positions = self.positions(&resume)?;
        let snapshot = match self.snapshot {
            Some(snapshot) => snapshot.clone(),
            None => ReadSnapshot::take(self.shared, self.container)?,
        };
        self.links.begin(&snapshot)?;
        let mut reader = ScopeReader::new(self.shared, self.container, &snapshot, self.scopes, meter);
        let begun = PageBeginning { resume, positions, compile, started };
        let indexes = SnapshotIndexes::new(self.container, snapshot.indexes, &reader, self.request)?;
        if let Some(search) = self.query.rank_search() {
            let evaluator = ItemEvaluator::new(self.query, self.functions, self.links, self.container)?;
            if let Some(texts) = RankedTexts::of(&mut reader, &indexes, &evaluator, search)? {
                let query = self.query.clone_with_rank_statistics(texts.statistics.clone());
                let (allowance, analysis) = (self.allowance.clone(), None);
                let run = PageExecution { query: &query, analysis, allowance, ..*self };
                let analysis = query.analysis();
                return run.fill_from(reader, &indexes, &analysis, Some(&texts), begun);
            }
        }
        self.fill_from(reader, &indexes, &analysis, None, begun)
    }

    fn fill_from(
        &self,
        mut reader: ScopeReader<'_>,
        indexes: &SnapshotIndexes<'_>,
        analysis: &Analysis,
        texts: Option<&RankedTexts>,
        PageBeginning { resume, positions, compile, started }: PageBeginning,
    ) -> Result<FilledPage, EngineError> {
        let mut output = self.output(&resume)?;
        let need = PageNeed { items: output.wanted() as u64, is_preferred: self.request.index_preferred };
        let evaluator = ItemEvaluator::new(self.query, self.functions, self.links, self.container)?;
        let from = match &resume {
            Some(Resume::Stream { position, .. }) => Some(*position),
            _ => None,
        };
        let mut chooser = IndexChooser {
            indexes,
            reader: &mut reader,
            reads: &analysis.reads,
            evaluator: &evaluator,
            from,
            need,
            is_explained: self.request.explain,
            lacks_missing_rows: false,
        };
        let is_resumed = resume.is_some();
        let plan = self.plan(&mut chooser, analysis, resume, texts)?;
        self.request_missing_rows(chooser.lacks_missing_rows, &plan);
        let plan_time = started.elapsed();
        reader.meter.start();
        let holding = self.may_cache().then(|| ResultCaching {
            shared: self.shared,
            temp: self.allowance.temp(),
            identity: self.identity,
            positions,
            is_resumed,
        });
        let (next, node) = self.run(&mut reader, &evaluator, plan, &mut output, holding.as_ref())?;
        let (calls, follow) = (self.functions.calls(), self.links.cost());
        let cost = PageCost { calls, follow, ..reader.meter.cost() };
        Ok(self.filled(analysis, output, cost, (compile, plan_time), next, &node))
    }

    fn filled(
        &self,
        analysis: &Analysis,
        output: PageOutput,
        cost: PageCost,
        (compile, plan): (Duration, Duration),
        next: Option<Resume>,
        node: &PlanNode,
    ) -> FilledPage {
        let cost = PageCost { compile, plan, ..cost };
        let explain = self.request.explain.then(|| plan::explain::text(node, &cost, output.rows.count()));
        let policy = &self.container.definition.indexing;
        let index_metrics = self.request.index_metrics.then(|| {
            let definition = &self.container.definition.partition_key;
            let is_keyed = self.request.scope.partition_key.is_some();
            IndexMetrics::new(analysis, if is_keyed { &definition.paths } else { &[] }, policy)
        });
        let ties_descending = self.query.ties_descending();
        FilledPage { rows: output.rows, cost, next, ties_descending, explain, index_metrics }
    }

    /// Only queries of the newest state are cached, without a resume filter and without links that the request names.
    fn may_cache(&self) -> bool {
        self.snapshot.is_none() && self.request.resume.is_none() && self.request.follow.is_none()
    }

    /// The cached result from which a page continues, if it is still there, and the row.
    fn cached_rows(&self, resume: &Option<Resume>) -> Option<(CachedRowRef, Arc<CachedResult>)> {
        let row = match resume {
            Some(Resume::Block { query, sent, result: Some(result), .. })
                if *query == self.identity.hash() =>
            {
                CachedRowRef { result: *result, number: *sent }
            }
            Some(Resume::Sorted { cached_row: Some(row), .. }) => *row,
            _ => return None,
        };
        if !self.may_cache() {
            return None;
        }
        let held = self.shared.result_cache.find(ResultKey::Rows(row.result), &self.identity.result_owner());
        held.map(|held| (row, held))
    }

    /// `None`: the cached result does not have the row.
    fn fill_from_cache(
        &self,
        meter: &PageMeter,
        resume: &Option<Resume>,
        row: CachedRowRef,
        result: &CachedResult,
        output: &mut PageOutput,
    ) -> Result<Option<Option<Resume>>, EngineError> {
        let from = BlockingStart::of(self, resume)?;
        let Some(mut reader) = result.read_record(row.number)? else { return Ok(None) };
        let held = (row.result, result);
        let next = exec::blocking::cached_page(meter, &mut reader, held, &mut output.rows, &from)?;
        let newest = self.newest(resume);
        Ok(Some(next.map(|next| self.resume_of(next, newest))))
    }

    fn resume_of(&self, next: BlockingNext, newest: u32) -> Resume {
        match next {
            BlockingNext::Row { sent, result } => {
                Resume::Block { query: self.identity.hash(), sent, newest, result }
            }
            BlockingNext::Place { order, place, held } => {
                Resume::Sorted { order, skipped: 0, sent: 0, place, cached_row: held }
            }
        }
    }

    /// The LSNs of the partitions, read before the snapshot, which shows at least these: for an order that will be
    /// cached.
    fn positions(&self, resume: &Option<Resume>) -> Result<Vec<(u32, u64)>, EngineError> {
        let is_sorted = matches!(resume, Some(Resume::Sorted { .. })) && self.query.sorted().is_some();
        if !is_sorted || !self.may_cache() {
            return Ok(Vec::new());
        }
        let partitions = self.scopes.iter().flat_map(PartitionScope::partitions);
        partitions.map(|partition| Ok((partition.layout.id, partition.sequencer.lsn()?))).collect()
    }

    fn plan(
        &self,
        chooser: &mut IndexChooser<'_, '_, '_>,
        analysis: &Analysis,
        resume: Option<Resume>,
        texts: Option<&RankedTexts>,
    ) -> Result<PagePlan, EngineError> {
        match (self.query.shape(), self.query.sorted(), &analysis.order, resume) {
            (QueryShape::Streaming { .. }, _, _, resume @ (None | Some(Resume::Stream { .. }))) => {
                if self.request.resume.is_some() {
                    return Err(no_order());
                }
                let from = match resume {
                    Some(Resume::Stream { position, row, .. }) => Some((position, row)),
                    _ => None,
                };
                let (candidates, node) = chooser.candidates(&analysis.filter)?;
                Ok(PagePlan::Stream { candidates, from, node })
            }
            (QueryShape::Blocking, Some(_), Some(order), resume @ (None | Some(Resume::Sorted { .. }))) => {
                let (seal, place) = match resume {
                    Some(Resume::Sorted { order, place, .. }) => (Some(order), Some(place)),
                    _ => (None, None),
                };
                let keys: Vec<_> = order.iter().map(|key| (key.path.clone(), key.descending)).collect();
                let order = SortOrder::new(&keys);
                if seal.is_some_and(|hash| hash != order.hash) {
                    return Err(EngineError::BadContinuation);
                }
                let (sorting, node) = chooser.sorting(&analysis.filter, &order)?;
                Ok(PagePlan::Sorted { order, sorting, place, node })
            }
            (
                QueryShape::Blocking,
                _,
                _,
                resume @ (None | Some(Resume::Block { .. } | Resume::Sorted { .. })),
            ) => {
                let from = BlockingStart::of(self, &resume)?;
                // A run of equal values takes the position of its first item, while descending ties begin with their
                // last one. The order is the same only where the values are equal.
                let accepts_multiplicity = self.query.accepts_multiplicity()
                    && (analysis.order.is_some() || !self.query.ties_descending());
                let fed = match self.counted(chooser)? {
                    Some((values, node)) => Some((BlockingInput::Counted(values), node)),
                    None => plan::index_only::feed_of(
                        chooser.reader,
                        chooser.indexes,
                        analysis,
                        accepts_multiplicity,
                    )?
                    .map(|(fed, node)| (BlockingInput::Index(fed), node)),
                };
                let fed = match fed {
                    Some(fed) => Some(fed),
                    None => self
                        .scored(chooser, texts, from.sent())?
                        .map(|(candidates, node)| (BlockingInput::First(candidates), node)),
                };
                let (feed, node) = match fed {
                    Some(fed) => fed,
                    None => {
                        let (candidates, node) = self.whole_candidates(chooser, analysis)?;
                        (BlockingInput::Items(candidates), node)
                    }
                };
                Ok(PagePlan::Whole { feed, newest: self.newest(&resume), from, node })
            }
            (QueryShape::Constant, _, _, resume @ (None | Some(Resume::Block { .. }))) => {
                let node = PlanNode::new("Constant");
                let from = BlockingStart::of(self, &resume)?;
                let feed = BlockingInput::Items(Candidates::Nothing);
                Ok(PagePlan::Whole { feed, newest: self.newest(&resume), from, node })
            }
            _ => Err(EngineError::BadContinuation),
        }
    }

    fn request_missing_rows(&self, is_wanted: bool, plan: &PagePlan) {
        if let PagePlan::Sorted { order, .. } = plan {
            self.request_missing_rows_of(is_wanted, order);
        }
    }

    /// Requests index rows for the items without the sort key. No query waits for them.
    fn request_missing_rows_of(&self, is_wanted: bool, order: &SortOrder) {
        if let ([key], true) = (order.keys.as_slice(), is_wanted)
            && self.container.partitions.request_missing_rows(&key.path)
        {
            self.shared.workers.catalog.wake();
        }
    }

    /// The aggregates of a query that only counts texts.
    fn counted(
        &self,
        chooser: &mut IndexChooser<'_, '_, '_>,
    ) -> Result<Option<(Vec<Value>, PlanNode)>, EngineError> {
        let Some(search) = self.query.text_statistics() else { return Ok(None) };
        plan::scores::counted(chooser.reader, chooser.indexes, chooser.evaluator, &search)
    }

    /// The items with the best scores, if an index has them. `sent`: rows of earlier pages.
    fn scored(
        &self,
        chooser: &mut IndexChooser<'_, '_, '_>,
        texts: Option<&RankedTexts>,
        sent: Option<u64>,
    ) -> Result<Option<(Candidates, PlanNode)>, EngineError> {
        let IndexChooser { indexes, ref mut reader, evaluator, .. } = *chooser;
        // One more shows whether there is a next page.
        let rows = PageRows::new(self.request, None)?.room().saturating_add(1);
        let sent = sent.map(|sent| usize::try_from(sent).unwrap_or(usize::MAX));
        if let Some(texts) = texts {
            let Some(sent) = sent else { return Ok(None) };
            return texts.candidates(reader, indexes, evaluator, rows.saturating_add(sent));
        }
        let Some(order) = self.query.score_order() else { return Ok(None) };
        let number = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let needed = match (order.limit.map(number), sent) {
            (Some(limit), Some(sent)) => limit.min(rows.saturating_add(sent)),
            (Some(limit), None) => limit,
            (None, Some(sent)) => rows.saturating_add(sent),
            (None, None) => return Ok(None),
        };
        let needed = needed.saturating_add(number(order.offset));
        plan::scores::score_candidates(reader, indexes, evaluator, &order, needed)
    }

    /// The newest partition when the query began.
    fn newest(&self, resume: &Option<Resume>) -> u32 {
        match resume {
            Some(Resume::Block { newest, .. }) => *newest,
            _ => self.container.partitions.lineage().last().copied().unwrap_or(0),
        }
    }

    fn whole_candidates(
        &self,
        chooser: &mut IndexChooser<'_, '_, '_>,
        analysis: &Analysis,
    ) -> Result<(Candidates, PlanNode), EngineError> {
        if !self.request.index_use || self.container.definition.indexing.vector.is_empty() {
            return chooser.all_candidates(&analysis.filter);
        }
        VectorSearch { container: self.container }.candidates(chooser, analysis)
    }

    fn run(
        &self,
        reader: &mut ScopeReader<'_>,
        evaluator: &ItemEvaluator<'_>,
        plan: PagePlan,
        output: &mut PageOutput,
        holding: Option<&ResultCaching<'_>>,
    ) -> Result<(Option<Resume>, PlanNode), EngineError> {
        match plan {
            PagePlan::Stream { mut candidates, from, node } => {
                Ok((exec::stream::stream(reader, evaluator, &mut candidates, output, from)?, node))
            }
            PagePlan::Sorted { order, sorting, place, node } => {
                let mut sorted = SortedQuery::new(&order, evaluator, reader, self.request, place.as_ref())?;
                match sorting {
                    SortMethod::Walk(walk) if !matches!(sorted.start, SortStart::Within { .. }) => {
                        let next = sorted.walk(reader, &walk, output)?;
                        self.request_missing_rows_of(sorted.wants_missing, &order);
                        Ok((next, node))
                    }
                    SortMethod::Walk(_) => {
                        let node = PlanNode::new("Sort, since the item of the continuation is gone");
                        reader.meter.set_budget(ScanBudget::WHOLE);
                        Ok((sorted.sort(reader, &mut Candidates::All, output)?, node))
                    }
                    SortMethod::Sort(mut candidates) => {
                        reader.meter.set_budget(ScanBudget::WHOLE);
                        let holding = holding.filter(|holding| {
                            holding.is_resumed
                                && self.query.is_deterministic()
                                && !evaluator.calls_functions()
                                && !self.query.follows_for_rows()
                        });
                        if let Some(holding) = holding
                            && let Some(next) =
                                sorted.sort_with_cache(reader, &mut candidates, output, holding)?
                        {
                            return Ok((next, node));
                        }
                        Ok((sorted.sort(reader, &mut candidates, output)?, node))
                    }
                }
            }
            PagePlan::Whole { mut feed, from, newest, node } => {
                reader.meter.set_budget(ScanBudget::WHOLE);
                let next = exec::blocking::run_blocking(
                    reader,
                    evaluator,
                    &mut feed,
                    &mut output.rows,
                    from,
                    holding,
                )?;
                Ok((next.map(|next| self.resume_of(next, newest)), node))
            }
        }
    }

    fn output(&self, resume: &Option<Resume>) -> Result<PageOutput, EngineError> {
        let (offset, limit) = match (self.query.shape(), self.query.sorted()) {
            (QueryShape::Streaming { offset, limit }, _) | (_, Some((offset, limit))) => (offset, limit),
            _ => (0, None),
        };
        let (skipped, sent) = match resume {
            Some(Resume::Stream { skipped, sent, .. } | Resume::Sorted { skipped, sent, .. }) => {
                (*skipped, *sent)
            }
            _ => (0, 0),
        };
        let rows = PageRows::new(self.request, Some(&self.allowance))?;
        Ok(PageOutput { rows, offset, limit: limit.unwrap_or(u64::MAX), skipped, sent })
    }
}
