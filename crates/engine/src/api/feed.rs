//! Reading the change feed.

use super::PageRequest;

/// Where a read of the change feed begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeedStart {
    Beginning,
    Now,
    /// After the changes of an earlier answer: its [`Changes::etag`].
    After(String),
}

/// What a read of the change feed returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FeedMode {
    /// Every visible item once, as it is.
    #[default]
    Latest,
    /// The same, each item as `current` beside `metadata`, which has its LSN and time.
    LatestWithMetadata,
    /// Every version and delete, as long as the container's policy keeps them.
    AllVersions,
}

pub struct ChangesRequest {
    pub mode: FeedMode,
    /// Scope, size, session; its continuation is not examined.
    pub page: PageRequest,
    pub start: FeedStart,
    /// Only changes of this second or later.
    pub since: Option<i64>,
    /// All versions come with the one before them. Else only deletes by clients do.
    pub all_previous_images: bool,
}

/// One page of the change feed.
pub struct Changes {
    /// `[item,item,...]`, each with its `_lsn`, or `[change,change,...]` in the mode with all versions.
    pub rows: Vec<u8>,
    pub count: usize,
    /// The position behind this page, with quotes.
    pub etag: String,
    /// There are more changes right now.
    pub more: bool,
}
