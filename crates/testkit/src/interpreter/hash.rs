//! The order among arrays and among objects: by the 128-bit hash of a value that clients merge by.
//!
//! A hash is one number of 128 bits; as bytes it is written from its lowest one.

use super::json::Json;

/// Sixteen bytes that sort as the value does among values of its type.
pub fn order_key(value: &Json) -> [u8; 16] {
    hash(value, seed("root")).to_le_bytes()
}

/// Name, low half, high half.
const SEEDS: &[(&str, u64, u64)] = &[
    ("root", 0xbfc2_359e_afc0_e2b7, 0x8846_e002_84c4_cf1f),
    ("null", 0x1380_f68b_b3b0_cfe4, 0x156c_918b_f564_ee48),
    ("false", 0xc1be_517f_e893_b40c, 0xe9fc_8a4c_531c_d0dd),
    ("true", 0xf86d_4abf_9a41_2e74, 0x7884_8836_5c8a_985d),
    ("number", 0x2400_e8b8_94ce_9c2a, 0x790b_e1ea_bd7b_9481),
    ("string", 0x61f5_3f0a_4420_4cfb, 0x0948_1be8_ef4b_56dd),
    ("array", 0xfa57_3b01_4c4d_c18e, 0xa014_512c_858e_b115),
    ("index", 0xfe05_7204_216d_b999, 0x5b1c_c317_8bd9_c593),
    ("object", 0x77b2_85ac_511a_ef30, 0x3dcf_1872_4582_2449),
    ("name", 0xc915_dde0_5849_2a8a, 0x7c8b_e2eb_a72e_4634),
];

fn seed(name: &str) -> u128 {
    let (_, low, high) = SEEDS.iter().find(|(own, ..)| *own == name).expect("a seed of this name");
    u128::from(*high) << 64 | u128::from(*low)
}

fn hash(value: &Json, from: u128) -> u128 {
    let then = |kind: &str| murmur(&seed(kind).to_le_bytes(), from);
    match value {
        Json::Null => then("null"),
        Json::Bool(truth) => then(&truth.to_string()),
        Json::Integer(_) | Json::Double(_) => murmur(&number_bytes(value), then("number")),
        Json::String(text) => murmur(text.as_bytes(), then("string")),
        Json::Array(elements) => {
            let places = elements.iter().zip(0_u128..);
            places.fold(then("array"), |before, (element, place)| {
                murmur(&hash(element, seed("index") + place).to_le_bytes(), before)
            })
        }
        Json::Object(members) => {
            let member = |(name, value): &(String, Json)| hash(value, hash(&Json::text(name), seed("name")));
            match members.iter().map(member).fold(0, |all, one| all ^ one) {
                0 => then("object"),
                all => murmur(&all.to_le_bytes(), then("object")),
            }
        }
    }
}

/// A double and two bytes more. Clients know 64-bit integers with a sign and doubles, and zero is sent without a sign.
fn number_bytes(number: &Json) -> Vec<u8> {
    match number.as_i64() {
        Some(integer) => integer_bytes(integer),
        None => double_bytes(number.as_f64().unwrap_or(f64::NAN), 0),
    }
}

fn double_bytes(double: f64, more: u16) -> Vec<u8> {
    [double.to_le_bytes().to_vec(), more.to_le_bytes().to_vec()].concat()
}

/// The double has the first 53 binary digits, the other two bytes begin with the next ten.
fn integer_bytes(integer: i64) -> Vec<u8> {
    let digits = format!("{:b}", integer.unsigned_abs());
    let (first, rest) = digits.split_at(digits.len().min(53));
    let value = |digits: &str| u128::from_str_radix(digits, 2).expect("binary digits");
    let double = value(&format!("{first}{}", "0".repeat(rest.len()))) as f64;
    let next: String = rest.chars().chain("0".repeat(16).chars()).take(10).collect();
    double_bytes(if integer < 0 { -double } else { double }, value(&format!("{next}000000")) as u16)
}

/// How MurmurHash3 (x64, 128 bits) works on one half of its state.
struct HashLane {
    /// A word is multiplied, turned and multiplied again.
    word: (u64, u32, u64),
    /// The half is turned, the other half is added; then times five, and this is added.
    turn: u32,
    add: u64,
}

const LANES: [HashLane; 2] = [
    HashLane { word: (0x87c3_7b91_1142_53d5, 31, 0x4cf5_ad43_2745_937f), turn: 27, add: 0x52dc_e729 },
    HashLane { word: (0x4cf5_ad43_2745_937f, 33, 0x87c3_7b91_1142_53d5), turn: 31, add: 0x3849_5ab5 },
];
/// At the end, shifted to the right, mixed in, multiplied.
const LAST: [(u32, u64); 3] = [(33, 0xff51_afd7_ed55_8ccd), (33, 0xc4ce_b9fe_1a85_ec53), (33, 1)];

fn times(left: u64, right: u64) -> u64 {
    (u128::from(left) * u128::from(right) % (1 << 64)) as u64
}

fn plus(left: u64, right: u64) -> u64 {
    ((u128::from(left) + u128::from(right)) % (1 << 64)) as u64
}

fn rotated(word: u64, bits: u32) -> u64 {
    let wide = u128::from(word) << bits;
    (wide | wide >> 64) as u64
}

fn murmur(data: &[u8], from: u128) -> u128 {
    let mut halves = [from as u64, (from >> 64) as u64];
    for block in data.chunks(16) {
        for (nth, lane) in LANES.iter().enumerate() {
            // Bytes that are missing at the end are zeros.
            let bytes = block.iter().skip(8 * nth).take(8).enumerate();
            let word = bytes.fold(0, |word, (place, byte)| word | u64::from(*byte) << (8 * place));
            halves[nth] ^= times(rotated(times(word, lane.word.0), lane.word.1), lane.word.2);
            if block.len() == 16 {
                let sum = plus(rotated(halves[nth], lane.turn), halves[1 - nth]);
                halves[nth] = plus(times(sum, 5), lane.add);
            }
        }
    }
    halves = added(halves.map(|half| half ^ data.len() as u64));
    halves = added(
        halves.map(|half| LAST.iter().fold(half, |half, (by, factor)| times(half ^ half >> by, *factor))),
    );
    u128::from(halves[1]) << 64 | u128::from(halves[0])
}

fn added([low, high]: [u64; 2]) -> [u64; 2] {
    let low = plus(low, high);
    [low, plus(high, low)]
}

#[cfg(test)]
mod tests {
    use super::super::json::parse;
    use super::*;

    fn check(json: &str, low: i64, high: i64) {
        let found = hash(&parse(json).expect("JSON"), seed("root"));
        assert_eq!((found as i64, (found >> 64) as i64), (low, high), "{json}");
    }

    #[test]
    fn published_values() {
        check("0", -8979011127295440339, -6450035959981786198);
        check("9007199254740993", 6312242976727269684, -3074029958024065285);
        check("\"漢ü\"", 830589100012887256, -6939247541261819259);
        check("[]", -6706074647855398782, 9031114912533472255);
        check("[1,\"a\",null]", -4707906972912397491, -1667109601943469655);
        check("[[],{}]", 2950632865022206883, 3370342683787767256);
        check("{}", 1457042291250783704, 1493060239874959160);
        check("{\"a\":1,\"b\":[true,{\"c\":\"x\"}]}", -5654460812679602126, 3320303466757528275);
        let minus_zero = murmur(&double_bytes(-0.0, 0), murmur(&seed("number").to_le_bytes(), seed("root")));
        assert_eq!((minus_zero as i64, (minus_zero >> 64) as i64), (783540719887671267, 4977870672509633547));
    }

    #[test]
    fn numbers_are_those_that_clients_know() {
        let key = |json: &str| order_key(&parse(json).expect("JSON"));
        assert_eq!(key("-0.0"), key("0"));
        assert_ne!(key("9223372036854775807"), key("9223372036854775806"));
        // Beyond 64 bits with a sign there are only doubles.
        assert_eq!(key("18446744073709551615"), key("18446744073709551616"));
        assert_eq!(key("[18446744073709551615]"), key("[18446744073709551614]"));
    }
}
