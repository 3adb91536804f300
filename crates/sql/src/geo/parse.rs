//! GeoJSON to a valid geometry. The reasons for refusals are the service's where they are known.

use std::ops::ControlFlow;

use quire_resource::GeospatialType;
use quire_value::{Object, Value};

use super::measure::direction;
use super::shape::{Chain, EDGE_BYTES, Polygon, Ring, Side, Vertex, signed_area};
use super::vector3::{Vector, crosses, is_on, meet};
use super::{Geometry, Invalid, Spend};

/// Of one polygon, all its rings together.
const POLYGON_POINTS_MAX: usize = 4_096;
/// If the ends of an edge are nearly opposite, its course is undefined.
const OPPOSITE: f64 = 1e-9;
/// Coordinates of a plane beyond this could overflow when they are multiplied.
const COORDINATE_MAX: f64 = 1e75;

/// Refused, or out of budget.
enum Stop {
    Invalid(Invalid),
    Spent,
}

type Parsed<T> = Result<T, Stop>;

fn invalid<T>(reason: impl Into<String>) -> Parsed<T> {
    Err(Stop::Invalid(Invalid(reason.into())))
}

pub(super) fn geometry(
    value: &Value,
    kind: GeospatialType,
    spend: Spend<'_>,
) -> Option<Result<Geometry, Invalid>> {
    match (Parser { kind, spend }).geometry(value) {
        Ok(geometry) => Some(Ok(geometry)),
        Err(Stop::Invalid(invalid)) => Some(Err(invalid)),
        Err(Stop::Spent) => None,
    }
}

struct Parser<'s> {
    kind: GeospatialType,
    spend: Spend<'s>,
}

impl Parser<'_> {
    fn geometry(&self, value: &Value) -> Parsed<Geometry> {
        let Some(object) = value.as_object() else {
            return invalid("The input is not a GeoJSON object.");
        };
        let Some(name) = object.get("type").and_then(Value::as_str) else {
            return invalid("The input has no 'type' that is a string.");
        };
        let (mut chains, mut polygons) = (Vec::new(), Vec::new());
        match name {
            "Point" => chains.push(self.point(object)?),
            "LineString" => chains.push(self.line(coordinates(object, name)?)?),
            "Polygon" => polygons.push(self.polygon(coordinates(object, name)?)?),
            "MultiPolygon" => {
                for rings in coordinates(object, name)? {
                    polygons.push(self.polygon(array(rings, name)?)?);
                }
            }
            _ => {
                return invalid(format!(
                    "The type '{name}' is not supported. Supported are Point, LineString, Polygon and MultiPolygon."
                ));
            }
        }
        if chains.is_empty() && polygons.is_empty() {
            return invalid("The MultiPolygon input is not valid because it has no polygons.");
        }
        Ok(Geometry { kind: self.kind, chains, polygons })
    }

    fn spend(&self, bytes: usize) -> Parsed<()> {
        self.within_budget((self.spend)(bytes))
    }

    fn within_budget<T>(&self, result: Option<T>) -> Parsed<T> {
        result.ok_or(Stop::Spent)
    }

    fn point(&self, object: &Object) -> Parsed<Chain> {
        match object.get("coordinates") {
            Some(position) => Ok(Chain::new(self.kind, vec![self.vertex(position)?])),
            None => invalid("The Point input is not valid because it has no 'coordinates'."),
        }
    }

    fn line(&self, positions: &[Value]) -> Parsed<Chain> {
        let vertices = self.vertices(positions)?;
        if vertices.len() < 2 {
            return invalid(
                "The LineString input is not valid because it does not have at least two distinct points.",
            );
        }
        Ok(Chain::new(self.kind, vertices))
    }

    /// Leaves out positions that repeat the previous one.
    fn vertices(&self, positions: &[Value]) -> Parsed<Vec<Vertex>> {
        self.spend(positions.len() * 4 * EDGE_BYTES)?;
        let mut vertices: Vec<Vertex> = Vec::with_capacity(positions.len());
        for position in positions {
            let vertex = self.vertex(position)?;
            match vertices.last() {
                Some(last) if last.at == vertex.at => continue,
                Some(last) if self.are_opposite(last.at, vertex.at) => {
                    return invalid(
                        "The input is not valid because two successive points are opposite to each other, so the edge between them is not determined.",
                    );
                }
                _ => vertices.push(vertex),
            }
        }
        Ok(vertices)
    }

    fn are_opposite(&self, a: Vector, b: Vector) -> bool {
        self.kind == GeospatialType::Geography && (a + b).length() < OPPOSITE
    }

    fn vertex(&self, position: &Value) -> Parsed<Vertex> {
        let numbers: Option<Vec<f64>> = position
            .as_array()
            .filter(|position| (2..=3).contains(&position.len()))
            .and_then(|position| position.iter().map(|value| Some(value.as_number()?.as_f64())).collect());
        let Some([x, y]) = numbers.as_deref().and_then(<[f64]>::first_chunk::<2>).copied() else {
            return invalid("A position must be an array of two or three numbers.");
        };
        let at = match self.kind {
            GeospatialType::Geography if !(-90.0..=90.0).contains(&y) => {
                return invalid("Latitude values must be between -90 and 90 degrees.");
            }
            GeospatialType::Geography if !(-180.0..=180.0).contains(&x) => {
                return invalid("Longitude values must be between -180 and 180 degrees.");
            }
            GeospatialType::Geography => direction([x, y]),
            GeospatialType::Geometry if !(x.abs() <= COORDINATE_MAX && y.abs() <= COORDINATE_MAX) => {
                return invalid("Coordinates must be finite numbers of at most 1e75.");
            }
            GeospatialType::Geometry => Vector { x, y, z: 1.0 },
        };
        Ok(Vertex { at, place: [x, y] })
    }

    fn polygon(&self, rings: &[Value]) -> Parsed<Polygon> {
        if rings.is_empty() {
            return invalid("The Polygon input is not valid because it has no rings.");
        }
        let mut points = 0;
        let mut chains = Vec::with_capacity(rings.len());
        for (index, ring) in rings.iter().enumerate() {
            let positions = array(ring, "Polygon")?;
            points += positions.len();
            if points > POLYGON_POINTS_MAX {
                return invalid(format!(
                    "The Polygon input is not valid because it has more than {POLYGON_POINTS_MAX} points."
                ));
            }
            chains.push(self.ring(positions, index + 1)?);
        }
        self.check_disjoint_rings(&chains)?;
        self.oriented(chains)
    }

    fn ring(&self, positions: &[Value], number: usize) -> Parsed<Chain> {
        let vertices = self.vertices(positions)?;
        let (Some(first), Some(last)) = (vertices.first(), vertices.last()) else {
            return invalid(format!(
                "The Polygon input is not valid because the ring number {number} has no points."
            ));
        };
        if first.at != last.at {
            return invalid(format!(
                "The Polygon input is not valid because the start and end points of the ring number {number} are not the same. Each ring of a polygon must have the same start and end points."
            ));
        }
        if vertices.len() < 4 {
            return invalid(format!(
                "The Polygon input is not valid because the ring number {number} does not have at least three distinct points."
            ));
        }
        let chain = Chain::new(self.kind, vertices);
        if self.meets_itself(&chain)? {
            return invalid(format!(
                "The Polygon input is not valid because the ring number {number} intersects itself."
            ));
        }
        Ok(chain)
    }

    fn meets_itself(&self, ring: &Chain) -> Parsed<bool> {
        let count = ring.edges().len();
        let flow = ring.near_pairs(ring, self.spend, &|| 0.0, &mut |i, j| {
            if i >= j {
                return ControlFlow::Continue(());
            }
            let (one, two) = (ring.edge(i), ring.edge(j));
            let (a, b, c, d) = (one.a.at, one.b.at, two.a.at, two.b.at);
            let bad = if j == i + 1 {
                is_on(self.kind, d, a, b) || is_on(self.kind, a, c, d)
            } else if i == 0 && j + 1 == count {
                is_on(self.kind, c, a, b) || is_on(self.kind, b, c, d)
            } else {
                meet(self.kind, a, b, c, d)
            };
            if bad { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        Ok(self.within_budget(flow)?.is_break())
    }

    /// Rings may touch in points, and not cross.
    fn check_disjoint_rings(&self, rings: &[Chain]) -> Parsed<()> {
        for (index, one) in rings.iter().enumerate() {
            for (other, two) in rings.iter().enumerate().skip(index + 1) {
                let flow = one.near_pairs(two, self.spend, &|| 0.0, &mut |i, j| {
                    let (one, two) = (one.edge(i), two.edge(j));
                    match self.cross_inside([one.a.at, one.b.at], [two.a.at, two.b.at]) {
                        true => ControlFlow::Break(()),
                        false => ControlFlow::Continue(()),
                    }
                });
                if self.within_budget(flow)?.is_break() {
                    return invalid(format!(
                        "The Polygon input is not valid because the rings number {} and {} cross each other.",
                        index + 1,
                        other + 1
                    ));
                }
            }
        }
        Ok(())
    }

    /// They cross, and neither ends on the other.
    fn cross_inside(&self, [a, b]: [Vector; 2], [c, d]: [Vector; 2]) -> bool {
        let on = |p, a, b| is_on(self.kind, p, a, b);
        crosses(c, d, a, b) && !(on(a, c, d) || on(b, c, d) || on(c, a, b) || on(d, a, b))
    }

    /// The interior of the outer ring is on its left, in the plane inside of it; the other rings use the side of the
    /// outer ring.
    fn oriented(&self, chains: Vec<Chain>) -> Parsed<Polygon> {
        let mut chains = chains.into_iter();
        let outer = chains.next().expect("there is a ring");
        let keeps_left = self.kind == GeospatialType::Geography || signed_area(&outer) > 0.0;
        let outer = Ring::new(outer, keeps_left);
        let mut rings: Vec<Ring> = vec![outer];
        for (index, chain) in chains.enumerate() {
            let number = index + 2;
            let mut hole = Ring::new(chain, false);
            hole.keeps_left = self.side_of(&hole, &rings[0].chain)? == Side::Left;
            for (other, ring) in rings.iter().enumerate() {
                let side = self.side_of(ring, &hole.chain)?;
                if side == Side::On || (side == Side::Left) != ring.keeps_left {
                    let how = if other == 0 { "is not inside of" } else { "overlaps" };
                    return invalid(format!(
                        "The Polygon input is not valid because the ring number {number} {how} the ring number {}.",
                        other + 1
                    ));
                }
            }
            rings.push(hole);
        }
        Ok(Polygon { rings })
    }

    /// The side of a ring on which a chain lies that does not cross it; `On` when all its vertices touch the ring.
    fn side_of(&self, ring: &Ring, chain: &Chain) -> Parsed<Side> {
        for vertex in &chain.vertices {
            match self.within_budget(ring.side(vertex.at, self.spend))? {
                Side::On => {}
                side => return Ok(side),
            }
        }
        Ok(Side::On)
    }
}

fn coordinates<'v>(object: &'v Object, name: &str) -> Parsed<&'v [Value]> {
    match object.get("coordinates") {
        Some(value) => array(value, name),
        None => invalid(format!("The {name} input is not valid because it has no 'coordinates'.")),
    }
}

fn array<'v>(value: &'v Value, name: &str) -> Parsed<&'v [Value]> {
    match value.as_array() {
        Some(elements) => Ok(elements),
        None => invalid(format!(
            "The {name} input is not valid because its 'coordinates' are not nested as they should be."
        )),
    }
}
