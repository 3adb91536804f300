//! What the edge logs. Names of items and their contents never appear.

use std::time::Duration;

use hyper::StatusCode;
use hyper::header::HeaderValue;

use crate::edge::metrics::Operation;

/// A request that took longer than the threshold. The path is cut after the container.
pub(crate) fn slow(
    operation: Operation,
    path: &str,
    status: StatusCode,
    took: Duration,
    activity_id: &HeaderValue,
) {
    tracing::warn!(
        operation = operation.name(),
        resource = operation.resource(),
        owner = owner(path),
        status = status.as_u16(),
        took_ms = took.as_secs_f64() * 1e3,
        activity_id = activity_id.to_str().unwrap_or_default(),
        "slow request"
    );
}

pub(crate) fn panicked(path: &str, activity_id: &HeaderValue, reason: &str) {
    tracing::error!(
        owner = owner(path),
        activity_id = activity_id.to_str().unwrap_or_default(),
        reason,
        "request panicked"
    );
}

/// More of a path is not logged: clients without a key choose theirs.
const OWNER_BYTES_MAX: usize = 600;

/// `/dbs/{}/colls/{}` at most.
fn owner(path: &str) -> &str {
    let end = path.match_indices(['/', '?']).nth(4).map_or(path.len(), |(position, _)| position);
    &path[..path.floor_char_boundary(end.min(OWNER_BYTES_MAX))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn item_ids_are_not_logged() {
        assert_eq!(owner("/dbs/d/colls/c/docs/secret"), "/dbs/d/colls/c");
        assert_eq!(owner("/dbs/d/colls/c/"), "/dbs/d/colls/c");
        assert_eq!(owner("/dbs/d"), "/dbs/d");
        assert_eq!(owner(&"/".repeat(100_000)).len(), 4);
        assert_eq!(owner(&"x".repeat(100_000)).len(), OWNER_BYTES_MAX);
    }
}
