//! What a request asks for, read from its headers.

use std::str;
use std::sync::Arc;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{HeaderName, IF_MATCH, IF_NONE_MATCH};
use quire_engine::{
    CONTINUATION_BYTES_MAX, Container, EngineError, IndexingDirective, PageRequest, Precondition, Resource,
    Scope,
};
use quire_resource::{
    EffectivePartitionKey, EpkRange, PartitionKey, PartitionKeyError, ResourceId, SessionToken, Throughput,
};
use quire_value::{Limits, Value, text};

use crate::binary_json;
use crate::handlers::consistency;
use crate::headers::Reply;
use crate::operations::{Action, Lane, Operation};
use crate::request::Request;
use crate::state::State;
use crate::status::{HandlerError, RequestError};

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

/// A request about to be served.
pub(crate) struct Call<'a> {
    pub state: &'a State,
    pub request: &'a Request,
    /// `x-ms-documentdb-partitionkey`, once parsed.
    pub partition_key: Option<PartitionKey>,
    /// What the request asks for, as it was authorized.
    pub operation: Operation,
    /// What the throughput leaves for this request, where it is enforced.
    pub charge_max: Option<f64>,
}

impl<'a> Call<'a> {
    pub fn new(
        state: &'a State,
        request: &'a Request,
        operation: Operation,
    ) -> Result<Call<'a>, HandlerError> {
        if let Some(level) = text_of(request, &CONSISTENCY_LEVEL)? {
            consistency::check(level, state.config.consistency)?;
        }
        let partition_key = partition_key(request)?;
        Ok(Call { state, request, partition_key, operation, charge_max: None })
    }

    /// Runs an engine call in the lane of the operation.
    pub async fn run<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, EngineError> {
        let pool = &self.state.pool;
        match self.operation.lane {
            Lane::Memory | Lane::Read | Lane::ReadOrScript => pool.read(call).await,
            Lane::Write | Lane::WriteOrScript => pool.write(call).await,
            Lane::Script => pool.script(call).await,
        }
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
        self.state.pool.script(call).await
    }

    /// A header's text; an error when it is not UTF-8.
    pub fn text(&self, name: &HeaderName) -> Result<Option<&'a str>, HandlerError> {
        text_of(self.request, name)
    }

    /// Clients write `True`, `true`, `False` and `false`.
    pub fn is_true(&self, name: &HeaderName) -> bool {
        is_true(self.request, name)
    }

    pub fn is_upsert(&self) -> bool {
        self.operation.action == Action::Upsert
    }

    /// JSON text, whichever form the client sent.
    pub fn body(&self) -> Result<Bytes, HandlerError> {
        let body = &self.request.body;
        if !binary_json::is_binary(body) {
            return Ok(body.clone());
        }
        Ok(Bytes::from(binary_json::to_text(body).map_err(RequestError::from)?))
    }

    pub fn json(&self) -> Result<Value, HandlerError> {
        Ok(text::parse(&self.body()?, Limits::default()).map_err(EngineError::from)?)
    }

    pub fn precondition(&self) -> Result<Precondition, HandlerError> {
        Ok(Precondition { if_match: self.text(&IF_MATCH)?.map(str::to_owned) })
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

    /// The container that the path names or lies in; the caller knows which of the two a missing one is.
    fn find_container(&self, database: &str, container: &str) -> Result<Arc<Container>, HandlerError> {
        let found = self.state.engine.container(database, container)?;
        if let Some(intended) = self.text(&INTENDED_RID)?
            && ResourceId::parse(intended).ok() != Some(found.resource.rid)
        {
            return Err(EngineError::ContainerRidMismatch.into());
        }
        Ok(found)
    }

    /// The container as the resource that is asked for.
    pub fn container(&self, database: &str, container: &str) -> Result<Arc<Container>, HandlerError> {
        self.find_container(database, container)
    }

    /// The container as the owner of what is asked for: a missing one is a missing owner.
    pub fn owner_container(&self, database: &str, container: &str) -> Result<Arc<Container>, HandlerError> {
        self.find_container(database, container).map_err(owner_missing)
    }

    /// The database as the owner of what is asked for.
    pub fn owner_database(&self, database: &str) -> Result<Arc<Resource>, HandlerError> {
        self.state.engine.database(database).map_err(|error| owner_missing(error.into()))
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
            cancel: self.request.client.cancel(),
            ..PageRequest::default()
        })
    }

    /// Absent and 0 leave it to the server, -1 asks for as many as fit.
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
            Ok(0) => Ok(CONTINUATION_BYTES_MAX),
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
        let known = self.text(&IF_NONE_MATCH)?.is_some_and(|known| etag_matches(known, &resource.etag));
        let reply =
            if known { Reply::empty(StatusCode::NOT_MODIFIED) } else { Reply::json(StatusCode::OK, body()) };
        Ok(reply.etag(&resource.etag))
    }
}

/// Our token inside the gateway's, which names the range as well; any other text is as it came.
fn own_token(text: &str) -> String {
    let json = text.starts_with('{').then(|| text::parse(text.as_bytes(), Limits::default()).ok()).flatten();
    let token = json.as_ref().and_then(|json| json.get("token")?.as_str());
    token.unwrap_or(text).to_owned()
}

/// By name, or by Python's numbers.
pub(super) fn indexing_directive(text: &str) -> Option<IndexingDirective> {
    match text.to_ascii_lowercase().as_str() {
        "default" | "0" => Some(IndexingDirective::Default),
        "exclude" | "1" => Some(IndexingDirective::Exclude),
        "include" | "2" => Some(IndexingDirective::Include),
        _ => None,
    }
}

/// `*`, the etag, or the etag without its quotes.
fn etag_matches(known: &str, etag: &str) -> bool {
    known == "*" || known == etag || known == etag.trim_matches('"')
}

pub(crate) fn bad_header(name: &'static str, value: &str) -> HandlerError {
    RequestError::BadHeader { name, value: value.to_owned() }.into()
}

fn is_true(request: &Request, name: &HeaderName) -> bool {
    request.headers.get(name).is_some_and(|value| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"true"))
}

fn text_of<'a>(request: &'a Request, name: &HeaderName) -> Result<Option<&'a str>, HandlerError> {
    match request.headers.get(name) {
        None => Ok(None),
        Some(value) => match str::from_utf8(value.as_bytes()) {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(RequestError::HeaderNotUtf8 { name: name.clone() }.into()),
        },
    }
}

/// `x-ms-documentdb-partitionkey`.
pub(crate) fn partition_key(request: &Request) -> Result<Option<PartitionKey>, HandlerError> {
    match text_of(request, &PARTITION_KEY)? {
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
