//! How rows reach the storage: their keys, their values, and the storage as the engine sees it.

pub(crate) mod item_row; // the value of an item's row
pub(crate) mod keys; // every key and value form in the storage
pub(crate) mod version_row; // the value of a row in the log of all versions
pub(crate) mod watched; // a storage that records which items are written
