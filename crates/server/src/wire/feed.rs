//! Feed envelopes.

use bytes::Bytes;
use quire_value::text::write_string;

/// The feeds of the protocol, by the name of their array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Feed {
    Databases,
    Containers,
    Items,
    StoredProcedures,
    Triggers,
    UserDefinedFunctions,
    Conflicts,
    PartitionKeyRanges,
    Users,
    Permissions,
    Offers,
    ClientEncryptionKeys,
}

impl Feed {
    fn key(self) -> &'static str {
        match self {
            Feed::Databases => "Databases",
            Feed::Containers => "DocumentCollections",
            Feed::Items => "Documents",
            Feed::StoredProcedures => "StoredProcedures",
            Feed::Triggers => "Triggers",
            Feed::UserDefinedFunctions => "UserDefinedFunctions",
            Feed::Conflicts => "Conflicts",
            Feed::PartitionKeyRanges => "PartitionKeyRanges",
            Feed::Users => "Users",
            Feed::Permissions => "Permissions",
            Feed::Offers => "Offers",
            Feed::ClientEncryptionKeys => "ClientEncryptionKeys",
        }
    }
}

/// `rows` is the text of a JSON array with `count` elements.
pub(crate) fn envelope(feed: Feed, owner_rid: &str, rows: &[u8], count: usize) -> Bytes {
    explained_envelope(feed, owner_rid, rows, count, None)
}

/// The same, with how the rows were found as `_explain`.
pub(crate) fn explained_envelope(
    feed: Feed,
    owner_rid: &str,
    rows: &[u8],
    count: usize,
    explained: Option<&str>,
) -> Bytes {
    let mut body = Vec::with_capacity(rows.len() + owner_rid.len() + 64);
    body.extend_from_slice(b"{\"_rid\":");
    write_string(owner_rid, &mut body);
    body.push(b',');
    write_string(feed.key(), &mut body);
    body.push(b':');
    body.extend_from_slice(rows);
    body.extend_from_slice(b",\"_count\":");
    body.extend_from_slice(itoa::Buffer::new().format(count).as_bytes());
    if let Some(text) = explained {
        body.extend_from_slice(b",\"_explain\":");
        write_string(text, &mut body);
    }
    body.push(b'}');
    Bytes::from(body)
}
