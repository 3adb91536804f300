//! Enforces the provisioned throughput: only with `--enforce-throughput`.
//!
//! Every partition of a container with throughput of its own has an equal share of it; containers that share the throughput
//! of a database share one balance. A request is admitted while the balance is positive and its charge is subtracted
//! afterwards, so the balance may become negative. Then requests are refused: 429 says for how long.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use hyper::header::HeaderName;
use parking_lot::Mutex;
use quire_engine::Container;

use crate::handlers::Call;
use crate::routes::RouteKind;
use crate::wire::status::{HandlerError, RequestError};

const PRIORITY: HeaderName = HeaderName::from_static("x-ms-cosmos-priority-level");
/// A full balance is what is refilled within this time.
const BURST: Duration = Duration::from_secs(1);
/// The part of a full balance that is reserved for requests of normal priority.
const RESERVED_SHARE: f64 = 0.25;
/// With more balances than this, those that are full are removed.
const BALANCE_COUNT_MAX: usize = 10_000;

#[derive(Default)]
pub(crate) struct Throttle {
    balances: Mutex<HashMap<BalanceKey, Balance>>,
}

/// The rid of the offer, and the partition where each has a balance of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct BalanceKey {
    offer: String,
    partition: Option<String>,
}

#[derive(Clone, Copy, Debug)]
struct Balance {
    units: f64,
    at: Instant,
}

/// The balances that one request is charged to.
pub(crate) struct Meter<'a> {
    throttle: &'a Throttle,
    keys: Vec<BalanceKey>,
    /// Request units per second of each.
    rate: f64,
    is_low: bool,
}

impl Throttle {
    /// `None` for requests that no throughput was provisioned for.
    pub fn meter(&self, call: &Call<'_>, kind: &RouteKind<'_>) -> Result<Option<Meter<'_>>, HandlerError> {
        if !is_data(kind) {
            return Ok(None);
        }
        let Some((database, name)) = kind.container() else { return Ok(None) };
        // The handler answers that the container is missing.
        let Ok(container) = call.state.engine.catalog().container(database, name) else { return Ok(None) };
        let Some((offer, throughput, is_shared)) = call.state.engine.catalog().throughput_of(&container)
        else {
            return Ok(None);
        };
        let is_low = call.text(&PRIORITY)?.is_some_and(|level| level.trim().eq_ignore_ascii_case("low"));
        let key = |partition| BalanceKey { offer: offer.clone(), partition };
        if is_shared {
            let rate = f64::from(throughput);
            return Ok(Some(Meter { throttle: self, keys: vec![key(None)], rate, is_low }));
        }
        let all = container.partitions().len().max(1);
        let partitions = partitions(call, &container)?;
        let keys = partitions.into_iter().map(|partition| key(Some(partition))).collect();
        Ok(Some(Meter { throttle: self, keys, rate: f64::from(throughput) / all as f64, is_low }))
    }
}

/// Whether a request reads or writes items.
fn is_data(kind: &RouteKind<'_>) -> bool {
    matches!(
        kind,
        RouteKind::Items { .. }
            | RouteKind::Item { .. }
            | RouteKind::Script { .. }
            | RouteKind::PartitionKeyDelete { .. }
    )
}

fn partitions(call: &Call<'_>, container: &Container) -> Result<Vec<String>, HandlerError> {
    let scope = call.scope()?;
    if let Some(position) = scope.partition_key.as_ref().and_then(|key| container.position_of(key)) {
        return Ok(vec![position.partition_id.to_string()]);
    }
    let all = container.partitions().into_iter().map(|partition| partition.id);
    let is_named = |id: &String| scope.partition_id.as_ref().is_none_or(|named| named == id);
    Ok(all.filter(is_named).collect())
}

impl Meter<'_> {
    /// What is left of the smallest balance.
    pub fn admit(&self) -> Result<f64, HandlerError> {
        self.admit_at(Instant::now())
    }

    fn admit_at(&self, now: Instant) -> Result<f64, HandlerError> {
        let floor = if self.is_low { RESERVED_SHARE * self.full() } else { 0.0 };
        let mut balances = self.throttle.balances.lock();
        let lowest = self.keys.iter().map(|key| self.units(&mut balances, key, now));
        let left = lowest.map(|units| units - floor).fold(f64::INFINITY, f64::min);
        if left >= 0.0 {
            return Ok(left);
        }
        let wait_ms = (1000.0 * -left / self.rate).ceil().clamp(1.0, 3_600_000.0);
        Err(RequestError::Throttled { retry_after_ms: wait_ms as u32 }.into())
    }

    pub fn spend(&self, charge: f64) {
        let mut balances = self.throttle.balances.lock();
        if balances.len() > BALANCE_COUNT_MAX {
            let now = Instant::now();
            balances.retain(|_, balance| now.duration_since(balance.at) < BURST);
        }
        let share = charge / self.keys.len().max(1) as f64;
        for key in &self.keys {
            if let Some(balance) = balances.get_mut(key) {
                balance.units -= share;
            }
        }
    }

    fn full(&self) -> f64 {
        self.rate * BURST.as_secs_f64()
    }

    /// The balance, refilled for the time since it was last read.
    fn units(&self, balances: &mut HashMap<BalanceKey, Balance>, key: &BalanceKey, now: Instant) -> f64 {
        let full = self.full();
        let balance = balances.entry(key.clone()).or_insert(Balance { units: full, at: now });
        let refill = self.rate * now.saturating_duration_since(balance.at).as_secs_f64();
        *balance = Balance { units: (balance.units + refill).min(full), at: now.max(balance.at) };
        balance.units
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meter(throttle: &Throttle, is_low: bool) -> Meter<'_> {
        let keys = vec![BalanceKey { offer: "o".to_owned(), partition: Some("0".to_owned()) }];
        Meter { throttle, keys, rate: 400.0, is_low }
    }

    fn wait_of(result: Result<f64, HandlerError>) -> Option<u32> {
        match result {
            Ok(_) => None,
            Err(HandlerError::Request(RequestError::Throttled { retry_after_ms })) => Some(retry_after_ms),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn a_balance_runs_out_and_is_refilled() {
        let throttle = Throttle::default();
        let (meter, start) = (meter(&throttle, false), Instant::now());
        assert_eq!(wait_of(meter.admit_at(start)), None);
        meter.spend(399.0);
        assert_eq!(wait_of(meter.admit_at(start)), None);
        meter.spend(201.0); // 200 below zero: half a second
        assert_eq!(wait_of(meter.admit_at(start)), Some(500));
        assert_eq!(wait_of(meter.admit_at(start + Duration::from_millis(250))), Some(250));
        assert_eq!(wait_of(meter.admit_at(start + Duration::from_millis(501))), None);
        // It is never more than that of one second.
        meter.admit_at(start + Duration::from_secs(100)).expect("full");
        meter.spend(800.0);
        assert_eq!(wait_of(meter.admit_at(start + Duration::from_secs(100))), Some(1000));
    }

    #[test]
    fn low_priority_leaves_a_reserve() {
        let throttle = Throttle::default();
        let (low, high, start) = (meter(&throttle, true), meter(&throttle, false), Instant::now());
        assert_eq!(wait_of(low.admit_at(start)), None);
        high.spend(350.0);
        assert_eq!(wait_of(low.admit_at(start)), Some(125));
        assert_eq!(wait_of(high.admit_at(start)), None);
    }
}
