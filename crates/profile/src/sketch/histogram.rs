//! Quantiles: exact while there are few different values, then a t-digest. Count, sum and maximum are always exact.

use std::collections::BTreeMap;

use datasketches::tdigest::TDigestMut;

/// Different values that are counted one by one.
const EXACT_MAX: usize = 256;
const COMPRESSION: u16 = 200;

/// Values that are not negative.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    count: u64,
    sum: f64,
    max: f64,
    at_max: u64,
    values: Values,
}

#[derive(Clone, Debug)]
enum Values {
    /// Bits of a value that is not negative are in its order.
    Exact(BTreeMap<u64, u64>),
    Digest(Box<TDigestMut>),
}

impl Default for Values {
    fn default() -> Values {
        Values::Exact(BTreeMap::new())
    }
}

/// What is read of a [`Histogram`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    pub p50: f64,
    pub p90: f64,
    pub p95: f64,
    pub p99: f64,
    pub max: f64,
    pub mean: f64,
    pub count: u64,
    /// How many values equal the maximum.
    pub at_max: u64,
}

impl Histogram {
    pub fn add(&mut self, value: f64) {
        self.add_many(value, 1);
    }

    pub fn add_many(&mut self, value: f64, count: u64) {
        let value = value.max(0.0);
        self.raise_max_count(value, count);
        self.count += count;
        self.sum += value * count as f64;
        match &mut self.values {
            Values::Digest(digest) => (0..count).for_each(|_| digest.update(value)),
            Values::Exact(values) => {
                *values.entry(value.to_bits()).or_default() += count;
                self.compress();
            }
        }
    }

    fn raise_max_count(&mut self, value: f64, count: u64) {
        match value.total_cmp(&self.max) {
            std::cmp::Ordering::Greater => (self.max, self.at_max) = (value, count),
            std::cmp::Ordering::Equal => self.at_max += count,
            std::cmp::Ordering::Less => {}
        }
    }

    fn compress(&mut self) {
        if let Values::Exact(values) = &self.values
            && values.len() > EXACT_MAX
        {
            let mut digest = TDigestMut::new(COMPRESSION).expect("200 is a valid compression");
            for (bits, count) in values {
                (0..*count).for_each(|_| digest.update(f64::from_bits(*bits)));
            }
            self.values = Values::Digest(Box::new(digest));
        }
    }

    pub fn merge(&mut self, other: &Histogram) {
        self.raise_max_count(other.max, other.at_max);
        match &other.values {
            Values::Exact(values) => {
                let (max, at_max) = (self.max, self.at_max);
                values.iter().for_each(|(bits, count)| self.add_many(f64::from_bits(*bits), *count));
                (self.max, self.at_max) = (max, at_max);
                return;
            }
            Values::Digest(digest) => match &mut self.values {
                Values::Digest(own) => own.merge(digest),
                Values::Exact(own) => {
                    let mut merged = digest.clone();
                    for (bits, count) in own {
                        (0..*count).for_each(|_| merged.update(f64::from_bits(*bits)));
                    }
                    self.values = Values::Digest(merged);
                }
            },
        }
        self.count += other.count;
        self.sum += other.sum;
    }

    /// About how much memory it holds.
    pub(crate) fn held_bytes(&self) -> usize {
        const ENTRY_BYTES: usize = 24;
        match &self.values {
            Values::Exact(values) => values.len() * ENTRY_BYTES,
            Values::Digest(_) => usize::from(COMPRESSION) * 5 * 16,
        }
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn sum(&self) -> f64 {
        self.sum
    }

    pub fn max(&self) -> f64 {
        self.max
    }

    /// The value at a rank from 0 to 1; 0 of nothing.
    pub fn quantile(&self, rank: f64) -> f64 {
        match &self.values {
            Values::Exact(values) => exact_quantile(values, self.count, rank),
            Values::Digest(digest) => {
                digest.clone().quantile(rank).ok().flatten().unwrap_or_default().clamp(0.0, self.max)
            }
        }
    }

    /// Share of the sum that the largest part of the values makes up.
    pub fn top_share(&self, part: f64) -> f64 {
        const STEPS: u32 = 50;
        let step = |number: u32| 1.0 - part * (f64::from(number) + 0.5) / f64::from(STEPS);
        let mean = (0..STEPS).map(|number| self.quantile(step(number))).sum::<f64>() / f64::from(STEPS);
        if self.sum == 0.0 { 0.0 } else { mean * part * self.count as f64 / self.sum }
    }

    pub fn summary(&self) -> Summary {
        if self.count == 0 {
            return Summary::default();
        }
        let quantile = |rank| self.quantile(rank);
        Summary {
            p50: quantile(0.5),
            p90: quantile(0.9),
            p95: quantile(0.95),
            p99: quantile(0.99),
            max: self.max,
            mean: self.sum / self.count as f64,
            count: self.count,
            at_max: self.at_max,
        }
    }

    /// The maximum that a byte form had; points of a digest may not reach it.
    pub(crate) fn raise_max(&mut self, max: f64) {
        if max > self.max {
            (self.max, self.at_max) = (max, 1);
        }
    }

    /// Pairs of value and weight that stand for the histogram, for its byte form.
    pub(crate) fn points(&self) -> Vec<(f64, u64)> {
        match &self.values {
            Values::Exact(values) => {
                values.iter().map(|(bits, count)| (f64::from_bits(*bits), *count)).collect()
            }
            Values::Digest(_) => {
                let ranks = (0..EXACT_MAX as u64).map(|part| (part as f64 + 0.5) / EXACT_MAX as f64);
                let share = |part: u64| self.count * part / EXACT_MAX as u64;
                ranks
                    .zip(0u64..)
                    .map(|(rank, part)| (self.quantile(rank), share(part + 1) - share(part)))
                    .collect()
            }
        }
    }
}

fn exact_quantile(values: &BTreeMap<u64, u64>, count: u64, rank: f64) -> f64 {
    let wanted = ((rank * count as f64).ceil() as u64).max(1);
    let mut before = 0;
    for (bits, count) in values {
        before += count;
        if before >= wanted {
            return f64::from_bits(*bits);
        }
    }
    0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: impl IntoIterator<Item = u64>) -> Histogram {
        let mut histogram = Histogram::default();
        values.into_iter().for_each(|value| histogram.add(value as f64));
        histogram
    }

    #[test]
    fn few_values_are_exact() {
        let summary = of([1, 2, 2, 3, 7]).summary();
        assert_eq!((summary.p50, summary.p99, summary.max, summary.at_max), (2.0, 7.0, 7.0, 1));
    }

    /// Many different values: ranks are within 1 %, the maximum is exact, merged or not.
    #[test]
    fn many_values() {
        let scrambled = |value: u64| value.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 100_000;
        let mut halves = of((0..25_000).map(scrambled));
        halves.merge(&of((25_000..50_000).map(scrambled)));
        let whole = of((0..50_000).map(scrambled));
        let mut sorted: Vec<u64> = (0..50_000).map(scrambled).collect();
        sorted.sort_unstable();
        for histogram in [halves, whole] {
            assert_eq!(histogram.max(), *sorted.last().unwrap() as f64);
            assert_eq!(histogram.count(), 50_000);
            for rank in [0.5, 0.9, 0.95, 0.99] {
                let found = histogram.quantile(rank);
                let place = sorted.partition_point(|value| (*value as f64) < found) as f64 / 50_000.0;
                assert!((place - rank).abs() < 0.01, "{rank}: {place}");
            }
        }
    }

    #[test]
    fn merge_counts_the_maximum() {
        let mut one = of([5, 5, 3]);
        one.merge(&of([5, 2]));
        assert_eq!((one.summary().at_max, one.count()), (3, 5));
        one.merge(&of([9]));
        assert_eq!((one.summary().at_max, one.max()), (1, 9.0));
    }
}
