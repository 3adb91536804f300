//! Plans for clients that run a query over several partitions themselves, and the check which queries clients have to
//! merge.

use quire_resource::{EffectivePartitionKey, EpkRange, PartitionKey};
use quire_sql::{Feature, Query, QueryShape};

use crate::api::{Crossing, EngineError, PageRequest, PlannedQuery, QueryRange, Scope};
use crate::catalog::Container;
use crate::query::partition_scope::{key_of_values, partition_scopes};

/// With more ranges than this the plan names the whole key space: a client would visit every partition anyway.
const RANGES_MAX: usize = 2000;

/// Begins the rewritten query of a plan whose rows no client can merge. The plan names the first key only, so that a client
/// asks one partition, which answers for all. The mark goes on with the key at which that partition ends when the plan is
/// made, and a line end.
///
/// Clients with a feed range of their own ask for the same plan and send the same text to their range. A range that is no
/// whole partition, or that is not the plan's, answers for itself. The first partition as a feed range cannot be told from
/// the plan's: it answers for all.
const OVER_ALL_PARTITIONS: &str = "-- over all partitions, in the one before ";

/// Refuses a query that the request leaves to the client: see [`Crossing`].
pub(crate) fn check_crossing(
    container: &Container,
    query: &Query,
    request: &PageRequest,
) -> Result<(), EngineError> {
    if request.crossing == Crossing::Whole || is_narrowed(container, &request.scope) {
        return Ok(());
    }
    if request.crossing == Crossing::Refused && !has_at_most_one_key(container, query) {
        return Err(EngineError::CrossPartitionRefused);
    }
    // No client can merge the rows of this query, so the server runs it.
    if query.needs_all_partitions() {
        return Ok(());
    }
    let planned = planned(container, query, &request.scope)?;
    let needs = |feature| planned.plan.features.contains(&feature);
    if needs(Feature::GroupBy) || needs(Feature::NonValueAggregate) {
        Err(EngineError::CrossPartitionAggregate)
    } else if planned.plan.features.is_empty() {
        Ok(())
    } else {
        Err(EngineError::PlanNeeded(Box::new(planned)))
    }
}

pub(crate) fn planned(
    container: &Container,
    query: &Query,
    scope: &Scope,
) -> Result<PlannedQuery, EngineError> {
    let ranges = ranges(container, query, scope);
    if query.needs_all_partitions() {
        let mut plan = query.plan_of_one_partition();
        if container.partitions().len() == 1 || is_narrowed(container, scope) {
            return Ok(PlannedQuery { plan, ranges });
        }
        let end = container.partitions().first().map(|first| first.range.max.to_hex()).unwrap_or_default();
        plan.set_rewritten_query(format!("{OVER_ALL_PARTITIONS}{end}\n{}", query.syntax()));
        return Ok(PlannedQuery { plan, ranges: vec![QueryRange::point(EffectivePartitionKey::default())] });
    }
    let plan =
        if has_at_most_one_key(container, query) { query.plan_for_one_key()? } else { query.plan()? };
    Ok(PlannedQuery { plan, ranges })
}

/// The request for a page of a query that a plan has marked ([`OVER_ALL_PARTITIONS`]).
pub(crate) enum MarkedRequest {
    /// The first partition answers for all.
    Whole(PageRequest),
    /// What the plan's partition was split into has no more rows. A client asks it when that happened while it read pages.
    Nothing(PageRequest),
}

/// `None`: the query has no mark, or the request names a partition key or a range that the plan does not.
pub(crate) fn marked_request(
    container: &Container,
    text: &str,
    request: &PageRequest,
) -> Result<Option<MarkedRequest>, EngineError> {
    let Some(end) = end_of_marked(text).filter(|_| request.scope.partition_key.is_none()) else {
        return Ok(None);
    };
    let scopes = partition_scopes(container, &request.scope)?;
    let is_whole = scopes.iter().all(|scope| scope.range == scope.partition.layout.range);
    Ok(match scopes.iter().map(|scope| &scope.range.min).min() {
        Some(min) if is_whole && *min == EffectivePartitionKey::default() => {
            let scope = Scope::default();
            Some(MarkedRequest::Whole(PageRequest { scope, crossing: Crossing::Whole, ..request.clone() }))
        }
        Some(min) if is_whole && *min < end => {
            Some(MarkedRequest::Nothing(PageRequest { continuation: None, ..request.clone() }))
        }
        _ => None,
    })
}

/// Where the first partition ended when the plan of a marked query was made.
fn end_of_marked(text: &str) -> Option<EffectivePartitionKey> {
    let (end, _) = text.strip_prefix(OVER_ALL_PARTITIONS)?.split_once('\n')?;
    EffectivePartitionKey::from_hex(end)
}

/// Like the service's gateway, which accepts every partition key and every partition id. A range is checked by the
/// partitions it touches.
fn is_narrowed(container: &Container, scope: &Scope) -> bool {
    let touches_one = |range: &EpkRange| {
        container.partitions().iter().filter(|partition| partition.range.intersect(range).is_some()).count()
            <= 1
    };
    scope.partition_key.is_some()
        || scope.partition_id.is_some()
        || scope.range.as_ref().is_some_and(touches_one)
}

fn has_at_most_one_key(container: &Container, query: &Query) -> bool {
    query.shape() == QueryShape::Constant
        || query
            .partition_key_filter(&container.definition.partition_key.paths)
            .is_some_and(|keys| keys.len() <= 1)
}

/// The key ranges that can contain items which match the scope and the filter.
fn ranges(container: &Container, query: &Query, scope: &Scope) -> Vec<QueryRange> {
    let definition = &container.definition.partition_key;
    let range_of = |key: &PartitionKey| {
        let effective = definition.effective(key);
        if key.0.len() < definition.paths.len() {
            QueryRange::from(EpkRange::of_prefix(&effective))
        } else {
            QueryRange::point(effective)
        }
    };
    if let Some(key) = &scope.partition_key {
        return vec![range_of(key)];
    }
    // An empty set of keys is read in one range: a count over no items still gives a row.
    if query.shape() == QueryShape::Constant {
        return vec![QueryRange::point(EffectivePartitionKey::default())];
    }
    let keys = query.partition_key_prefixes(&definition.paths).filter(|keys| keys.len() <= RANGES_MAX);
    let keys: Option<Vec<PartitionKey>> =
        keys.and_then(|keys| keys.iter().map(|values| key_of_values(values)).collect());
    match keys {
        None => vec![QueryRange::from(EpkRange::full())],
        Some(keys) if keys.is_empty() => vec![QueryRange::point(EffectivePartitionKey::default())],
        Some(keys) => merged(keys.iter().map(range_of).collect()),
    }
}

impl QueryRange {
    fn point(key: EffectivePartitionKey) -> QueryRange {
        QueryRange { min: key.clone(), max: key, includes_max: true }
    }
}

impl From<EpkRange> for QueryRange {
    fn from(EpkRange { min, max }: EpkRange) -> QueryRange {
        QueryRange { min, max, includes_max: false }
    }
}

/// Clients expect the ranges sorted and without overlaps.
fn merged(mut ranges: Vec<QueryRange>) -> Vec<QueryRange> {
    ranges.sort_by(|left, right| {
        (&left.min, &left.max, left.includes_max).cmp(&(&right.min, &right.max, right.includes_max))
    });
    let mut merged: Vec<QueryRange> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.min <= last.max => {
                if (&range.max, range.includes_max) > (&last.max, last.includes_max) {
                    (last.max, last.includes_max) = (range.max, range.includes_max);
                }
            }
            _ => merged.push(range),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> EffectivePartitionKey {
        EffectivePartitionKey(vec![byte])
    }

    fn range(min: u8, max: u8) -> QueryRange {
        QueryRange { min: key(min), max: key(max), includes_max: false }
    }

    #[test]
    fn ranges_are_sorted_and_apart() {
        let point = |byte| QueryRange::point(key(byte));
        let ranges = vec![point(9), range(3, 5), point(4), point(5), point(1), point(9), range(4, 5)];
        let upto_five = QueryRange { min: key(3), max: key(5), includes_max: true };
        assert_eq!(merged(ranges), [point(1), upto_five, point(9)]);
        assert_eq!(merged(vec![range(1, 9), range(2, 3)]), [range(1, 9)]);
    }
}
