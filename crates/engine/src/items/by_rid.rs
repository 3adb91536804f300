//! Items named by their rid, as `_self` links do.

use quire_resource::{ChildKind, ResourceId};

use crate::api::EngineError;
use crate::catalog::Container;
use crate::runtime::Shared;
use crate::store::item_row::ItemRow;
use crate::store::keys;

/// The id of the item whose `_rid` this is, if the container has it. Whether it is still visible, the operation
/// on the id finds out.
pub(crate) fn item_id(
    shared: &Shared,
    container: &Container,
    rid: &str,
) -> Result<Option<String>, EngineError> {
    let child = match (ResourceId::parse(rid), container.resource.rid) {
        (
            Ok(ResourceId::Child { database, container, kind: ChildKind::Item, child }),
            ResourceId::Container { database: own_database, container: own_container },
        ) if (database, container) == (own_database, own_container) => child,
        _ => return Ok(None),
    };
    let snapshot = container.snapshot(shared)?;
    match snapshot.get(keys::ITEMS, &keys::item(container.number, child))? {
        Some(bytes) => Ok(Some(ItemRow::parse(&bytes)?.id()?.to_owned())),
        None => Ok(None),
    }
}
