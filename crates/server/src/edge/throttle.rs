//! Provisioned throughput, held to: only with `--enforce-throughput`.
//!
//! Every partition of a container with throughput of its own has an equal share of it; containers that share a database's
//! throughput draw on it together. A request is admitted while the balance is positive and its charge is taken afterwards, so
//! the balance may become negative and the next requests wait: 429 says for how long.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use hyper::header::HeaderName;
use parking_lot::Mutex;
use quire_engine::Container;

use crate::handlers::Call;
use crate::routes::RouteKind;
use crate::wire::status::{HandlerError, RequestError};

const PRIORITY: HeaderName = HeaderName::from_static("x-ms-cosmos-priority-level");
/// A balance may reach what comes in within this time.
const SAVED: Duration = Duration::from_secs(1);
/// Requests of low priority leave so much of a full balance to the others.
const RESERVED_SHARE: f64 = 0.25;
/// Containers and databases come and go: past so many, balances that are full are forgotten.
const BALANCE_COUNT_MAX: usize = 10_000;

#[derive(Default)]
pub(crate) struct Throttle {
    balances: Mutex<HashMap<Account, Balance>>,
}

/// Whose balance: the offer's rid, and the partition where each has its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Account {
    offer: String,
    partition: Option<String>,
}

#[derive(Clone, Copy, Debug)]
struct Balance {
    units: f64,
    at: Instant,
}

/// The balances that one request draws on.
pub(crate) struct Meter<'a> {
    throttle: &'a Throttle,
    accounts: Vec<Account>,
    /// Request units per second of each.
    rate: f64,
    is_low: bool,
}

impl Throttle {
    /// `None` for requests that no throughput was provisioned for.
    pub fn meter(&self, call: &Call<'_>, kind: &RouteKind) -> Result<Option<Meter<'_>>, HandlerError> {
        if !is_data(kind) {
            return Ok(None);
        }
        let Some((database, name)) = kind.container() else { return Ok(None) };
        // A missing container is told by whoever serves the request.
        let Ok(container) = call.state.engine.container(database, name) else { return Ok(None) };
        let Some((offer, throughput, is_shared)) = call.state.engine.throughput_of(&container) else {
            return Ok(None);
        };
        let is_low = call.text(&PRIORITY)?.is_some_and(|level| level.trim().eq_ignore_ascii_case("low"));
        let account = |partition| Account { offer: offer.clone(), partition };
        if is_shared {
            let rate = f64::from(throughput);
            return Ok(Some(Meter { throttle: self, accounts: vec![account(None)], rate, is_low }));
        }
        let all = container.partitions().len().max(1);
        let partitions = partitions(call, &container)?;
        let accounts = partitions.into_iter().map(|partition| account(Some(partition))).collect();
        Ok(Some(Meter { throttle: self, accounts, rate: f64::from(throughput) / all as f64, is_low }))
    }
}

/// Whether a request reads or writes items.
fn is_data(kind: &RouteKind) -> bool {
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
        return Ok(vec![position.partition_id]);
    }
    let all = container.partitions().into_iter().map(|partition| partition.id);
    let asked = |id: &String| scope.partition_id.as_ref().is_none_or(|asked| asked == id);
    Ok(all.filter(asked).collect())
}

impl Meter<'_> {
    /// What is left to spend, of the balance that has least.
    pub fn admit(&self) -> Result<f64, HandlerError> {
        self.admit_at(Instant::now())
    }

    fn admit_at(&self, now: Instant) -> Result<f64, HandlerError> {
        let floor = if self.is_low { RESERVED_SHARE * self.full() } else { 0.0 };
        let mut balances = self.throttle.balances.lock();
        let lowest = self.accounts.iter().map(|account| self.units(&mut balances, account, now));
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
            balances.retain(|_, balance| now.duration_since(balance.at) < SAVED);
        }
        let share = charge / self.accounts.len().max(1) as f64;
        for account in &self.accounts {
            if let Some(balance) = balances.get_mut(account) {
                balance.units -= share;
            }
        }
    }

    fn full(&self) -> f64 {
        self.rate * SAVED.as_secs_f64()
    }

    /// What there is now, with what came in since the last look.
    fn units(&self, balances: &mut HashMap<Account, Balance>, account: &Account, now: Instant) -> f64 {
        let full = self.full();
        let balance = balances.entry(account.clone()).or_insert(Balance { units: full, at: now });
        let came_in = self.rate * now.saturating_duration_since(balance.at).as_secs_f64();
        *balance = Balance { units: (balance.units + came_in).min(full), at: now.max(balance.at) };
        balance.units
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meter(throttle: &Throttle, is_low: bool) -> Meter<'_> {
        let accounts = vec![Account { offer: "o".to_owned(), partition: Some("0".to_owned()) }];
        Meter { throttle, accounts, rate: 400.0, is_low }
    }

    fn wait_of(result: Result<f64, HandlerError>) -> Option<u32> {
        match result {
            Ok(_) => None,
            Err(HandlerError::Request(RequestError::Throttled { retry_after_ms })) => Some(retry_after_ms),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn a_balance_runs_out_and_comes_back() {
        let throttle = Throttle::default();
        let (meter, start) = (meter(&throttle, false), Instant::now());
        assert_eq!(wait_of(meter.admit_at(start)), None);
        meter.spend(399.0);
        assert_eq!(wait_of(meter.admit_at(start)), None);
        meter.spend(201.0); // 200 below zero: half a second
        assert_eq!(wait_of(meter.admit_at(start)), Some(500));
        assert_eq!(wait_of(meter.admit_at(start + Duration::from_millis(250))), Some(250));
        assert_eq!(wait_of(meter.admit_at(start + Duration::from_millis(501))), None);
        // No more than a second's worth is saved.
        meter.admit_at(start + Duration::from_secs(100)).expect("full");
        meter.spend(800.0);
        assert_eq!(wait_of(meter.admit_at(start + Duration::from_secs(100))), Some(1000));
    }

    #[test]
    fn low_priority_leaves_something() {
        let throttle = Throttle::default();
        let (low, high, start) = (meter(&throttle, true), meter(&throttle, false), Instant::now());
        assert_eq!(wait_of(low.admit_at(start)), None);
        high.spend(350.0);
        assert_eq!(wait_of(low.admit_at(start)), Some(125));
        assert_eq!(wait_of(high.admit_at(start)), None);
    }
}
