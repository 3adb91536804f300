//! Functions that choose a value, and functions of a whole item.

use std::hash::{Hash, Hasher};

use quire_resource::ResourceId;
use quire_value::Value;

use super::{Call, Function, Implementation, IndexUse, at_least, between, exactly, f, row};

pub(super) const FUNCTIONS: &[Function] = &[
    row(&["IIF"], exactly(3), Implementation::Conditional, IndexUse::None),
    f(&["CHOOSE"], at_least(2), choose, IndexUse::None),
    f(&["DocumentId", "DOCUMENT_ID"], exactly(1), document_id, IndexUse::None),
    f(&["HASH"], between(1, 2), hash, IndexUse::None),
];

/// One-based.
fn choose(call: &Call<'_>) -> Option<Value> {
    let index = usize::try_from(call.integer(0)?).ok().filter(|index| *index > 0)?;
    let chosen = call.value(index)?;
    let bytes = crate::data::approximate_size(chosen);
    call.copy_bytes(bytes)?;
    Some(chosen.clone())
}

/// The number of an item in its container, from its `_rid`.
fn document_id(call: &Call<'_>) -> Option<Value> {
    let rid = call.value_ref(0)?.member("_rid");
    match ResourceId::parse(rid.value_ref().as_str()?) {
        Ok(ResourceId::Child { child, .. }) => Some(Value::from(child)),
        _ => None,
    }
}

/// Equal values have equal hashes; nothing else is guaranteed.
fn hash(call: &Call<'_>) -> Option<Value> {
    let mut hasher = Fnv(0xCBF2_9CE4_8422_2325);
    let value = call.value(0)?;
    call.spend_bytes(crate::data::approximate_size(value))?;
    value.hash(&mut hasher);
    let hash = hasher.finish() >> 11; // 53 bits: exact as a double
    if call.len() == 1 {
        return Some(Value::from(hash));
    }
    let modulo = u64::try_from(call.integer(1)?).ok().filter(|modulo| *modulo > 0)?;
    Some(Value::from(hash % modulo))
}

/// FNV-1a: the same on every machine and in every run.
struct Fnv(u64);

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
        }
    }
}
