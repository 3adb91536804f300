//! Chains of edges, grouped in bundles that can be skipped together; rings and polygons.

use std::ops::ControlFlow;

use quire_resource::GeospatialType;

use super::Spend;
use super::vector3::{Vector, crosses, is_on, middle, tolerance, turn};

/// Edges that share one bounding ball.
const BUNDLE_EDGES: usize = 16;
/// The charge for examining an edge or a pair of edges.
pub(super) const EDGE_BYTES: usize = 32;

#[derive(Clone, Copy, Debug)]
pub(super) struct Vertex {
    pub at: Vector,
    /// As written: longitude and latitude, or x and y.
    pub place: [f64; 2],
}

/// A point is one vertex; a line has two or more; a ring ends where it starts.
#[derive(Clone, Debug)]
pub(super) struct Chain {
    pub kind: GeospatialType,
    pub vertices: Vec<Vertex>,
    bundles: Vec<BoundingBall>,
    ball: BoundingBall,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Edge<'a> {
    pub a: &'a Vertex,
    pub b: &'a Vertex,
}

/// Contains some edges, the bulge of arcs over their chords included.
#[derive(Clone, Copy, Debug)]
pub(super) struct BoundingBall {
    center: Vector,
    radius: f64,
}

#[derive(Clone, Debug)]
pub(super) struct Ring {
    pub chain: Chain,
    /// The polygon is on the left; otherwise on the right.
    pub keeps_left: bool,
    /// The side of all points outside of the chain's ball.
    far_left: Option<bool>,
}

/// The intersection of the interior sides of its rings; the first ring is the outer one.
#[derive(Clone, Debug)]
pub(super) struct Polygon {
    pub rings: Vec<Ring>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    Right,
    On,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Location {
    Inside,
    Boundary,
    Outside,
}

impl BoundingBall {
    pub fn around<'a>(kind: GeospatialType, edges: impl Iterator<Item = Edge<'a>> + Clone) -> BoundingBall {
        let count = edges.clone().count().max(1) as f64;
        let zero = Vector { x: 0.0, y: 0.0, z: 0.0 };
        let center = edges.clone().fold(zero, |sum, edge| sum + edge.a.at + edge.b.at) * (0.5 / count);
        let reach = |edge: Edge<'_>| {
            let ends = edge.a.at.chord(center).max(edge.b.at.chord(center));
            let chord = edge.a.at.chord(edge.b.at);
            match kind {
                GeospatialType::Geography => ends + 1.0 - (1.0 - chord * chord / 4.0).max(0.0).sqrt(),
                GeospatialType::Geometry => ends,
            }
        };
        let radius = edges.map(reach).fold(0.0, f64::max);
        BoundingBall { center, radius: radius + 4.0 * tolerance(kind, center) }
    }

    /// No two points of the balls are nearer.
    pub fn gap(&self, other: &BoundingBall) -> f64 {
        (self.center.chord(other.center) - self.radius - other.radius).max(0.0)
    }

    pub fn contains(&self, p: Vector) -> bool {
        self.center.chord(p) <= self.radius
    }
}

impl Chain {
    pub fn new(kind: GeospatialType, vertices: Vec<Vertex>) -> Chain {
        // By position: skipping would iterate over all earlier edges for every bundle.
        let bundle = |start: usize| {
            let end = (start + BUNDLE_EDGES).min(edges_of(&vertices).len());
            BoundingBall::around(kind, (start..end).map(|index| edge_of(&vertices, index)))
        };
        let bundles = (0..edges_of(&vertices).len()).step_by(BUNDLE_EDGES).map(bundle).collect();
        let ball = BoundingBall::around(kind, edges_of(&vertices));
        Chain { kind, vertices, bundles, ball }
    }

    pub fn edges(&self) -> impl ExactSizeIterator<Item = Edge<'_>> + Clone {
        edges_of(&self.vertices)
    }

    pub fn edge(&self, index: usize) -> Edge<'_> {
        edge_of(&self.vertices, index)
    }

    pub fn first(&self) -> Vector {
        self.vertices[0].at
    }

    fn bundle(&self, index: usize) -> impl Iterator<Item = usize> + Clone {
        let start = index * BUNDLE_EDGES;
        start..(start + BUNDLE_EDGES).min(self.edges().len())
    }

    /// Visits pairs of edges, by index, that may be as near as `limit` says at that moment.
    pub fn near_pairs(
        &self,
        other: &Chain,
        spend: Spend<'_>,
        limit: &dyn Fn() -> f64,
        visit: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
    ) -> Option<ControlFlow<()>> {
        spend(EDGE_BYTES)?;
        if self.ball.gap(&other.ball) > limit() {
            return Some(ControlFlow::Continue(()));
        }
        for (left, left_ball) in self.bundles.iter().enumerate() {
            spend(other.bundles.len() * EDGE_BYTES)?;
            for (right, right_ball) in other.bundles.iter().enumerate() {
                if left_ball.gap(right_ball) > limit() {
                    continue;
                }
                let rights = other.bundle(right);
                spend(self.bundle(left).count() * rights.clone().count() * EDGE_BYTES)?;
                for (i, j) in self.bundle(left).flat_map(|i| rights.clone().map(move |j| (i, j))) {
                    if visit(i, j).is_break() {
                        return Some(ControlFlow::Break(()));
                    }
                }
            }
        }
        Some(ControlFlow::Continue(()))
    }

    /// Visits the edges that may touch the one given.
    pub fn near_edges(
        &self,
        edge: Edge<'_>,
        spend: Spend<'_>,
        visit: &mut dyn FnMut(Edge<'_>),
    ) -> Option<()> {
        spend(EDGE_BYTES)?;
        let ball = BoundingBall::around(self.kind, std::iter::once(edge));
        if self.ball.gap(&ball) > 0.0 {
            return Some(());
        }
        spend(self.bundles.len() * EDGE_BYTES)?;
        for (index, bundle) in self.bundles.iter().enumerate() {
            if bundle.gap(&ball) == 0.0 {
                spend(BUNDLE_EDGES * EDGE_BYTES)?;
                self.bundle(index).for_each(|index| visit(self.edge(index)));
            }
        }
        Some(())
    }

    pub fn has(&self, p: Vector, spend: Spend<'_>) -> Option<bool> {
        spend(EDGE_BYTES)?;
        if !self.ball.contains(p) {
            return Some(false);
        }
        spend(self.vertices.len() * EDGE_BYTES)?;
        Some(self.edges().any(|edge| is_on(self.kind, p, edge.a.at, edge.b.at)))
    }
}

/// A single vertex is one edge without length.
fn edges_of(vertices: &[Vertex]) -> impl ExactSizeIterator<Item = Edge<'_>> + Clone {
    (0..(vertices.len() - 1).max(1)).map(move |index| edge_of(vertices, index))
}

fn edge_of(vertices: &[Vertex], index: usize) -> Edge<'_> {
    Edge { a: &vertices[index], b: &vertices[(index + 1).min(vertices.len() - 1)] }
}

impl Ring {
    pub fn new(chain: Chain, keeps_left: bool) -> Ring {
        let mut ring = Ring { chain, keeps_left, far_left: None };
        ring.far_left = match ring.chain.kind {
            GeospatialType::Geometry => Some(signed_area(&ring.chain) < 0.0),
            GeospatialType::Geography => {
                let center = ring.chain.ball.center;
                let far = center * -center.length().recip();
                let outside = far.x.is_finite() && !ring.chain.ball.contains(far);
                outside.then(|| ring.slow_side(far) == Side::Left)
            }
        };
        ring
    }

    pub fn side(&self, p: Vector, spend: Spend<'_>) -> Option<Side> {
        spend(EDGE_BYTES)?;
        match self.far_left {
            Some(left) if !self.chain.ball.contains(p) => Some(if left { Side::Left } else { Side::Right }),
            _ => {
                spend(2 * self.chain.vertices.len() * EDGE_BYTES)?;
                Some(self.slow_side(p))
            }
        }
    }

    /// Of a ring that is far smaller than a hemisphere: whether it is clockwise.
    pub fn is_small_clockwise(&self) -> Option<bool> {
        self.far_left.filter(|_| self.chain.ball.radius < 0.5)
    }

    /// The middle of a ring that is small enough for a plane to be right to eight digits, some hundred metres.
    pub fn flat_center(&self) -> Option<Vector> {
        (self.chain.ball.radius < 1e-4).then(|| self.chain.ball.center.unit())
    }

    /// Walks from `p` to the middle of the edge with the best angle, and counts the edges crossed on the way.
    fn slow_side(&self, p: Vector) -> Side {
        let (mut best, mut reference) = (-1.0, 0);
        for (index, Edge { a, b }) in self.chain.edges().enumerate() {
            if is_on(self.chain.kind, p, a.at, b.at) {
                return Side::On;
            }
            let seen = turn(a.at, b.at, p).abs();
            if seen > best {
                (best, reference) = (seen, index);
            }
        }
        let Edge { a, b } = self.chain.edge(reference);
        let goal = middle(self.chain.kind, a.at, b.at);
        let others = self.chain.edges().enumerate().filter(|(index, _)| *index != reference);
        let crossed = others.filter(|(_, edge)| crosses(p, goal, edge.a.at, edge.b.at)).count();
        let left = (turn(a.at, b.at, p) > 0.0) == (crossed % 2 == 0);
        if left { Side::Left } else { Side::Right }
    }
}

impl Polygon {
    pub fn locate(&self, p: Vector, spend: Spend<'_>) -> Option<Location> {
        let mut location = Location::Inside;
        for ring in &self.rings {
            match ring.side(p, spend)? {
                Side::On => location = Location::Boundary,
                side if (side == Side::Left) != ring.keeps_left => return Some(Location::Outside),
                _ => {}
            }
        }
        Some(location)
    }
}

/// Of a ring in the plane; positive when it is counter-clockwise.
pub(super) fn signed_area(ring: &Chain) -> f64 {
    let [x0, y0] = ring.vertices[0].place;
    let cross = |edge: Edge<'_>| {
        let ([ax, ay], [bx, by]) = (edge.a.place, edge.b.place);
        (ax - x0) * (by - y0) - (bx - x0) * (ay - y0)
    };
    ring.edges().map(cross).sum::<f64>() / 2.0
}
