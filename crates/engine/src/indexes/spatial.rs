//! Spatial indexes: the cells that cover a geometry, one row each.
//!
//! Every valid geometry at the path is indexed, whatever types the policy lists: an index that left some out would not
//! find them. What is no valid geometry has no relation to any region, and no rows.

use std::sync::Arc;

use quire_resource::{ContainerDefinition, GeospatialType, SpatialIndex};
use quire_sql::geo::cells::Grid;
use quire_sql::geo::{Geometry, unlimited};
use quire_value::{Kind, Node, Path, Segment};

use super::change::RowSet;
use super::{IndexKind, IndexName};

pub(super) struct SpatialIndexer {
    /// Names only.
    pub path: Path,
    pub grid: Grid,
    pub name: Arc<IndexName>,
    kind: GeospatialType,
}

impl SpatialIndexer {
    /// `None`: the path names no single place, or the plane has no bounds.
    pub fn new(index: &SpatialIndex, definition: &ContainerDefinition) -> Option<SpatialIndexer> {
        let mut path = index.path.clone();
        path.0.pop_if(|segment| matches!(segment, Segment::Scalar | Segment::Wildcard));
        if path.0.is_empty() || !path.is_names() {
            return None;
        }
        let (grid, text) = match definition.geospatial {
            GeospatialType::Geography => (Grid::Globe, path.to_string()),
            GeospatialType::Geometry => {
                let bounds = index.bounding_box?;
                let corners = [bounds.xmin, bounds.ymin, bounds.xmax, bounds.ymax];
                (Grid::Plane(bounds), format!("{path} in {corners:?}"))
            }
        };
        let name = Arc::new(IndexName::of_path(IndexKind::Spatial, &text));
        Some(SpatialIndexer { path, grid, name, kind: definition.geospatial })
    }

    pub fn rows(&self, item: Node<'_>, rows: &mut RowSet) {
        let Some(node) = self.path.find_in(item).filter(|node| node.kind() == Kind::Object) else { return };
        let parsed = Geometry::parse(&node.to_value(), self.kind, &unlimited);
        let Some(Ok(geometry)) = parsed else { return };
        rows.name(&self.name);
        for cell in self.grid.cells(&geometry) {
            rows.push_encoded(self.name.id, [&[], &cell.to_be_bytes()]);
        }
    }
}
