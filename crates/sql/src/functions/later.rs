//! Names that are recognised while their functions are not there yet: calling one is refused by name.

use super::{Arity, Function, Implementation, IndexUse, at_least, between, exactly, row};

pub(super) const FUNCTIONS: &[Function] = &[
    later(&["FullTextContains", "FULLTEXT_CONTAINS"], exactly(2), IndexUse::FullText),
    later(&["FullTextContainsAll", "FULLTEXT_CONTAINS_ALL"], at_least(2), IndexUse::FullText),
    later(&["FullTextContainsAny", "FULLTEXT_CONTAINS_ANY"], at_least(2), IndexUse::FullText),
    later(&["FullTextScore"], at_least(2), IndexUse::FullText),
    later(&["VectorDistance"], between(2, 4), IndexUse::Vector),
    later(&["RRF"], at_least(2), IndexUse::None),
    later(&["_FullTextScore"], exactly(5), IndexUse::FullText),
    later(&["_FullTextWordCount"], exactly(1), IndexUse::None),
    later(&["_VectorScore"], between(2, 4), IndexUse::Vector),
];

const fn later(names: &'static [&'static str], arity: Arity, index_use: IndexUse) -> Function {
    row(names, arity, Implementation::Later, index_use)
}
