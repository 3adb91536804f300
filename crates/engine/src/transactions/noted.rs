//! What is recorded of a transaction: the writes that it comes to, item by item.

use quire_profile::Operation;

use super::Transaction;
use super::own::OwnItem;
use crate::api::EngineError;
use crate::recording::{ObservedWrite, is_observed, record_write, take_write};
use crate::store::item_row::ItemRow;

impl Transaction<'_> {
    /// Nothing where the request is not recorded. They count once the transaction is durable.
    pub(super) fn noted_writes(&self) -> Result<Vec<ObservedWrite>, EngineError> {
        if !is_observed() {
            return Ok(Vec::new());
        }
        let noted = self.own.items().iter().map(|own| self.noted(own));
        noted.filter_map(Result::transpose).collect()
    }

    fn noted(&self, own: &OwnItem) -> Result<Option<ObservedWrite>, EngineError> {
        let stored = own.origin.as_ref().or(own.before.as_ref());
        let row = stored.map(|stored| ItemRow::parse(&stored.bytes)).transpose()?;
        let row = row.filter(|row| {
            !self.logical_partition.container.is_invisible(row, &self.read_snapshot.visibility_point)
        });
        let before = row.as_ref().map(|row| Ok::<_, EngineError>((row.node()?, u64::from(row.json_bytes))));
        let before = before.transpose()?;
        let after = own.now.as_ref();
        let (rid, id, operation) = match (after, &row, stored) {
            (Some(now), None, _) => (now.rid, now.body.id.as_str(), Operation::Create),
            (Some(now), Some(_), _) => (now.rid, now.body.id.as_str(), Operation::Replace),
            (None, Some(row), Some(stored)) => (stored.rid, row.id()?, Operation::Delete),
            (None, ..) => return Ok(None),
        };
        let after = after.map(|now| (now.body.item.root(), u64::from(now.body.json_bytes)));
        record_write(rid, id, &self.logical_partition.place.key, before, after);
        Ok(take_write(operation))
    }
}
