//! Composite indexes: one row of several values per item.

use std::sync::Arc;

use quire_resource::{CompositePath, SortOrder};
use quire_value::{Path, Segment, key};

use super::change::{RowSet, reserve_ts_hole};
use super::computed::{ComputedProperty, IndexedValues};
use super::encoding::{COMPOSITE_STRING_MAX, encode_node, prefix_bytes};
use super::{IndexKind, IndexName};
use crate::store::keys;

pub(super) struct CompositeIndexer {
    pub paths: Vec<CompositePath>,
    pub value_first: Arc<IndexName>,
    pub partition_first: Arc<IndexName>,
}

impl CompositeIndexer {
    pub fn new(paths: &[CompositePath]) -> CompositeIndexer {
        let each = paths.iter().map(|path| match path.order {
            SortOrder::Ascending => format!("{} ascending", path.path),
            SortOrder::Descending => format!("{} descending", path.path),
        });
        let text = each.collect::<Vec<_>>().join(", ");
        CompositeIndexer {
            paths: paths.to_vec(),
            value_first: Arc::new(IndexName::of_path(IndexKind::Composite, &text)),
            partition_first: Arc::new(IndexName::of_path(IndexKind::CompositeInPartition, &text)),
        }
    }

    pub fn has(&self, paths: &[(Path, bool)], reversed: bool) -> bool {
        let descending = |own: &CompositePath| (own.order == SortOrder::Descending) != reversed;
        self.paths.len() == paths.len()
            && self
                .paths
                .iter()
                .zip(paths)
                .all(|(own, asked)| own.path == asked.0 && descending(own) == asked.1)
    }

    /// Every item has exactly one row in each order.
    pub fn row(
        &self,
        source: &IndexedValues<'_>,
        computed: &[ComputedProperty],
        rid: u64,
        rows: &mut RowSet,
    ) {
        let mut value = Vec::with_capacity(16 * self.paths.len());
        let mut holes = Vec::new();
        for CompositePath { path, order } in &self.paths {
            let (at, descending) = (value.len(), *order == SortOrder::Descending);
            if is_ts(path) {
                holes.push((reserve_ts_hole(&mut value), descending));
                continue;
            }
            match source.find(path, computed) {
                Some(node) => encode_node(node, COMPOSITE_STRING_MAX, &mut value),
                None => value.push(key::UNDEFINED),
            }
            if descending {
                value[at..].iter_mut().for_each(|byte| *byte = !*byte);
            }
        }
        let prefix = prefix_bytes(keys::rid_prefix(rid));
        for (name, prefix) in [(&self.value_first, &[][..]), (&self.partition_first, &prefix[..])] {
            rows.name(name);
            if holes.is_empty() {
                rows.push_encoded(name.id, [prefix, &value]);
            } else {
                rows.push_ts_row(name.id, [prefix, &value], &holes);
            }
        }
    }
}

fn is_ts(path: &Path) -> bool {
    matches!(path.0.as_slice(), [Segment::Name(name)] if name == "_ts")
}
