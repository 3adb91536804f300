//! The order among arrays and among objects: by the 128-bit hash of a value that clients merge by.

use super::json::Json;

/// Sixteen bytes that sort as the value does among values of its type.
pub fn order_key(value: &Json) -> [u8; 16] {
    bytes(hash(value, (0xbfc2_359e_afc0_e2b7, 0x8846_e002_84c4_cf1f)))
}

type Hash = (u64, u64);

const NULL: Hash = (0x1380_f68b_b3b0_cfe4, 0x156c_918b_f564_ee48);
const FALSE: Hash = (0xc1be_517f_e893_b40c, 0xe9fc_8a4c_531c_d0dd);
const TRUE: Hash = (0xf86d_4abf_9a41_2e74, 0x7884_8836_5c8a_985d);
const NUMBER: Hash = (0x2400_e8b8_94ce_9c2a, 0x790b_e1ea_bd7b_9481);
const STRING: Hash = (0x61f5_3f0a_4420_4cfb, 0x0948_1be8_ef4b_56dd);
const ARRAY: Hash = (0xfa57_3b01_4c4d_c18e, 0xa014_512c_858e_b115);
const INDEX: Hash = (0xfe05_7204_216d_b999, 0x5b1c_c317_8bd9_c593);
const OBJECT: Hash = (0x77b2_85ac_511a_ef30, 0x3dcf_1872_4582_2449);
const NAME: Hash = (0xc915_dde0_5849_2a8a, 0x7c8b_e2eb_a72e_4634);

fn bytes((low, high): Hash) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&low.to_le_bytes());
    bytes[8..].copy_from_slice(&high.to_le_bytes());
    bytes
}

fn join(hash: Hash, seed: Hash) -> Hash {
    murmur(&bytes(hash), seed)
}

fn hash(value: &Json, seed: Hash) -> Hash {
    match value {
        Json::Null => join(NULL, seed),
        Json::Bool(false) => join(FALSE, seed),
        Json::Bool(true) => join(TRUE, seed),
        Json::Integer(value) => number(*value, seed),
        Json::Double(value) => number_parts(*value, 0, seed),
        Json::String(text) => murmur(text.as_bytes(), join(STRING, seed)),
        Json::Array(elements) => {
            let mut found = join(ARRAY, seed);
            for (nth, element) in elements.iter().enumerate() {
                found = join(hash(element, plus(INDEX, nth as u64)), found);
            }
            found
        }
        Json::Object(members) => {
            let mut all = (0, 0);
            for (name, value) in members {
                let one = hash(value, murmur(name.as_bytes(), join(STRING, NAME)));
                all = (all.0 ^ one.0, all.1 ^ one.1);
            }
            let found = join(OBJECT, seed);
            if all == (0, 0) { found } else { join(all, found) }
        }
    }
}

fn plus((low, high): Hash, number: u64) -> Hash {
    let sum = (u128::from(high) << 64 | u128::from(low)).wrapping_add(u128::from(number));
    (sum as u64, (sum >> 64) as u64)
}

/// Beyond 53 bits the double is cut, and the next ten bits follow.
fn number(value: i128, seed: Hash) -> Hash {
    let magnitude = value.unsigned_abs();
    let bits = 128 - magnitude.leading_zeros();
    if bits <= 53 {
        return number_parts(value as f64, 0, seed);
    }
    let dropped = bits - 53;
    let cut = (magnitude >> dropped) << dropped;
    let double = if value < 0 { -(cut as f64) } else { cut as f64 };
    let rest = (magnitude - cut) << (16 - dropped.min(16)) >> dropped.saturating_sub(16);
    number_parts(double, rest as u16, seed)
}

fn number_parts(double: f64, extra: u16, seed: Hash) -> Hash {
    let mut bytes = double.to_le_bytes().to_vec();
    bytes.extend(extra.to_le_bytes());
    murmur(&bytes, join(NUMBER, seed))
}

/// MurmurHash3, x64, 128 bits, with both halves of the state as seed.
fn murmur(data: &[u8], (mut h1, mut h2): Hash) -> Hash {
    const C1: u64 = 0x87c3_7b91_1142_53d5;
    const C2: u64 = 0x4cf5_ad43_2745_937f;
    let word = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    };
    let first = |k: u64| k.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2);
    let second = |k: u64| k.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1);
    let blocks = data.chunks_exact(16);
    let tail = blocks.remainder();
    for block in blocks {
        h1 ^= first(word(&block[..8]));
        h1 = h1.rotate_left(27).wrapping_add(h2).wrapping_mul(5).wrapping_add(0x52dc_e729);
        h2 ^= second(word(&block[8..]));
        h2 = h2.rotate_left(31).wrapping_add(h1).wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }
    if tail.len() > 8 {
        h2 ^= second(word(&tail[8..]));
    }
    if !tail.is_empty() {
        h1 ^= first(word(&tail[..tail.len().min(8)]));
    }
    h1 ^= data.len() as u64;
    h2 ^= data.len() as u64;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    h1 = mix(h1);
    h2 = mix(h2);
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    (h1, h2)
}

fn mix(mut k: u64) -> u64 {
    k ^= k >> 33;
    k = k.wrapping_mul(0xff51_afd7_ed55_8ccd);
    k ^= k >> 33;
    k = k.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    k ^ (k >> 33)
}

#[cfg(test)]
mod tests {
    use super::super::json::parse;
    use super::*;

    fn check(json: &str, low: i64, high: i64) {
        let value = parse(json).expect("JSON");
        let found = hash(&value, (0xbfc2_359e_afc0_e2b7, 0x8846_e002_84c4_cf1f));
        assert_eq!((found.0 as i64, found.1 as i64), (low, high), "{json}");
    }

    #[test]
    fn published_values() {
        check("0", -8979011127295440339, -6450035959981786198);
        check("-0.0", 783540719887671267, 4977870672509633547);
        check("9007199254740993", 6312242976727269684, -3074029958024065285);
        check("\"漢ü\"", 830589100012887256, -6939247541261819259);
        check("[]", -6706074647855398782, 9031114912533472255);
        check("[1,\"a\",null]", -4707906972912397491, -1667109601943469655);
        check("[[],{}]", 2950632865022206883, 3370342683787767256);
        check("{}", 1457042291250783704, 1493060239874959160);
        check("{\"a\":1,\"b\":[true,{\"c\":\"x\"}]}", -5654460812679602126, 3320303466757528275);
    }
}
