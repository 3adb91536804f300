//! Finds the last record of each item in a backup.
//!
//! A container is copied in the order of its rids, so nearly all items have one record, in order; only items that
//! changed during the backup have more. Only these have to be kept in memory, however many items there are.

use std::collections::HashMap;

use super::file::BackupRecord;

/// The result of the first pass over all records.
#[derive(Default)]
pub(crate) struct RepeatedRecords {
    records: u64,
    /// The highest rid that came in order, by container.
    in_order: HashMap<u32, u64>,
    /// The number of the last record, by container and rid; `None` where it says that the item was deleted. Items that
    /// came once and in order are not here.
    last: HashMap<(u32, u64), Option<u64>>,
}

/// A second reading of the same records in the same order.
pub(crate) struct RecordSelection<'a> {
    repeated: &'a RepeatedRecords,
    records: u64,
}

impl RepeatedRecords {
    pub fn add(&mut self, record: &BackupRecord<'_>) {
        let number = self.records;
        self.records += 1;
        match *record {
            BackupRecord::Item { container, rid, .. } => {
                let is_next = self.in_order.get(&container).is_none_or(|&highest| highest < rid);
                if is_next && !self.last.contains_key(&(container, rid)) {
                    self.in_order.insert(container, rid);
                } else {
                    self.last.insert((container, rid), Some(number));
                }
            }
            BackupRecord::Deleted { container, rid } => drop(self.last.insert((container, rid), None)),
            BackupRecord::CatalogRow { .. } => {}
        }
    }

    pub fn select(&self) -> RecordSelection<'_> {
        RecordSelection { repeated: self, records: 0 }
    }
}

impl RecordSelection<'_> {
    /// Whether this record, the next one, is what its item is in the end.
    pub fn counts(&mut self, record: &BackupRecord<'_>) -> bool {
        let number = self.records;
        self.records += 1;
        let BackupRecord::Item { container, rid, .. } = *record else { return false };
        self.repeated.last.get(&(container, rid)).is_none_or(|last| *last == Some(number))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Against a map of everything.
    #[test]
    fn the_last_record_of_an_item_counts() {
        for seed in 1..300u64 {
            let mut random = seed;
            let mut next = |below: u64| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                random % below
            };
            let records: Vec<(u32, u64, bool)> = (0..40)
                .map(|step| (next(2) as u32, if next(3) > 0 { step } else { next(40) }, next(5) > 0))
                .collect();
            let record = |&(container, rid, is_there): &(u32, u64, bool)| match is_there {
                true => BackupRecord::Item { container, rid, row: &[] },
                false => BackupRecord::Deleted { container, rid },
            };
            let mut repeated = RepeatedRecords::default();
            let mut expected = BTreeMap::new();
            for (number, parts) in records.iter().enumerate() {
                repeated.add(&record(parts));
                match parts.2 {
                    true => drop(expected.insert((parts.0, parts.1), number)),
                    false => drop(expected.remove(&(parts.0, parts.1))),
                }
            }
            let mut selection = repeated.select();
            let selected: BTreeMap<(u32, u64), usize> = records
                .iter()
                .enumerate()
                .filter(|(_, parts)| selection.counts(&record(parts)))
                .map(|(number, parts)| ((parts.0, parts.1), number))
                .collect();
            assert_eq!(selected, expected, "seed {seed}");
        }
    }

    #[test]
    fn items_that_come_once_are_not_remembered() {
        let mut repeated = RepeatedRecords::default();
        for container in [7, 3] {
            (0..1000).for_each(|rid| repeated.add(&BackupRecord::Item { container, rid, row: &[] }));
        }
        repeated.add(&BackupRecord::Item { container: 3, rid: 5, row: &[] });
        assert_eq!(repeated.last.len(), 1);
    }
}
