//! Vectors side by side in memory, as 32-bit numbers or quantised to 8 bits, and how near they are to another.
//!
//! What is kept is not what the item has, so nearness is an estimate with a margin, and the margin is a proof: the
//! distance that the query language computes lies within it. Rounding is bounded by the norms, quantising by the length of what it left out.

use quire_resource::DistanceFunction;

/// Numbers added up in one lane, so that lanes can be added side by side.
const LANES: usize = 16;
/// Beyond these the margins would not hold: 32 bits cannot tell the products.
const NUMBER_MAX: f64 = 1e15;
const NORM_MIN: f64 = 1e-15;
const CODE_MAX: f64 = 127.0;
/// A slot whose item is gone.
const GONE: u64 = u64::MAX;
/// What a slot takes besides its numbers.
const SLOT_BYTES: usize = 64;

pub(crate) struct Rows {
    dimensions: usize,
    numbers: Numbers,
    /// Child ids by slot.
    rids: Vec<u64>,
    norms: Vec<f64>,
    /// How far the kept vector is from the item's.
    strays: Vec<f64>,
    gone: usize,
}

enum Numbers {
    Floats(Vec<f32>),
    /// Codes, and what a code of 1 stands for in each slot.
    Codes(Vec<i8>, Vec<f32>),
}

/// What nearness is measured from.
pub(crate) struct Target {
    numbers: Vec<f32>,
    norm: f64,
    distance: DistanceFunction,
}

/// More is nearer; the true value is no further away than the margin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nearness {
    pub value: f64,
    pub margin: f64,
}

impl Nearness {
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

impl Target {
    /// `None`: its numbers are too large or too small.
    pub fn new(numbers: &[f64], distance: DistanceFunction) -> Option<Target> {
        let norm = norm_of(numbers);
        let floats = numbers.iter().map(|&number| number as f32).collect();
        is_regular(numbers, norm).then_some(Target { numbers: floats, norm, distance })
    }
}

impl Rows {
    pub fn new(dimensions: usize, is_quantized: bool) -> Rows {
        let numbers = if is_quantized { Numbers::Codes(vec![], vec![]) } else { Numbers::Floats(vec![]) };
        Rows { dimensions, numbers, rids: vec![], norms: vec![], strays: vec![], gone: 0 }
    }

    pub fn slot_bytes(dimensions: usize, is_quantized: bool) -> usize {
        SLOT_BYTES + dimensions * if is_quantized { 1 } else { size_of::<f32>() }
    }

    /// Slots, those of items that are gone included.
    pub fn len(&self) -> usize {
        self.rids.len()
    }

    pub fn live(&self) -> usize {
        self.rids.len() - self.gone
    }

    /// Adds a vector of the right length at a new slot; `None` if its numbers are too large or too small.
    pub fn push(&mut self, rid: u64, vector: &[f64]) -> Option<u32> {
        let norm = norm_of(vector);
        let slot = u32::try_from(self.rids.len()).ok().filter(|_| is_regular(vector, norm))?;
        let stray = match &mut self.numbers {
            Numbers::Floats(floats) => {
                floats.extend(vector.iter().map(|&number| number as f32));
                0.0 // rounding is part of the margin anyway
            }
            Numbers::Codes(codes, scales) => {
                let largest = vector.iter().fold(0.0_f64, |largest, number| largest.max(number.abs()));
                let scale = (largest / CODE_MAX) as f32;
                let code = |number: f64| {
                    if scale == 0.0 {
                        0
                    } else {
                        (number / f64::from(scale)).round().clamp(-CODE_MAX, CODE_MAX) as i8
                    }
                };
                let first = codes.len();
                codes.extend(vector.iter().map(|&number| code(number)));
                scales.push(scale);
                let left = vector.iter().zip(&codes[first..]);
                let left = left.map(|(number, &code)| number - f64::from(code) * f64::from(scale));
                left.map(|left| left * left).sum::<f64>().sqrt()
            }
        };
        self.rids.push(rid);
        self.norms.push(norm);
        self.strays.push(stray);
        Some(slot)
    }

    pub fn remove(&mut self, slot: u32) {
        if let Some(rid) = self.rids.get_mut(slot as usize).filter(|rid| **rid != GONE) {
            *rid = GONE;
            self.gone += 1;
        }
    }

    /// The item of a slot, unless it is gone.
    pub fn rid(&self, slot: u32) -> Option<u64> {
        self.rids.get(slot as usize).copied().filter(|&rid| rid != GONE)
    }

    /// Live slots from one on.
    pub fn slots_from(&self, first: u32) -> impl Iterator<Item = (u32, u64)> {
        let all = self.rids.iter().enumerate().skip(first as usize);
        all.filter(|(_, rid)| **rid != GONE).map(|(slot, &rid)| (slot as u32, rid))
    }

    /// Without the slots of items that are gone.
    pub fn compacted(&self) -> Rows {
        let is_quantized = matches!(self.numbers, Numbers::Codes(..));
        let mut rows = Rows::new(self.dimensions, is_quantized);
        for (slot, rid) in self.slots_from(0) {
            let (slot, range) = (slot as usize, self.range(slot));
            match (&mut rows.numbers, &self.numbers) {
                (Numbers::Floats(to), Numbers::Floats(from)) => to.extend_from_slice(&from[range]),
                (Numbers::Codes(to, scales), Numbers::Codes(from, from_scales)) => {
                    to.extend_from_slice(&from[range]);
                    scales.push(from_scales[slot]);
                }
                _ => {}
            }
            rows.rids.push(rid);
            rows.norms.push(self.norms[slot]);
            rows.strays.push(self.strays[slot]);
        }
        rows
    }

    /// `None`: there is no distance, since one of the two has no direction.
    pub fn nearness(&self, slot: u32, target: &Target) -> Option<Nearness> {
        let product = match &self.numbers {
            Numbers::Floats(floats) => product(&floats[self.range(slot)], &target.numbers),
            Numbers::Codes(codes, scales) => {
                product_of_codes(&codes[self.range(slot)], &target.numbers) * scales[slot as usize]
            }
        };
        let slot = slot as usize;
        let (norm, stray) = (self.norms[slot], self.strays[slot]);
        let unit = self.rounding();
        let margin = target.norm * (stray + unit * (norm + stray));
        self.measure(target.distance, f64::from(product), margin, norm, target.norm)
    }

    /// How near two slots are, without a margin; only for vectors that are not quantised.
    pub fn between(&self, left: u32, right: u32, distance: DistanceFunction) -> f64 {
        let Numbers::Floats(floats) = &self.numbers else { return 0.0 };
        let product = product(&floats[self.range(left)], &floats[self.range(right)]);
        let norms = (self.norms[left as usize], self.norms[right as usize]);
        self.measure(distance, f64::from(product), 0.0, norms.0, norms.1)
            .map_or(f64::NEG_INFINITY, |nearness| nearness.value)
    }

    fn measure(
        &self,
        distance: DistanceFunction,
        product: f64,
        margin: f64,
        norm: f64,
        target_norm: f64,
    ) -> Option<Nearness> {
        let unit = self.rounding();
        match distance {
            DistanceFunction::DotProduct => Some(Nearness { value: product, margin }),
            DistanceFunction::Cosine => {
                let norms = norm * target_norm;
                (norms > 0.0).then(|| Nearness { value: product / norms, margin: margin / norms + unit })
            }
            // By squares, which have the same order.
            DistanceFunction::Euclidean => {
                let value = 2.0 * product - norm * norm - target_norm * target_norm;
                let sum = norm + target_norm;
                Some(Nearness { value, margin: 2.0 * margin + unit * sum * sum })
            }
        }
    }

    /// What rounding can make of a product, as a part of the norms: of both factors, of their product, and of every sum
    /// in a lane.
    fn rounding(&self) -> f64 {
        const HALF_UNIT: f64 = 1.0 / (1 << 24) as f64;
        (self.dimensions / LANES + 2 * LANES) as f64 * HALF_UNIT
    }

    fn range(&self, slot: u32) -> std::ops::Range<usize> {
        let first = slot as usize * self.dimensions;
        first..first + self.dimensions
    }
}

fn product(left: &[f32], right: &[f32]) -> f32 {
    let (left, left_rest) = left.as_chunks::<LANES>();
    let (right, right_rest) = right.as_chunks::<LANES>();
    let mut lanes = [0.0_f32; LANES];
    for (left, right) in left.iter().zip(right) {
        for lane in 0..LANES {
            lanes[lane] += left[lane] * right[lane];
        }
    }
    let rest: f32 = left_rest.iter().zip(right_rest).map(|(left, right)| left * right).sum();
    lanes.iter().sum::<f32>() + rest
}

fn product_of_codes(codes: &[i8], right: &[f32]) -> f32 {
    let (codes, codes_rest) = codes.as_chunks::<LANES>();
    let (right, right_rest) = right.as_chunks::<LANES>();
    let mut lanes = [0.0_f32; LANES];
    for (codes, right) in codes.iter().zip(right) {
        for lane in 0..LANES {
            lanes[lane] += f32::from(codes[lane]) * right[lane];
        }
    }
    let rest: f32 = codes_rest.iter().zip(right_rest).map(|(code, right)| f32::from(*code) * right).sum();
    lanes.iter().sum::<f32>() + rest
}
