//! Seeded random numbers: the same seed gives the same numbers on every machine.

/// splitmix64, for faults and for the input of tests. Print the seed where it is not fixed: it repeats the run.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`; 0 for an end of 0.
    pub fn below<N: TryInto<u64> + TryFrom<u64>>(&mut self, end: N) -> N {
        let end: u64 = end.try_into().ok().expect("an end that is not negative");
        N::try_from(self.next_u64() % end.max(1)).ok().expect("a number below an end has the type of the end")
    }

    /// True once in so many times.
    pub fn one_in<N: TryInto<u64> + TryFrom<u64>>(&mut self, times: N) -> bool {
        let times: u64 = times.try_into().ok().expect("a number that is not negative");
        self.below(times) == 0
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reference sequence of splitmix64 for seed 0.
    #[test]
    fn published_numbers() {
        let mut random = Random(0);
        let numbers: Vec<u64> = (0..3).map(|_| random.next_u64()).collect();
        assert_eq!(numbers, [0xE220_A839_7B1D_CDAF, 0x6E78_9E6A_A1B9_65F4, 0x06C4_5D18_8009_454F]);
    }
}
