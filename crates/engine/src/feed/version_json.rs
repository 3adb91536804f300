//! Versions as the change feed shows them.

use quire_value::{Node, Number, Object, Path, Value};

use crate::api::EngineError;
use crate::items::body::SelfLinks;
use crate::store::item_row::ItemRow;
use crate::store::version_row::{VersionKind, VersionRow};

/// As the change feed returns it. Of the versions before, as the service does, only those that clients deleted; all of
/// them on request.
pub(super) fn write_version(
    version: &VersionRow<'_>,
    links: &SelfLinks,
    partition_key_paths: &[Path],
    lsn: u64,
    all_previous_images: bool,
    out: &mut Vec<u8>,
) -> Result<(), EngineError> {
    let image = |row: &[u8], out: &mut Vec<u8>| {
        let row = ItemRow::parse(row)?;
        links.write_json(row.node()?, version.rid, &row.stamp, out);
        Ok::<_, EngineError>(())
    };
    out.extend_from_slice(b"{\"current\":");
    match version.current {
        [] => out.extend_from_slice(b"{}"),
        row => image(row, out)?,
    }
    let has_previous = all_previous_images || version.kind == VersionKind::Delete;
    if has_previous && !version.previous.is_empty() {
        out.extend_from_slice(b",\"previous\":");
        image(version.previous, out)?;
    }
    let kind = match version.kind {
        VersionKind::Create => "create",
        VersionKind::Replace => "replace",
        VersionKind::Delete | VersionKind::Expire => "delete",
    };
    let mut metadata = Object::new();
    metadata.set("operationType", kind);
    metadata.set("lsn", Value::Number(Number::from_u64(lsn)));
    metadata.set("crts", version.ts);
    if version.lsn_before > 0 {
        metadata.set("previousImageLSN", Value::Number(Number::from_u64(version.lsn_before)));
    }
    if version.kind == VersionKind::Expire {
        metadata.set("timeToLiveExpired", true);
    }
    if !version.maintained_by.is_empty() {
        let names: Vec<Value> = version.maintained_by.split(',').map(Value::from).collect();
        metadata.set("maintainedBy", names);
    }
    if version.current.is_empty() {
        let row = ItemRow::parse(version.previous)?;
        metadata.set("id", row.id()?);
        metadata.set("partitionKey", partition_key(row.node()?, partition_key_paths));
    }
    out.extend_from_slice(b",\"metadata\":");
    out.extend_from_slice(Value::from(metadata).to_json().as_bytes());
    out.push(b'}');
    Ok(())
}

/// By the paths without their first slash.
fn partition_key(item: Node<'_>, paths: &[Path]) -> Object {
    let value = |path: &Path| {
        Some((path.to_string().trim_start_matches('/').to_owned(), path.find_in(item)?.to_value()))
    };
    paths.iter().filter_map(value).collect()
}
