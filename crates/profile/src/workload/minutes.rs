//! Charges of keys minute by minute, bursts of writes of one item, items that move to another key.

use std::collections::{BTreeMap, VecDeque};

use super::hour::{HourTotals, add_bounded};
use super::record::{Operation, Record};

const MINUTE_MS: u64 = 60_000;
const BURST_MS: u64 = 10_000;
/// A minute with fewer requests says nothing about its keys.
const MINUTE_REQUESTS_MIN: u64 = 100;
const KEYS_MAX: usize = 4_096;
const MOVE_MS: u64 = 5_000;
const DELETED_MAX: usize = 256;

#[derive(Clone, Debug, Default)]
pub(super) struct Minutes {
    minute: u64,
    requests: u64,
    charge: f64,
    keys: BTreeMap<u64, f64>,
    window: u64,
    writes: BTreeMap<u64, u64>,
    /// Time, id and key of the last deletes and creates.
    deleted: VecDeque<(u64, u64, u64)>,
    /// How many of them are deletes.
    deletes: usize,
}

impl Minutes {
    pub fn add(&mut self, record: &Record, hour: &mut HourTotals) {
        if record.time_ms / MINUTE_MS != self.minute {
            self.close_minute(hour);
            self.minute = record.time_ms / MINUTE_MS;
        }
        if record.time_ms / BURST_MS != self.window {
            self.close_window(hour);
            self.window = record.time_ms / BURST_MS;
        }
        let weight = u64::from(record.weight.max(1));
        self.requests += weight;
        self.charge += record.charge * weight as f64;
        if let Some(key) = record.partition_key {
            add_bounded(&mut self.keys, key, record.charge * weight as f64, KEYS_MAX);
        }
        if let (Some(item), true) = (record.item, record.operation.is_write()) {
            add_bounded(&mut self.writes, item, weight, KEYS_MAX);
        }
        self.count_move(record, hour);
    }

    /// A delete and a create of one id with another key, in any order.
    fn count_move(&mut self, record: &Record, hour: &mut HourTotals) {
        let (Some(id), Some(key), true) = (record.id, record.partition_key, record.is_success()) else {
            return;
        };
        let wanted = matches!(record.operation, Operation::Create | Operation::Delete | Operation::Upsert);
        if !wanted {
            return;
        }
        // Times never go back.
        while self.deleted.front().is_some_and(|(time, ..)| time + MOVE_MS < record.time_ms) {
            self.forget_first_move();
        }
        let is_delete = record.operation == Operation::Delete;
        // The lowest bit of the key's place tells deletes from creates.
        let marked = |is_delete: bool| key << 1 | u64::from(is_delete);
        let others = if is_delete { self.deleted.len() - self.deletes } else { self.deletes };
        let is_other = |(_, own, mark): &(u64, u64, u64)| {
            *own == id && (mark & 1 == 1) != is_delete && mark >> 1 != marked(is_delete) >> 1
        };
        let other = if others > 0 { self.deleted.iter().position(is_other) } else { None };
        match other {
            Some(place) => {
                self.deleted.remove(place);
                self.deletes -= usize::from(!is_delete);
                hour.key_moves += 1;
            }
            None => {
                self.deleted.push_back((record.time_ms, id, marked(is_delete)));
                self.deletes += usize::from(is_delete);
            }
        }
        if self.deleted.len() > DELETED_MAX {
            self.forget_first_move();
        }
    }

    fn forget_first_move(&mut self) {
        let first = self.deleted.pop_front();
        self.deletes -= usize::from(first.is_some_and(|(_, _, mark)| mark & 1 == 1));
    }

    pub fn close(&mut self, hour: &mut HourTotals) {
        self.close_minute(hour);
        self.close_window(hour);
    }

    fn close_minute(&mut self, hour: &mut HourTotals) {
        let keys = std::mem::take(&mut self.keys);
        if self.requests >= MINUTE_REQUESTS_MIN {
            let hottest = keys.into_iter().max_by(|one, other| one.1.total_cmp(&other.1));
            if let Some((key, charge)) = hottest {
                hour.minutes.push((key, charge / self.charge.max(1e-9), charge));
            }
        }
        (self.requests, self.charge) = (0, 0.0);
    }

    fn close_window(&mut self, hour: &mut HourTotals) {
        for (item, writes) in std::mem::take(&mut self.writes) {
            hour.burst(item, writes);
        }
    }
}
