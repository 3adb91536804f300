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
    let mut body = Vec::with_capacity(rows.len() + owner_rid.len() + 64);
    write_head(feed, owner_rid, &mut body);
    body.extend_from_slice(rows);
    finish_envelope(&mut body, count, None);
    Bytes::from(body)
}

/// The envelope up to its rows.
pub(crate) fn envelope_head(feed: Feed, owner_rid: &str) -> Bytes {
    let mut head = Vec::with_capacity(owner_rid.len() + 48);
    write_head(feed, owner_rid, &mut head);
    Bytes::from(head)
}

fn write_head(feed: Feed, owner_rid: &str, body: &mut Vec<u8>) {
    body.extend_from_slice(b"{\"_rid\":");
    write_string(owner_rid, body);
    body.push(b',');
    write_string(feed.key(), body);
    body.push(b':');
}

/// What comes behind the rows; `explained`: how they were found.
pub(crate) fn finish_envelope(body: &mut Vec<u8>, count: usize, explained: Option<&str>) {
    body.extend_from_slice(b",\"_count\":");
    body.extend_from_slice(itoa::Buffer::new().format(count).as_bytes());
    if let Some(text) = explained {
        body.extend_from_slice(b",\"_explain\":");
        write_string(text, body);
    }
    body.push(b'}');
}
