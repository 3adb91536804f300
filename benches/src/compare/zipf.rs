//! Numbers by Zipf's law, as PostgreSQL's load generator draws them: number k of n has a weight of 1 / k^s.

use crate::people::{PEOPLE, draw};

/// The smallest that PostgreSQL's load generator takes; YCSB has 0.99.
pub const EXPONENT: f64 = 1.001;

pub struct Zipf {
    /// The share of all draws up to each rank.
    cumulated: Vec<f64>,
}

impl Zipf {
    pub fn over(count: u64) -> Zipf {
        let weights = (1..=count).map(|rank| (rank as f64).powf(-EXPONENT));
        let mut sum = 0.0;
        let mut cumulated: Vec<f64> = weights
            .map(|weight| {
                sum += weight;
                sum
            })
            .collect();
        cumulated.iter_mut().for_each(|share| *share /= sum);
        Zipf { cumulated }
    }

    /// A person for a number; those that are drawn most often lie anywhere.
    pub fn person(&self, number: u64) -> u64 {
        const STEPS: u64 = 1 << 53;
        let share = draw(number, 901, STEPS) as f64 / STEPS as f64;
        let rank = self.cumulated.partition_point(|upto| *upto <= share) as u64;
        draw(rank, 902, PEOPLE)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn the_first_ranks_have_their_share() {
        let zipf = Zipf::over(PEOPLE);
        let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
        const DRAWS: u64 = 200_000;
        for number in 0..DRAWS {
            *counts.entry(zipf.person(number)).or_default() += 1;
        }
        let sum: f64 = (1..=PEOPLE).map(|rank| (rank as f64).powf(-EXPONENT)).sum();
        for rank in 0..3 {
            let expected = DRAWS as f64 * ((rank + 1) as f64).powf(-EXPONENT) / sum;
            let found = counts[&draw(rank, 902, PEOPLE)] as f64;
            assert!((found / expected - 1.0).abs() < 0.05, "rank {rank}: {found} to {expected}");
        }
    }
}
