//! Sketches: distinct values, quantiles, uniform samples of distinct values.

mod distinct; // how many different values
mod histogram; // quantiles of sizes, lengths and charges
mod sample; // a uniform sample of the different values

use quire_value::{Node, hash, murmur};

pub(crate) use self::distinct::Distinct;
pub use self::histogram::{Histogram, Summary};
pub(crate) use self::sample::DistinctSample;

/// Equal values have equal hashes; different ones do not, but for chance.
pub(crate) fn value_hash(node: Node<'_>) -> u64 {
    match node.as_text() {
        Some(text) => text_hash(text),
        None => u64::from_le_bytes(*hash::of_node(node).to_bytes().first_chunk().expect("16 bytes")),
    }
}

pub(crate) fn text_hash(text: &[u8]) -> u64 {
    murmur::murmur128(text).0
}

/// Lower bound of a share with 95 % confidence (Wilson).
pub fn lower_bound(cases: u64, total: u64) -> f64 {
    const Z: f64 = 1.96;
    if total == 0 {
        return 0.0;
    }
    let (n, p) = (total as f64, cases as f64 / total as f64);
    let centre = p + Z * Z / (2.0 * n);
    let spread = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    ((centre - spread) / (1.0 + Z * Z / n)).max(0.0)
}
