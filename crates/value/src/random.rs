//! SplitMix64: numbers that follow from a seed, evenly spread. Not for secrets.
//!
//! What is made of a seed (demo data, what-if samples, faults by rate) must stay the same in every version.

/// From one state to the next.
pub const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// The number that belongs to a state. Different states give different numbers.
#[inline]
pub fn split_mix(state: u64) -> u64 {
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// Moves to the next state; its number.
#[inline]
pub fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(STEP);
    split_mix(*state)
}

/// A number as a fraction in [0, 1).
#[inline]
pub fn fraction(number: u64) -> f64 {
    (number >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reference implementation from state 0, and what every version makes of it.
    #[test]
    fn the_sequence_of_a_seed_stays() {
        let mut state = 0;
        let numbers = [next(&mut state), next(&mut state), next(&mut state)];
        assert_eq!(numbers, [0xE220_A839_7B1D_CDAF, 0x6E78_9E6A_A1B9_65F4, 0x06C4_5D18_8009_454F]);
        assert_eq!(state, STEP.wrapping_mul(3));
        assert_eq!((fraction(0), fraction(1 << 63)), (0.0, 0.5));
        assert!(fraction(u64::MAX) < 1.0);
    }
}
