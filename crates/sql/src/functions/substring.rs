//! Substring searches, prepared once per run: the text that CONTAINS searches for is usually a constant.

use std::cell::RefCell;

use memchr::memmem::{self, Finder};

/// Searchers that are cached; a query seldom needs more than one.
const SEARCHERS_MAX: usize = 8;
/// In shorter texts, preparing and looking up takes longer than searching.
const PREPARED_TEXT_BYTES_MIN: usize = 64;

#[derive(Default)]
pub(crate) struct SearcherCache(RefCell<Vec<Finder<'static>>>);

impl SearcherCache {
    /// Both are valid UTF-8, so a match of bytes is a match of characters.
    pub fn contains(&self, text: &[u8], wanted: &[u8]) -> bool {
        if text.len() < PREPARED_TEXT_BYTES_MIN {
            return memmem::find(text, wanted).is_some();
        }
        let mut searchers = self.0.borrow_mut();
        if let Some(searcher) = searchers.iter().find(|searcher| searcher.needle() == wanted) {
            return searcher.find(text).is_some();
        }
        if searchers.len() == SEARCHERS_MAX {
            searchers.clear();
        }
        let searcher = Finder::new(wanted).into_owned();
        let found = searcher.find(text).is_some();
        searchers.push(searcher);
        found
    }
}
