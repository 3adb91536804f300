//! SQL over a container's items.
//!
//! Every query has an order of its own, whatever finds its items: sorted queries go by their sort keys and then by child
//! id, rising or falling ([`order::Ties`]), all others by partition and child id. So an index changes how long a page takes and nothing else, and a
//! continuation holds while indexes come and go.
//!
//! | kind      | queries                                   | a page                                                |
//! |-----------|-------------------------------------------|-------------------------------------------------------|
//! | streaming | rows come from single items               | stops anywhere, goes on there                         |
//! | sorted    | the same with ORDER BY over plain paths   | walks an index; or the first keeps the few that come next, the second sorts all and [holds](crate::memory::results) their order |
//! | whole     | aggregates, GROUP BY, DISTINCT, and so on | the first runs it and holds the other rows            |
//!
//! Where nothing is held any more the page does all work again.

pub(crate) mod client_plan; // plans for clients that merge partitions themselves
pub(crate) mod continuation; // where the next page starts, under a MAC
mod exec; // from the items that were found to rows
pub(crate) mod follow; // items of other containers, along links
pub(crate) mod functions; // user-defined functions
pub(crate) mod meter; // what a page costs
pub(crate) mod page; // budgets of a page, lists
mod plan; // choosing how to find the items
pub(crate) mod reader; // the visible items of a scope, in order or by child id
pub(crate) mod resources; // queries over resources in memory
pub(crate) mod view; // the committed state at one moment
pub(crate) mod window; // what of a container a request covers

use std::sync::Arc;
use std::time::{Duration, Instant};

use quire_resource::{Component, PartitionKey};
use quire_sql::{Allowance, Analysis, IndexMetrics, Parameters, Query, QueryShape, Schema};
use quire_value::Value;

use self::plan::{Chooser, Need, Sorting};
use crate::api::charge::Cost;
use crate::api::{Answer, EngineError, Page, PageRequest, Scope};
use crate::catalog::{Catalog, Container};
use crate::memory::results::{HeldResult, ResultKey};
use crate::query::client_plan::check_crossing;
use crate::query::continuation::{HeldRow, Place, QueryIdentity, Resume};
use crate::query::exec::evaluate::Evaluator;
use crate::query::exec::order::{Order, Start};
use crate::query::exec::output::Output;
use crate::query::exec::sort::Sorted;
use crate::query::exec::whole::{Feed, Holding, WholeNext, WholeStart};
use crate::query::follow::PageLinks;
use crate::query::functions::PageFunctions;
use crate::query::meter::{PageMeter, ScanBudget};
use crate::query::page::{Filled, Rows, answer_page};
use crate::query::plan::candidates::Candidates;
use crate::query::plan::explain::Node;
use crate::query::plan::known::Known;
use crate::query::plan::nearest::Nearest;
use crate::query::plan::scores::RankedTexts;
use crate::query::reader::Reader;
use crate::query::view::View;
use crate::query::window::{KeyFilter, Spot, Window, narrowed};
use crate::recording::{PageNote, note_query};
use crate::runtime::{Shared, allowance};

/// Beyond this many partition keys in a filter the container is read from end to end.
const KEYS_MAX: usize = 2000;

pub(crate) fn query_items(
    shared: &Shared,
    catalog: &Catalog,
    container: &Container,
    text: &str,
    parameters: &Parameters,
    request: &PageRequest,
) -> Answer<Page> {
    let answer = query_in(shared, (Some(catalog), None), container, text, parameters, request);
    note_query(|| page_note(shared, container, (text, parameters), request, &answer));
    answer
}

/// For the record of requests.
fn page_note<'a>(
    shared: &Shared,
    container: &Container,
    query: (&str, &Parameters),
    request: &'a PageRequest,
    answer: &'a Answer<Page>,
) -> PageNote<'a> {
    let key = request.scope.partition_key.as_ref();
    let page = answer.result.as_ref();
    PageNote {
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

/// The same over the state that a view shows. It follows no links.
pub(crate) fn query_view(
    shared: &Shared,
    container: &Container,
    view: &View,
    text: &str,
    parameters: &Parameters,
    request: &PageRequest,
) -> Answer<Page> {
    query_in(shared, (None, Some(view)), container, text, parameters, request)
}

fn query_in(
    shared: &Shared,
    (catalog, view): (Option<&Catalog>, Option<&View>),
    container: &Container,
    text: &str,
    parameters: &Parameters,
    request: &PageRequest,
) -> Answer<Page> {
    answer_page(shared, container, request, |windows, resume| {
        let started = Instant::now();
        let allowance = allowance::of_page(shared, &request.cancel);
        let environment = allowance::environment(shared, container.definition.geospatial, allowance.clone())?;
        let functions = PageFunctions::of(shared, container, &allowance);
        let links = PageLinks::new(shared, catalog, container, &allowance);
        let links = links.with_page(request)?;
        let schema = Schema::of(&container.definition).with_functions(&functions).with_links(&links);
        let schema = Schema { adds_followed: request.follow.is_some(), ..schema };
        let query =
            Query::compile_within(text, parameters, schema, &allowance)?.with_environment(environment);
        links.check()?;
        if links.are_used() {
            functions.end_foresight();
        }
        let compile = started.elapsed();
        check_crossing(container, &query, request)?;
        let narrow =
            keys_of(container, &query, &request.scope).map(|keys| narrowed(container, windows, keys));
        let windows = narrow.as_deref().unwrap_or(windows);
        // A script that queries has its place already.
        if view.is_none() {
            functions.enter(container)?;
        }
        let identity = &QueryIdentity { container, scope: &request.scope, text, parameters };
        let (query, functions, links) = (&query, &functions, &links);
        let run =
            Run { shared, container, request, allowance, query, identity, functions, links, windows, view };
        run.fill(resume, compile).map_err(|error| links.explain(functions.explain(error)))
    })
}

/// The partition keys that the filter of a query leaves, unless the scope names one anyway; `None` for all.
fn keys_of(container: &Container, query: &Query, scope: &Scope) -> Option<Vec<KeyFilter>> {
    if scope.partition_key.is_some() {
        return None;
    }
    let definition = &container.definition.partition_key;
    let keys = query.partition_key_prefixes(&definition.paths).filter(|keys| keys.len() <= KEYS_MAX)?;
    let keys: Vec<PartitionKey> = keys.iter().map(|values| key_of_values(values)).collect::<Option<_>>()?;
    // A key that no item can have finds none.
    Some(keys.iter().filter_map(|key| KeyFilter::new(definition, key).ok()).collect())
}

pub(crate) fn key_of_values(values: &[Value]) -> Option<PartitionKey> {
    let component = |value: &Value| match value {
        Value::Undefined => Some(Component::Undefined),
        Value::Null => Some(Component::Null),
        Value::Bool(value) => Some(Component::Bool(*value)),
        Value::Number(number) => Some(Component::Number(number.as_f64())),
        Value::String(text) => Some(Component::String(text.clone())),
        Value::Array(_) | Value::Object(_) => None,
    };
    values.iter().map(component).collect::<Option<Vec<_>>>().map(PartitionKey)
}

/// How a page is made.
enum Plan {
    Stream { candidates: Candidates, from: Option<(Spot, u64)>, node: Node },
    Sorted { order: Order, sorting: Sorting, place: Option<Place>, node: Node },
    Whole { feed: Feed, from: WholeStart, newest: u32, node: Node },
}

fn no_order() -> EngineError {
    let message = "A resumeFilter names a place in an order; the query has no ORDER BY.".to_owned();
    EngineError::BadRequest { message }
}

struct Run<'a> {
    shared: &'a Shared,
    container: &'a Container,
    request: &'a PageRequest,
    allowance: Allowance,
    query: &'a Query,
    identity: &'a QueryIdentity<'a>,
    functions: &'a PageFunctions<'a>,
    links: &'a PageLinks<'a>,
    windows: &'a [Window<'a>],
    /// Instead of the newest state.
    view: Option<&'a View>,
}

/// Where a page begins, and since when it is made.
struct Begun {
    resume: Option<Resume>,
    positions: Vec<(u32, u64)>,
    compile: Duration,
    started: Instant,
}

impl Run<'_> {
    fn fill(&self, resume: Option<Resume>, compile: Duration) -> Result<Filled, EngineError> {
        let started = Instant::now();
        let analysis = self.query.analysis();
        self.allowance.check_cancelled()?;
        if let Some(refusal) = analysis.order_refusal(&self.container.definition.indexing) {
            return Err(refusal.into());
        }
        let meter = PageMeter::new(ScanBudget::PAGE, &self.allowance);
        if let Some((row, result)) = self.held_rows(&resume) {
            let mut output = self.output(&None)?;
            if let Some(next) = self.fill_held(&meter, &resume, row, &result, &mut output)? {
                let node = Node::new("Rows of a result that is held");
                let times = (compile, started.elapsed());
                return Ok(self.filled(&analysis, output, meter.cost(), times, next, &node));
            }
        }
        let positions = self.positions(&resume)?;
        let view = match self.view {
            Some(view) => view.clone(),
            None => View::now(self.shared, self.container)?,
        };
        self.links.begin(&view)?;
        let mut reader = Reader::new(self.shared, self.container, &view, self.windows, meter);
        let begun = Begun { resume, positions, compile, started };
        let known = Known::new(self.container, view.indexes, &reader, self.request)?;
        if let Some(search) = self.query.rank_search() {
            let evaluator = Evaluator::new(self.query, self.functions, self.links, self.container)?;
            if let Some(texts) = RankedTexts::of(&mut reader, &known, &evaluator, search)? {
                let query = self.query.clone_with_rank_statistics(texts.statistics.clone());
                let run = Run { query: &query, allowance: self.allowance.clone(), ..*self };
                let analysis = query.analysis();
                return run.fill_from(reader, &known, &analysis, Some(&texts), begun);
            }
        }
        self.fill_from(reader, &known, &analysis, None, begun)
    }

    fn fill_from(
        &self,
        mut reader: Reader<'_>,
        known: &Known<'_>,
        analysis: &Analysis,
        texts: Option<&RankedTexts>,
        Begun { resume, positions, compile, started }: Begun,
    ) -> Result<Filled, EngineError> {
        let mut output = self.output(&resume)?;
        let need = Need { items: output.wanted() as u64, is_preferred: self.request.index_preferred };
        let evaluator = Evaluator::new(self.query, self.functions, self.links, self.container)?;
        let from = match &resume {
            Some(Resume::Stream { spot, .. }) => Some(*spot),
            _ => None,
        };
        let mut chooser = Chooser {
            known,
            reader: &mut reader,
            reads: &analysis.reads,
            evaluator: &evaluator,
            from,
            need,
            wants_missing: false,
        };
        let is_resumed = resume.is_some();
        let plan = self.plan(&mut chooser, analysis, resume, texts)?;
        self.want_missing(chooser.wants_missing, &plan);
        let plan_time = started.elapsed();
        reader.meter.start();
        let holding = self.may_hold().then(|| Holding {
            shared: self.shared,
            temp: self.allowance.temp(),
            identity: self.identity,
            positions,
            is_resumed,
        });
        let (next, node) = self.run(&mut reader, &evaluator, plan, &mut output, holding.as_ref())?;
        let (calls, follow) = (self.functions.calls(), self.links.cost());
        let cost = Cost { calls, follow, ..reader.meter.cost() };
        Ok(self.filled(analysis, output, cost, (compile, plan_time), next, &node))
    }

    fn filled(
        &self,
        analysis: &Analysis,
        output: Output,
        cost: Cost,
        (compile, plan): (Duration, Duration),
        next: Option<Resume>,
        node: &Node,
    ) -> Filled {
        let cost = Cost { compile, plan, ..cost };
        let explain = self.request.explain.then(|| plan::explain::text(node, &cost, output.rows.count()));
        let policy = &self.container.definition.indexing;
        let index_metrics = self.request.index_metrics.then(|| {
            let definition = &self.container.definition.partition_key;
            let is_keyed = self.request.scope.partition_key.is_some();
            IndexMetrics::new(analysis, if is_keyed { &definition.paths } else { &[] }, policy)
        });
        let ties_descending = self.query.ties_descending();
        Filled { rows: output.rows, cost, next, ties_descending, explain, index_metrics }
    }

    /// Results are of the newest state, and know nothing of places that a client names, nor of links that one names beside the
    /// query.
    fn may_hold(&self) -> bool {
        self.view.is_none() && self.request.resume.is_none() && self.request.follow.is_none()
    }

    /// The result in which a page goes on, if it is still held, and from which row on.
    fn held_rows(&self, resume: &Option<Resume>) -> Option<(HeldRow, Arc<HeldResult>)> {
        let row = match resume {
            Some(Resume::Block { query, sent, result: Some(result), .. })
                if *query == self.identity.hash() =>
            {
                HeldRow { result: *result, number: *sent }
            }
            Some(Resume::Sorted { held: Some(row), .. }) => *row,
            _ => return None,
        };
        if !self.may_hold() {
            return None;
        }
        let held = self.shared.results.find(ResultKey::Rows(row.result), &self.identity.result_owner());
        held.map(|held| (row, held))
    }

    /// `None`: the row is not among those that are held.
    fn fill_held(
        &self,
        meter: &PageMeter,
        resume: &Option<Resume>,
        row: HeldRow,
        result: &HeldResult,
        output: &mut Output,
    ) -> Result<Option<Option<Resume>>, EngineError> {
        let from = WholeStart::of(self, resume)?;
        let Some(mut reader) = result.read_record(row.number)? else { return Ok(None) };
        let held = (row.result, result);
        let next = exec::whole::held_page(meter, &mut reader, held, &mut output.rows, &from)?;
        let newest = self.newest(resume);
        Ok(Some(next.map(|next| self.resume_of(next, newest))))
    }

    fn resume_of(&self, next: WholeNext, newest: u32) -> Resume {
        match next {
            WholeNext::Row { sent, result } => {
                Resume::Block { query: self.identity.hash(), sent, newest, result }
            }
            WholeNext::Place { order, place, held } => {
                Resume::Sorted { order, skipped: 0, sent: 0, place, held }
            }
        }
    }

    /// How far the partitions are, before a snapshot is taken that shows at least that: for an order that is to be held.
    fn positions(&self, resume: &Option<Resume>) -> Result<Vec<(u32, u64)>, EngineError> {
        let is_sorted = matches!(resume, Some(Resume::Sorted { .. })) && self.query.sorted().is_some();
        if !is_sorted || !self.may_hold() {
            return Ok(Vec::new());
        }
        let partitions = self.windows.iter().flat_map(Window::partitions);
        partitions.map(|partition| Ok((partition.layout.id, partition.sequencer.lsn()?))).collect()
    }

    fn plan(
        &self,
        chooser: &mut Chooser<'_, '_, '_>,
        analysis: &Analysis,
        resume: Option<Resume>,
        texts: Option<&RankedTexts>,
    ) -> Result<Plan, EngineError> {
        match (self.query.shape(), self.query.sorted(), &analysis.order, resume) {
            (QueryShape::Streaming { .. }, _, _, resume @ (None | Some(Resume::Stream { .. }))) => {
                if self.request.resume.is_some() {
                    return Err(no_order());
                }
                let from = match resume {
                    Some(Resume::Stream { spot, row, .. }) => Some((spot, row)),
                    _ => None,
                };
                let (candidates, node) = chooser.candidates(&analysis.filter)?;
                Ok(Plan::Stream { candidates, from, node })
            }
            (QueryShape::Blocking, Some(_), Some(order), resume @ (None | Some(Resume::Sorted { .. }))) => {
                let (seal, place) = match resume {
                    Some(Resume::Sorted { order, place, .. }) => (Some(order), Some(place)),
                    _ => (None, None),
                };
                let keys: Vec<_> = order.iter().map(|key| (key.path.clone(), key.descending)).collect();
                let order = Order::new(&keys);
                if seal.is_some_and(|hash| hash != order.hash) {
                    return Err(EngineError::BadContinuation);
                }
                let (sorting, node) = chooser.sorting(&analysis.filter, &order)?;
                Ok(Plan::Sorted { order, sorting, place, node })
            }
            (
                QueryShape::Blocking,
                _,
                _,
                resume @ (None | Some(Resume::Block { .. } | Resume::Sorted { .. })),
            ) => {
                let from = WholeStart::of(self, &resume)?;
                // A run stands in the place of its first item, equals that fall are led by their last one: that is the same
                // where they have equal values.
                let accepts_multiplicity = self.query.accepts_multiplicity()
                    && (analysis.order.is_some() || !self.query.ties_descending());
                let fed = match self.counted(chooser)? {
                    Some((values, node)) => Some((Feed::Counted(values), node)),
                    None => plan::index_only::feed_of(
                        chooser.reader,
                        chooser.known,
                        analysis,
                        accepts_multiplicity,
                    )?
                    .map(|(fed, node)| (Feed::Index(fed), node)),
                };
                let fed = match fed {
                    Some(fed) => Some(fed),
                    None => self
                        .scored(chooser, texts, from.sent())?
                        .map(|(candidates, node)| (Feed::First(candidates), node)),
                };
                let (feed, node) = match fed {
                    Some(fed) => fed,
                    None => {
                        let (candidates, node) = self.whole_candidates(chooser, analysis)?;
                        (Feed::Items(candidates), node)
                    }
                };
                Ok(Plan::Whole { feed, newest: self.newest(&resume), from, node })
            }
            (QueryShape::Constant, _, _, resume @ (None | Some(Resume::Block { .. }))) => {
                let node = Node::new("Constant");
                let from = WholeStart::of(self, &resume)?;
                let feed = Feed::Items(Candidates::Nothing);
                Ok(Plan::Whole { feed, newest: self.newest(&resume), from, node })
            }
            _ => Err(EngineError::BadContinuation),
        }
    }

    fn want_missing(&self, is_wanted: bool, plan: &Plan) {
        if let Plan::Sorted { order, .. } = plan {
            self.want_missing_of(is_wanted, order);
        }
    }

    /// Asks for rows of the items that lack the sort key. No query waits for them.
    fn want_missing_of(&self, is_wanted: bool, order: &Order) {
        if let ([key], true) = (order.keys.as_slice(), is_wanted)
            && self.container.partitions.want_missing(&key.path)
        {
            self.shared.workers.catalog.wake();
        }
    }

    /// The aggregates of a query that asks for nothing but counts of texts.
    fn counted(&self, chooser: &mut Chooser<'_, '_, '_>) -> Result<Option<(Vec<Value>, Node)>, EngineError> {
        let Some(search) = self.query.text_statistics() else { return Ok(None) };
        plan::scores::counted(chooser.reader, chooser.known, chooser.evaluator, &search)
    }

    /// The items that come first by their scores, where an index tells them. `sent`: rows of the pages before.
    fn scored(
        &self,
        chooser: &mut Chooser<'_, '_, '_>,
        texts: Option<&RankedTexts>,
        sent: Option<u64>,
    ) -> Result<Option<(Candidates, Node)>, EngineError> {
        let Chooser { known, ref mut reader, evaluator, .. } = *chooser;
        // One more tells whether there is a next page.
        let rows = Rows::new(self.request, None)?.room().saturating_add(1);
        let sent = sent.map(|sent| usize::try_from(sent).unwrap_or(usize::MAX));
        if let Some(texts) = texts {
            let Some(sent) = sent else { return Ok(None) };
            return texts.candidates(reader, known, evaluator, rows.saturating_add(sent));
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
        plan::scores::score_candidates(reader, known, evaluator, &order, needed)
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
        chooser: &mut Chooser<'_, '_, '_>,
        analysis: &Analysis,
    ) -> Result<(Candidates, Node), EngineError> {
        if !self.request.index_use || self.container.definition.indexing.vector.is_empty() {
            return chooser.all_candidates(&analysis.filter);
        }
        Nearest { container: self.container }.candidates(chooser, analysis)
    }

    fn run(
        &self,
        reader: &mut Reader<'_>,
        evaluator: &Evaluator<'_>,
        plan: Plan,
        output: &mut Output,
        holding: Option<&Holding<'_>>,
    ) -> Result<(Option<Resume>, Node), EngineError> {
        match plan {
            Plan::Stream { mut candidates, from, node } => {
                Ok((exec::stream::stream(reader, evaluator, &mut candidates, output, from)?, node))
            }
            Plan::Sorted { order, sorting, place, node } => {
                let mut sorted = Sorted::new(&order, evaluator, reader, self.request, place.as_ref())?;
                match sorting {
                    Sorting::Walk(walk) if !matches!(sorted.start, Start::Within { .. }) => {
                        let next = sorted.walk(reader, &walk, output)?;
                        self.want_missing_of(sorted.wants_missing, &order);
                        Ok((next, node))
                    }
                    Sorting::Walk(_) => {
                        let node = Node::new("Sort, since the item of the continuation is gone");
                        reader.meter.set_budget(ScanBudget::WHOLE);
                        Ok((sorted.sort(reader, &mut Candidates::All, output)?, node))
                    }
                    Sorting::Sort(mut candidates) => {
                        reader.meter.set_budget(ScanBudget::WHOLE);
                        let holding = holding.filter(|holding| {
                            holding.is_resumed
                                && self.query.is_deterministic()
                                && !evaluator.calls_functions()
                                && !self.query.follows_for_rows()
                        });
                        if let Some(holding) = holding
                            && let Some(next) = sorted.sort_held(reader, &mut candidates, output, holding)?
                        {
                            return Ok((next, node));
                        }
                        Ok((sorted.sort(reader, &mut candidates, output)?, node))
                    }
                }
            }
            Plan::Whole { mut feed, from, newest, node } => {
                reader.meter.set_budget(ScanBudget::WHOLE);
                let next = exec::whole::whole(reader, evaluator, &mut feed, &mut output.rows, from, holding)?;
                Ok((next.map(|next| self.resume_of(next, newest)), node))
            }
        }
    }

    fn output(&self, resume: &Option<Resume>) -> Result<Output, EngineError> {
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
        let rows = Rows::new(self.request, Some(&self.allowance))?;
        Ok(Output { rows, offset, limit: limit.unwrap_or(u64::MAX), skipped, sent })
    }
}
