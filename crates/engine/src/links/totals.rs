//! Totals of a rollup, by target: kept while they are not those of nothing.

use quire_model::RollupTotals;
use quire_storage::{Op, Snapshot};

use super::TargetHash;
use crate::api::{EngineError, corrupt};
use crate::store::keys::{DeclarationKeys, LOOKUPS};

pub(crate) fn read_totals(
    snapshot: &dyn Snapshot,
    rows: DeclarationKeys,
    target: TargetHash,
) -> Result<RollupTotals, EngineError> {
    match snapshot.get(LOOKUPS, &rows.total(&target.0))? {
        Some(bytes) => RollupTotals::from_bytes(&bytes).map_err(|error| corrupt(error.to_string())),
        None => Ok(RollupTotals::default()),
    }
}

pub(crate) fn totals_op(rows: DeclarationKeys, target: TargetHash, totals: &RollupTotals) -> Op {
    let (space, key) = (LOOKUPS, rows.total(&target.0));
    match *totals == RollupTotals::default() {
        true => Op::Delete { space, key },
        false => Op::Put { space, key, value: totals.to_bytes() },
    }
}
