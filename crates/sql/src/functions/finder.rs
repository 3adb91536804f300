//! Substring searches, prepared once per run: the text that CONTAINS searches for is usually a constant.

use std::cell::RefCell;

use memchr::memmem::{self, Finder};

/// Searchers that are cached; a query seldom needs more than one.
const FINDERS_MAX: usize = 8;
/// In shorter texts, preparing and looking up takes longer than searching.
const PREPARED_TEXT_BYTES_MIN: usize = 64;

#[derive(Default)]
pub(crate) struct Finders(RefCell<Vec<Finder<'static>>>);

impl Finders {
    /// Both are valid UTF-8, so a match of bytes is a match of characters.
    pub fn contains(&self, text: &[u8], wanted: &[u8]) -> bool {
        if text.len() < PREPARED_TEXT_BYTES_MIN {
            return memmem::find(text, wanted).is_some();
        }
        let mut finders = self.0.borrow_mut();
        if let Some(finder) = finders.iter().find(|finder| finder.needle() == wanted) {
            return finder.find(text).is_some();
        }
        if finders.len() == FINDERS_MAX {
            finders.clear();
        }
        let finder = Finder::new(wanted).into_owned();
        let found = finder.find(text).is_some();
        finders.push(finder);
        found
    }
}
