//! The value hash by which clients merge.
//!
//! Clients order arrays among arrays, and objects among objects, by the 16 bytes of this hash, and resume such an
//! order by its two halves. So the hash must equal the clients' hash, bit by bit.
//!
//! A hash is made from a seed: `H(bytes, seed)` is MurmurHash3 started with the seed. A hash used as bytes is its low half
//! and then its high half, each little-endian. Elements depend on their index, members on their name; members are joined
//! by exclusive or, so their order does not count. `undefined` members and elements are left out.

use std::cmp::Ordering;

use crate::murmur::murmur128_seeded;
use crate::{Kind, Node, Number, Object, Value};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueHash {
    pub low: u64,
    pub high: u64,
}

const ROOT: ValueHash = seed(0xbfc2_359e_afc0_e2b7, 0x8846_e002_84c4_cf1f);
const NULL: ValueHash = seed(0x1380_f68b_b3b0_cfe4, 0x156c_918b_f564_ee48);
const FALSE: ValueHash = seed(0xc1be_517f_e893_b40c, 0xe9fc_8a4c_531c_d0dd);
const TRUE: ValueHash = seed(0xf86d_4abf_9a41_2e74, 0x7884_8836_5c8a_985d);
const NUMBER: ValueHash = seed(0x2400_e8b8_94ce_9c2a, 0x790b_e1ea_bd7b_9481);
const STRING: ValueHash = seed(0x61f5_3f0a_4420_4cfb, 0x0948_1be8_ef4b_56dd);
const ARRAY: ValueHash = seed(0xfa57_3b01_4c4d_c18e, 0xa014_512c_858e_b115);
const INDEX: ValueHash = seed(0xfe05_7204_216d_b999, 0x5b1c_c317_8bd9_c593);
const OBJECT: ValueHash = seed(0x77b2_85ac_511a_ef30, 0x3dcf_1872_4582_2449);
const NAME: ValueHash = seed(0xc915_dde0_5849_2a8a, 0x7c8b_e2eb_a72e_4634);

/// Bits of an integer that a double holds.
const DOUBLE_BITS: u32 = 53;
/// Number of lower bits that the hash still uses, and their position in 16 bits.
const EXTRA_BITS: u32 = 10;
const EXTRA_SHIFT: u32 = 6;

const fn seed(low: u64, high: u64) -> ValueHash {
    ValueHash { low, high }
}

pub fn of_value(value: &Value) -> ValueHash {
    value_hash(value, ROOT)
}

/// The hash of a node of a stored item.
pub fn of_node(node: Node<'_>) -> ValueHash {
    match node.kind() {
        Kind::Array | Kind::Object => node_hash(node, ROOT),
        _ => value_hash(&node.to_value(), ROOT),
    }
}

impl ValueHash {
    /// The bytes that define the order of hashes.
    pub fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.high) << 64 | u128::from(self.low)).to_le_bytes()
    }

    fn then(self, bytes: &[u8]) -> ValueHash {
        let (low, high) = murmur128_seeded(bytes, (self.low, self.high));
        ValueHash { low, high }
    }

    fn then_hash(self, hash: ValueHash) -> ValueHash {
        self.then(&hash.to_bytes())
    }

    fn plus(self, count: u64) -> ValueHash {
        let sum = (u128::from(self.high) << 64 | u128::from(self.low)).wrapping_add(u128::from(count));
        ValueHash { low: sum as u64, high: (sum >> 64) as u64 }
    }

    fn xor(self, other: ValueHash) -> ValueHash {
        ValueHash { low: self.low ^ other.low, high: self.high ^ other.high }
    }
}

impl Ord for ValueHash {
    fn cmp(&self, other: &ValueHash) -> Ordering {
        self.to_bytes().cmp(&other.to_bytes())
    }
}

impl PartialOrd for ValueHash {
    fn partial_cmp(&self, other: &ValueHash) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

fn value_hash(value: &Value, seed: ValueHash) -> ValueHash {
    match value {
        Value::Undefined => seed,
        Value::Null => seed.then_hash(NULL),
        Value::Bool(false) => seed.then_hash(FALSE),
        Value::Bool(true) => seed.then_hash(TRUE),
        Value::Number(number) => number_hash(*number, seed),
        Value::String(text) => string_hash(text, seed),
        Value::Array(elements) => {
            let elements = elements.iter().filter(|element| !element.is_undefined());
            array_hash(elements.map(|element| |seed| value_hash(element, seed)), seed)
        }
        Value::Object(object) => object_hash(object, seed),
    }
}

fn node_hash(node: Node<'_>, seed: ValueHash) -> ValueHash {
    match node.kind() {
        Kind::String => string_hash(node.as_str().unwrap_or_default(), seed),
        Kind::Number => match node.as_number() {
            Some(number) => number_hash(number, seed),
            None => seed,
        },
        Kind::Array => {
            let elements = node.elements();
            array_hash(elements.map(|element| move |seed| node_hash(element, seed)), seed)
        }
        Kind::Object => {
            let members = node.members();
            members_hash(members.map(|(name, value)| (name, move |seed| node_hash(value, seed))), seed)
        }
        Kind::Undefined | Kind::Null | Kind::Bool => value_hash(&node.to_value(), seed),
    }
}

fn number_hash(number: Number, seed: ValueHash) -> ValueHash {
    let (double, extra) = match number {
        Number::Int(value) => cut_to_double(value),
        Number::Unsigned(value) => (value as f64, 0),
        // Negative zero is stored as zero.
        Number::Double(value) => (value + 0.0, 0),
    };
    double_hash(double, extra, seed)
}

fn double_hash(double: f64, extra: u16, seed: ValueHash) -> ValueHash {
    let mut bytes = [0; 10];
    bytes[..8].copy_from_slice(&double.to_le_bytes());
    bytes[8..].copy_from_slice(&extra.to_le_bytes());
    seed.then_hash(NUMBER).then(&bytes)
}

/// The double of an integer's first 53 bits, and the following bits in the upper part of the second number.
fn cut_to_double(value: i64) -> (f64, u16) {
    let size = value.unsigned_abs();
    let bits = u64::BITS - size.leading_zeros();
    let Some(spare) = bits.checked_sub(DOUBLE_BITS).filter(|spare| *spare > 0) else {
        return (value as f64, 0);
    };
    let cut = size >> spare << spare;
    let extra = (size - cut) << EXTRA_BITS >> spare << EXTRA_SHIFT;
    let double = if value < 0 { -(cut as f64) } else { cut as f64 };
    (double, extra as u16)
}

fn string_hash(text: &str, seed: ValueHash) -> ValueHash {
    seed.then_hash(STRING).then(text.as_bytes())
}

fn array_hash(
    elements: impl Iterator<Item = impl FnOnce(ValueHash) -> ValueHash>,
    seed: ValueHash,
) -> ValueHash {
    let empty = seed.then_hash(ARRAY);
    (0..).zip(elements).fold(empty, |hash, (index, element)| hash.then_hash(element(INDEX.plus(index))))
}

fn object_hash(object: &Object, seed: ValueHash) -> ValueHash {
    let members = object.iter().filter(|(_, value)| !value.is_undefined());
    members_hash(members.map(|(name, value)| (name, |seed| value_hash(value, seed))), seed)
}

fn members_hash<'a>(
    members: impl Iterator<Item = (&'a str, impl FnOnce(ValueHash) -> ValueHash)>,
    seed: ValueHash,
) -> ValueHash {
    let empty = seed.then_hash(OBJECT);
    let nothing = ValueHash { low: 0, high: 0 };
    let all = members.fold(nothing, |all, (name, value)| all.xor(value(string_hash(name, NAME))));
    if all == nothing { empty } else { empty.then_hash(all) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Item, text};

    fn check(json: &str, low: i64, high: i64) {
        let value = text::parse(json.as_bytes(), Default::default()).unwrap();
        let hash = of_value(&value);
        assert_eq!((hash.low as i64, hash.high as i64), (low, high), "{json}");
        let wrapped = Item::from_value(&Value::Array(vec![value]));
        assert_eq!(of_node(wrapped.root().at(0).unwrap()), hash, "{json} as stored");
    }

    #[test]
    fn as_the_clients_have_it() {
        check("0", -8979011127295440339, -6450035959981786198);
        check("9007199254740993", 6312242976727269684, -3074029958024065285);
        check("\"漢ü\"", 830589100012887256, -6939247541261819259);
        check("[]", -6706074647855398782, 9031114912533472255);
        check("[1,\"a\",null]", -4707906972912397491, -1667109601943469655);
        check("[[],{}]", 2950632865022206883, 3370342683787767256);
        check("{}", 1457042291250783704, 1493060239874959160);
        check(r#"{"a":1,"b":[true,{"c":"x"}]}"#, -5654460812679602126, 3320303466757528275);
        check(r#"{"b":[true,{"c":"x"}],"a":1}"#, -5654460812679602126, 3320303466757528275);
        let minus_zero = double_hash(-0.0, 0, ROOT);
        assert_eq!(
            (minus_zero.low as i64, minus_zero.high as i64),
            (783540719887671267, 4977870672509633547)
        );
        assert_eq!(of_value(&Value::from(-0.0)), of_value(&Value::from(0)));
    }

    #[test]
    fn what_is_undefined_does_not_count() {
        let undefined = Value::Undefined;
        assert_eq!(of_value(&vec![undefined.clone()].into()), of_value(&Vec::new().into()));
        let object: Object = [("a", undefined)].into_iter().collect();
        assert_eq!(of_value(&object.into()), of_value(&Object::new().into()));
    }

    #[test]
    fn integers_beyond_doubles_are_cut() {
        assert_eq!(cut_to_double(1 << 60), ((1u64 << 60) as f64, 0));
        assert_eq!(cut_to_double(i64::MIN), (i64::MIN as f64, 0));
        assert_eq!(cut_to_double((1 << 53) + 1), ((1u64 << 53) as f64, 1 << 15));
        assert_eq!(cut_to_double(-(1 << 53) - 1), (-((1u64 << 53) as f64), 1 << 15));
        assert_eq!(cut_to_double(i64::MAX), ((i64::MAX as u64 >> 10 << 10) as f64, 0xffc0));
    }
}
