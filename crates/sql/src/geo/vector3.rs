//! Vectors in three dimensions, and predicates on three or four of them.

use std::ops::{Add, Mul, Sub};

use quire_resource::GeospatialType;

/// Vectors nearer than this, in radians or relative to the coordinates, are one point: 0.6 µm on the globe.
pub(super) const TOLERANCE: f64 = 1e-13;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Vector {
    pub x: f64,
    pub y: f64,
    pub z: f64,
}

impl Vector {
    pub fn dot(self, other: Vector) -> f64 {
        self.x * other.x + self.y * other.y + self.z * other.z
    }

    pub fn cross(self, other: Vector) -> Vector {
        Vector {
            x: self.y * other.z - self.z * other.y,
            y: self.z * other.x - self.x * other.z,
            z: self.x * other.y - self.y * other.x,
        }
    }

    pub fn length(self) -> f64 {
        self.dot(self).sqrt()
    }

    pub fn unit(self) -> Vector {
        self * self.length().recip()
    }

    pub fn chord(self, other: Vector) -> f64 {
        (self - other).length()
    }
}

impl Add for Vector {
    type Output = Vector;

    fn add(self, other: Vector) -> Vector {
        Vector { x: self.x + other.x, y: self.y + other.y, z: self.z + other.z }
    }
}

impl Sub for Vector {
    type Output = Vector;

    fn sub(self, other: Vector) -> Vector {
        Vector { x: self.x - other.x, y: self.y - other.y, z: self.z - other.z }
    }
}

impl Mul<f64> for Vector {
    type Output = Vector;

    fn mul(self, factor: f64) -> Vector {
        Vector { x: self.x * factor, y: self.y * factor, z: self.z * factor }
    }
}

/// Back onto the sphere or the plane, for a vector that points at it.
pub(super) fn project(kind: GeospatialType, vector: Vector) -> Vector {
    match kind {
        GeospatialType::Geography => vector.unit(),
        GeospatialType::Geometry => vector * vector.z.recip(),
    }
}

pub(super) fn middle(kind: GeospatialType, a: Vector, b: Vector) -> Vector {
    project(kind, a + b)
}

/// Positive when `p` is left of the edge from `a` to `b`: the determinant of the three, in the form that keeps its
/// digits when they are near each other.
pub(super) fn turn(a: Vector, b: Vector, p: Vector) -> f64 {
    (a - p).cross(b - p).dot(p)
}

/// Whether the edge from `a` to `b` crosses the edge from `p` to `q`. An end on the line through `p` and `q` counts as
/// left of it, so that a chain of edges crosses as often as it changes sides.
pub(super) fn crosses(p: Vector, q: Vector, a: Vector, b: Vector) -> bool {
    let (left, left_then) = (turn(p, q, a) >= 0.0, turn(p, q, b) >= 0.0);
    if left == left_then {
        return false;
    }
    let (before, behind) = (turn(a, b, p), turn(a, b, q));
    if left { before < 0.0 && behind > 0.0 } else { before > 0.0 && behind < 0.0 }
}

/// Where two crossing edges meet, on the edge from `a` to `b`.
pub(super) fn crossing(kind: GeospatialType, p: Vector, q: Vector, a: Vector, b: Vector) -> Vector {
    project(kind, a * turn(p, q, b).abs() + b * turn(p, q, a).abs())
}

pub(super) fn tolerance(kind: GeospatialType, p: Vector) -> f64 {
    match kind {
        GeospatialType::Geography => TOLERANCE,
        GeospatialType::Geometry => TOLERANCE * p.x.abs().max(p.y.abs()).max(1.0),
    }
}

/// Whether `p` is on the edge, ends included, as far as doubles can tell.
pub(super) fn is_on(kind: GeospatialType, p: Vector, a: Vector, b: Vector) -> bool {
    let near = tolerance(kind, p);
    let (from_a, from_b, edge) = (p - a, p - b, b - a);
    if from_a.length() <= near || from_b.length() <= near {
        return true;
    }
    let length = edge.length();
    let base = match kind {
        GeospatialType::Geography => length * (1.0 - length * length / 4.0).max(0.0).sqrt(),
        GeospatialType::Geometry => length,
    };
    let between = from_a.dot(edge) > 0.0 && from_b.dot(edge) < 0.0;
    let same_half = kind == GeospatialType::Geometry || p.dot(a + b) > 0.0;
    between && same_half && turn(a, b, p).abs() <= near * base
}

/// Whether two edges share a point.
pub(super) fn meet(kind: GeospatialType, a: Vector, b: Vector, c: Vector, d: Vector) -> bool {
    crosses(c, d, a, b)
        || is_on(kind, a, c, d)
        || is_on(kind, b, c, d)
        || is_on(kind, c, a, b)
        || is_on(kind, d, a, b)
}
