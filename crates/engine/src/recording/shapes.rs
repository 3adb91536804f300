//! Queries without their values. A text that is known is neither parsed again nor copied.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use quire_profile::{QueryShape, shape_of};
use quire_sql::Parameters;
use quire_value::murmur;

use super::RecordedPlace;

const SHARDS: usize = 16;
/// Texts that a shard knows; beyond it all are forgotten.
const KNOWN_MAX: usize = 512;
/// Words whose numbers are part of a shape, also where parameters give them.
const COUNTED: [&[u8]; 3] = [b"top", b"offset", b"limit"];

/// Shapes of queries by hash of container and text.
pub(super) struct Shapes {
    known: Vec<Mutex<HashMap<u128, Option<u64>>>>,
    /// Shapes that no workload has yet: database, container, shape.
    new: Mutex<Vec<(u32, Arc<str>, QueryShape)>>,
}

impl Default for Shapes {
    fn default() -> Shapes {
        Shapes { known: (0..SHARDS).map(|_| Mutex::default()).collect(), new: Mutex::default() }
    }
}

impl Shapes {
    pub fn clear(&self) {
        self.known.iter().for_each(|shard| shard.lock().clear());
        self.new.lock().clear();
    }

    pub fn take_new(&self) -> Vec<(u32, Arc<str>, QueryShape)> {
        std::mem::take(&mut self.new.lock())
    }

    /// The number of a query's shape; `None` where it cannot be parsed.
    pub fn of(
        &self,
        place: &RecordedPlace,
        text: &str,
        parameters: &Parameters,
        has_key: bool,
    ) -> Option<u64> {
        let key = key_of(place, text, parameters, has_key);
        let shard = key.map(|key| &self.known[key as usize % SHARDS]);
        let known = shard.zip(key).and_then(|(shard, key)| shard.lock().get(&key).copied());
        if let Some(known) = known {
            return known;
        }
        let shape = shape_of(&place.name, text, parameters, &place.key_paths, has_key);
        let number = shape.as_ref().map(|shape| shape.id);
        if let Some(shape) = shape {
            self.new.lock().push((place.database, Arc::clone(&place.name), shape));
        }
        if let (Some(shard), Some(key)) = (shard, key) {
            let mut shard = shard.lock();
            if shard.len() >= KNOWN_MAX {
                shard.clear();
            }
            shard.insert(key, number);
        }
        number
    }
}

/// `None` where parameters may decide the shape.
fn key_of(place: &RecordedPlace, text: &str, parameters: &Parameters, has_key: bool) -> Option<u128> {
    let text = text.as_bytes();
    let counts = |word: &&[u8]| text.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word));
    if !parameters.0.is_empty() && COUNTED.iter().any(counts) {
        return None;
    }
    let (high, low) = murmur::murmur128(text);
    let own = u64::from(place.container) << 1 | u64::from(has_key);
    Some(u128::from(high ^ own.wrapping_mul(0x9e37_79b9_7f4a_7c15)) << 64 | u128::from(low))
}

#[cfg(test)]
mod tests {
    use quire_value::Value;

    use super::*;

    fn place(container: u32) -> RecordedPlace {
        RecordedPlace { database: 1, container, name: Arc::from("c"), key_paths: Arc::from([]) }
    }

    #[test]
    fn a_text_is_parsed_once() {
        let (shapes, none) = (Shapes::default(), Parameters(Vec::new()));
        let one = shapes.of(&place(1), "SELECT * FROM c WHERE c.a = 1", &none, false);
        assert_eq!(one, shapes.of(&place(1), "SELECT * FROM c WHERE c.a = 1", &none, false));
        assert_eq!(shapes.take_new().len(), 1);
        // Another value is the same shape, within a key it is another one.
        assert_eq!(one, shapes.of(&place(1), "SELECT * FROM c WHERE c.a = 2", &none, false));
        assert_ne!(one, shapes.of(&place(1), "SELECT * FROM c WHERE c.a = 1", &none, true));
        assert_eq!(shapes.of(&place(1), "SELEC", &none, false), None);
        shapes.clear();
        shapes.of(&place(1), "SELECT * FROM c WHERE c.a = 1", &none, false);
        assert_eq!(shapes.take_new().len(), 1);
    }

    #[test]
    fn numbers_of_parameters_that_count_rows_are_part_of_it() {
        let shapes = Shapes::default();
        let text = "SELECT * FROM c OFFSET @o LIMIT 10";
        let shape = |offset: i64| {
            let parameters = Parameters(vec![("@o".to_owned(), Value::from(offset))]);
            shapes.of(&place(1), text, &parameters, false)
        };
        assert_ne!(shape(0), shape(5_000));
    }
}
