//! Queries without their values. A text that is known is not parsed again.

use std::collections::HashMap;

use quire_profile::{QueryShape, shape_of};
use quire_value::murmur;

use super::RecordedPlace;
use super::observed::ObservedQuery;

/// Texts that are known; beyond it all are forgotten.
const KNOWN_MAX: usize = 2_000;
/// Words whose numbers are part of a shape, also where parameters give them.
const COUNTED: [&[u8]; 3] = [b"top", b"offset", b"limit"];

/// By hash of container and text.
#[derive(Default)]
pub(super) struct KnownShapes(HashMap<u128, Option<u64>>);

impl KnownShapes {
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The number of a query's shape, and the shape where it is new. `None`: it cannot be parsed.
    pub fn of(&mut self, place: &RecordedPlace, query: &ObservedQuery) -> Option<(u64, Option<QueryShape>)> {
        let key = key_of(place, query);
        if let Some(known) = key.and_then(|key| self.0.get(&key)) {
            return known.map(|known| (known, None));
        }
        let shape = shape_of(&place.name, &query.text, &query.parameters, &place.key_paths, query.has_key);
        if let Some(key) = key {
            if self.0.len() >= KNOWN_MAX {
                self.0.clear();
            }
            self.0.insert(key, shape.as_ref().map(|shape| shape.id));
        }
        shape.map(|shape| (shape.id, Some(shape)))
    }
}

/// `None` where parameters may decide the shape.
fn key_of(place: &RecordedPlace, query: &ObservedQuery) -> Option<u128> {
    let text = query.text.as_bytes();
    let counts = |word: &&[u8]| text.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word));
    if !query.parameters.0.is_empty() && COUNTED.iter().any(counts) {
        return None;
    }
    let (high, low) = murmur::murmur128(text);
    let own = u64::from(place.container) << 1 | u64::from(query.has_key);
    Some(u128::from(high ^ own.wrapping_mul(0x9e37_79b9_7f4a_7c15)) << 64 | u128::from(low))
}
