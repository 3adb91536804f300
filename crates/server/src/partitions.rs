//! `/_quire/dbs/{db}/colls/{coll}/partitions`: how a container is divided, and dividing it further.
//!
//! `GET …/partitions` lists them. `POST …/partitions/{id}/split` makes two of one and answers with the list as it then is;
//! a container's throughput and size do the same by themselves.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, StatusCode};
use percent_encoding::percent_decode_str;
use quire_engine::{Container, PartitionInfo};
use quire_value::{Object, Value};

use crate::request::{Request, Response};
use crate::routes::RouteError;
use crate::state::State;
use crate::status::{HandlerError, RequestError};

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// What a path below `/_quire/dbs/` asks for.
pub(crate) struct Asked {
    database: String,
    container: String,
    /// To be split.
    partition: Option<String>,
}

/// Such a path, percent-decoded.
pub(crate) fn asked(path: &str) -> Option<Result<Asked, RouteError>> {
    let segments: Vec<&str> = path.strip_prefix("/_quire/dbs/")?.split('/').collect();
    let (database, container, partition) = match segments[..] {
        [database, "colls", container, "partitions"] => (database, container, None),
        [database, "colls", container, "partitions", id, "split"] => (database, container, Some(id)),
        _ => return None,
    };
    let decode = |segment: &str| {
        let decoded = percent_decode_str(segment).decode_utf8();
        decoded.map(|name| name.into_owned()).map_err(|_| RouteError::InvalidUrl)
    };
    let asked = || {
        let (database, container) = (decode(database)?, decode(container)?);
        Ok(Asked { database, container, partition: partition.map(decode).transpose()? })
    };
    Some(asked())
}

pub(crate) async fn serve(
    state: &Arc<State>,
    request: &Request,
    asked: Asked,
) -> Result<Response, HandlerError> {
    let is_split = asked.partition.is_some();
    match request.method {
        Method::POST if is_split => {}
        Method::GET | Method::HEAD if !is_split => {}
        _ => return Err(RequestError::Route(RouteError::MethodNotAllowed).into()),
    }
    let shared = state.clone();
    let run = move || {
        let Asked { database, container, partition } = asked;
        let found = shared.engine.container(&database, &container)?;
        if let Some(partition) = partition {
            shared.engine.split_partition(&found, &partition)?;
        }
        // As it is after a split.
        let found = shared.engine.container(&database, &container)?;
        Ok::<_, quire_engine::EngineError>(list(&found))
    };
    let body = state.pool.write(run).await??;
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = StatusCode::OK;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    Ok(response)
}

fn list(container: &Container) -> String {
    let partitions = container.partitions().into_iter().map(one).collect();
    let mut list = Object::new();
    list.set("partitions", Value::Array(partitions));
    Value::Object(list).to_json()
}

fn one(info: PartitionInfo) -> Value {
    let mut partition = Object::new();
    partition.set("id", info.id.as_str());
    partition.set("minInclusive", info.range.min.to_hex().as_str());
    partition.set("maxExclusive", info.range.max.to_hex().as_str());
    let parents = info.parents.iter().map(|parent| Value::from(parent.as_str())).collect();
    partition.set("parents", Value::Array(parents));
    partition.set("lsn", info.lsn as i64);
    partition.set("items", info.item_count as i64);
    partition.set("bytes", info.size_bytes as i64);
    Value::Object(partition)
}
