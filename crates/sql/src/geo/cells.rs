//! Index cells of geometries, and the cell ranges to search for a condition.
//!
//! The globe is the six faces of a cube around its centre, the plane is a box; each is cut into quarters 30 times.
//! An id is the face (3 bits), the quarters from the coarsest on (2 bits each), a one, and zeros: so the descendants of
//! a cell are the range of ids around its own, and its ancestors are a few other ids.
//!
//! Invariants, each a property test:  1. geometries with a common point have cells of which one contains the other, and
//! so have those that are no farther apart than a search allows;  2. whatever is outside of the box counts to the cells
//! at its border.  Ids are on disk: never renumber.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use quire_resource::{BoundingBox, GeospatialType};
use smallvec::SmallVec;

use super::measure::METRES_MIN;
use super::vector3::{Vector, project};
use super::{Geometry, relate, unlimited};

/// A leaf is less than a centimetre wide.
const LEVEL_MAX: u8 = 30;
/// Of one geometry in the index.
const INDEXED_CELLS_MAX: usize = 16;
/// Of one search, before their ancestors.
const SEARCHED_CELLS_MAX: usize = 16;
/// Cells reach beyond their borders by this much, so that rounding never puts a point between them.
const MARGIN: f64 = 1e-12;

/// What is cut into cells.
#[derive(Clone, Copy, Debug)]
pub enum Grid {
    Globe,
    Plane(BoundingBox),
}

/// Ids of cells, ascending.
pub type Cells = SmallVec<[u64; 4]>;

impl Grid {
    /// The cells that cover a geometry of the same kind: one row of the index each.
    pub fn cells(&self, geometry: &Geometry) -> Cells {
        let mut ids: Cells = self.cover(geometry, 0.0, INDEXED_CELLS_MAX).into_iter().map(Cell::id).collect();
        ids.sort_unstable();
        ids
    }

    /// Where an indexed geometry has at least one cell if it is at most `distance` away, which is 0 for one that
    /// shares a point or is inside. Ascending and disjoint.
    pub fn search(&self, geometry: &Geometry, distance: f64) -> Vec<RangeInclusive<u64>> {
        let Some(margin) = self.margin(distance) else {
            // A distance beyond the horizon matches everything; a negative distance or NaN matches nothing.
            return if distance > 0.0 { vec![0..=u64::MAX] } else { Vec::new() };
        };
        let cells = self.cover(geometry, margin, SEARCHED_CELLS_MAX);
        let mut ancestors: Vec<u64> = cells.iter().flat_map(|cell| cell.ancestors()).collect();
        ancestors.sort_unstable();
        ancestors.dedup();
        let single = ancestors.into_iter().map(|id| id..=id);
        merged(cells.iter().map(|cell| cell.descendants()).chain(single).collect())
    }

    /// A distance as a margin of vectors; `None` if it matches everything or nothing.
    fn margin(&self, distance: f64) -> Option<f64> {
        if !(0.0..f64::MAX).contains(&distance) {
            return None;
        }
        match self {
            Grid::Plane(_) => Some(distance),
            Grid::Globe => {
                let angle = distance / METRES_MIN * (1.0 + 1e-9);
                (angle < std::f64::consts::FRAC_PI_2).then(|| angle.sin())
            }
        }
    }

    /// Splits the largest cells first, until there are too many cells.
    fn cover(&self, geometry: &Geometry, margin: f64, count_max: usize) -> Vec<Cell> {
        let edges: Vec<[Vector; 2]> = geometry
            .all_chains()
            .flat_map(|chain| chain.edges().map(|edge| [edge.a.at, edge.b.at]))
            .collect();
        let faces = match self {
            Grid::Globe => 0..6,
            Grid::Plane(_) => 0..1,
        };
        let mut open: VecDeque<Covering> = faces
            .map(|face| Cell { face, level: 0, i: 0, j: 0 })
            .filter_map(|cell| self.covering(cell, geometry, &edges, margin))
            .collect();
        let mut done = Vec::new();
        while let Some(Covering { cell, edges }) = open.pop_front() {
            // No edges in the cell: it is completely inside.
            if cell.level == LEVEL_MAX || edges.is_empty() {
                done.push(cell);
                continue;
            }
            let quarters: SmallVec<[Covering; 4]> = cell
                .quarters()
                .into_iter()
                .filter_map(|quarter| self.covering(quarter, geometry, &edges, margin))
                .collect();
            // There can be none only by rounding; the cell itself is still correct.
            if quarters.is_empty() || done.len() + open.len() + quarters.len() > count_max {
                done.push(cell);
            } else {
                open.extend(quarters);
            }
        }
        done
    }

    /// The part of the geometry in a cell: `None` when there is none.
    fn covering(
        &self,
        cell: Cell,
        geometry: &Geometry,
        edges: &[[Vector; 2]],
        margin: f64,
    ) -> Option<Covering> {
        let sides = self.sides(cell);
        let slack = |edge: &[Vector; 2]| margin + MARGIN * self.scale(edge);
        let edges: Vec<[Vector; 2]> =
            edges.iter().filter(|edge| reaches(edge, &sides, slack(edge))).copied().collect();
        let found = !edges.is_empty() || self.is_inside(cell, geometry);
        found.then_some(Covering { cell, edges })
    }

    fn is_inside(&self, cell: Cell, geometry: &Geometry) -> bool {
        relate::in_polygons(geometry, self.center(cell), &unlimited).expect("the budget is unlimited")
    }

    /// The largest coordinate, which rounding errors are relative to.
    fn scale(&self, [a, b]: &[Vector; 2]) -> f64 {
        match self {
            Grid::Globe => 1.0,
            Grid::Plane(bounds) => {
                let of_box = [bounds.xmin, bounds.ymin, bounds.xmax, bounds.ymax];
                let all = of_box.into_iter().chain([a.x, a.y, b.x, b.y]);
                all.map(f64::abs).fold(1.0, f64::max)
            }
        }
    }

    /// Unit normals of the planes around the cell, towards it.
    fn sides(&self, cell: Cell) -> SmallVec<[Vector; 4]> {
        let ([left, right], [bottom, top]) = cell.bounds();
        match self {
            Grid::Globe => {
                let [front, across, up] = face_axes(cell.face);
                let at_least = |axis: Vector, bound: f64| (axis - front * equalize(bound)).unit();
                let at_most = |axis: Vector, bound: f64| (front * equalize(bound) - axis).unit();
                SmallVec::from([
                    at_least(across, left),
                    at_most(across, right),
                    at_least(up, bottom),
                    at_most(up, top),
                ])
            }
            Grid::Plane(bounds) => {
                let (x, y) = (bounds.x(), bounds.y());
                let mut sides = SmallVec::new();
                // The cells at the border have no side there.
                let mut add = |x: f64, y: f64, z: f64, inner: bool| {
                    if inner {
                        sides.push(Vector { x, y, z });
                    }
                };
                add(1.0, 0.0, -x(left), left > -1.0);
                add(-1.0, 0.0, x(right), right < 1.0);
                add(0.0, 1.0, -y(bottom), bottom > -1.0);
                add(0.0, -1.0, y(top), top < 1.0);
                sides
            }
        }
    }

    fn center(&self, cell: Cell) -> Vector {
        let ([left, right], [bottom, top]) = cell.bounds();
        let (s, t) = ((left + right) / 2.0, (bottom + top) / 2.0);
        match self {
            Grid::Globe => {
                let [front, across, up] = face_axes(cell.face);
                project(GeospatialType::Geography, front + across * equalize(s) + up * equalize(t))
            }
            Grid::Plane(bounds) => Vector { x: bounds.x()(s), y: bounds.y()(t), z: 1.0 },
        }
    }
}

/// From -1…1 to the coordinates of the box.
trait Scaled {
    fn x(&self) -> impl Fn(f64) -> f64;
    fn y(&self) -> impl Fn(f64) -> f64;
}

impl Scaled for BoundingBox {
    fn x(&self) -> impl Fn(f64) -> f64 {
        between(self.xmin, self.xmax)
    }

    fn y(&self) -> impl Fn(f64) -> f64 {
        between(self.ymin, self.ymax)
    }
}

fn between(low: f64, high: f64) -> impl Fn(f64) -> f64 {
    move |part| low * (0.5 - part / 2.0) + high * (0.5 + part / 2.0)
}

/// A cell of the covering, and the edges that reach into it.
struct Covering {
    cell: Cell,
    edges: Vec<[Vector; 2]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    face: u8,
    level: u8,
    /// Of `2^level` from left to right, and from bottom to top.
    i: u32,
    j: u32,
}

impl Cell {
    fn id(self) -> u64 {
        let quarters = spread(self.i) << 1 | spread(self.j);
        let end = self.end();
        u64::from(self.face) << 61 | (quarters * end) << 1 | end
    }

    /// The lowest set bit, which ends the id.
    fn end(self) -> u64 {
        1 << (60 - 2 * u32::from(self.level))
    }

    fn descendants(self) -> RangeInclusive<u64> {
        self.id() - (self.end() - 1)..=self.id() + (self.end() - 1)
    }

    fn ancestors(self) -> impl Iterator<Item = u64> {
        (0..self.level).map(move |level| {
            let up = self.level - level;
            Cell { level, i: self.i >> up, j: self.j >> up, ..self }.id()
        })
    }

    fn quarters(self) -> [Cell; 4] {
        [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(right, top)| Cell {
            level: self.level + 1,
            i: self.i * 2 + right,
            j: self.j * 2 + top,
            ..self
        })
    }

    /// Left and right, bottom and top, in -1…1.
    fn bounds(self) -> ([f64; 2], [f64; 2]) {
        let size = 2.0 / f64::from(1_u32 << self.level);
        let range = |index: u32| [f64::from(index) * size - 1.0, (f64::from(index) + 1.0) * size - 1.0];
        (range(self.i), range(self.j))
    }
}

/// Interleaves with zeros: bit `n` becomes bit `2n`.
fn spread(index: u32) -> u64 {
    let steps = [(16, 0x0000_FFFF_0000_FFFF), (8, 0x00FF_00FF_00FF_00FF), (4, 0x0F0F_0F0F_0F0F_0F0F)];
    let last = [(2, 0x3333_3333_3333_3333), (1, 0x5555_5555_5555_5555)];
    steps.into_iter().chain(last).fold(u64::from(index), |bits, (shift, mask)| (bits | bits << shift) & mask)
}

/// Makes the cells of a face nearly equal; at -1 and 1 it is exact.
fn equalize(part: f64) -> f64 {
    if part.abs() == 1.0 { part } else { (part * std::f64::consts::FRAC_PI_4).tan() }
}

/// Outward, and the two directions on the face.
fn face_axes(face: u8) -> [Vector; 3] {
    let sign = if face < 3 { 1.0 } else { -1.0 };
    let x = Vector { x: 1.0, y: 0.0, z: 0.0 };
    let y = Vector { x: 0.0, y: 1.0, z: 0.0 };
    let z = Vector { x: 0.0, y: 0.0, z: 1.0 };
    match face % 3 {
        0 => [x * sign, y, z],
        1 => [y * sign, z, x],
        _ => [z * sign, x, y],
    }
}

/// Whether some point of the edge is at most `slack` outside of every side. Points of the chord can replace those of
/// the arc: they lie on the same ray, and nearer to every plane.
fn reaches([a, b]: &[Vector; 2], sides: &[Vector], slack: f64) -> bool {
    let (mut from, mut to) = (0.0_f64, 1.0_f64);
    for side in sides {
        let (at_a, at_b) = (side.dot(*a) + slack, side.dot(*b) + slack);
        match (at_a >= 0.0, at_b >= 0.0) {
            (true, true) => {}
            (false, false) => return false,
            (true, false) => to = to.min(at_a / (at_a - at_b)),
            (false, true) => from = from.max(at_a / (at_a - at_b)),
        }
    }
    from <= to
}

fn merged(mut ranges: Vec<RangeInclusive<u64>>) -> Vec<RangeInclusive<u64>> {
    ranges.sort_unstable_by_key(|range| *range.start());
    let mut merged: Vec<RangeInclusive<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match merged.last_mut() {
            Some(last) if *range.start() <= last.end().saturating_add(1) => {
                *last = *last.start()..=*last.end().max(range.end());
            }
            _ => merged.push(range),
        }
    }
    merged
}
