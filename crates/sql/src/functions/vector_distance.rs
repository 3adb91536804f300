//! Distances between vectors. They are exact, from the numbers in the item. Options for indexes control approximate
//! searches (see [`crate::VectorOrder`]) and which items are read, never the distance itself.
//!
//! The binder turns the options into arguments, so both functions are evaluated with `(vector, vector, brute force,
//! distance function, …)`. Later arguments are ignored here.

use quire_value::{Kind, Value};

use super::{Call, Function, IndexUse, between, f};

pub(super) const FUNCTIONS: &[Function] = &[
    f(&["VectorDistance"], between(2, 4), vector_distance, IndexUse::Vector),
    f(&["_VectorScore"], between(2, 4), vector_score, IndexUse::Vector),
];

/// How vectors are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Metric {
    Cosine,
    DotProduct,
    Euclidean,
}

impl Metric {
    pub fn of_name(name: &str) -> Option<Metric> {
        [Metric::Cosine, Metric::DotProduct, Metric::Euclidean]
            .into_iter()
            .find(|metric| metric.name().eq_ignore_ascii_case(name))
    }

    pub fn name(self) -> &'static str {
        match self {
            Metric::Cosine => "cosine",
            Metric::DotProduct => "dotproduct",
            Metric::Euclidean => "euclidean",
        }
    }

    /// Whether a smaller number means more similar.
    pub fn smaller_is_closer(self) -> bool {
        self == Metric::Euclidean
    }

    fn measure(self, left: &[f64], right: &[f64]) -> Option<f64> {
        let product = |left: &[f64], right: &[f64]| {
            left.iter().zip(right).map(|(left, right)| left * right).sum::<f64>()
        };
        match self {
            Metric::DotProduct => Some(product(left, right)),
            Metric::Euclidean => {
                let squares = left.iter().zip(right).map(|(left, right)| (left - right) * (left - right));
                Some(squares.sum::<f64>().sqrt())
            }
            Metric::Cosine => {
                // One root of the product, as clients compute it: the results are compared to the last digit.
                let norms = (product(left, left) * product(right, right)).sqrt();
                // A zero vector has no distance. The result is clamped because of rounding.
                (norms > 0.0).then(|| (product(left, right) / norms).clamp(-1.0, 1.0))
            }
        }
    }
}

fn vector_distance(call: &Call<'_>) -> Option<Value> {
    measured(call).map(|(_, distance)| Value::from(distance))
}

/// The same, with the sign changed so that a larger number is closer.
fn vector_score(call: &Call<'_>) -> Option<Value> {
    measured(call)
        .map(|(metric, distance)| Value::from(if metric.smaller_is_closer() { -distance } else { distance }))
}

fn measured(call: &Call<'_>) -> Option<(Metric, f64)> {
    let (left, right) = (numbers(call, 0)?, numbers(call, 1)?);
    call.bool(2)?;
    let metric = Metric::of_name(call.string(3)?)?;
    if left.len() != right.len() {
        return None;
    }
    let distance = metric.measure(&left, &right)?;
    distance.is_finite().then_some((metric, distance))
}

fn numbers(call: &Call<'_>, index: usize) -> Option<Vec<f64>> {
    let vector = call.value_ref(index).filter(|vector| vector.kind() == Kind::Array)?;
    call.spend(vector.len() as u64)?;
    call.build(vector.len() * size_of::<f64>())?;
    vector.elements().map(|element| Some(element.as_number()?.as_f64())).collect()
}
