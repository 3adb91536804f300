//! Vectors side by side in one row: those of a leaf, or the centres of what is below an inner node.
//!
//! Format byte 1, count 4, then as many ids of 8 bytes (child ids of items, or numbers of nodes), norms of 8, strays of 4,
//! scales of 4, and the codes. Numbers are little-endian: nothing is sorted by them.

use super::codes::QuantizedVector;
use crate::api::{EngineError, corrupt};

const FORMAT: u8 = 1;
const HEADER_BYTES: usize = 5;
const ID_BYTES: usize = 8;
const NORM_BYTES: usize = 8;
const RESIDUAL_BYTES: usize = 4;
const SCALE_BYTES: usize = 4;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct VectorBlock {
    pub ids: Vec<u64>,
    pub norms: Vec<f64>,
    pub residuals: Vec<f32>,
    pub scales: Vec<f32>,
    pub codes: Vec<u8>,
    pub dimensions: usize,
}

/// The same, read in place.
#[derive(Clone, Copy)]
pub(crate) struct VectorBlockRef<'a> {
    ids: &'a [u8],
    norms: &'a [u8],
    residuals: &'a [u8],
    scales: &'a [u8],
    pub codes: &'a [u8],
    dimensions: usize,
}

impl VectorBlock {
    pub fn new(dimensions: usize) -> VectorBlock {
        VectorBlock { dimensions, ..VectorBlock::default() }
    }

    pub fn of(id: u64, coded: &QuantizedVector) -> VectorBlock {
        let mut block = VectorBlock::new(coded.codes.len());
        block.push(id, coded);
        block
    }

    pub fn len(&self) -> usize {
        self.ids.len()
    }

    pub fn push(&mut self, id: u64, coded: &QuantizedVector) {
        self.ids.push(id);
        self.norms.push(coded.norm);
        self.residuals.push(coded.residual);
        self.scales.push(coded.scale);
        self.codes.extend_from_slice(&coded.codes);
    }

    pub fn get(&self, at: usize) -> QuantizedVector {
        let (scale, norm, residual) = (self.scales[at], self.norms[at], self.residuals[at]);
        QuantizedVector { scale, norm, residual, codes: self.codes_of(at).to_vec() }
    }

    pub fn codes_of(&self, at: usize) -> &[u8] {
        &self.codes[at * self.dimensions..(at + 1) * self.dimensions]
    }

    pub fn position(&self, id: u64) -> Option<usize> {
        self.ids.iter().position(|other| *other == id)
    }

    /// Takes one out; the last comes in its place.
    pub fn swap_remove(&mut self, at: usize) {
        self.ids.swap_remove(at);
        self.norms.swap_remove(at);
        self.residuals.swap_remove(at);
        self.scales.swap_remove(at);
        let last = self.codes.len() - self.dimensions;
        self.codes.copy_within(last.., at * self.dimensions);
        self.codes.truncate(last);
    }

    pub fn encode(&self) -> Vec<u8> {
        let count = u32::try_from(self.len()).expect("a row has a few hundred vectors");
        let each = ID_BYTES + NORM_BYTES + RESIDUAL_BYTES + SCALE_BYTES;
        let mut value = Vec::with_capacity(HEADER_BYTES + self.len() * each + self.codes.len());
        value.push(FORMAT);
        value.extend(count.to_le_bytes());
        self.ids.iter().for_each(|id| value.extend(id.to_le_bytes()));
        self.norms.iter().for_each(|norm| value.extend(norm.to_le_bytes()));
        self.residuals.iter().for_each(|residual| value.extend(residual.to_le_bytes()));
        self.scales.iter().for_each(|scale| value.extend(scale.to_le_bytes()));
        value.extend_from_slice(&self.codes);
        value
    }
}

impl<'a> VectorBlockRef<'a> {
    pub fn parse(value: &'a [u8], dimensions: usize) -> Result<VectorBlockRef<'a>, EngineError> {
        VectorBlockRef::try_parse(value, dimensions).ok_or_else(|| corrupt("vectors of an index"))
    }

    fn try_parse(value: &'a [u8], dimensions: usize) -> Option<VectorBlockRef<'a>> {
        let (&[format], rest) = value.split_first_chunk()?;
        let (count, rest) = rest.split_first_chunk()?;
        let count = u32::from_le_bytes(*count) as usize;
        let (ids, rest) = rest.split_at_checked(count.checked_mul(ID_BYTES)?)?;
        let (norms, rest) = rest.split_at_checked(count * NORM_BYTES)?;
        let (residuals, rest) = rest.split_at_checked(count * RESIDUAL_BYTES)?;
        let (scales, codes) = rest.split_at_checked(count * SCALE_BYTES)?;
        let is_sound = format == FORMAT && Some(codes.len()) == count.checked_mul(dimensions);
        is_sound.then_some(VectorBlockRef { ids, norms, residuals, scales, codes, dimensions })
    }

    pub fn len(&self) -> usize {
        self.ids.len() / ID_BYTES
    }

    pub fn id(&self, at: usize) -> u64 {
        u64::from_le_bytes(chunk(self.ids, at))
    }

    pub fn norm(&self, at: usize) -> f64 {
        f64::from_le_bytes(chunk(self.norms, at))
    }

    pub fn residual(&self, at: usize) -> f32 {
        f32::from_le_bytes(chunk(self.residuals, at))
    }

    pub fn scale(&self, at: usize) -> f32 {
        f32::from_le_bytes(chunk(self.scales, at))
    }

    pub fn to_block(self) -> VectorBlock {
        let all = 0..self.len();
        VectorBlock {
            ids: all.clone().map(|at| self.id(at)).collect(),
            norms: all.clone().map(|at| self.norm(at)).collect(),
            residuals: all.clone().map(|at| self.residual(at)).collect(),
            scales: all.map(|at| self.scale(at)).collect(),
            codes: self.codes.to_vec(),
            dimensions: self.dimensions,
        }
    }
}

fn chunk<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let (chunks, _) = bytes.as_chunks::<N>();
    chunks[at]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On disk: a change here is a new format.
    #[test]
    fn golden_bytes() {
        let coded = QuantizedVector { scale: 0.5, norm: 2.0, residual: 0.25, codes: vec![0x7F, 0x81] };
        let value = VectorBlock::of(9, &coded).encode();
        let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "01010000000900000000000000000000000000004000".to_owned() + "00803e0000003f7f81");
        let block = VectorBlockRef::parse(&value, 2).unwrap().to_block();
        assert_eq!((block.ids[0], block.get(0)), (9, coded));
        for cut in 0..value.len() {
            assert!(VectorBlockRef::parse(&value[..cut], 2).is_err(), "{cut}");
        }
        assert!(VectorBlockRef::parse(&value, 3).is_err());
    }

    #[test]
    fn one_is_taken_out() {
        let mut block = VectorBlock::new(1);
        for id in 0..3_u64 {
            block.push(
                id,
                &QuantizedVector { scale: 1.0, norm: id as f64, residual: 0.0, codes: vec![id as u8] },
            );
        }
        block.swap_remove(0);
        assert_eq!((block.ids.as_slice(), block.codes.as_slice()), (&[2, 1][..], &[2, 1][..]));
        block.swap_remove(1);
        assert_eq!((block.ids.as_slice(), block.codes.as_slice()), (&[2][..], &[2][..]));
    }
}
