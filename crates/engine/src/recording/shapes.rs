//! Queries without their values. A text that is known is neither parsed again nor copied.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use quire_profile::{QueryShape, shape_of};
use quire_sql::Parameters;
use quire_value::murmur;

use super::RecordedContainer;

const SHARDS: usize = 16;
/// Texts that a shard caches; beyond it all are removed.
const KNOWN_MAX: usize = 512;
/// Shapes that wait to be taken in.
const NEW_MAX: usize = 1_000;
/// Words whose numbers are part of a shape, also where parameters give them.
const COUNTED: [&str; 3] = ["top", "offset", "limit"];

/// Shapes of queries by hash of container and text.
pub(super) struct Shapes {
    known: Vec<Mutex<HashMap<u128, Option<u64>>>>,
    /// Shapes that no workload has yet.
    new: Mutex<NewShapes>,
}

/// Container and shape, by database and number of the shape.
pub(super) type NewShapes = HashMap<(u32, u64), (Arc<str>, QueryShape)>;

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

    pub fn take_new(&self) -> NewShapes {
        std::mem::take(&mut self.new.lock())
    }

    /// The number of a query's shape; `None` where it cannot be parsed.
    pub fn of(
        &self,
        place: &RecordedContainer,
        text: &str,
        parameters: &Parameters,
        has_key: bool,
    ) -> Option<u64> {
        let key = key_of(place, text, parameters, has_key);
        let shard = &self.known[key as usize % SHARDS];
        if let Some(known) = shard.lock().get(&key) {
            return *known;
        }
        let shape = shape_of(&place.name, text, parameters, &place.key_paths, has_key);
        let number = shape.as_ref().map(|shape| shape.id);
        if shape.is_none_or(|shape| self.add_new(place, shape)) {
            let mut shard = shard.lock();
            if shard.len() >= KNOWN_MAX {
                shard.clear();
            }
            shard.insert(key, number);
        }
        number
    }

    /// False where too many wait: a later query with it tries again.
    fn add_new(&self, place: &RecordedContainer, shape: QueryShape) -> bool {
        let (mut new, key) = (self.new.lock(), (place.database, shape.id));
        let has_room = new.len() < NEW_MAX || new.contains_key(&key);
        if has_room {
            new.entry(key).or_insert_with(|| (Arc::clone(&place.name), shape));
        }
        has_room
    }
}

/// Of container, text, and the numbers that parameters give to words that count.
fn key_of(place: &RecordedContainer, text: &str, parameters: &Parameters, has_key: bool) -> u128 {
    let (high, low) = murmur::murmur128(text.as_bytes());
    let mut own = u64::from(place.container) << 1 | u64::from(has_key);
    let counting = if parameters.0.is_empty() { CountingNames::default() } else { CountingNames::of(text) };
    for (name, value) in &parameters.0 {
        if let Some(number) = value.as_u64()
            && counting.may_have(name)
        {
            own = mixed(mixed(own) ^ number);
        }
    }
    u128::from(high ^ mixed(own)) << 64 | u128::from(low)
}

fn mixed(number: u64) -> u64 {
    (number ^ number >> 29).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Names of parameters behind words that count, found in one pass: there may be many parameters in a long text.
#[derive(Default)]
struct CountingNames<'a> {
    names: HashSet<&'a str>,
    /// A comment may be between word and name.
    has_comment: bool,
}

impl CountingNames<'_> {
    fn of(text: &str) -> CountingNames<'_> {
        let name = |at: usize| {
            let name = &text[at..];
            let end =
                name[1..].find(|letter: char| !continues_name(letter)).map_or(name.len(), |end| 1 + end);
            &name[..end]
        };
        let behind = text.match_indices('@').filter(|(at, _)| ends_with_count(&text[..*at]));
        CountingNames { names: behind.map(|(at, _)| name(at)).collect(), has_comment: text.contains("--") }
    }

    fn may_have(&self, parameter: &str) -> bool {
        self.has_comment || self.names.contains(parameter)
    }
}

fn ends_with_count(before: &str) -> bool {
    let before = before.trim_end().as_bytes();
    COUNTED.iter().any(|word| {
        before
            .len()
            .checked_sub(word.len())
            .is_some_and(|at| before[at..].eq_ignore_ascii_case(word.as_bytes()))
    })
}

fn continues_name(letter: char) -> bool {
    letter == '_' || letter.is_ascii_alphanumeric()
}

#[cfg(test)]
mod tests {
    use quire_profile::SHAPE_TEXT_BYTES_MAX;
    use quire_value::Value;

    use super::*;

    fn place(container: u32) -> RecordedContainer {
        RecordedContainer { database: 1, container, name: Arc::from("c"), key_paths: Arc::from([]) }
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

    #[test]
    fn words_inside_of_names_do_not_count() {
        let shapes = Shapes::default();
        let key = |text: &str, value: i64| {
            let parameters = Parameters(vec![("@v".to_owned(), Value::from(value))]);
            shapes.of(&place(1), text, &parameters, false);
            key_of(&place(1), text, &parameters, false)
        };
        for text in ["SELECT c.desktop FROM c WHERE c.stop = @v", "SELECT TOP 3 * FROM c WHERE c.limit=@v"] {
            assert_eq!(key(text, 1), key(text, 2), "{text}");
        }
        assert_eq!(shapes.known.iter().map(|shard| shard.lock().len()).sum::<usize>(), 2);
        for text in
            ["SELECT TOP @v * FROM c", "SELECT top\n@v * FROM c", "SELECT TOP -- so many\n@v * FROM c"]
        {
            assert_ne!(key(text, 1), key(text, 2), "{text}");
        }
    }

    /// Looking for every parameter in the whole text would take 10^11 steps.
    #[test]
    fn many_parameters_in_a_long_text_take_no_time() {
        let text = format!("SELECT TOP @p7 * FROM c WHERE c.a = @p8 {}OFFSET 1 LIMIT 2", " ".repeat(1 << 20));
        let parameters = |value: i64, number: u32| {
            let value = |own: u32| Value::from(if own == number { value } else { 1 });
            Parameters((0..100_000).map(|own| (format!("@p{own}"), value(own))).collect())
        };
        let key = |value, number| key_of(&place(1), &text, &parameters(value, number), false);
        assert_ne!(key(2, 7), key(3, 7));
        assert_eq!(key(2, 8), key(3, 8));
    }

    #[test]
    fn shapes_that_wait_are_bounded_and_no_two_are_the_same() {
        let (shapes, none) = (Shapes::default(), Parameters(Vec::new()));
        let ask = |text: &str| shapes.of(&place(1), text, &none, false);
        for value in 0..100 {
            ask(&format!("SELECT * FROM c WHERE c.a = {value}"));
        }
        assert_eq!(shapes.take_new().len(), 1);
        for name in 0..2 * NEW_MAX {
            ask(&format!("SELECT c.n{name} FROM c"));
        }
        assert_eq!(shapes.take_new().len(), NEW_MAX);
        // One that found no room comes when it is asked again.
        ask(&format!("SELECT c.n{} FROM c", 2 * NEW_MAX - 1));
        assert_eq!(shapes.take_new().len(), 1);
        assert_eq!(ask(&format!("SELECT c.{} FROM c", "n".repeat(SHAPE_TEXT_BYTES_MAX))), None);
        assert_eq!(shapes.take_new().len(), 0);
    }
}
