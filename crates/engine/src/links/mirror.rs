//! Values of a mirror of a target, in the order of the referrers. Undefined ones have no row.

use std::collections::BTreeMap;
use std::ops::Bound;

use quire_storage::{KeyRange, Snapshot};
use quire_value::{Item, Value};

use super::TargetHash;
use crate::api::{EngineError, corrupt};
use crate::items::body::ITEM_BYTES_MAX;
use crate::store::keys::{DeclarationKeys, LOOKUPS};
use crate::store::scan;

/// Rows of more bytes are values of more JSON than an item may have.
const VALUES_BYTES_MAX: usize = 8 * ITEM_BYTES_MAX;

/// In a row.
pub(crate) fn mirror_value_bytes(value: &Value) -> Vec<u8> {
    Item::from_value(value).into_bytes()
}

/// The first values of a mirror when a change is made: places with new values, or none where the referrer goes. At most
/// `count_max` of them. Where they are too large for an item in any case, the last of them are `null`: they are counted and not held.
pub(crate) fn mirror_values(
    snapshot: &dyn Snapshot,
    rows: DeclarationKeys,
    target: TargetHash,
    change: &BTreeMap<Vec<u8>, Option<Value>>,
    count_max: usize,
) -> Result<Vec<Value>, EngineError> {
    let (mut values, mut bytes) = (Vec::new(), 0);
    let mut changed = change.iter().peekable();
    let mut range = KeyRange::prefix(&rows.mirror_of(&target.0));
    loop {
        let page = snapshot.scan(&scan(LOOKUPS, range.clone()))?;
        for (key, row) in &page.rows {
            let place = DeclarationKeys::place_of_mirror(key).ok_or_else(|| corrupt("row of a mirror"))?;
            while let Some((_, value)) = changed.next_if(|(own, _)| own.as_slice() < place) {
                values.extend(value.clone());
            }
            match changed.next_if(|(own, _)| own.as_slice() == place) {
                Some((_, value)) => values.extend(value.clone()),
                None => {
                    bytes += row.len();
                    values.push(if bytes > VALUES_BYTES_MAX { Value::Null } else { decode(row)? });
                }
            }
            if values.len() >= count_max {
                values.truncate(count_max);
                return Ok(values);
            }
        }
        match page.rows.into_iter().next_back() {
            Some((last, _)) if page.more => range.start = Bound::Excluded(last),
            _ => break,
        }
    }
    values.extend(changed.filter_map(|(_, value)| value.clone()));
    values.truncate(count_max);
    Ok(values)
}

fn decode(row: &[u8]) -> Result<Value, EngineError> {
    let item = Item::from_bytes(row.to_vec()).map_err(|error| corrupt(error.to_string()))?;
    Ok(item.root().to_value())
}
