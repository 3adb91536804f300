//! Keyed hashes of ids and partition keys: a reader of the record without the store's secret cannot find out the
//! values.

use std::hash::{Hash, Hasher};

#[derive(Clone, Copy)]
pub(crate) struct KeyedHash(u64, u64);

impl KeyedHash {
    pub fn new(secret: &[u8; 32]) -> KeyedHash {
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret);
        let tag = ring::hmac::sign(&key, b"recorded workload");
        let part = |from: usize| u64::from_le_bytes(std::array::from_fn(|at| tag.as_ref()[from + at]));
        KeyedHash(part(0), part(8))
    }

    pub fn of<T: Hash + ?Sized>(self, value: &T) -> u64 {
        // The only hasher of the standard library that takes a key.
        #[allow(deprecated)]
        let mut hasher = std::hash::SipHasher::new_with_keys(self.0, self.1);
        value.hash(&mut hasher);
        hasher.finish()
    }
}
