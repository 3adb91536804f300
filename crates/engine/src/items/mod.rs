//! Single items: create, read, replace, upsert, patch, delete.

pub(crate) mod body; // what a client sends, and what it gets back
pub(crate) mod by_rid; // items named by their rid
pub(crate) mod key_delete; // all items of a partition key
pub(crate) mod logical_partition; // one partition key: what a write finds there
pub(crate) mod patch; // a part of an item changed in place
pub(crate) mod prepare; // rows of a write as they come together
pub(crate) mod read;
pub(crate) mod remove; // items that nobody sees any more
pub(crate) mod unique; // unique keys
pub(crate) mod visibility; // what is visible at a moment
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
