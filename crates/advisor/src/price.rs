//! Charges, by the formulas of docs/charges.md: the same as the engine's, on average sizes.

const READ: f64 = 1.0;
const READ_PER_KB: f64 = 0.091;
const WRITE: f64 = 5.0;
const WRITE_PER_KB: f64 = 0.455;
pub const WRITE_PER_VALUE: f64 = 0.35;
const REPLACE_FACTOR: f64 = 2.0;
pub const PAGE_PER_PARTITION: f64 = 2.5;
pub const PAGE_PER_LOADED: f64 = 0.065;
const PAGE_PER_RETURNED: f64 = 0.1;
const PAGE_PER_MB: f64 = 0.3;

pub fn read(bytes: f64) -> f64 {
    READ + READ_PER_KB * (kilobytes(bytes) - 1.0)
}

/// Create or delete.
pub fn insert(bytes: f64, indexed_values: f64) -> f64 {
    WRITE + WRITE_PER_KB * (kilobytes(bytes) - 1.0) + WRITE_PER_VALUE * indexed_values
}

pub fn replace(bytes: f64, indexed_values: f64) -> f64 {
    REPLACE_FACTOR * insert(bytes, indexed_values)
}

pub fn page(partitions: f64, loaded: f64, returned: f64, bytes: f64) -> f64 {
    let read = PAGE_PER_LOADED * loaded + PAGE_PER_RETURNED * returned;
    PAGE_PER_PARTITION * partitions.max(1.0) + read + PAGE_PER_MB * bytes / f64::from(1 << 20)
}

fn kilobytes(bytes: f64) -> f64 {
    (bytes / 1_024.0).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published examples that the engine's charges were fitted to.
    #[test]
    fn published_examples() {
        let close =
            |value: f64, expected: f64| assert!((value - expected).abs() < 0.01, "{value} {expected}");
        close(read(1_024.0), 1.0);
        close(read(100.0 * 1_024.0), 10.01);
        close(insert(100.0, 5.0), 6.75);
        close(replace(100.0, 0.0), 10.0);
        close(page(1.0, 100.0, 100.0, 10_000.0), 19.0);
    }
}
