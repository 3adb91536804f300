//! Relations: whether geometries share points, or one contains the other.

use std::ops::ControlFlow;

use super::shape::{Chain, Edge, Location, Polygon, Ring};
use super::vector3::{Vector, crosses, crossing, is_on, meet, middle, project, tolerance};
use super::{Geometry, Spend};

/// Distance of the sample points beside an edge, relative to the length of the edge.
const BESIDE: f64 = 1e-6;

pub(super) fn intersects(left: &Geometry, right: &Geometry, spend: Spend<'_>) -> Option<bool> {
    // Without a common boundary point, a chain is completely inside or completely outside.
    Some(any_start_in(left, right, spend)? || any_start_in(right, left, spend)? || touch(left, right, spend)?)
}

fn any_start_in(chains: &Geometry, areas: &Geometry, spend: Spend<'_>) -> Option<bool> {
    for chain in chains.all_chains() {
        if in_polygons(areas, chain.first(), spend)? {
            return Some(true);
        }
    }
    Some(false)
}

fn touch(left: &Geometry, right: &Geometry, spend: Spend<'_>) -> Option<bool> {
    for (one, two) in left.all_chains().flat_map(|one| right.all_chains().map(move |two| (one, two))) {
        let flow = one.near_pairs(two, spend, &|| 0.0, &mut |i, j| {
            let (one, two) = (one.edge(i), two.edge(j));
            match meet(left.kind, one.a.at, one.b.at, two.a.at, two.b.at) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })?;
        if flow.is_break() {
            return Some(true);
        }
    }
    Some(false)
}

pub(super) fn in_polygons(geometry: &Geometry, p: Vector, spend: Spend<'_>) -> Option<bool> {
    for polygon in &geometry.polygons {
        if polygon.locate(p, spend)? != Location::Outside {
            return Some(true);
        }
    }
    Some(false)
}

fn holds(geometry: &Geometry, p: Vector, spend: Spend<'_>) -> Option<bool> {
    for chain in &geometry.chains {
        if chain.has(p, spend)? {
            return Some(true);
        }
    }
    in_polygons(geometry, p, spend)
}

pub(super) fn within(inner: &Geometry, outer: &Geometry, spend: Spend<'_>) -> Option<bool> {
    for chain in inner.all_chains() {
        if !every_piece(chain, outer, spend, &mut |_, p| holds(outer, p, spend))? {
            return Some(false);
        }
    }
    for polygon in &inner.polygons {
        if !area_within(polygon, outer, spend)? {
            return Some(false);
        }
    }
    Some(true)
}

/// For a polygon whose boundary is inside the other geometry.
fn area_within(polygon: &Polygon, outer: &Geometry, spend: Spend<'_>) -> Option<bool> {
    let Some(p) = inner_point(polygon, spend)? else { return Some(false) };
    if !in_polygons(outer, p, spend)? {
        return Some(false);
    }
    let bounds = Geometry { kind: outer.kind, chains: Vec::new(), polygons: vec![polygon.clone()] };
    for ring in outer.rings() {
        // A boundary of the other geometry inside this polygon cuts out an area, unless a neighbour begins there.
        let clear = every_piece(&ring.chain, &bounds, spend, &mut |edge, p| {
            if polygon.locate(p, spend)? != Location::Inside {
                return Some(true);
            }
            in_polygons(outer, beside(ring, edge, p, !ring.keeps_left), spend)
        })?;
        if !clear {
            return Some(false);
        }
    }
    Some(true)
}

/// A point of the polygon that is not on its boundary.
fn inner_point(polygon: &Polygon, spend: Spend<'_>) -> Option<Option<Vector>> {
    for ring in &polygon.rings {
        for edge in ring.chain.edges() {
            let p = beside(ring, edge, middle(ring.chain.kind, edge.a.at, edge.b.at), ring.keeps_left);
            if polygon.locate(p, spend)? == Location::Inside {
                return Some(Some(p));
            }
        }
    }
    Some(None)
}

/// A little left or right of a point on an edge.
fn beside(ring: &Ring, edge: Edge<'_>, p: Vector, left: bool) -> Vector {
    let kind = ring.chain.kind;
    let (a, b) = (edge.a.at, edge.b.at);
    let up = match kind {
        quire_resource::GeospatialType::Geography => p,
        quire_resource::GeospatialType::Geometry => Vector { x: 0.0, y: 0.0, z: 1.0 },
    };
    // As long as the edge, and at a right angle to it.
    let to_left = up.cross(b - a);
    let step = (BESIDE * to_left.length()).max(16.0 * tolerance(kind, p)) / to_left.length();
    project(kind, p + to_left * if left { step } else { -step })
}

/// Splits the chain wherever it touches edges of the other geometry, and checks the middle of every piece until one
/// fails. Consecutive pieces without a split in between are checked once.
fn every_piece(
    chain: &Chain,
    other: &Geometry,
    spend: Spend<'_>,
    check: &mut dyn FnMut(Edge<'_>, Vector) -> Option<bool>,
) -> Option<bool> {
    for (index, edge) in chain.edges().enumerate() {
        let (a, b) = (edge.a.at, edge.b.at);
        let mut stops = cuts(edge, other, spend)?;
        if stops.is_empty() && index > 0 {
            continue;
        }
        stops.push(b);
        let along = |p: &Vector| (*p - a).dot(b - a);
        stops.sort_by(|p, q| along(p).total_cmp(&along(q)));
        let mut from = a;
        for to in stops {
            let has_length = from.chord(to) > 2.0 * tolerance(chain.kind, to);
            if (has_length || a == b) && !check(edge, middle(chain.kind, from, to))? {
                return Some(false);
            }
            from = to;
        }
    }
    Some(true)
}

fn cuts(edge: Edge<'_>, other: &Geometry, spend: Spend<'_>) -> Option<Vec<Vector>> {
    let (a, b, kind) = (edge.a.at, edge.b.at, other.kind);
    let mut stops = Vec::new();
    for chain in other.all_chains() {
        chain.near_edges(edge, spend, &mut |Edge { a: c, b: d }| {
            let ends = [c.at, d.at].into_iter().filter(|end| is_on(kind, *end, a, b));
            stops.extend(ends);
            if is_on(kind, a, c.at, d.at) {
                stops.push(a);
            }
            if is_on(kind, b, c.at, d.at) {
                stops.push(b);
            }
            if crosses(c.at, d.at, a, b) {
                stops.push(crossing(kind, c.at, d.at, a, b));
            }
        })?;
    }
    Some(stops)
}
