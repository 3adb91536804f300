//! Vectors as 8-bit codes, and their similarity.
//!
//! The codes are not the item's vector, so a similarity is an estimate with a margin. The margin is proven: the
//! distance that the query language computes is within it. Products of codes are integers, so only the quantisation has
//! to be bounded: by the length of the part that it lost.

use multiversion::multiversion;
use quire_resource::DistanceFunction;

/// Beyond these the error bounds would not hold: products computed from quantized vectors would be too inexact.
const NUMBER_MAX: f64 = 1e15;
const NORM_MIN: f64 = 1e-15;
const CODE_MAX: f64 = 127.0;
/// A target has more bits than codes; the sum of all products must fit into 32.
const TARGET_CODE_MAX: f64 = 4095.0;
/// What floating-point numbers of 64 bits can make of a product of a few thousand dimensions, as a part of the norms: here and
/// where the query language computes it.
const ROUNDING: f64 = 1e-11;

/// A vector as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct QuantizedVector {
    /// What a code of 1 stands for.
    pub scale: f32,
    /// The length of the item's vector.
    pub norm: f64,
    /// How far the stored vector is from the item's, at most.
    pub residual: f32,
    /// Numbers of 8 bits with a sign.
    pub codes: Vec<u8>,
}

/// What nearness is measured from.
#[derive(Clone, Debug)]
pub(crate) struct QueryVector {
    numbers: Vec<i16>,
    scale: f64,
    norm: f64,
    residual: f64,
}

/// More is nearer; the true value is no further away than the margin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Similarity {
    pub value: f64,
    pub margin: f64,
}

impl Similarity {
    pub fn low(self) -> f64 {
        self.value - self.margin
    }

    pub fn high(self) -> f64 {
        self.value + self.margin
    }
}

/// Whether estimates of a vector with these numbers keep their promise.
fn is_regular(numbers: &[f64], norm: f64) -> bool {
    numbers.iter().all(|number| number.abs() <= NUMBER_MAX) && (norm == 0.0 || norm >= NORM_MIN)
}

fn norm_of(numbers: &[f64]) -> f64 {
    numbers.iter().map(|number| number * number).sum::<f64>().sqrt()
}

fn largest(numbers: &[f64]) -> f64 {
    numbers.iter().fold(0.0_f64, |largest, number| largest.max(number.abs()))
}

/// The nearest whole number of times that a scale goes into a number.
fn times(number: f64, scale: f64, max: f64) -> f64 {
    if scale == 0.0 { 0.0 } else { (number / scale).round().clamp(-max, max) }
}

/// The length of what codes leave out of a vector.
fn residual_of(numbers: &[f64], codes: impl Iterator<Item = f64>, scale: f64) -> f64 {
    let left = numbers.iter().zip(codes).map(|(number, code)| number - code * scale);
    left.map(|left| left * left).sum::<f64>().sqrt()
}

impl QuantizedVector {
    /// `None` if the numbers are too large or too small.
    pub fn new(numbers: &[f64]) -> Option<QuantizedVector> {
        let norm = norm_of(numbers);
        if !is_regular(numbers, norm) {
            return None;
        }
        let scale = (largest(numbers) / CODE_MAX) as f32;
        let code = |number: &f64| times(*number, f64::from(scale), CODE_MAX) as i8 as u8;
        let codes: Vec<u8> = numbers.iter().map(code).collect();
        let residual =
            residual_of(numbers, codes.iter().map(|code| f64::from(*code as i8)), f64::from(scale));
        Some(QuantizedVector { scale, norm, residual: (residual as f32).next_up(), codes })
    }
}

impl QueryVector {
    /// `None`: its numbers are too large or too small.
    pub fn new(numbers: &[f64]) -> Option<QueryVector> {
        let norm = norm_of(numbers);
        if !is_regular(numbers, norm) {
            return None;
        }
        let max = TARGET_CODE_MAX.min(f64::from(i32::MAX) / (CODE_MAX * numbers.len().max(1) as f64)).floor();
        let scale = largest(numbers) / max;
        let codes: Vec<i16> = numbers.iter().map(|number| times(*number, scale, max) as i16).collect();
        let residual = residual_of(numbers, codes.iter().map(|code| f64::from(*code)), scale);
        Some(QueryVector { numbers: codes, scale, norm, residual })
    }

    /// A stored vector as a target.
    pub fn of(codes: &[u8], scale: f32, norm: f64) -> QueryVector {
        let numbers = codes.iter().map(|code| i16::from(*code as i8)).collect();
        QueryVector { numbers, scale: f64::from(scale), norm, residual: 0.0 }
    }

    /// What a product of codes with this target stands for, when it stands for the target's direction alone or for all of it.
    pub fn scale_in(&self, distance: DistanceFunction) -> f64 {
        match distance {
            DistanceFunction::Cosine if self.norm > 0.0 => self.scale / self.norm,
            _ => self.scale,
        }
    }

    /// Products with vectors that lie side by side.
    pub fn products(&self, codes: &[u8], products: &mut Vec<i32>) {
        products.clear();
        products_of(codes, &self.numbers, products);
    }

    /// `None`: there is no distance, since one of the two has no direction.
    pub fn similarity(
        &self,
        product: i32,
        (scale, norm, residual): (f32, f64, f32),
        distance: DistanceFunction,
    ) -> Option<Similarity> {
        let product = f64::from(product) * f64::from(scale) * self.scale;
        let reach = norm + f64::from(residual);
        let margin = self.norm * f64::from(residual) + self.residual * reach + ROUNDING * self.norm * reach;
        match distance {
            DistanceFunction::DotProduct => Some(Similarity { value: product, margin }),
            DistanceFunction::Cosine => {
                let norms = norm * self.norm;
                (norms > 0.0)
                    .then(|| Similarity { value: product / norms, margin: margin / norms + ROUNDING })
            }
            // By squares, which have the same order.
            DistanceFunction::Euclidean => {
                let value = 2.0 * product - norm * norm - self.norm * self.norm;
                let sum = norm + self.norm;
                Some(Similarity { value, margin: 2.0 * margin + ROUNDING * sum * sum })
            }
        }
    }
}

/// The loop is what a compiler makes the most of; which instructions the processor has is checked at run time.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512vl+avx512vnni", "x86_64+avx2+fma", "aarch64+neon"))]
fn products_of(codes: &[u8], target: &[i16], products: &mut Vec<i32>) {
    for codes in codes.chunks_exact(target.len().max(1)) {
        let mut product = 0;
        for (code, number) in codes.iter().zip(target) {
            product += i32::from(*code as i8) * i32::from(*number);
        }
        products.push(product);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(seed: &mut u64) -> f64 {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 33) as f64 / f64::from(1_u32 << 30) - 1.0
    }

    fn truth(a: &[f64], b: &[f64], distance: DistanceFunction) -> f64 {
        let product: f64 = a.iter().zip(b).map(|(a, b)| a * b).sum();
        match distance {
            DistanceFunction::DotProduct => product,
            DistanceFunction::Cosine => product / (norm_of(a) * norm_of(b)),
            DistanceFunction::Euclidean => -a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum::<f64>(),
        }
    }

    #[test]
    fn the_margin_holds() {
        let mut seed = 7;
        for dimensions in [1, 2, 3, 15, 64, 384, 4096] {
            for round in 0..50 {
                let size = 10_f64.powi(round % 13 - 6);
                let vector: Vec<f64> = (0..dimensions).map(|_| size * number(&mut seed)).collect();
                let wanted: Vec<f64> = (0..dimensions).map(|_| number(&mut seed)).collect();
                let (coded, target) =
                    (QuantizedVector::new(&vector).unwrap(), QueryVector::new(&wanted).unwrap());
                let mut products = Vec::new();
                target.products(&coded.codes, &mut products);
                for distance in
                    [DistanceFunction::Cosine, DistanceFunction::DotProduct, DistanceFunction::Euclidean]
                {
                    let QuantizedVector { scale, norm, residual, .. } = coded;
                    let near = target.similarity(products[0], (scale, norm, residual), distance).unwrap();
                    let truth = truth(&vector, &wanted, distance);
                    assert!(near.low() <= truth && truth <= near.high(), "{dimensions} {round} {distance:?}");
                }
            }
        }
    }

    #[test]
    fn the_largest_products_fit() {
        let vector = vec![1.0; 4096];
        let (coded, target) = (QuantizedVector::new(&vector).unwrap(), QueryVector::new(&vector).unwrap());
        let mut products = Vec::new();
        target.products(&coded.codes, &mut products);
        let near = target.similarity(
            products[0],
            (coded.scale, coded.norm, coded.residual),
            DistanceFunction::Cosine,
        );
        assert!((near.unwrap().value - 1.0).abs() < 1e-6);
    }

    #[test]
    fn vectors_that_cannot_be_quantized_are_refused() {
        for vector in [[1e200, 1.0], [f64::NAN, 1.0], [1e-17, 1e-17]] {
            assert!(
                QuantizedVector::new(&vector).is_none() && QueryVector::new(&vector).is_none(),
                "{vector:?}"
            );
        }
        let nothing = QuantizedVector::new(&[0.0, 0.0]).unwrap();
        assert_eq!((nothing.scale, nothing.norm, nothing.codes), (0.0, 0.0, vec![0, 0]));
    }
}
