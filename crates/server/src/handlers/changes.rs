//! The change feed: `GET` on a container's items with `A-IM`.

use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use hyper::StatusCode;
use hyper::header::{HeaderName, IF_MODIFIED_SINCE, IF_NONE_MATCH};
use quire_engine::{Answer, Changes, ChangesRequest, Container, FeedMode, FeedStart};

use crate::auth;
use crate::handlers::call::bad_header;
use crate::handlers::items::with_positions;
use crate::handlers::partition_key_ranges::A_IM;
use crate::handlers::{Call, HandlerResult};
use crate::wire::headers::Reply;
use crate::wire::status::{Failure, HandlerError};
use crate::wire::{Feed, envelope};

/// An extension: how long to wait, in milliseconds, for a first change.
const WAIT: HeaderName = HeaderName::from_static("x-quire-wait-ms");
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Between two reads of a request that waits while other items of the partition change.
const READ_INTERVAL: Duration = Duration::from_millis(50);
/// Asks for items as `current` beside their `metadata`. Versions always come so.
const WIRE_FORMAT: &str = "x-ms-cosmos-changefeed-wire-format-version";
const SEPARATE_METADATA: &str = "2021-09-15";
/// An extension: replaces and expiries have the previous version, too.
const ALL_PREVIOUS_IMAGES: HeaderName = HeaderName::from_static("x-quire-all-previous-images");

pub(crate) async fn read(call: &Call<'_>, database: &str, container: &str) -> HandlerResult {
    let (name, mut container) = (container, call.item_container(database, container)?);
    let request = ChangesRequest {
        mode: mode(call)?,
        page: call.page()?,
        start: start(call)?,
        since: since(call)?,
        all_previous_images: call.is_true(&ALL_PREVIOUS_IMAGES),
    };
    let until = Instant::now() + wait(call)?;
    let answer = read_until(call, (database, name), &mut container, request, until).await?;
    let reply = match answer.result {
        Ok(changes) if changes.count == 0 && !changes.more => {
            Reply::empty(StatusCode::NOT_MODIFIED).etag(&changes.etag)
        }
        Ok(changes) => {
            let rid = container.resource.rid.to_string();
            let body = envelope(Feed::Items, &rid, &changes.rows, changes.count);
            Reply::json(StatusCode::OK, body).count(changes.count).etag(&changes.etag)
        }
        Err(error) => Reply::failure(Failure::from(&error)),
    };
    Ok(with_positions(reply, &container, answer.charge, answer.position.as_ref()))
}

pub(crate) fn mode(call: &Call<'_>) -> Result<FeedMode, HandlerError> {
    let mode = call.text(&A_IM)?.unwrap_or_default().trim();
    match mode.to_ascii_lowercase().as_str() {
        "incremental feed" => latest_mode(call),
        "full-fidelity feed" => Ok(FeedMode::AllVersions),
        _ => Err(bad_header("a-im", mode)),
    }
}

fn latest_mode(call: &Call<'_>) -> Result<FeedMode, HandlerError> {
    match call.text(&HeaderName::from_static(WIRE_FORMAT))?.map(str::trim) {
        None | Some("") => Ok(FeedMode::Latest),
        Some(SEPARATE_METADATA) => Ok(FeedMode::LatestWithMetadata),
        Some(other) => Err(bad_header(WIRE_FORMAT, other)),
    }
}

/// Reads, and where there are no changes waits for one and reads again. It holds no permit of the pool while it waits.
async fn read_until(
    call: &Call<'_>,
    (database, name): (&str, &str),
    container: &mut Arc<Container>,
    mut request: ChangesRequest,
    until: Instant,
) -> Result<Answer<Changes>, HandlerError> {
    let (mut charge, mut reads) = (0.0, 0);
    loop {
        let (engine, source) = (call.state.engine.clone(), container.clone());
        let read = move || {
            let answer = engine.read_changes(&source, &request);
            (request, answer)
        };
        let mut answer;
        (request, answer) = call.run(read).await?;
        reads += 1;
        charge += answer.charge;
        answer.charge = charge;
        let etag = match &answer.result {
            Ok(changes) if changes.count == 0 && !changes.more && Instant::now() < until => &changes.etag,
            _ => return Ok(answer),
        };
        let watch = call.state.engine.watch_changes(container, &request.page.scope, etag)?;
        call.free_permit();
        tokio::select! {
            () = watch => {}
            () = tokio::time::sleep_until(until.into()) => return Ok(answer),
            () = call.state.stopped() => return Ok(answer),
        }
        request.start = FeedStart::After(etag.clone());
        // Other items of the partition change: they are read together.
        if reads > 1 {
            tokio::time::sleep(READ_INTERVAL).await;
        }
        *container = call.item_container(database, name)?;
    }
}

fn start(call: &Call<'_>) -> Result<FeedStart, HandlerError> {
    Ok(match call.text(&IF_NONE_MATCH)?.map(str::trim) {
        None | Some("") => FeedStart::Beginning,
        Some("*") => FeedStart::Now,
        Some(etag) => FeedStart::After(etag.to_owned()),
    })
}

/// The first second, since the epoch, whose changes are returned: the one after the date, which has no fractions of seconds.
/// Clients send it again with every page.
fn since(call: &Call<'_>) -> Result<Option<i64>, HandlerError> {
    let Some(text) = call.text(&IF_MODIFIED_SINCE)?.filter(|text| !text.trim().is_empty()) else {
        return Ok(None);
    };
    let date = auth::parse_date(text.trim()).and_then(|date| date.duration_since(UNIX_EPOCH).ok());
    let date = date.ok_or_else(|| bad_header("if-modified-since", text))?;
    Ok(Some(i64::try_from(date.as_secs()).unwrap_or(i64::MAX).saturating_add(1)))
}

fn wait(call: &Call<'_>) -> Result<Duration, HandlerError> {
    let Some(text) = call.text(&WAIT)? else { return Ok(Duration::ZERO) };
    match text.trim().parse() {
        Ok(milliseconds) => Ok(Duration::from_millis(milliseconds).min(WAIT_MAX)),
        Err(_) => Err(bad_header("x-quire-wait-ms", text)),
    }
}
