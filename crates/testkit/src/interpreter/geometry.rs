//! GeoJSON on a sphere: edges are arcs of great circles. Lengths and areas are those of the ellipsoid to one per cent.
//!
//! A relation is found by cutting every edge of one shape where it meets the other and looking at the pieces.

use super::json::{Json, JsonOrUndefined};

const RADIUS_METRES: f64 = 6_371_008.8;
/// Of unit vectors.
const NEAR: f64 = 1e-10;

/// A point of the unit sphere.
type Point = [f64; 3];

#[derive(Clone, Debug)]
enum Geometry {
    Point(Point),
    Line(Vec<Point>),
    /// Rings, closed; the first is the outer one.
    Area(Vec<Vec<Vec<Point>>>),
}

/// What stands for any text.
pub const ANY_TEXT: &str = "\u{1}any";

/// `None`: no function of this family.
pub fn call(name: &str, values: &[Json]) -> Option<JsonOrUndefined> {
    let shape = |index: usize| values.get(index).and_then(|value| parse(value).ok());
    let both = || shape(0).zip(shape(1));
    Some(match name {
        "STISVALID" => Some(Json::Bool(parse(&values[0]).is_ok())),
        "STISVALIDDETAILED" => Some(match parse(&values[0]) {
            Ok(_) => Json::Object(vec![("valid".to_owned(), Json::Bool(true))]),
            Err(reason) => Json::Object(vec![
                ("valid".to_owned(), Json::Bool(false)),
                ("reason".to_owned(), Json::text(reason)),
            ]),
        }),
        "STDISTANCE" => both().map(|(left, right)| Json::number(distance(&left, &right))),
        "STINTERSECTS" => both().map(|(left, right)| Json::Bool(meets(&left, &right))),
        "STWITHIN" => both().map(|(left, right)| Json::Bool(is_within(&left, &right))),
        "STAREA" => shape(0).map(|shape| Json::number(area(&shape))),
        _ => return None,
    })
}

fn parse(value: &Json) -> Result<Geometry, &'static str> {
    let kind = value.get("type").and_then(Json::as_str).ok_or(ANY_TEXT)?;
    let coordinates = value.get("coordinates").and_then(Json::as_array).ok_or(ANY_TEXT)?;
    match kind {
        "Point" => position(value.get("coordinates").ok_or(ANY_TEXT)?).map(Geometry::Point),
        "LineString" => {
            let points = distinct(positions(coordinates)?);
            if points.len() < 2 || opposite(&points) {
                return Err(ANY_TEXT);
            }
            Ok(Geometry::Line(points))
        }
        "Polygon" => Ok(Geometry::Area(vec![polygon(coordinates)?])),
        "MultiPolygon" if coordinates.is_empty() => Err(ANY_TEXT),
        "MultiPolygon" => {
            let polygons = coordinates.iter().map(|rings| polygon(rings.as_array().ok_or(ANY_TEXT)?));
            Ok(Geometry::Area(polygons.collect::<Result<_, _>>()?))
        }
        _ => Err(ANY_TEXT),
    }
}

fn position(value: &Json) -> Result<Point, &'static str> {
    let numbers: Option<Vec<f64>> =
        value.as_array().and_then(|numbers| numbers.iter().map(Json::as_f64).collect());
    let numbers = numbers.filter(|numbers| (2..=3).contains(&numbers.len())).ok_or(ANY_TEXT)?;
    let (longitude, latitude) = (numbers[0], numbers[1]);
    if !(-90.0..=90.0).contains(&latitude) {
        return Err("Latitude values must be between -90 and 90 degrees.");
    }
    if !(-180.0..=180.0).contains(&longitude) {
        return Err(ANY_TEXT);
    }
    let (longitude, latitude) = (longitude.to_radians(), latitude.to_radians());
    Ok([latitude.cos() * longitude.cos(), latitude.cos() * longitude.sin(), latitude.sin()])
}

fn positions(values: &[Json]) -> Result<Vec<Point>, &'static str> {
    values.iter().map(position).collect()
}

/// Without points that repeat the one before.
fn distinct(points: Vec<Point>) -> Vec<Point> {
    let mut kept: Vec<Point> = Vec::new();
    for point in points {
        if !kept.last().is_some_and(|last| same(*last, point)) {
            kept.push(point);
        }
    }
    kept
}

fn opposite(points: &[Point]) -> bool {
    points.windows(2).any(|pair| same(pair[0], scaled(pair[1], -1.0)))
}

fn polygon(rings: &[Json]) -> Result<Vec<Vec<Point>>, &'static str> {
    let mut found: Vec<Vec<Point>> = Vec::new();
    for ring in rings {
        let points = positions(ring.as_array().ok_or(ANY_TEXT)?)?;
        let (Some(first), Some(last)) = (points.first(), points.last()) else { return Err(ANY_TEXT) };
        if !same(*first, *last) {
            return Err(ANY_TEXT);
        }
        let points = distinct(points);
        if points.len() < 4 || opposite(&points) || meets_itself(&points) {
            return Err(ANY_TEXT);
        }
        found.push(points);
    }
    let Some((outer, holes)) = found.split_first() else { return Err(ANY_TEXT) };
    for (nth, hole) in holes.iter().enumerate() {
        let within_outer =
            pieces(hole, &[outer]).iter().all(|point| in_ring(*point, outer) || on_line(*point, outer));
        let overlaps = holes[..nth].iter().any(|other| {
            let inside = |one: &Vec<Point>, other: &Vec<Point>| {
                pieces(one, &[other]).iter().any(|point| in_hole(*point, other) && !on_line(*point, other))
            };
            inside(hole, other) || inside(other, hole)
        });
        if !within_outer || overlaps {
            return Err(ANY_TEXT);
        }
    }
    Ok(found)
}

fn meets_itself(ring: &[Point]) -> bool {
    let edges: Vec<(Point, Point)> = edges(ring).collect();
    for (nth, one) in edges.iter().enumerate() {
        for (at, other) in edges.iter().enumerate().skip(nth + 1) {
            let neighbours = at == nth + 1 || (nth == 0 && at == edges.len() - 1);
            let shared = if at == nth + 1 { one.1 } else { one.0 };
            let touches = crossings(*one, *other);
            if touches.iter().any(|point| !neighbours || !same(*point, shared)) {
                return true;
            }
        }
    }
    false
}

fn edges(line: &[Point]) -> impl Iterator<Item = (Point, Point)> {
    line.windows(2).map(|pair| (pair[0], pair[1]))
}

fn dot(a: Point, b: Point) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

fn cross(a: Point, b: Point) -> Point {
    [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
}

fn scaled(a: Point, by: f64) -> Point {
    a.map(|part| part * by)
}

fn unit(a: Point) -> Point {
    scaled(a, 1.0 / dot(a, a).sqrt())
}

fn same(a: Point, b: Point) -> bool {
    angle(a, b) < NEAR
}

fn angle(a: Point, b: Point) -> f64 {
    let across = cross(a, b);
    dot(across, across).sqrt().atan2(dot(a, b))
}

fn on_arc(point: Point, (from, to): (Point, Point)) -> bool {
    (angle(from, point) + angle(point, to) - angle(from, to)).abs() < NEAR
        && arc_distance(point, (from, to)) < NEAR
}

fn on_line(point: Point, line: &[Point]) -> bool {
    edges(line).any(|edge| on_arc(point, edge))
}

/// Where two arcs meet: one point, or the ends of what they share.
fn crossings(one: (Point, Point), other: (Point, Point)) -> Vec<Point> {
    let mut found: Vec<Point> = Vec::new();
    let normals = cross(unit(cross(one.0, one.1)), unit(cross(other.0, other.1)));
    let mut candidates = vec![one.0, one.1, other.0, other.1];
    if dot(normals, normals).sqrt() > NEAR {
        candidates.extend([unit(normals), scaled(unit(normals), -1.0)]);
    }
    for point in candidates {
        if on_arc(point, one) && on_arc(point, other) && !found.iter().any(|known| same(*known, point)) {
            found.push(point);
        }
    }
    found
}

/// Points of a line: its corners, where it meets the other lines, and one between any two of these.
fn pieces(line: &[Point], others: &[&Vec<Point>]) -> Vec<Point> {
    let mut found = Vec::new();
    for edge in edges(line) {
        let mut cuts = vec![edge.0, edge.1];
        for other in others {
            cuts.extend(edges(other).flat_map(|other| crossings(edge, other)));
        }
        cuts.sort_by(|a, b| angle(edge.0, *a).total_cmp(&angle(edge.0, *b)));
        for pair in cuts.windows(2) {
            if !same(pair[0], pair[1]) {
                found.push(unit([pair[0][0] + pair[1][0], pair[0][1] + pair[1][1], pair[0][2] + pair[1][2]]));
            }
        }
        found.extend(cuts);
    }
    found
}

/// Twice the signed area of a ring on the unit sphere, up to whole spheres: positive to the left.
fn excess(ring: &[Point]) -> f64 {
    let corners = &ring[..ring.len() - 1];
    let count = corners.len();
    let mut turns = 0.0;
    for nth in 0..count {
        let (before, at, after) =
            (corners[(nth + count - 1) % count], corners[nth], corners[(nth + 1) % count]);
        let (to_before, to_after) = (cross(at, before), cross(at, after));
        let turn = angle(to_after, to_before).copysign(dot(cross(to_after, to_before), at));
        turns += if turn < 0.0 { turn + std::f64::consts::TAU } else { turn };
    }
    turns - (count as f64 - 2.0) * std::f64::consts::PI
}

/// Left of the ring, which goes around what it encloses anticlockwise.
fn in_ring(point: Point, ring: &[Point]) -> bool {
    let mut turned = 0.0;
    for (from, to) in edges(ring) {
        let (from, to) = (cross(point, from), cross(point, to));
        turned += angle(from, to).copysign(dot(cross(from, to), point));
    }
    // Seen from a point, a ring goes around it once, or around its opposite, or around neither.
    let around = (turned / std::f64::consts::TAU).round() as i32;
    let is_small = excess(ring) < std::f64::consts::TAU;
    if is_small { around > 0 } else { around >= 0 }
}

/// Inside a hole, whichever way it goes around.
fn in_hole(point: Point, ring: &[Point]) -> bool {
    if excess(ring) < std::f64::consts::TAU {
        return in_ring(point, ring);
    }
    let reversed: Vec<Point> = ring.iter().rev().copied().collect();
    in_ring(point, &reversed)
}

fn lines(shape: &Geometry) -> Vec<&Vec<Point>> {
    match shape {
        Geometry::Point(_) => Vec::new(),
        Geometry::Line(line) => vec![line],
        Geometry::Area(polygons) => polygons.iter().flatten().collect(),
    }
}

fn on_border(point: Point, shape: &Geometry) -> bool {
    lines(shape).iter().any(|line| on_line(point, line))
}

fn is_in_interior(point: Point, shape: &Geometry) -> bool {
    let Geometry::Area(polygons) = shape else { return false };
    !on_border(point, shape)
        && polygons
            .iter()
            .any(|rings| in_ring(point, &rings[0]) && !rings[1..].iter().any(|hole| in_hole(point, hole)))
}

fn covers(shape: &Geometry, point: Point) -> bool {
    match shape {
        Geometry::Point(own) => same(*own, point),
        _ => on_border(point, shape) || is_in_interior(point, shape),
    }
}

/// Corners and pieces of the borders of a shape.
fn points_of(shape: &Geometry, other: &Geometry) -> Vec<Point> {
    match shape {
        Geometry::Point(point) => vec![*point],
        _ => lines(shape).into_iter().flat_map(|line| pieces(line, &lines(other))).collect(),
    }
}

fn meets(left: &Geometry, right: &Geometry) -> bool {
    points_of(left, right).iter().any(|point| covers(right, *point))
        || points_of(right, left).iter().any(|point| covers(left, *point))
}

fn is_within(inner: &Geometry, outer: &Geometry) -> bool {
    let border_is_covered = points_of(inner, outer).iter().all(|point| covers(outer, *point));
    // Nothing of the outer shape's border may lie inside: behind it is what the outer shape leaves out.
    let crossed = matches!(inner, Geometry::Area(_))
        && (!matches!(outer, Geometry::Area(_))
            || points_of(outer, inner).iter().any(|point| is_in_interior(*point, inner)));
    border_is_covered && !crossed && !leaves_out_inside(inner, outer)
}

/// A hole that is filled has its border covered and its inside not.
fn leaves_out_inside(inner: &Geometry, outer: &Geometry) -> bool {
    let (Geometry::Area(polygons), Geometry::Area(_)) = (inner, outer) else { return false };
    polygons.iter().any(|rings| {
        let ring = &rings[0];
        let count = ring.len() - 1;
        (0..count).any(|nth| {
            let corners = [ring[nth], ring[(nth + 1) % count], ring[(nth + 2) % count]];
            let sum = |part: usize| corners.iter().map(|corner| corner[part]).sum::<f64>();
            let middle = unit([sum(0), sum(1), sum(2)]);
            is_in_interior(middle, inner) && !covers(outer, middle)
        })
    })
}

/// On the unit sphere.
fn arc_distance(point: Point, (from, to): (Point, Point)) -> f64 {
    let normal = cross(from, to);
    let ends = angle(point, from).min(angle(point, to));
    if dot(normal, normal).sqrt() < NEAR {
        return ends;
    }
    let normal = unit(normal);
    let foot = cross(normal, cross(point, normal));
    if dot(foot, foot).sqrt() < NEAR {
        return ends;
    }
    let foot = unit(foot);
    let between = (angle(from, foot) + angle(foot, to) - angle(from, to)).abs() < NEAR;
    if between { angle(point, foot) } else { ends }
}

fn distance(left: &Geometry, right: &Geometry) -> f64 {
    if meets(left, right) {
        return 0.0;
    }
    let corners = |shape: &Geometry| match shape {
        Geometry::Point(point) => vec![*point],
        _ => lines(shape).into_iter().flatten().copied().collect(),
    };
    let nearest = |points: Vec<Point>, shape: &Geometry| -> f64 {
        let each = points.into_iter().map(|point| match shape {
            Geometry::Point(other) => angle(point, *other),
            _ => lines(shape)
                .into_iter()
                .flat_map(|line| edges(line))
                .map(|edge| arc_distance(point, edge))
                .fold(f64::INFINITY, f64::min),
        });
        each.fold(f64::INFINITY, f64::min)
    };
    RADIUS_METRES * nearest(corners(left), right).min(nearest(corners(right), left))
}

fn area(shape: &Geometry) -> f64 {
    let Geometry::Area(polygons) = shape else { return 0.0 };
    let small = |ring: &[Point]| {
        let area = excess(ring);
        area.min(2.0 * std::f64::consts::TAU - area)
    };
    let one =
        |rings: &Vec<Vec<Point>>| excess(&rings[0]) - rings[1..].iter().map(|hole| small(hole)).sum::<f64>();
    polygons.iter().map(one).sum::<f64>() * RADIUS_METRES * RADIUS_METRES
}
