//! MurmurHash3 in the two forms that the protocol fixes: for partition keys, and for the order among arrays and objects.
//!
//! Implemented here because every client computes the same hashes, and no maintained crate has both forms or takes a
//! seed of 128 bits; the published test vectors are the tests.

/// x86, 32 bits, seed 0.
pub fn murmur32(data: &[u8]) -> u32 {
    const C1: u32 = 0xcc9e_2d51;
    const C2: u32 = 0x1b87_3593;
    let mix = |block: u32| block.wrapping_mul(C1).rotate_left(15).wrapping_mul(C2);

    let (blocks, tail) = data.as_chunks::<4>();
    let mut hash = 0u32;
    for block in blocks {
        hash ^= mix(u32::from_le_bytes(*block));
        hash = hash.rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    }
    if !tail.is_empty() {
        let mut block = [0; 4];
        block[..tail.len()].copy_from_slice(tail);
        hash ^= mix(u32::from_le_bytes(block));
    }
    // The algorithm takes the length modulo 2^32.
    finish32(hash ^ data.len() as u32)
}

/// x64, 128 bits, seed 0: the low and the high half.
pub fn murmur128(data: &[u8]) -> (u64, u64) {
    murmur128_seeded(data, (0, 0))
}

/// With the two halves of a seed.
pub fn murmur128_seeded(data: &[u8], seed: (u64, u64)) -> (u64, u64) {
    const C1: u64 = 0x87c3_7b91_1142_53d5;
    const C2: u64 = 0x4cf5_ad43_2745_937f;
    let mix_low = |block: u64| block.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2);
    let mix_high = |block: u64| block.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1);

    let (blocks, tail) = data.as_chunks::<16>();
    let (mut low, mut high) = seed;
    for block in blocks {
        let (block_low, block_high) = halves(block);
        low = (low ^ mix_low(block_low)).rotate_left(27).wrapping_add(high);
        low = low.wrapping_mul(5).wrapping_add(0x52dc_e729);
        high = (high ^ mix_high(block_high)).rotate_left(31).wrapping_add(low);
        high = high.wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }
    // Missing bytes count as zero, and mixing zero changes nothing.
    let mut block = [0; 16];
    block[..tail.len()].copy_from_slice(tail);
    let (block_low, block_high) = halves(&block);
    low ^= mix_low(block_low);
    high ^= mix_high(block_high);

    low ^= data.len() as u64;
    high ^= data.len() as u64;
    low = low.wrapping_add(high);
    high = high.wrapping_add(low);
    low = finish64(low);
    high = finish64(high);
    low = low.wrapping_add(high);
    high = high.wrapping_add(low);
    (low, high)
}

fn halves(block: &[u8; 16]) -> (u64, u64) {
    let whole = u128::from_le_bytes(*block);
    (whole as u64, (whole >> 64) as u64)
}

fn finish32(mut hash: u32) -> u32 {
    hash ^= hash >> 16;
    hash = hash.wrapping_mul(0x85eb_ca6b);
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
}

fn finish64(mut hash: u64) -> u64 {
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ hash >> 33
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_vectors_32() {
        assert_eq!(murmur32(b""), 0);
        assert_eq!(murmur32(b"test"), 0xba6b_d213);
        assert_eq!(murmur32(b"Hello, world!"), 0xc036_3e43);
        assert_eq!(murmur32(b"The quick brown fox jumps over the lazy dog"), 0x2e4f_f723);
        assert_eq!(murmur32(&[0xff; 4]), 0x7629_3b50);
        assert_eq!(murmur32(&[0x21, 0x43, 0x65]), 0x7e4a_8634);
        assert_eq!(murmur32(&[0; 4]), 0x2362_f9de);
    }

    #[test]
    fn published_vectors_128() {
        assert_eq!(murmur128(b""), (0, 0));
        assert_eq!(murmur128(b"hello"), (0xcbd8_a7b3_41bd_9b02, 0x5b1e_906a_48ae_1d19));
        assert_eq!(murmur128(b"hello, world"), (0x342f_ac62_3a5e_bc8e, 0x4cdc_bc07_9642_414d));
        assert_eq!(
            murmur128(b"The quick brown fox jumps over the lazy dog."),
            (0xcd99_481f_9ee9_02c9, 0x695d_a1a3_8987_b6e7)
        );
    }
}
