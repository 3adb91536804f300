//! Single items: create, read, replace, upsert, patch, delete.

pub(crate) mod body; // bodies of items
pub(crate) mod by_rid; // items named by their rid
pub(crate) mod key_delete; // all items of a partition key
pub(crate) mod logical_partition; // one partition key, checks of a write
pub(crate) mod patch; // a part of an item changed in place
pub(crate) mod prepare; // the rows of a write
pub(crate) mod read;
pub(crate) mod remove; // items that are no longer visible
pub(crate) mod unique; // unique keys
pub(crate) mod visibility; // which items are visible
pub(crate) mod write;

/// `If-Match` and `If-None-Match`: exact, `*` for any, quotes may be missing.
pub(crate) fn etag_matches(condition: &str, etag: &str) -> bool {
    let condition = condition.trim();
    condition == "*" || condition == etag || condition == etag.trim_matches('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etags_are_compared_exactly() {
        let etag = "\"0a\"";
        assert!(etag_matches("\"0a\"", etag) && etag_matches("0a", etag) && etag_matches(" * ", etag));
        assert!(!etag_matches("\"0A\"", etag) && !etag_matches("\"0a", etag) && !etag_matches("", etag));
    }
}
