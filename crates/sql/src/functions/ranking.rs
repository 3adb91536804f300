//! Functions that only ORDER BY RANK has.

use super::{Function, Implementation, IndexUse, at_least, row};

pub(super) const FUNCTIONS: &[Function] =
    &[row(&["RRF"], at_least(2), Implementation::Ranking, IndexUse::None)];
