//! GeoJSON geometries: relations, distances, areas, and their index cells.
//!
//! Positions become vectors: geography takes the direction from the centre of the WGS-84 ellipsoid, geometry takes
//! (x, y, 1). Then an edge is the part of a plane through the origin between its ends (on the globe: the shorter great
//! elliptic arc, as the service draws it), and one set of predicates serves both, poles and antimeridian included.
//! Only lengths and areas differ: geography measures geodesics on the ellipsoid.
//!
//! Choices where the service's behaviour is not known: the boundary belongs to a polygon; a hole may be wound either
//! way; the polygons of a MultiPolygon are not compared with each other; a third coordinate is ignored.

pub mod cells; // for indexes
mod measure; // distance and area
mod parse; // GeoJSON to a valid geometry, or the reason why not
mod relate; // sides, crossings, containment
mod shape; // chains of edges, rings, polygons
#[cfg(test)]
mod tests;
mod vector3;

use quire_resource::GeospatialType;
use quire_value::Value;

use self::shape::{Chain, Polygon};

/// Called before work on so many bytes; `None` ends the computation with `None`.
pub type Spend<'s> = &'s dyn Fn(usize) -> Option<()>;

/// For callers without a limit.
pub fn unlimited(_: usize) -> Option<()> {
    Some(())
}

/// A valid geometry: any number of points and lines, any number of polygons.
#[derive(Clone, Debug)]
pub struct Geometry {
    kind: GeospatialType,
    chains: Vec<Chain>,
    polygons: Vec<Polygon>,
}

/// Why a value is not a valid geometry, in the words of ST_ISVALIDDETAILED.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Invalid(String);

impl Geometry {
    pub fn parse(value: &Value, kind: GeospatialType, spend: Spend<'_>) -> Option<Result<Geometry, Invalid>> {
        parse::geometry(value, kind, spend)
    }

    /// Shares at least one point with the other.
    pub fn intersects(&self, other: &Geometry, spend: Spend<'_>) -> Option<bool> {
        relate::intersects(self, other, spend)
    }

    /// Has no point outside of the other.
    pub fn within(&self, other: &Geometry, spend: Spend<'_>) -> Option<bool> {
        relate::within(self, other, spend)
    }

    /// Metres between the nearest points, or units of the plane.
    pub fn distance(&self, other: &Geometry, spend: Spend<'_>) -> Option<f64> {
        if relate::intersects(self, other, spend)? {
            return Some(0.0);
        }
        measure::distance(self, other, spend)
    }

    /// Square metres, or square units of the plane.
    pub fn area(&self, spend: Spend<'_>) -> Option<f64> {
        measure::area(self, spend)
    }

    /// Points, lines and the rings of polygons.
    fn all_chains(&self) -> impl Iterator<Item = &Chain> {
        self.chains.iter().chain(self.rings().map(|ring| &ring.chain))
    }

    fn rings(&self) -> impl Iterator<Item = &shape::Ring> {
        self.polygons.iter().flat_map(|polygon| &polygon.rings)
    }
}
