//! Distances and areas: geodesics on WGS-84, or the plane.

use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;
use std::sync::LazyLock;

use geographiclib_rs::{Geodesic, InverseGeodesic, PolygonArea, Winding};
use quire_resource::GeospatialType;

use super::shape::{Chain, EDGE_BYTES, Edge, Ring, Vertex, signed_area};
use super::vector3::Vector;
use super::{Geometry, Spend};

static WGS84: LazyLock<Geodesic> = LazyLock::new(Geodesic::wgs84);

/// Square of the eccentricity.
const ECCENTRICITY_2: f64 = 0.006_694_379_990_141_316_5;
/// A path is never shorter than this many metres per radian seen from the centre (the polar radius) …
pub(super) const METRES_MIN: f64 = 6_356_752.314;
/// … and the shortest one never longer than this: the equatorial radius, and a little for its slope.
const METRES_MAX: f64 = EQUATOR_METRES * 1.000_01;
const EQUATOR_METRES: f64 = 6_378_137.0;
/// Beyond this angle, the nearest point on the sphere is no estimate for the ellipsoid.
const NEAR_RADIANS: f64 = 0.3;
/// Relative error of the distance to the sphere's nearest point, up to that angle.
const NEAREST_ERROR: f64 = 1e-4;
/// The charge of one geodesic, in bytes.
const GEODESIC_BYTES: usize = 512;
/// The list of candidates is pruned when it reaches this length.
const CANDIDATES_PRUNED: usize = 4_096;
const CANDIDATE_CHARGE_BYTES: usize = 1_024;
/// Edges of areas are followed in pieces of at most this angle: half a degree.
const AREA_PIECE_RADIANS: f64 = 0.008_726_646;

/// From the centre of the ellipsoid towards a position on it.
pub(super) fn direction([longitude, latitude]: [f64; 2]) -> Vector {
    let (sin_longitude, cos_longitude) = sin_cos(longitude);
    let (sin_latitude, cos_latitude) = sin_cos(latitude);
    let vector = Vector {
        x: cos_latitude * cos_longitude,
        y: cos_latitude * sin_longitude,
        z: (1.0 - ECCENTRICITY_2) * sin_latitude,
    };
    vector.unit()
}

/// Exact at multiples of 90 degrees, so that a pole and the antimeridian are each one point.
fn sin_cos(degrees: f64) -> (f64, f64) {
    match degrees {
        -180.0 | 180.0 => (0.0, -1.0),
        -90.0 => (-1.0, 0.0),
        90.0 => (1.0, 0.0),
        _ => degrees.to_radians().sin_cos(),
    }
}

/// The position in that direction.
fn place(direction: Vector) -> [f64; 2] {
    let Vector { x, y, z } = direction;
    [y.atan2(x).to_degrees(), z.atan2((1.0 - ECCENTRICITY_2) * x.hypot(y)).to_degrees()]
}

fn geodesic(from: [f64; 2], to: [f64; 2]) -> f64 {
    WGS84.inverse(from[1], from[0], to[1], to[0])
}

fn angle(a: Vector, b: Vector) -> f64 {
    2.0 * (a.chord(b) / 2.0).min(1.0).asin()
}

/// A vertex and the edge that it may be nearest to, and the bounds of their distance.
#[derive(Clone, Copy)]
struct Candidate<'a> {
    from: &'a Vertex,
    edge: Edge<'a>,
    /// The angle between them, seen from the centre.
    angle: f64,
    low: f64,
}

/// Between geometries without a common point.
pub(super) fn distance(left: &Geometry, right: &Geometry, spend: Spend<'_>) -> Option<f64> {
    match left.kind {
        GeospatialType::Geography => on_globe(left, right, spend),
        GeospatialType::Geometry => on_plane(left, right, spend),
    }
}

fn on_globe(left: &Geometry, right: &Geometry, spend: Spend<'_>) -> Option<f64> {
    let found = candidates(left, right, spend)?;
    let mut best = f64::INFINITY;
    let mut nearest_points = Vec::with_capacity(found.len());
    for mut candidate in found {
        if candidate.low > best {
            break;
        }
        spend(GEODESIC_BYTES)?;
        let reached = Arc::new(candidate.edge).distance(candidate.from, nearest_on_edge(&candidate));
        best = best.min(reached);
        if candidate.angle < NEAR_RADIANS {
            candidate.low = candidate.low.max(reached * (1.0 - NEAREST_ERROR));
        }
        nearest_points.push(candidate);
    }
    nearest_points.sort_by(|one, two| one.low.total_cmp(&two.low));
    for candidate in nearest_points {
        if candidate.low > best {
            break;
        }
        if candidate.edge.a.at != candidate.edge.b.at {
            best = best.min(nearest(&candidate, spend)?);
        }
    }
    Some(best)
}

/// All pairs that can be the nearest, lowest bound first.
fn candidates<'a>(left: &'a Geometry, right: &'a Geometry, spend: Spend<'_>) -> Option<Vec<Candidate<'a>>> {
    let high = Cell::new(f64::INFINITY);
    let found: RefCell<Vec<Candidate<'a>>> = RefCell::new(Vec::new());
    let mut room = CANDIDATES_PRUNED;
    let add = |from: &'a Vertex, edge: Edge<'a>| {
        let angle = angle_to_edge(from.at, edge);
        let low = METRES_MIN * angle;
        if low <= high.get() {
            high.set(high.get().min(METRES_MAX * angle));
            found.borrow_mut().push(Candidate { from, edge, angle, low });
        }
    };
    // A chord is shorter than its angle.
    let limit = || high.get() / METRES_MIN;
    for (one, two) in left.all_chains().flat_map(|one| right.all_chains().map(move |two| (one, two))) {
        let flow = one.near_pairs(two, spend, &limit, &mut |i, j| {
            let (one, two) = (one.edge(i), two.edge(j));
            [one.a, one.b].into_iter().for_each(|from| add(from, two));
            [two.a, two.b].into_iter().for_each(|from| add(from, one));
            match make_room(&mut found.borrow_mut(), &mut room, high.get(), spend) {
                Some(()) => ControlFlow::Continue(()),
                None => ControlFlow::Break(()),
            }
        })?;
        if flow.is_break() {
            return None;
        }
    }
    let mut found = found.into_inner();
    found.retain(|candidate| candidate.low <= high.get());
    found.sort_by(|one, two| one.low.total_cmp(&two.low));
    Some(found)
}

/// Drops candidates that can no longer be the nearest. If many are left, each doubling is charged far above its work:
/// candidates use memory, and so their number stays below a million.
fn make_room(found: &mut Vec<Candidate<'_>>, room: &mut usize, high: f64, spend: Spend<'_>) -> Option<()> {
    if found.len() < *room {
        return Some(());
    }
    spend(*room * EDGE_BYTES)?;
    found.retain(|candidate| candidate.low <= high);
    if found.len() > *room / 2 {
        *room *= 2;
        spend(*room * CANDIDATE_CHARGE_BYTES)?;
    }
    Some(())
}

/// An edge by the angle from its start.
struct Arc<'a> {
    edge: Edge<'a>,
    length: f64,
    /// At a right angle to the start, towards the end.
    ahead: Vector,
}

impl<'a> Arc<'a> {
    fn new(edge: Edge<'a>) -> Arc<'a> {
        let (a, b) = (edge.a.at, edge.b.at);
        let across = a.cross(b - a);
        let ahead = if across.length() > 0.0 { across.cross(a).unit() } else { a };
        Arc { edge, length: angle(a, b), ahead }
    }

    fn at(&self, angle: f64) -> [f64; 2] {
        if angle <= 0.0 {
            self.edge.a.place
        } else if angle >= self.length {
            self.edge.b.place
        } else {
            place(self.edge.a.at * angle.cos() + self.ahead * angle.sin())
        }
    }

    fn distance(&self, from: &Vertex, angle: f64) -> f64 {
        geodesic(from.place, self.at(angle))
    }
}

/// The nearest point of the edge on the sphere, as an angle from its start.
fn nearest_on_edge(candidate: &Candidate<'_>) -> f64 {
    let arc = Arc::new(candidate.edge);
    let p = candidate.from.at;
    if arc.length == 0.0 {
        return 0.0;
    }
    let angle = p.dot(arc.ahead).atan2(p.dot(candidate.edge.a.at));
    if (0.0..=arc.length).contains(&angle) {
        return angle;
    }
    if p.chord(candidate.edge.a.at) <= p.chord(candidate.edge.b.at) { 0.0 } else { arc.length }
}

fn angle_to_edge(p: Vector, edge: Edge<'_>) -> f64 {
    let (a, b) = (edge.a.at, edge.b.at);
    let across = a.cross(b - a);
    let ends = angle(p, a).min(angle(p, b));
    if p.dot(across.cross(a)) > 0.0 && p.dot(b.cross(across)) > 0.0 {
        let height = super::vector3::turn(a, b, p).abs() / across.length();
        return ends.min(height.min(1.0).asin());
    }
    ends
}

/// The shortest geodesic from a vertex to an edge: golden-section search around the sphere's nearest point.
fn nearest(candidate: &Candidate<'_>, spend: Spend<'_>) -> Option<f64> {
    const SAMPLES: usize = 32;
    const SECTIONS: usize = 36;
    const GOLDEN: f64 = 0.618_033_988_749_894_8;
    spend((SAMPLES + SECTIONS) * GEODESIC_BYTES)?;
    let arc = Arc::new(candidate.edge);
    let at = |angle: f64| arc.distance(candidate.from, angle);
    let (mut low, mut high) = if candidate.angle < NEAR_RADIANS {
        let (nearest_on_edge, reach) = (nearest_on_edge(candidate), 0.02 * candidate.angle + 1e-12);
        (nearest_on_edge - reach, nearest_on_edge + reach)
    } else {
        let step = arc.length / SAMPLES as f64;
        let samples = (0..=SAMPLES).map(|index| (index as f64 * step, at(index as f64 * step)));
        let best = samples.min_by(|one, two| one.1.total_cmp(&two.1)).map_or(0.0, |(angle, _)| angle);
        (best - step, best + step)
    };
    (low, high) = (low.max(0.0), high.min(arc.length));
    let mut best = at(low).min(at(high));
    let (mut one, mut two) = (high - GOLDEN * (high - low), low + GOLDEN * (high - low));
    let (mut at_one, mut at_two) = (at(one), at(two));
    for _ in 0..SECTIONS {
        best = best.min(at_one).min(at_two);
        if at_one < at_two {
            (high, two, at_two) = (two, one, at_one);
            one = high - GOLDEN * (high - low);
            at_one = at(one);
        } else {
            (low, one, at_one) = (one, two, at_two);
            two = low + GOLDEN * (high - low);
            at_two = at(two);
        }
    }
    Some(best.min(at_one).min(at_two))
}

fn on_plane(left: &Geometry, right: &Geometry, spend: Spend<'_>) -> Option<f64> {
    let best = Cell::new(f64::INFINITY);
    for (one, two) in left.all_chains().flat_map(|one| right.all_chains().map(move |two| (one, two))) {
        let _all = one.near_pairs(two, spend, &|| best.get(), &mut |i, j| {
            let (one, two) = (one.edge(i), two.edge(j));
            let ends = [(one.a, two), (one.b, two), (two.a, one), (two.b, one)];
            let nearest = ends.into_iter().map(|(p, edge)| to_segment(p.at, edge));
            best.set(nearest.fold(best.get(), f64::min));
            ControlFlow::Continue(())
        })?;
    }
    Some(best.get())
}

fn to_segment(p: Vector, edge: Edge<'_>) -> f64 {
    let (a, along) = (edge.a.at, edge.b.at - edge.a.at);
    let length_2 = along.dot(along);
    let part = if length_2 > 0.0 { ((p - a).dot(along) / length_2).clamp(0.0, 1.0) } else { 0.0 };
    let off = p - (a + along * part);
    off.x.hypot(off.y)
}

pub(super) fn area(geometry: &Geometry, spend: Spend<'_>) -> Option<f64> {
    let mut total = 0.0;
    for polygon in &geometry.polygons {
        let (outer, holes) = polygon.rings.split_first().expect("a polygon has an outer ring");
        let mut own = interior_area(outer, spend)?;
        for hole in holes {
            own -= lost_area(hole, spend)?;
        }
        // A hole may be larger than what it is cut out of: nothing is left then.
        total += own.max(0.0);
    }
    Some(total)
}

/// On the interior side of the ring; of a ring in the plane: inside of it.
fn interior_area(ring: &Ring, spend: Spend<'_>) -> Option<f64> {
    let left = match ring.chain.kind {
        GeospatialType::Geometry => return Some(signed_area(&ring.chain).abs()),
        GeospatialType::Geography => left_area(ring, spend)?,
    };
    Some(if ring.keeps_left { left } else { WGS84.area() - left })
}

/// Of a hole.
fn lost_area(ring: &Ring, spend: Spend<'_>) -> Option<f64> {
    match ring.chain.kind {
        GeospatialType::Geometry => interior_area(ring, spend),
        GeospatialType::Geography => Some(WGS84.area() - interior_area(ring, spend)?),
    }
}

/// The area left of the ring. Its arcs are approximated by geodesics, once with full and once with half the piece
/// length: the error falls with the square of the length, so extrapolating the two removes most of it.
fn left_area(ring: &Ring, spend: Spend<'_>) -> Option<f64> {
    let clockwise = ring.is_small_clockwise();
    let signed = clockwise.is_some();
    if let (Some(clockwise), Some(center)) = (clockwise, ring.flat_center()) {
        spend(ring.chain.vertices.len() * EDGE_BYTES)?;
        let area = flat_area(&ring.chain, center);
        return Some(if clockwise { WGS84.area() - area } else { area });
    }
    let once = left_area_in_pieces(&ring.chain, 1, signed, spend)?;
    let twice = left_area_in_pieces(&ring.chain, 2, signed, spend)?;
    let area = twice + (twice - once) / 3.0;
    Some(match clockwise {
        Some(true) => WGS84.area() - area.abs(),
        Some(false) => area.abs(),
        None => area,
    })
}

/// For a small ring. The area below a geodesic is exact to a hundredth of a square metre, which is too imprecise
/// here.
fn flat_area(ring: &Chain, center: Vector) -> f64 {
    let twice: f64 =
        ring.edges().map(|edge| (edge.a.at - center).cross(edge.b.at - center).dot(center)).sum();
    let (across, up) = (center.x * center.x + center.y * center.y, center.z * center.z);
    let (a2, b2) =
        (EQUATOR_METRES * EQUATOR_METRES, EQUATOR_METRES * EQUATOR_METRES * (1.0 - ECCENTRICITY_2));
    // The radius there, and the slope of the surface against it.
    let radius_2 = (across / a2 + up / b2).recip();
    let normal = (across / (a2 * a2) + up / (b2 * b2)).sqrt();
    (twice / 2.0).abs() * radius_2 * radius_2 * normal
}

fn left_area_in_pieces(ring: &Chain, factor: usize, signed: bool, spend: Spend<'_>) -> Option<f64> {
    let mut area = PolygonArea::new(&WGS84, Winding::CounterClockwise);
    for edge in ring.edges() {
        let arc = Arc::new(edge);
        let pieces = factor * (arc.length / AREA_PIECE_RADIANS).ceil().max(1.0) as usize;
        spend(pieces * GEODESIC_BYTES)?;
        for index in 0..pieces {
            let [longitude, latitude] = arc.at(arc.length * index as f64 / pieces as f64);
            area.add_point(latitude, longitude);
        }
    }
    Some(area.compute(signed).1)
}
