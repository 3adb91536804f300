//! What is evicted when the record is full: the oldest first.

use super::Workload;
use super::encode::Encode;

impl Workload {
    /// Its byte form, after the oldest that does not fit is evicted.
    pub fn to_bytes_within(&mut self, bytes_max: usize) -> Vec<u8> {
        loop {
            let bytes = self.to_bytes();
            if bytes.len() <= bytes_max || !self.evict_some(bytes.len() - bytes_max, bytes_max) {
                return bytes;
            }
        }
    }

    /// Growth of arrays where that takes a quarter of the room, then hours up to the last one, records, and in the end all.
    /// False where there is nothing left to forget.
    fn evict_some(&mut self, excess: usize, bytes_max: usize) -> bool {
        if length(&self.growth) > bytes_max / 4 {
            let largest = self.growth.iter().max_by_key(|(_, growth)| length(*growth));
            let largest = largest.map(|(container, _)| container.clone());
            return largest.is_some_and(|container| self.growth.remove(&container).is_some());
        }
        if self.hours.len() > 1 {
            self.evict_hours(excess);
            return true;
        }
        if !self.ring.is_empty() {
            (0..self.ring.len().div_ceil(2)).for_each(|_| self.forget_first());
            return true;
        }
        let is_empty = self.hours.is_empty() && self.shapes.is_empty() && self.numbers.is_empty();
        *self = Workload { dropped: self.dropped, ..Workload::default() };
        !is_empty
    }

    fn evict_hours(&mut self, excess: usize) {
        let mut freed = 0;
        while freed < excess
            && self.hours.len() > 1
            && let Some((_, hour)) = self.hours.pop_first()
        {
            freed += length(&hour);
        }
    }

    /// The oldest record.
    pub(super) fn forget_first(&mut self) {
        let bytes = self.ring.pop_front().map_or(0, |record| record.variable_memory());
        self.ring_bytes = self.ring_bytes.saturating_sub(bytes);
    }
}

fn length(part: &impl Encode) -> usize {
    let mut bytes = Vec::new();
    part.put(&mut bytes);
    bytes.len()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{HOUR_MS, ItemChange, Operation, RING_BYTES_MAX, RING_MAX, Record};
    use super::*;

    /// A change of 8 paths of a kilobyte each.
    fn record(number: u64, hour: u64) -> Record {
        let paths = (0..8).map(|path| format!("/{number}-{path}-{}", "n".repeat(1_000))).collect();
        let change = ItemChange { paths, size_before: Some(1), size_after: Some(1), ..ItemChange::default() };
        Record {
            time_ms: hour * HOUR_MS,
            action: None,
            container: Arc::from("c"),
            operation: Operation::Replace,
            status: 200,
            sub_status: 0,
            charge: 1.0,
            bytes: 1,
            micros: 1,
            item: Some(number),
            id: None,
            partition_key: None,
            change: Some(change),
            query: None,
            weight: 1,
        }
    }

    fn workload() -> Workload {
        let mut workload = Workload::new();
        (0..2_000).for_each(|number| workload.record(record(number, number / 200)));
        workload
    }

    #[test]
    fn the_ring_is_bounded_by_its_memory() {
        let workload = workload();
        let memory: usize = workload.records().map(Record::variable_memory).sum();
        assert!(memory <= RING_BYTES_MAX && memory > RING_BYTES_MAX / 2, "{memory}");
        assert_eq!(workload.records().next_back().and_then(|record| record.item), Some(1_999));
        assert_eq!(memory, workload.ring_bytes);
        // Records without long lists are as many as ever.
        let mut workload = Workload::new();
        let read = Record { change: None, ..record(1, 1) };
        (0..=RING_MAX).for_each(|_| workload.record(read.clone()));
        assert_eq!(workload.ring.len(), RING_MAX);
    }

    #[test]
    fn what_does_not_fit_is_forgotten_the_oldest_first() {
        let mut workload = workload();
        assert!(workload.to_bytes().len() > 12 << 20);
        let bytes = workload.to_bytes_within(12 << 20);
        assert!(bytes.len() <= 12 << 20 && bytes.len() > 6 << 20, "{}", bytes.len());
        let again = Workload::from_bytes(&bytes).expect("a workload");
        assert_eq!(again.hours.last_key_value().map(|(hour, _)| *hour), Some(9));
        assert_eq!((again.ring.len(), again.ring_bytes), (workload.ring.len(), workload.ring_bytes));
        for bytes_max in [1 << 20, 100_000, 1_000, 100] {
            assert!(workload.to_bytes_within(bytes_max).len() <= bytes_max, "{bytes_max}");
        }
    }
}
