//! Lists of the items of a transaction's logical partition, in the order of their child ids, own writes among them.

use super::Transaction;
use crate::api::{EngineError, Page};
use crate::items::body::Links;
use crate::query::continuation::Resume;
use crate::query::meter::{PageMeter, ScanBudget};
use crate::query::page::{Filled, Rows, answer_page};
use crate::query::reader::{End, Next, Reader};
use crate::query::window::{Spot, Window};
use crate::runtime::allowance;

impl Transaction<'_> {
    /// A page of all items as the transaction sees them. A continuation holds in other transactions too.
    pub fn feed(&mut self, page_size: u32, continuation: Option<&str>) -> Result<Page, EngineError> {
        self.seen.all();
        let request = self.page_request(page_size, continuation);
        let answer = answer_page(self.shared, self.home.container, &request, |windows, resume| {
            let from = match resume {
                None => None,
                Some(Resume::List(spot)) => Some(spot),
                Some(_) => return Err(EngineError::BadContinuation),
            };
            let allowance = allowance::of_page(self.shared, &request.cancel);
            let meter = PageMeter::new(ScanBudget::PAGE, &allowance);
            let mut reader = Reader::new(self.shared, self.home.container, &self.view, windows, meter);
            self.fill(&mut reader, windows, from, Rows::new(&request, Some(&allowance))?)
        });
        self.charge += answer.charge;
        answer.result
    }

    fn fill(
        &self,
        reader: &mut Reader<'_>,
        windows: &[Window<'_>],
        from: Option<Spot>,
        mut rows: Rows,
    ) -> Result<Filled, EngineError> {
        let links = Links::new(self.home.container);
        let mut own = self.own.live_from(from.map_or(0, |spot| spot.rid)).peekable();
        let mut full_at = None;
        let mut end = reader.scan(from, &mut |found| {
            while let Some(version) = own.next_if(|version| version.rid < found.spot.rid) {
                if !rows.push(|text| self.write_version(version, text)) {
                    full_at = Some(version.rid);
                    return Ok(Next::NotThis);
                }
            }
            let rid = found.spot.rid;
            let node = found.row.node()?;
            let has_room = match self.own.by_rid(rid) {
                None => rows.push(|text| links.write_json(node, rid, &found.row.stamp, text)),
                Some(_) => match own.next_if(|version| version.rid == rid) {
                    Some(version) => rows.push(|text| self.write_version(version, text)),
                    None => true, // it is deleted
                },
            };
            if has_room {
                return Ok(Next::More);
            }
            full_at = Some(rid);
            Ok(Next::NotThis)
        })?;
        if end == End::Done {
            for version in own {
                if !rows.push(|text| self.write_version(version, text)) {
                    (full_at, end) = (Some(version.rid), End::Stopped);
                    break;
                }
            }
        }
        reader.meter.matched = reader.meter.items;
        let spot_of = |rid: u64| windows.first().map(|window| Resume::List(window.spot(rid)));
        let next = match end {
            End::Done => None,
            End::Stopped => full_at.and_then(spot_of),
            End::Paused(spot) => Some(Resume::List(spot)),
        };
        Ok(Filled { next, ..Filled::new(rows, reader.meter.cost()) })
    }
}
