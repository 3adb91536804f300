//! A request with its headers parsed.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{HeaderName, HeaderValue};
use parking_lot::Mutex;
use quire_engine::{
    CONTINUATION_BYTES_MAX, Container, EngineError, FollowRequest, IndexingDirective, ObservedRequest,
    PageRequest, Precondition, Resource, Scope,
};
use quire_resource::{
    EffectivePartitionKey, EpkRange, PartitionKey, PartitionKeyError, ResourceId, SessionToken, Throughput,
};
use quire_value::{Limits, Value, text};

use crate::edge::budget::{ByteReservation, parsed_bytes};
use crate::edge::recording::RecordedAction;
use crate::edge::request::Request;
use crate::handlers::consistency;
use crate::net::pool::{Party, PoolPermit, Work};
use crate::operations::{Action, Lane, Operation};
use crate::routes;
use crate::state::ServerState;
use crate::wire::binary_json;
use crate::wire::headers::Reply;
use crate::wire::item_operations::indexing_directive;
use crate::wire::status::{HandlerError, RequestError};
use crate::wire::{QueryBody, parse_query};

const VERSION: HeaderName = HeaderName::from_static("x-ms-version");
/// An extension: links to follow from items.
const FOLLOW: HeaderName = HeaderName::from_static("x-quire-follow");
const CROSS_PARTITION: HeaderName = HeaderName::from_static("x-ms-documentdb-query-enablecrosspartition");
const SUPPORTED_FORMATS: HeaderName = HeaderName::from_static("x-ms-cosmos-supported-serialization-formats");
const CONTENT_FORMAT: HeaderName = HeaderName::from_static("x-ms-documentdb-content-serialization-format");
const PARTITION_KEY: HeaderName = HeaderName::from_static("x-ms-documentdb-partitionkey");
const PARTITION_ID: HeaderName = HeaderName::from_static("x-ms-documentdb-partitionkeyrangeid");
const START_EPK: HeaderName = HeaderName::from_static("x-ms-start-epk");
const END_EPK: HeaderName = HeaderName::from_static("x-ms-end-epk");
const READ_KEY_TYPE: HeaderName = HeaderName::from_static("x-ms-read-key-type");
const INTENDED_RID: HeaderName = HeaderName::from_static("x-ms-cosmos-intended-collection-rid");
const SESSION_TOKEN: HeaderName = HeaderName::from_static("x-ms-session-token");
const CONSISTENCY_LEVEL: HeaderName = HeaderName::from_static("x-ms-consistency-level");
const PAGE_SIZE: HeaderName = HeaderName::from_static("x-ms-max-item-count");
const CONTINUATION: HeaderName = HeaderName::from_static("x-ms-continuation");
const CONTINUATION_LIMIT: HeaderName =
    HeaderName::from_static("x-ms-documentdb-responsecontinuationtokenlimitinkb");
const INDEXING_DIRECTIVE: HeaderName = HeaderName::from_static("x-ms-indexing-directive");
const OFFER_THROUGHPUT: HeaderName = HeaderName::from_static("x-ms-offer-throughput");
const OFFER_AUTOSCALE: HeaderName = HeaderName::from_static("x-ms-cosmos-offer-autopilot-settings");

/// Less is not counted: a few KB beside those of the connection.
const PARSED_BYTES_MIN: usize = 8 << 10;

/// A request about to be served.
pub(crate) struct Call<'a> {
    pub state: &'a Arc<ServerState>,
    pub request: &'a Request,
    /// `x-ms-documentdb-partitionkey`, once parsed.
    pub partition_key: Option<PartitionKey>,
    /// The operation that was authorized.
    pub operation: Operation,
    /// What is left of the throughput for this request, where it is enforced.
    pub charge_max: Option<f64>,
    permit: Mutex<Option<PoolPermit>>,
    /// The memory of values that were parsed from the body, among that of all bodies.
    parsed: Mutex<Option<ByteReservation>>,
    /// The action that the request belongs to, where it is recorded.
    pub recorded: Option<RecordedAction>,
    /// What the last engine call did, for the record of requests.
    observed: Mutex<Option<ObservedRequest>>,
}

impl<'a> Call<'a> {
    pub fn new(
        state: &'a Arc<ServerState>,
        request: &'a Request,
        operation: Operation,
    ) -> Result<Call<'a>, HandlerError> {
        if let Some(level) = request.text(&CONSISTENCY_LEVEL)? {
            consistency::check(level, state.config.consistency)?;
        }
        check_version(request)?;
        check_formats(request)?;
        let partition_key = partition_key(request)?;
        let (charge_max, recorded) = (None, RecordedAction::of(state, request));
        let (permit, parsed, observed) = (Mutex::new(None), Mutex::new(None), Mutex::new(None));
        Ok(Call { state, request, partition_key, operation, charge_max, permit, parsed, recorded, observed })
    }

    /// Runs an engine call in the lane of the operation.
    pub async fn run<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, EngineError> {
        self.run_as(self.operation.lane.work(), call).await
    }

    /// The same for a call that runs scripts.
    pub async fn run_script<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, EngineError> {
        debug_assert!(
            matches!(self.operation.lane, Lane::Script | Lane::ReadOrScript | Lane::WriteOrScript),
            "{:?} runs no scripts",
            self.operation.name
        );
        self.run_as(Work::Script, call).await
    }

    async fn run_as<T: Send + 'static>(
        &self,
        work: Work,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, EngineError> {
        self.free_permit();
        // One call for both cases: the future of a request has room for each that is waited for.
        let engine = self.recorded.map(|_| self.state.engine.clone());
        let call = move || match engine {
            Some(engine) => {
                let (answer, observed) = engine.observe(call);
                (answer, Some(observed))
            }
            None => (call(), None),
        };
        let ((answer, observed), permit) = self.state.pool.run(work, self.party(), call).await?;
        *self.permit.lock() = Some(permit);
        *self.observed.lock() = observed;
        Ok(answer)
    }

    /// With whom the request shares the pool: with all tokens of its container, or with all requests with a key about it.
    pub fn party(&self) -> Party {
        match self.request.token_owner {
            // A path has many spellings, and a token is of a sender that may choose among them.
            Some(owner) => self.state.pool.party(&owner),
            None => self.state.pool.party(routes::owner_part(&self.request.path)),
        }
    }

    /// Runs a short engine call here.
    pub fn run_here<T>(&self, call: impl FnOnce() -> T) -> T {
        if self.recorded.is_none() {
            return call();
        }
        let (answer, observed) = self.state.engine.observe(call);
        *self.observed.lock() = Some(observed);
        answer
    }

    /// What the last engine call did.
    pub fn take_observed(&self) -> ObservedRequest {
        self.observed.lock().take().unwrap_or_default()
    }

    /// Gives the permit of the last engine call back, before a wait. Otherwise it is kept until the answer is written.
    pub fn free_permit(&self) {
        self.permit.lock().take();
    }

    /// A header's text; an error when it is not UTF-8.
    pub fn text(&self, name: &HeaderName) -> Result<Option<&'a str>, HandlerError> {
        self.request.text(name)
    }

    /// Clients write `True`, `true`, `False` and `false`.
    pub fn is_true(&self, name: &HeaderName) -> bool {
        self.request.is_true(name)
    }

    /// For headers whose answer is about the whole container.
    pub fn check_whole_container(&self, header: &str) -> Result<(), HandlerError> {
        if !self.request.is_limited_to_part {
            return Ok(());
        }
        let reason = format!("A token for a part of a container cannot ask for {header}.");
        Err(EngineError::Forbidden { reason }.into())
    }

    /// The links that the client wants followed from items.
    pub fn follow(&self) -> Result<Option<FollowRequest>, HandlerError> {
        let Some(text) = self.text(&FOLLOW)? else { return Ok(None) };
        if self.request.has_token {
            let reason = "A resource token cannot follow links.".to_owned();
            return Err(EngineError::Forbidden { reason }.into());
        }
        Ok(Some(FollowRequest::parse(text)?))
    }

    /// Whether a query may be about more than one partition.
    pub fn crosses_partitions(&self) -> bool {
        self.is_true(&CROSS_PARTITION)
    }

    pub fn is_upsert(&self) -> bool {
        self.operation.action == Action::Upsert
    }

    /// JSON text, also where the client sent the binary form.
    pub fn body(&self) -> Result<Bytes, HandlerError> {
        let body = &self.request.body;
        if !binary_json::is_binary(body) {
            return Ok(body.clone());
        }
        Ok(Bytes::from(binary_json::to_text(body).map_err(RequestError::from)?))
    }

    pub fn json(&self) -> Result<Value, HandlerError> {
        let body = self.body()?;
        self.reserve_parsed(&body)?;
        Ok(text::parse(&body, Limits::default()).map_err(EngineError::from)?)
    }

    pub fn query(&self) -> Result<QueryBody, HandlerError> {
        let body = self.body()?;
        self.reserve_parsed(&body)?;
        parse_query(&body)
    }

    /// Before a body is parsed: its values are in memory until it is answered, however long it waits for a permit.
    fn reserve_parsed(&self, body: &[u8]) -> Result<(), HandlerError> {
        let bytes = parsed_bytes(body);
        if bytes >= PARSED_BYTES_MIN {
            let mut reserved = self.state.bytes.reserve();
            reserved.grow_to(bytes).inspect_err(|_| self.state.network.connections.end_stalled())?;
            *self.parsed.lock() = Some(reserved);
        }
        Ok(())
    }

    pub fn precondition(&self) -> Result<Precondition, HandlerError> {
        self.request.precondition()
    }

    pub fn throughput(&self) -> Result<Option<Throughput>, HandlerError> {
        let (manual, autoscale) = (self.text(&OFFER_THROUGHPUT)?, self.text(&OFFER_AUTOSCALE)?);
        Ok(Throughput::from_headers(manual, autoscale).map_err(EngineError::from)?)
    }

    pub fn session(&self) -> Result<Option<SessionToken>, HandlerError> {
        match self.text(&SESSION_TOKEN)? {
            None | Some("") => Ok(None),
            Some(text) => match SessionToken::parse(text) {
                Ok(token) => Ok(Some(token)),
                Err(error) => Err(RequestError::BadRequest { message: error.to_string() }.into()),
            },
        }
    }

    pub fn indexing(&self) -> Result<IndexingDirective, HandlerError> {
        let Some(value) = self.text(&INDEXING_DIRECTIVE)? else { return Ok(IndexingDirective::Default) };
        indexing_directive(value).ok_or_else(|| bad_header("x-ms-indexing-directive", value))
    }

    /// The container that the path names. The caller knows whether it is the resource itself or its owner.
    fn find_container(&self, database: &str, container: &str) -> Result<Arc<Container>, HandlerError> {
        let found = self.state.engine.catalog().container(database, container)?;
        if let Some(intended) = self.text(&INTENDED_RID)?
            && ResourceId::of_text(intended) != Some(found.resource.rid)
        {
            return Err(EngineError::ContainerRidMismatch.into());
        }
        // By its rid, which it had when it had the name of another one.
        if found.is_closed() && found.definition.id != container {
            return Err(EngineError::ContainerReplaced.into());
        }
        Ok(found)
    }

    /// The container as the resource that the request is about.
    pub fn container(&self, database: &str, container: &str) -> Result<Arc<Container>, HandlerError> {
        self.find_container(database, container)
    }

    /// The container as the owner of that resource: a missing one is a missing owner.
    pub fn owner_container(&self, database: &str, container: &str) -> Result<Arc<Container>, HandlerError> {
        self.find_container(database, container).map_err(owner_missing)
    }

    /// The container of items. By name it is looked up by the gateway of the service, whose answer names no owner.
    pub fn item_container(&self, database: &str, container: &str) -> Result<Arc<Container>, HandlerError> {
        let is_by_rid = matches!(ResourceId::of_text(database), Some(ResourceId::Database(_)));
        if is_by_rid {
            return self.owner_container(database, container);
        }
        self.find_container(database, container).map_err(|error| match error {
            HandlerError::Engine(EngineError::OwnerNotFound { kind, id }) => {
                EngineError::ResourceNotFound { kind, id }.into()
            }
            error => error,
        })
    }

    /// The partition key of the request. Containers from before partition keys have one that clients do not send.
    pub fn key_in(&self, container: &Container) -> Option<Cow<'_, PartitionKey>> {
        let is_from_before = container.definition.partition_key.system_key;
        let empty = || is_from_before.then(|| Cow::Owned(PartitionKey(Vec::new())));
        self.partition_key.as_ref().map(Cow::Borrowed).or_else(empty)
    }

    /// Whether the client's version of the protocol has partition keys everywhere.
    pub fn knows_partition_keys(&self) -> bool {
        let version = self.request.headers.get(&VERSION).map(HeaderValue::as_bytes);
        version.is_none_or(|version| version >= PARTITION_KEYS_SINCE.as_bytes())
    }

    /// The database as the owner of the resource that the request is about.
    pub fn owner_database(&self, database: &str) -> Result<Arc<Resource>, HandlerError> {
        self.state.engine.catalog().database(database).map_err(|error| owner_missing(error.into()))
    }

    pub fn scope(&self) -> Result<Scope, HandlerError> {
        let partition_id = match self.text(&PARTITION_ID)? {
            None | Some("") => None,
            // `{container rid},{id}` is an older form
            Some(text) => Some(text.rsplit(',').next().unwrap_or(text).trim().to_owned()),
        };
        Ok(Scope { partition_key: self.partition_key.clone(), partition_id, range: self.range()? })
    }

    fn range(&self) -> Result<Option<EpkRange>, HandlerError> {
        if let Some(kind) = self.text(&READ_KEY_TYPE)?
            && !kind.eq_ignore_ascii_case("EffectivePartitionKeyRange")
        {
            return Err(bad_header("x-ms-read-key-type", kind));
        }
        let (start, end) = (self.text(&START_EPK)?, self.text(&END_EPK)?);
        if start.is_none() && end.is_none() {
            return Ok(None);
        }
        let full = EpkRange::full();
        let bound = |text: Option<&str>, name, default| match text {
            None => Ok(default),
            Some(text) => EffectivePartitionKey::from_hex(text).ok_or_else(|| bad_header(name, text)),
        };
        let min = bound(start, "x-ms-start-epk", full.min)?;
        let max = bound(end, "x-ms-end-epk", full.max)?;
        Ok(Some(EpkRange { min, max }))
    }

    pub fn page(&self) -> Result<PageRequest, HandlerError> {
        Ok(PageRequest {
            scope: self.scope()?,
            item_count_max: self.page_size()?,
            continuation: self.text(&CONTINUATION)?.filter(|text| !text.is_empty()).map(own_token),
            continuation_bytes_max: self.continuation_bytes_max()?,
            session: self.session()?,
            ..PageRequest::cancelled_by(self.request.client.cancel())
        })
    }

    /// Absent and 0: the server decides; -1: as many as fit.
    fn page_size(&self) -> Result<Option<i64>, HandlerError> {
        let Some(text) = self.text(&PAGE_SIZE)? else { return Ok(None) };
        match text.trim().parse::<i64>() {
            Ok(0) => Ok(None),
            Ok(size) if size >= -1 => Ok(Some(size)),
            _ => Err(RequestError::BadPageSize { value: text.to_owned() }.into()),
        }
    }

    fn continuation_bytes_max(&self) -> Result<usize, HandlerError> {
        let Some(text) = self.text(&CONTINUATION_LIMIT)? else { return Ok(CONTINUATION_BYTES_MAX) };
        match text.trim().parse::<usize>() {
            Ok(0) => {
                let message = "The continuation token limit specified is not large enough.".to_owned();
                Err(RequestError::BadRequest { message }.into())
            }
            Ok(kilobytes) => Ok(kilobytes.saturating_mul(1024).min(CONTINUATION_BYTES_MAX)),
            Err(_) => Err(bad_header("x-ms-documentdb-responsecontinuationtokenlimitinkb", text)),
        }
    }

    /// 304 when the client has this version already, the resource otherwise.
    pub fn read_reply(
        &self,
        resource: &Resource,
        body: impl FnOnce() -> String,
    ) -> Result<Reply, HandlerError> {
        let known = self.request.has_version(&resource.etag)?;
        let reply =
            if known { Reply::empty(StatusCode::NOT_MODIFIED) } else { Reply::json(StatusCode::OK, body()) };
        Ok(reply.etag(&resource.etag))
    }
}

/// Our token inside a token of the gateway, which names the range as well; any other text unchanged.
fn own_token(text: &str) -> String {
    let json = text.starts_with('{').then(|| text::parse(text.as_bytes(), Limits::default()).ok()).flatten();
    let token = json.as_ref().and_then(|json| json.get("token")?.as_str());
    token.unwrap_or(text).to_owned()
}

pub(crate) fn bad_header(name: &'static str, value: &str) -> HandlerError {
    RequestError::BadHeader { name, value: value.to_owned() }.into()
}

/// The versions of the protocol. Later ones are accepted as well: they change what clients ask for, not how.
const VERSIONS: [&str; 20] = [
    "2014-08-21",
    "2015-04-08",
    "2015-06-03",
    "2015-08-06",
    "2015-12-16",
    "2016-05-30",
    "2016-07-11",
    "2016-11-14",
    "2017-01-19",
    "2017-02-22",
    "2017-05-03",
    "2017-11-15",
    "2018-06-18",
    "2018-08-31",
    "2018-09-17",
    PARTITION_KEYS_SINCE,
    "2019-05-01",
    "2019-10-14",
    "2020-07-15",
    "2020-11-05",
];
/// Before it a container can be without a partition key.
const PARTITION_KEYS_SINCE: &str = "2018-12-31";

fn check_version(request: &Request) -> Result<(), HandlerError> {
    let Some(version) = request.text(&VERSION)? else { return Ok(()) };
    let is_date = |text: &str| {
        let shape = text.bytes().map(|byte| if byte.is_ascii_digit() { b'0' } else { byte });
        shape.eq(*b"0000-00-00")
    };
    let newest = VERSIONS[VERSIONS.len() - 1];
    if VERSIONS.contains(&version) || is_date(version) && version > newest {
        return Ok(());
    }
    let message = format!(
        "Invalid API version '{version}'. Ensure a valid x-ms-version header value is passed. Please update to the latest \
         version of the SDK."
    );
    Err(RequestError::BadRequest { message }.into())
}

/// Whether the client accepts answers in the binary form and in no other.
pub(crate) fn accepts_binary_only(request: &Request) -> bool {
    let names = |name: &HeaderName, format: &str| {
        let value = request.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        value.split(',').any(|one| one.trim().eq_ignore_ascii_case(format))
    };
    let offers = |format| names(&SUPPORTED_FORMATS, format);
    names(&CONTENT_FORMAT, BINARY) || offers(BINARY) && !offers(TEXT)
}

/// Formats of answers: text, and the binary form of items.
const TEXT: &str = "JsonText";
const BINARY: &str = "CosmosBinary";

fn check_formats(request: &Request) -> Result<(), HandlerError> {
    for (name, text) in [
        (&SUPPORTED_FORMATS, "x-ms-cosmos-supported-serialization-formats"),
        (&CONTENT_FORMAT, "x-ms-documentdb-content-serialization-format"),
    ] {
        let value = request.text(name)?.unwrap_or_default();
        let mut formats = value.split(',').map(str::trim).filter(|format| !format.is_empty());
        // Clients that send batches in rows name that form for their answers, too.
        let is_known =
            |format: &str| [TEXT, BINARY, "HybridRow"].iter().any(|known| format.eq_ignore_ascii_case(known));
        if !formats.all(is_known) {
            return Err(bad_header(text, value));
        }
    }
    Ok(())
}

/// `x-ms-documentdb-partitionkey`.
pub(crate) fn partition_key(request: &Request) -> Result<Option<PartitionKey>, HandlerError> {
    match request.text(&PARTITION_KEY)? {
        None | Some("") => Ok(None),
        Some(text) => {
            let key = PartitionKey::from_header(text);
            Ok(Some(key.map_err(|error: PartitionKeyError| EngineError::from(error))?))
        }
    }
}

pub(super) fn owner_missing(error: HandlerError) -> HandlerError {
    match error {
        HandlerError::Engine(EngineError::ResourceNotFound { kind, id }) => {
            EngineError::OwnerNotFound { kind, id }.into()
        }
        error => error,
    }
}
