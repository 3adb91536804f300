//! Parsed texts of queries, bounded by bytes: what depends on nothing else. What is compiled for a container is in
//! [`prepared_queries`](super::prepared_queries).

use quick_cache::Weighter;
use quick_cache::sync::Cache;
use quire_sql::{SqlError, Syntax};

/// A longer text is parsed each time: it would push out too many others.
const SHARE_MAX: usize = 16;
/// What a text takes at least.
const ENTRY_BYTES: usize = 2 << 10;

pub(crate) struct SyntaxCache {
    entries: Cache<Box<str>, Syntax, ByText>,
    entry_bytes_max: usize,
}

#[derive(Clone)]
struct ByText;

impl Weighter<Box<str>, Syntax> for ByText {
    fn weight(&self, text: &Box<str>, _: &Syntax) -> u64 {
        (Syntax::bytes_max(text) + ENTRY_BYTES) as u64
    }
}

impl SyntaxCache {
    pub fn new(bytes_max: usize) -> SyntaxCache {
        let expected = bytes_max / (4 * ENTRY_BYTES);
        let entries = Cache::with_weighter(expected, bytes_max as u64, ByText);
        SyntaxCache { entries, entry_bytes_max: bytes_max / SHARE_MAX }
    }

    /// The syntax of a text, whose memory the caller has reserved, and whether it was in the cache.
    pub fn get(&self, text: &str) -> Result<(Syntax, bool), SqlError> {
        if let Some(known) = self.entries.get(text) {
            return Ok((known, true));
        }
        let parsed = Syntax::parse(text)?;
        if Syntax::bytes_max(text) <= self.entry_bytes_max {
            self.entries.insert(text.into(), parsed.clone());
        }
        Ok((parsed, false))
    }

    pub fn bytes(&self) -> usize {
        usize::try_from(self.entries.weight()).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_kept_within_the_memory_given() {
        let cache = SyntaxCache::new(256 << 10);
        for number in 0..1000 {
            cache.get(&format!("SELECT * FROM c WHERE c.n = {number}")).expect("it parses");
        }
        assert!(cache.entries.len() > 5 && cache.bytes() <= 256 << 10, "{} bytes", cache.bytes());
        let kept = cache.entries.len();
        let long = format!("SELECT * FROM c WHERE c.n = '{}'", "x".repeat(1 << 10));
        cache.get(&long).expect("it parses");
        assert_eq!(cache.entries.len(), kept, "a long text pushes nothing out");
        assert!(cache.get("SELECT FROM").is_err() && cache.get("SELECT FROM").is_err());
    }
}
