//! Epochs: which policies the index rows of a container's items may have been made under.

use quire_value::{Object, Value};

use super::missing::MissingPath;
pub(crate) use crate::store::item_row::EPOCH_NONE;

/// Of new containers.
pub(crate) const EPOCH_FIRST: u8 = 1;

/// Four bits of an item's row.
pub(crate) const EPOCH_MAX: u8 = 15;

/// What rows an item has under a policy, where that has changed over time. On disk beside the epochs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RowsVersion(pub u8);

impl RowsVersion {
    /// Full-text indexes have terms and nothing else.
    pub const FIRST: RowsVersion = RowsVersion(1);
    /// They have occurrences and lengths, too.
    pub const SCORED_TEXTS: RowsVersion = RowsVersion(2);
    /// Some words of a text do not count in its length.
    pub const UNCOUNTED_WORDS: RowsVersion = RowsVersion(3);
    pub const NEWEST: RowsVersion = RowsVersion::UNCOUNTED_WORDS;
}

/// Under which policies the index rows of a container's items may have been made: see `indexes`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct IndexEpochs {
    /// Of the container as it is defined now.
    pub current: u8,
    /// Of the rows made under it.
    pub rows: RowsVersion,
    /// Of definitions that some items may still have.
    pub older: Vec<OlderEpoch>,
    /// Paths with rows for the items that lack them.
    pub missing: Vec<MissingPath>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OlderEpoch {
    pub epoch: u8,
    /// The container's definition; nothing for [`EPOCH_NONE`].
    pub body: Option<Object>,
    pub rows: RowsVersion,
}

impl IndexEpochs {
    /// Of a container that has no items yet.
    pub fn new() -> IndexEpochs {
        let (older, missing) = (Vec::new(), Vec::new());
        IndexEpochs { current: EPOCH_FIRST, rows: RowsVersion::NEWEST, older, missing }
    }

    pub fn before_indexes() -> IndexEpochs {
        let none = OlderEpoch { epoch: EPOCH_NONE, body: None, rows: RowsVersion::FIRST };
        IndexEpochs { older: vec![none], ..IndexEpochs::new() }
    }

    /// After the definition, `before` until now, was replaced; `None` when items have too many already.
    pub fn next(&self, before: &Object) -> Option<IndexEpochs> {
        let is_used = |epoch| epoch == self.current || self.older.iter().any(|older| older.epoch == epoch);
        let current = (EPOCH_FIRST..=EPOCH_MAX).find(|epoch| !is_used(*epoch))?;
        let mut older = self.older.clone();
        older.push(OlderEpoch { epoch: self.current, body: Some(before.clone()), rows: self.rows });
        Some(IndexEpochs { current, rows: RowsVersion::NEWEST, older, missing: self.missing.clone() })
    }

    /// Rows of an older version are made again where the definition has some. It is the same whenever the row is read, so
    /// nothing is written before the container's row is.
    pub fn with_newest_rows(self, body: &Object) -> IndexEpochs {
        if self.rows == RowsVersion::NEWEST {
            return self;
        }
        let texts = body.get("indexingPolicy").and_then(|policy| policy.get("fullTextIndexes"));
        if texts.and_then(Value::as_array).is_none_or(|texts| texts.is_empty()) {
            return IndexEpochs { rows: RowsVersion::NEWEST, ..self };
        }
        // Where items have too many epochs already, the rows stay as they are until there are fewer.
        self.next(body).unwrap_or(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_are_given_out_until_all_are_used() {
        let body = Object::new();
        let mut epochs = IndexEpochs::before_indexes();
        for expected in 2..=EPOCH_MAX {
            epochs = epochs.next(&body).unwrap();
            assert_eq!(epochs.current, expected);
        }
        assert_eq!(epochs.next(&body), None);
        let finished = IndexEpochs { older: Vec::new(), ..epochs };
        assert_eq!(finished.next(&body).unwrap().current, 1);
    }
}
