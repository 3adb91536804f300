//! Lists of the items of a transaction's logical partition, in the order of their child ids, own writes among them.

use super::Transaction;
use crate::api::{EngineError, Page};
use crate::items::body::SelfLinks;
use crate::query::continuation::Resume;
use crate::query::meter::{PageMeter, ScanBudget};
use crate::query::page::{FilledPage, PageRows, answer_page};
use crate::query::partition_scope::{ItemPosition, PartitionScope};
use crate::query::reader::{ScanEnd, ScopeReader, VisitNext};
use crate::runtime::allowance;

impl Transaction<'_> {
    /// A page of all items as the transaction sees them. A continuation holds in other transactions too.
    pub fn feed(&mut self, page_size: u32, continuation: Option<&str>) -> Result<Page, EngineError> {
        self.read_set.all();
        let request = self.page_request(page_size, continuation);
        let answer =
            answer_page(self.shared, self.logical_partition.container, &request, |windows, resume| {
                let from = match resume {
                    None => None,
                    Some(Resume::List(spot)) => Some(spot),
                    Some(_) => return Err(EngineError::BadContinuation),
                };
                let allowance = allowance::of_page(self.shared, &request.cancel);
                let meter = PageMeter::new(ScanBudget::PAGE, &allowance);
                let mut reader = ScopeReader::new(
                    self.shared,
                    self.logical_partition.container,
                    &self.read_snapshot,
                    windows,
                    meter,
                );
                self.fill(&mut reader, windows, from, PageRows::new(&request, Some(&allowance))?)
            });
        self.charge += answer.charge;
        answer.result
    }

    fn fill(
        &self,
        reader: &mut ScopeReader<'_>,
        windows: &[PartitionScope<'_>],
        from: Option<ItemPosition>,
        mut rows: PageRows,
    ) -> Result<FilledPage, EngineError> {
        let links = SelfLinks::new(self.logical_partition.container);
        let mut own = self.own.visible_from(from.map_or(0, |spot| spot.rid)).peekable();
        let mut full_at = None;
        let mut end = reader.scan(from, &mut |found| {
            while let Some(version) = own.next_if(|version| version.rid < found.position.rid) {
                if !rows.push(|text| self.write_version(version, text)) {
                    full_at = Some(version.rid);
                    return Ok(VisitNext::NotThis);
                }
            }
            let rid = found.position.rid;
            let node = found.row.node()?;
            let has_room = match self.own.by_rid(rid) {
                None => rows.push(|text| links.write_json(node, rid, &found.row.stamp, text)),
                Some(_) => match own.next_if(|version| version.rid == rid) {
                    Some(version) => rows.push(|text| self.write_version(version, text)),
                    None => true, // it is deleted
                },
            };
            if has_room {
                return Ok(VisitNext::More);
            }
            full_at = Some(rid);
            Ok(VisitNext::NotThis)
        })?;
        if end == ScanEnd::Done {
            for version in own {
                if !rows.push(|text| self.write_version(version, text)) {
                    (full_at, end) = (Some(version.rid), ScanEnd::Stopped);
                    break;
                }
            }
        }
        reader.meter.matched = reader.meter.items;
        let spot_of = |rid: u64| windows.first().map(|window| Resume::List(window.position(rid)));
        let next = match end {
            ScanEnd::Done => None,
            ScanEnd::Stopped => full_at.and_then(spot_of),
            ScanEnd::Paused(spot) => Some(Resume::List(spot)),
        };
        Ok(FilledPage { next, ..FilledPage::new(rows, reader.meter.cost()) })
    }
}
