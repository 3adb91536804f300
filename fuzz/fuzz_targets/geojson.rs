//! Any JSON as geometries: read or refused with a reason, never a panic. Relations do not depend on the order of two
//! geometries, and whatever meets shares a cell of the index.
#![no_main]

use quire_resource::{BoundingBox, GeospatialType};
use quire_sql::geo::cells::Grid;
use quire_sql::geo::{Geometry, unlimited};
use quire_value::{Limits, Value, text};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((&first, rest)) = bytes.split_first() else { return };
    let values = if first % 4 == 0 { parsed(rest) } else { Drawn(rest).pair(first) };
    let [left, right] = values;
    check(&left, &right, GeospatialType::Geography, Grid::Globe);
    let plane = BoundingBox { xmin: -180.0, ymin: -90.0, xmax: 180.0, ymax: 90.0 };
    check(&left, &right, GeospatialType::Geometry, Grid::Plane(plane));
});

/// An array of two, or one value twice.
fn parsed(json: &[u8]) -> [Value; 2] {
    match text::parse(json, Limits::default()) {
        Ok(Value::Array(elements)) if elements.len() == 2 => elements.try_into().expect("two"),
        Ok(value) => [value.clone(), value],
        Err(_) => [Value::Null, Value::Null],
    }
}

/// Geometries made of the bytes: what no random JSON becomes.
struct Drawn<'a>(&'a [u8]);

impl Drawn<'_> {
    fn pair(&mut self, first: u8) -> [Value; 2] {
        [self.geometry(first / 4), self.geometry(first / 32)]
    }

    fn byte(&mut self) -> u8 {
        let Some((&byte, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        byte
    }

    /// On a grid, so that points, edges and corners meet.
    fn position(&mut self) -> Value {
        let (x, y, scale) = (self.byte() as i8, self.byte() as i8, 1.0 + f64::from(self.byte() % 4) / 3.0);
        [f64::from(x) * 1.4 / scale, f64::from(y) * 0.7 / scale].map(Value::from).to_vec().into()
    }

    fn ring(&mut self) -> Value {
        let corner_count = 3 + usize::from(self.byte() % 6);
        let mut corners: Vec<Value> = (0..corner_count).map(|_| self.position()).collect();
        corners.push(corners[0].clone());
        corners.into()
    }

    fn several(&mut self, part: fn(&mut Self) -> Value) -> Value {
        let count = 1 + usize::from(self.byte() % 4);
        (0..count).map(|_| part(self)).collect::<Vec<_>>().into()
    }

    fn line(&mut self) -> Value {
        let count = 2 + usize::from(self.byte() % 4);
        (0..count).map(|_| self.position()).collect::<Vec<_>>().into()
    }

    fn geometry(&mut self, kind: u8) -> Value {
        let (name, coordinates) = match kind % 6 {
            0 => ("Point", self.position()),
            1 => ("MultiPoint", self.several(Drawn::position)),
            2 => ("LineString", self.line()),
            3 => ("MultiLineString", self.several(Drawn::line)),
            4 => ("Polygon", self.several(Drawn::ring)),
            _ => ("MultiPolygon", self.several(|drawn| drawn.several(Drawn::ring))),
        };
        let members = [("type", Value::from(name)), ("coordinates", coordinates)];
        Value::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }
}

fn check(left: &Value, right: &Value, kind: GeospatialType, grid: Grid) {
    let read = |value: &Value| match Geometry::parse(value, kind, &unlimited).expect("no limit") {
        Ok(geometry) => Some(geometry),
        Err(reason) => {
            assert!(!reason.to_string().is_empty());
            None
        }
    };
    let (Some(a), Some(b)) = (read(left), read(right)) else { return };
    let meet = |a: &Geometry, b: &Geometry| a.intersects(b, &unlimited).expect("no limit");
    let apart = |a: &Geometry, b: &Geometry| a.distance(b, &unlimited).expect("no limit");
    let shown = || format!("{kind:?} {} {}", left.to_json(), right.to_json());
    assert_eq!(meet(&a, &b), meet(&b, &a), "{}", shown());
    let (there, back) = (apart(&a, &b), apart(&b, &a));
    assert!(there >= 0.0 && (there - back).abs() <= 1e-6 * (1.0 + there), "{there} {back} {}", shown());
    assert!(!meet(&a, &b) || there == 0.0, "{there} {}", shown());
    assert!(a.area(&unlimited).expect("no limit") >= 0.0, "{}", shown());
    // A search for the one finds a cell of the other.
    let cells = grid.cells(&b);
    assert!(!cells.is_empty(), "{}", shown());
    let found = |distance: f64| {
        let ranges = grid.search(&a, distance);
        cells.iter().any(|cell| ranges.iter().any(|range| range.contains(cell)))
    };
    assert!(!meet(&a, &b) || found(0.0), "they meet: {}", shown());
    assert!(found(there * 1.000_001 + 1e-3), "{there} apart: {}", shown());
    // Not more work than allowed.
    let spent = std::cell::Cell::new(0);
    let few = |bytes: usize| {
        spent.set(spent.get() + bytes);
        (spent.get() <= 1000).then_some(())
    };
    if let Some(met) = a.intersects(&b, &few) {
        assert_eq!(met, meet(&a, &b), "{}", shown());
    }
}
