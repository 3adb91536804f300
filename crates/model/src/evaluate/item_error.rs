//! Why the write of an item is refused: the one table of statuses and texts.

use crate::declare::grouped;

/// A failure of an item's write that the model causes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ItemError {
    #[error("LinkTargetMissing: '{link}' at {path} names '{value}', which is not in '{container}'.")]
    LinkTargetMissing { link: String, path: String, value: String, container: String },
    #[error("LinkRestricted: {} of '{container}' refer to this item by '{link}'.", items(*.count))]
    LinkRestricted { count: u64, container: String, link: String },
    #[error("PathOwned: {path} is maintained by '{owner}'.")]
    PathOwned { path: String, owner: String },
    #[error("MaintainedTooLarge: '{owner}' would make the item '{id}' of '{container}' larger than {limit}.")]
    MaintainedTooLarge { owner: String, id: String, container: String, limit: SizeLimit },
    #[error("TooManyReferences: '{link}' takes at most 1,000 references of one item.")]
    TooManyReferences { link: String },
    #[error("DeletionPending: references to '{id}' are still being removed ({job}).")]
    DeletionPending { id: String, job: String },
    #[error("LinkKeyTaken: '{value}' at {key} is taken in '{container}', where '{link}' finds items by it.")]
    LinkKeyTaken { value: String, key: String, container: String, link: String },
    #[error("WindowPage: pages of '{window}' are made and removed by the window.")]
    WindowPage { window: String },
    #[error("TooMuchAtOnce: this request would change {} items; at most 10,000 and 16 MB in one commit.", grouped(*.count))]
    TooMuchAtOnce { count: u64 },
    /// Two elements of a window with one key.
    #[error(
        "WindowKeyTwice: two elements at {path} have the key {key}, by which '{window}' tells them apart."
    )]
    WindowKeyTwice { window: String, path: String, key: String },
    #[error(
        "WindowIdTooLong: the ids of the pages that '{window}' makes of the item would be longer than 1,023 bytes."
    )]
    WindowIdTooLong { window: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeLimit {
    /// Of an item.
    TwoMegabytes,
    /// Elements of a mirror.
    Elements(u32),
    /// Pages that one write makes.
    Pages,
}

impl ItemError {
    /// Status and sub-status; 0 is none.
    pub fn status(&self) -> (u16, u16) {
        match self {
            ItemError::LinkTargetMissing { .. } => (400, 6101),
            ItemError::LinkRestricted { .. } => (409, 6102),
            ItemError::PathOwned { .. } => (400, 6103),
            ItemError::MaintainedTooLarge { .. } => (413, 6104),
            ItemError::TooManyReferences { .. } => (400, 6105),
            ItemError::DeletionPending { .. } => (449, 6106),
            ItemError::LinkKeyTaken { .. } => (409, 6107),
            ItemError::WindowPage { .. } => (403, 6108),
            ItemError::TooMuchAtOnce { .. } => (413, 6109),
            ItemError::WindowKeyTwice { .. } | ItemError::WindowIdTooLong { .. } => (400, 0),
        }
    }
}

impl std::fmt::Display for SizeLimit {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SizeLimit::TwoMegabytes => formatter.write_str("2 MB"),
            SizeLimit::Elements(max) => formatter.write_str(&grouped(u64::from(*max))),
            SizeLimit::Pages => formatter.write_str("1,000 pages"),
        }
    }
}

/// Referrers are counted only so far.
const REFERRERS_COUNTED_MAX: u64 = 1_000;

fn items(count: u64) -> String {
    if count > REFERRERS_COUNTED_MAX {
        "more than 1,000 items".to_owned()
    } else {
        format!("{} items", grouped(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_and_texts() {
        let text = str::to_owned;
        let container = || text("authors");
        let too_large = |limit| ItemError::MaintainedTooLarge {
            owner: text("m"),
            id: text("a1"),
            container: container(),
            limit,
        };
        let table = [
            (
                ItemError::LinkTargetMissing {
                    link: text("l"),
                    path: text("/a/0/id"),
                    value: text("a9"),
                    container: container(),
                },
                (400, 6101),
                "LinkTargetMissing: 'l' at /a/0/id names 'a9', which is not in 'authors'.",
            ),
            (
                ItemError::LinkRestricted { count: 1_000, container: container(), link: text("l") },
                (409, 6102),
                "LinkRestricted: 1,000 items of 'authors' refer to this item by 'l'.",
            ),
            (
                ItemError::LinkRestricted { count: 1_001, container: container(), link: text("l") },
                (409, 6102),
                "LinkRestricted: more than 1,000 items of 'authors' refer to this item by 'l'.",
            ),
            (
                ItemError::PathOwned { path: text("/n"), owner: text("r") },
                (400, 6103),
                "PathOwned: /n is maintained by 'r'.",
            ),
            (
                too_large(SizeLimit::TwoMegabytes),
                (413, 6104),
                "MaintainedTooLarge: 'm' would make the item 'a1' of 'authors' larger than 2 MB.",
            ),
            (
                too_large(SizeLimit::Elements(1_000)),
                (413, 6104),
                "MaintainedTooLarge: 'm' would make the item 'a1' of 'authors' larger than 1,000.",
            ),
            (
                ItemError::TooManyReferences { link: text("l") },
                (400, 6105),
                "TooManyReferences: 'l' takes at most 1,000 references of one item.",
            ),
            (
                ItemError::DeletionPending { id: text("a1"), job: text("j-7") },
                (449, 6106),
                "DeletionPending: references to 'a1' are still being removed (j-7).",
            ),
            (
                ItemError::LinkKeyTaken {
                    value: text("x"),
                    key: text("/isbn"),
                    container: container(),
                    link: text("l"),
                },
                (409, 6107),
                "LinkKeyTaken: 'x' at /isbn is taken in 'authors', where 'l' finds items by it.",
            ),
            (
                ItemError::WindowPage { window: text("w") },
                (403, 6108),
                "WindowPage: pages of 'w' are made and removed by the window.",
            ),
            (
                ItemError::TooMuchAtOnce { count: 10_001 },
                (413, 6109),
                "TooMuchAtOnce: this request would change 10,001 items; at most 10,000 and 16 MB in one commit.",
            ),
        ];
        for (error, status, message) in table {
            assert_eq!((error.status(), error.to_string()), (status, message.to_owned()));
        }
    }
}
