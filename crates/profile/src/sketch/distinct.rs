//! How many different values: exact while few, then HyperLogLog.

use std::collections::HashSet;

use datasketches::hll::{HllSketch, HllType, HllUnion};

/// Kept one by one up to here.
const EXACT_MAX: usize = 128;
/// 2^14 registers of four bits: an error of 0.65 % (one sigma), 8 KB.
const LG_REGISTERS: u8 = 14;

#[derive(Clone, Debug)]
pub(crate) enum Distinct {
    Exact(HashSet<u64>),
    Sketch(Box<HllSketch>),
}

impl Default for Distinct {
    fn default() -> Distinct {
        Distinct::Exact(HashSet::new())
    }
}

impl Distinct {
    pub fn add(&mut self, hash: u64) {
        match self {
            Distinct::Sketch(sketch) => sketch.update(hash),
            Distinct::Exact(seen) => {
                seen.insert(hash);
                if seen.len() > EXACT_MAX {
                    *self = Distinct::Sketch(Box::new(sketch_of(seen)));
                }
            }
        }
    }

    pub fn estimate(&self) -> u64 {
        match self {
            Distinct::Exact(seen) => seen.len() as u64,
            Distinct::Sketch(sketch) => sketch.estimate().round() as u64,
        }
    }

    /// About how much memory it holds.
    pub fn held_bytes(&self) -> usize {
        const ENTRY_BYTES: usize = 18;
        match self {
            Distinct::Exact(seen) => seen.capacity() * ENTRY_BYTES,
            Distinct::Sketch(_) => 1 << LG_REGISTERS,
        }
    }

    pub fn merge(&mut self, other: &Distinct) {
        match (&mut *self, other) {
            (_, Distinct::Exact(seen)) => seen.iter().for_each(|hash| self.add(*hash)),
            (Distinct::Exact(own), Distinct::Sketch(_)) => {
                let own = std::mem::take(own);
                *self = other.clone();
                own.into_iter().for_each(|hash| self.add(hash));
            }
            (Distinct::Sketch(own), Distinct::Sketch(sketch)) => {
                let mut union = HllUnion::new(LG_REGISTERS).expect("14 is a valid size");
                union.update(own);
                union.update(sketch);
                **own = union.to_sketch(HllType::Hll4);
            }
        }
    }
}

fn sketch_of(seen: &HashSet<u64>) -> HllSketch {
    let mut sketch = HllSketch::new(LG_REGISTERS, HllType::Hll4).expect("14 is a valid size");
    seen.iter().for_each(|hash| sketch.update(*hash));
    sketch
}
