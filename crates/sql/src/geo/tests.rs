//! Known values, and properties checked against simpler code.

use expect_test::expect;
use proptest::prelude::*;
use quire_resource::{BoundingBox, GeospatialType};
use quire_value::{Limits, Value, text};

use super::cells::Grid;
use super::measure::direction;
use super::vector3::Vector;
use super::{Geometry, unlimited};
use GeospatialType::{Geography, Geometry as Plane};

fn geometry(json: &str, kind: GeospatialType) -> Geometry {
    let value = text::parse(json.as_bytes(), Limits::default()).expect("JSON");
    parsed(&value, kind).unwrap_or_else(|| panic!("a valid geometry: {json}"))
}

fn parsed(value: &Value, kind: GeospatialType) -> Option<Geometry> {
    Geometry::parse(value, kind, &unlimited).expect("no budget").ok()
}

fn of(name: &str, coordinates: &str) -> Geometry {
    geometry(&format!(r#"{{"type":"{name}","coordinates":{coordinates}}}"#), Geography)
}

fn flat(name: &str, coordinates: &str) -> Geometry {
    geometry(&format!(r#"{{"type":"{name}","coordinates":{coordinates}}}"#), Plane)
}

fn distance(one: &Geometry, two: &Geometry) -> f64 {
    one.distance(two, &unlimited).expect("no budget")
}

fn area(geometry: &Geometry) -> f64 {
    geometry.area(&unlimited).expect("no budget")
}

fn intersects(one: &Geometry, two: &Geometry) -> bool {
    one.intersects(two, &unlimited).expect("no budget")
}

fn within(one: &Geometry, two: &Geometry) -> bool {
    one.within(two, &unlimited).expect("no budget")
}

#[track_caller]
fn assert_near(value: f64, expected: f64, tolerance: f64) {
    assert!((value - expected).abs() <= tolerance, "{value} is not {expected}");
}

#[test]
fn known_distances() {
    let check = |from: &str, to: &str, metres: f64| {
        assert_near(distance(&of("Point", from), &of("Point", to)), metres, 0.001);
    };
    check("[-73.8,40.6]", "[-0.5,51.6]", 5_551_759.400);
    check("[0,0]", "[0,90]", 10_001_965.729);
    check("[0,0]", "[90,0]", 10_018_754.171);
    check("[0,0]", "[180,0]", 20_003_931.459);
    check("[0,0]", "[179.5,0.5]", 19_936_288.579);
    check("[-118.2884237,34.095925]", "[24.7341649,59.4323439]", 9_094_718.728);
}

/// A polygon's boundary, the equator: the nearest point of an arc is between its ends.
#[test]
fn distances_to_arcs() {
    let equator = of("LineString", "[[-10,0],[10,0]]");
    assert_near(distance(&of("Point", "[3,1]"), &equator), 110_574.389, 0.001);
    let meridian = of("LineString", "[[0,-80],[0,80]]");
    // Along the equator, which is the shortest way to the meridian by symmetry.
    assert_near(distance(&of("Point", "[5,0]"), &meridian), 5.0_f64.to_radians() * 6_378_137.0, 0.001);
}

#[test]
fn known_areas() {
    let octant = of("Polygon", "[[[0,0],[90,0],[0,90],[0,0]]]");
    assert_near(area(&octant), 63_758_202_715_511.055, 10.0);
    let north = of("Polygon", "[[[0,0],[120,0],[-120,0],[0,0]]]");
    assert_near(area(&north), 4.0 * 63_758_202_715_511.055, 100.0);
    let south = of("Polygon", "[[[0,0],[-120,0],[120,0],[0,0]]]");
    assert_near(area(&south), 4.0 * 63_758_202_715_511.055, 100.0);
    // The service's documented answer.
    let sample = of("Polygon", "[[[31.8,-5],[32,-5],[32,-4.7],[31.8,-4.7],[31.8,-5]]]");
    assert_near(area(&sample), 735_970_283.052_261_4, 0.1);
    assert_near(
        area(&flat("Polygon", "[[[0,0],[4,0],[4,3],[0,3],[0,0]],[[1,1],[2,1],[2,2],[1,2],[1,1]]]")),
        11.0,
        1e-12,
    );
}

/// A hole that leaves nothing of its ring; another polygon keeps its own.
#[test]
fn no_area_is_negative() {
    let rings = "[[[-99.96000000000001,16.38],[0,0],[53.76,51.660000000000004],[-99.96000000000001,16.38]],\
                 [[0,0],[0,26.88],[-99.96000000000001,16.38],[121.79999999999998,23.099999999999998],[0,0]]]";
    assert_near(area(&of("Polygon", rings)), 0.0, 0.0);
    let square = "[[[10,-50],[12,-50],[12,-48],[10,-48],[10,-50]]]";
    let both = of("MultiPolygon", &format!("[{rings},{square}]"));
    assert_near(area(&both), area(&of("Polygon", square)), 1.0);
}

/// The area is continuous where the method changes.
#[test]
fn areas_of_small_and_large() {
    for y in [0.0, 45.0, -89.0] {
        let square = |size: f64| {
            let ring = [(0.0, 0.0), (size, 0.0), (size, size), (0.0, size), (0.0, 0.0)];
            let position = |(dx, dy): (f64, f64)| format!("[{},{}]", 7.0 + dx, y + dy);
            area(&of("Polygon", &format!("[[{}]]", ring.map(position).join(","))))
        };
        // About 900 and 450 metres wide.
        assert_near(square(0.008) / square(0.004), 4.0, 0.01);
        assert_near(square(0.0001) * 1e4 / square(0.01), 1.0, 0.01);
    }
}

/// Smaller than the error of an area, and still not the rest of the globe.
#[test]
fn tiny_areas() {
    for (x, y) in [(6.0, 0.0), (13.0, 52.0), (179.9, -70.0), (0.0, 80.0)] {
        let corners = [(0.0, 0.0), (2e-9, 1e-9), (1e-9, 3e-9), (0.0, 0.0)];
        let position = |(dx, dy): (f64, f64)| format!("[{},{}]", x + dx, y + dy);
        let mut ring = corners.map(position);
        assert!(area(&of("Polygon", &format!("[[{}]]", ring.join(",")))) < 1e-3);
        ring.reverse();
        assert!(area(&of("Polygon", &format!("[[{}]]", ring.join(",")))) > 5.1e14);
    }
}

#[test]
fn the_plane_has_no_antimeridian() {
    let square = flat("Polygon", "[[[170,0],[190,0],[190,10],[170,10],[170,0]]]");
    assert!(within(&flat("Point", "[185,5]"), &square));
    assert!(!within(&flat("Point", "[-175,5]"), &square));
    assert_eq!(distance(&flat("Point", "[193,14]"), &square), 5.0);
    // Whichever way it is wound, its inside is inside.
    let clockwise = flat("Polygon", "[[[170,0],[170,10],[190,10],[190,0],[170,0]]]");
    assert!(within(&flat("Point", "[185,5]"), &clockwise) && !within(&flat("Point", "[0,0]"), &clockwise));
    assert!(within(&square, &clockwise) && within(&clockwise, &square));
}

#[test]
fn budgets_end_the_work() {
    let circle = |radius: f64| {
        let position = |index: u32| {
            let angle = f64::from(index % 4000) / 4000.0 * std::f64::consts::TAU;
            format!("[{},{}]", 20.0 + radius * angle.cos(), 10.0 + radius * angle.sin())
        };
        format!("[[{}]]", (0..=4000).map(position).collect::<Vec<_>>().join(","))
    };
    let (inner, outer) = (of("Polygon", &circle(5.0)), of("Polygon", &circle(6.0)));
    let spent = std::cell::Cell::new(0_usize);
    let count = |bytes| {
        spent.set(spent.get() + bytes);
        Some(())
    };
    assert_eq!(inner.within(&outer, &count), Some(true));
    assert!(spent.get() > 4_000 * 32);
    let few = |bytes| {
        spent.set(spent.get().saturating_sub(bytes));
        (spent.get() > 0).then_some(())
    };
    spent.set(10_000);
    assert_eq!(inner.within(&outer, &few), None);
    spent.set(10_000);
    assert_eq!(inner.area(&few), None);
    assert_eq!(Grid::Globe.cells(&inner).len(), 16);
}

#[test]
fn more_points_than_a_polygon_may_have() {
    let position = |index: u32| {
        let angle = f64::from(index % 4096) / 4096.0 * std::f64::consts::TAU;
        Value::Array(vec![Value::from(angle.cos()), Value::from(angle.sin())])
    };
    let ring: Vec<Value> = (0..=4096).map(position).collect();
    let mut value = quire_value::Object::new();
    value.set("type", "Polygon");
    value.set("coordinates", Value::Array(vec![Value::Array(ring)]));
    let result = Geometry::parse(&Value::Object(value), Geography, &unlimited).expect("no budget");
    assert!(result.expect_err("too many").to_string().contains("more than 4096 points"));
}

/// Ids are stored in every index.
#[test]
fn ids_of_cells() {
    let ids = |grid: Grid, geometry: &Geometry| format!("{:016x?}", grid.cells(geometry).as_slice());
    expect!["[5d3a4a2fca824e51]"].assert_eq(&ids(Grid::Globe, &of("Point", "[13.4,52.5]")));
    expect!["[5154000000000000, 515c000000000000, 540b000000000000, 5430000000000000, 5490000000000000, 54b4000000000000, 54f0000000000000, 5650000000000000, 5670000000000000, 56d0000000000000, 56f5000000000000, 57b0000000000000, 5d10000000000000, 5d30000000000000, 9dd0000000000000, 9df0000000000000]"].assert_eq(&ids(Grid::Globe, &of("LineString", "[[13.4,52.5],[-74,40.7]]")));
    let grid = Grid::Plane(BoundingBox { xmin: 0.0, ymin: 0.0, xmax: 100.0, ymax: 100.0 });
    expect!["[0cb4eab7ae4f8a2d]"].assert_eq(&ids(grid, &flat("Point", "[30.1,70.3]")));
    // Outside: the corner.
    expect!["[1555555555555555]"].assert_eq(&ids(grid, &flat("Point", "[500,-3]")));
}

/// Cells are close to what they cover, so that a search finds little else.
#[test]
fn searches_are_narrow() {
    let ranges = Grid::Globe.search(&of("Point", "[13.4,52.5]"), 1_000.0);
    let found = |place: &str| {
        let cells = Grid::Globe.cells(&of("Point", place));
        cells.iter().any(|cell| ranges.iter().any(|range| range.contains(cell)))
    };
    assert!(found("[13.41,52.5]"));
    assert!(!found("[13.5,52.5]") && !found("[13.4,52.6]") && !found("[-166.6,-52.5]"));
    assert!(ranges.len() < 64, "{}", ranges.len());
}

/// A place and what is around it, small or large.
#[derive(Clone, Debug)]
struct Figure {
    shape: u8,
    /// Angle and distance of every corner, as parts of a turn and of the size.
    corners: Vec<(f64, f64)>,
    size: f64,
    clockwise: bool,
}

fn figure() -> impl Strategy<Value = Figure> {
    let corners = prop::collection::vec((0.0..1.0_f64, 0.3..1.0_f64), 3..9);
    (0..5_u8, corners, -7.0..1.6_f64, prop::bool::weighted(0.1)).prop_map(
        |(shape, corners, exponent, clockwise)| Figure {
            shape,
            corners,
            size: 10_f64.powf(exponent).min(40.0),
            clockwise,
        },
    )
}

/// Any position, often a difficult one.
fn place() -> impl Strategy<Value = [f64; 2]> {
    let longitude =
        prop_oneof![-180.0..180.0_f64, 179.99..180.0_f64, -180.0..-179.99_f64, Just(45.0), Just(0.0)];
    let latitude =
        prop_oneof![-90.0..90.0_f64, 89.99..90.0_f64, -90.0..-89.99_f64, Just(0.0), -1e-6..1e-6_f64];
    (longitude, latitude).prop_map(|(longitude, latitude)| [longitude, latitude])
}

/// The place at an angle and a distance in degrees, on the sphere.
fn beside([longitude, latitude]: [f64; 2], turn: f64, degrees: f64) -> [f64; 2] {
    let center = direction([longitude, latitude]);
    let east = Vector { x: -longitude.to_radians().sin(), y: longitude.to_radians().cos(), z: 0.0 };
    let north = center.cross(east);
    let (angle, reach) = (turn * std::f64::consts::TAU, degrees.to_radians());
    let to = center * reach.cos() + (east * angle.cos() + north * angle.sin()) * reach.sin();
    [
        to.y.atan2(to.x).to_degrees(),
        to.z.atan2((1.0 - 0.006_694_379_990_141_3) * to.x.hypot(to.y)).to_degrees(),
    ]
}

impl Figure {
    fn at(&self, kind: GeospatialType, center: [f64; 2]) -> Option<Geometry> {
        let mut corners = self.corners.clone();
        if self.shape > 1 {
            corners.sort_by(|one, two| one.0.total_cmp(&two.0));
        }
        let position = |(turn, part): &(f64, f64)| match kind {
            Geography => beside(center, *turn, part * self.size),
            Plane => {
                let angle = turn * std::f64::consts::TAU;
                let reach = part * self.size;
                [center[0] + reach * angle.cos(), center[1] + reach * angle.sin()]
            }
        };
        let mut positions: Vec<[f64; 2]> = corners.iter().map(position).collect();
        if self.clockwise {
            positions.reverse();
        }
        let text = |[x, y]: [f64; 2]| format!("[{x},{y}]");
        let list = |positions: &[[f64; 2]]| positions.iter().copied().map(text).collect::<Vec<_>>().join(",");
        let json = match self.shape {
            0 => format!(r#"{{"type":"Point","coordinates":{}}}"#, text(center)),
            1 => format!(r#"{{"type":"LineString","coordinates":[{}]}}"#, list(&positions)),
            _ => {
                positions.push(positions[0]);
                format!(r#"{{"type":"Polygon","coordinates":[[{}]]}}"#, list(&positions))
            }
        };
        parsed(&text::parse(json.as_bytes(), Limits::default()).expect("JSON"), kind)
    }
}

fn meet(grid: &Grid, indexed: &Geometry, searched: &Geometry, reach: f64) -> bool {
    let ranges = grid.search(searched, reach);
    assert!(ranges.windows(2).all(|pair| pair[0].end() < pair[1].start()), "ascending and disjoint");
    let cells = grid.cells(indexed);
    assert!(!cells.is_empty() && cells.len() <= 16);
    cells.iter().any(|cell| ranges.iter().any(|range| range.contains(cell)))
}

fn check_pair(grid: &Grid, one: &Geometry, two: &Geometry, factor: f64) {
    let (meets, away) = (intersects(one, two), distance(one, two));
    assert_eq!(meets, intersects(two, one), "symmetric");
    assert_eq!(meets, away == 0.0, "{away}");
    let back = distance(two, one);
    assert!((away - back).abs() <= 1e-9 * away + 1e-9, "{away} {back}");
    if within(one, two) {
        assert!(meets, "what is inside meets");
        assert!(area(one) <= area(two) * (1.0 + 1e-9) + 1e-3, "{} {}", area(one), area(two));
    }
    if meets {
        assert!(meet(grid, one, two, 0.0) && meet(grid, two, one, 0.0), "cells of what meets");
    }
    // Found with the distance itself, and with a larger one.
    assert!(
        meet(grid, one, two, away) && meet(grid, one, two, away * factor),
        "cells of what is {away} away"
    );
    assert!(grid.search(one, -1.0).is_empty() && grid.search(one, f64::NAN).is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn cells_of_the_globe_are_sound(
        one in figure(), two in figure(), center in place(), turn in 0.0..1.0_f64, apart in 0.0..3.0_f64, factor in 1.0..3.0_f64,
    ) {
        let other = beside(center, turn, apart * (one.size + two.size) / 2.0);
        if let (Some(one), Some(two)) = (one.at(Geography, center), two.at(Geography, other)) {
            check_pair(&Grid::Globe, &one, &two, factor);
        }
    }

    #[test]
    fn cells_of_the_plane_are_sound(
        one in figure(), two in figure(), center in place(), turn in 0.0..1.0_f64, apart in 0.0..3.0_f64, factor in 1.0..3.0_f64,
    ) {
        let reach = apart * (one.size + two.size) / 2.0;
        let angle = turn * std::f64::consts::TAU;
        let other = [center[0] + reach * angle.cos(), center[1] + reach * angle.sin()];
        // Smaller than what is drawn, so that much is outside.
        let grid = Grid::Plane(BoundingBox { xmin: -100.0, ymin: -10.0, xmax: 50.0, ymax: 60.0 });
        if let (Some(one), Some(two)) = (one.at(Plane, center), two.at(Plane, other)) {
            check_pair(&grid, &one, &two, factor);
        }
    }

    /// A point of the plane is in a polygon when a ray from it crosses an odd number of edges.
    #[test]
    fn points_in_polygons(figure in figure(), x in -1.0..1.0_f64, y in -1.0..1.0_f64) {
        let figure = Figure { shape: 2, size: 1.0, ..figure };
        if let Some(polygon) = figure.at(Plane, [0.0, 0.0]) {
            let crosses = |edge: super::shape::Edge<'_>| {
                let ([ax, ay], [bx, by]) = (edge.a.place, edge.b.place);
                (ay > y) != (by > y) && x < ax + (y - ay) / (by - ay) * (bx - ax)
            };
            let odd = polygon.all_chains().flat_map(|chain| chain.edges()).filter(|edge| crosses(*edge)).count() % 2 == 1;
            prop_assert_eq!(within(&flat("Point", &format!("[{x},{y}]")), &polygon), odd);
        }
    }

    /// No point of an edge is nearer than the distance, and one of many is nearly as near.
    #[test]
    fn distances_to_lines(from in place(), one in place(), turn in 0.0..1.0_f64, degrees in 0.001..150.0_f64) {
        let two = beside(one, turn, degrees);
        let text = |[x, y]: [f64; 2]| format!("[{x},{y}]");
        let point = of("Point", &text(from));
        let line = of("LineString", &format!("[{},{}]", text(one), text(two)));
        let away = distance(&point, &line);
        let sampled = (0..=100)
            .map(|index| beside(one, turn, degrees * f64::from(index) / 100.0))
            .map(|place| distance(&point, &of("Point", &text(place))))
            .fold(f64::INFINITY, f64::min);
        prop_assert!(away <= sampled + 1e-6, "{away} {sampled}");
        // As far as half a step along the line, and less if that is to the side.
        let step = degrees.to_radians() / 200.0 * 6_400_000.0;
        prop_assert!(sampled <= away.hypot(step) + 1e-3 * step + 1e-6, "{away} {sampled}");
    }

    /// Any GeoJSON value is a geometry or is refused.
    #[test]
    fn nothing_panics(kind in 0..5_usize, depth in 0..4_usize, numbers in prop::collection::vec(any::<f64>(), 0..12), size in 1..4_usize) {
        let mut values: Vec<Value> = numbers.into_iter().map(Value::from).collect();
        for _ in 0..depth {
            values = values.chunks(size).map(|chunk| Value::Array(chunk.to_vec())).collect();
        }
        let mut object = quire_value::Object::new();
        object.set("type", ["Point", "LineString", "Polygon", "MultiPolygon", ""][kind]);
        object.set("coordinates", Value::Array(values));
        let value = Value::Object(object);
        for (kind, grid) in [(Geography, Grid::Globe), (Plane, Grid::Plane(BoundingBox { xmin: 0.0, ymin: 0.0, xmax: 1.0, ymax: 1.0 }))] {
            if let Some(geometry) = parsed(&value, kind) {
                prop_assert!(within(&geometry, &geometry));
                prop_assert_eq!(distance(&geometry, &geometry), 0.0);
                prop_assert!(meet(&grid, &geometry, &geometry, 0.0));
            }
        }
    }
}
