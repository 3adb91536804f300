//! Resource ids: the binary layout behind `_rid`, its text form and the links made from it.
//!
//! | resource          | bytes | content                                                                |
//! |-------------------|-------|------------------------------------------------------------------------|
//! | offer             | 3     | number, big-endian                                                     |
//! | database          | 4     | number, big-endian                                                     |
//! | container         | 8     | database, then its number big-endian with the top bit **set**          |
//! | user              | 8     | database, then its number big-endian with the top bit **clear**        |
//! | child of container| 16    | container, then `kind << 60 \| child` as u64 little-endian             |
//! | permission        | 16    | user, then its number as u64 little-endian                             |
//! | encryption key    | 16    | database, 4 zero bytes, number big-endian, 2 as u32 little-endian      |
//!
//! Clients read the children as little-endian u64 (they compare them to break ties) and look at the top bit
//! of byte 4; the other numbers are opaque to them. Big-endian keeps that bit the top bit of the number, so
//! containers and users count in 31 bits. Offer, database, user and encryption key numbers are never 0:
//! clients take a zero part for a missing one.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The kind of a 16-byte id under a container: the high nibble of its last byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ChildKind {
    Item,
    Conflict,
    PartitionKeyRange,
    UserDefinedFunction,
    Trigger,
    StoredProcedure,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ResourceId {
    Offer(u32), // 24 bits
    Database(u32),
    Container { database: u32, container: u32 }, // bit 0x80 of byte 4 set
    User { database: u32, user: u32 },           // that bit clear
    Permission { database: u32, user: u32, permission: u64 },
    ClientEncryptionKey { database: u32, key: u32 },
    Child { database: u32, container: u32, kind: ChildKind, child: u64 }, // child < 2^60, little-endian
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a resource id")]
pub struct RidError {
    pub text: String,
}

/// The text of a resource id.
#[derive(Clone, Copy, Debug)]
pub struct RidText {
    letters: [u8; TEXT_BYTES_MAX],
    length: usize,
}

impl RidText {
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.letters[..self.length]).expect("base64 is ASCII")
    }
}

const BYTES_MAX: usize = 16;
/// Of sixteen bytes.
const TEXT_BYTES_MAX: usize = 24;
const CONTAINER_BIT: u32 = 1 << 31;
const CHILD_BITS: u32 = 60;
const CLIENT_ENCRYPTION_KEY: u32 = 2;

impl ResourceId {
    /// The exact inverse of the text form: refuses everything else.
    pub fn parse(text: &str) -> Result<ResourceId, RidError> {
        ResourceId::of_text(text).ok_or_else(|| RidError { text: text.to_owned() })
    }

    /// The same where a text that is none is nothing special.
    pub fn of_text(text: &str) -> Option<ResourceId> {
        let mut letters = [0; TEXT_BYTES_MAX];
        let letters = letters.get_mut(..text.len())?;
        for (letter, byte) in letters.iter_mut().zip(text.bytes()) {
            *letter = match byte {
                b'/' => return None,
                b'-' => b'/',
                other => other,
            };
        }
        let mut bytes = [0; TEXT_BYTES_MAX];
        let length = STANDARD.decode_slice(letters, &mut bytes).ok()?;
        ResourceId::from_bytes(&bytes[..length])
    }

    /// The `_rid` text without an allocation: padded base64 with `/` written as `-`.
    pub fn text(&self) -> RidText {
        let (bytes, length) = self.raw();
        let mut text = RidText { letters: [0; TEXT_BYTES_MAX], length: 0 };
        text.length = STANDARD
            .encode_slice(&bytes[..length], &mut text.letters)
            .expect("sixteen bytes are at most 24 letters");
        text.letters.iter_mut().filter(|letter| **letter == b'/').for_each(|letter| *letter = b'-');
        text
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<ResourceId> {
        match *bytes {
            [a, b, c] => nonzero(u32::from_be_bytes([0, a, b, c])).map(ResourceId::Offer),
            [_, _, _, _] => Some(ResourceId::Database(database_of(bytes)?)),
            [_, _, _, _, a, b, c, d] => {
                owner_of_children(database_of(bytes)?, u32::from_be_bytes([a, b, c, d]))
            }
            _ if bytes.len() == 16 => {
                let (owner, child) = bytes.split_at(8);
                grandchild(owner, u64::from_le_bytes(child.try_into().ok()?))
            }
            _ => None,
        }
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let (bytes, length) = self.raw();
        bytes[..length].to_vec()
    }

    /// The bytes, and how many there are.
    fn raw(&self) -> ([u8; BYTES_MAX], usize) {
        let mut bytes = [0; BYTES_MAX];
        let mut length = 0;
        let mut add = |part: &[u8]| {
            bytes[length..length + part.len()].copy_from_slice(part);
            length += part.len();
        };
        match *self {
            ResourceId::Offer(number) => add(&number.to_be_bytes()[1..]),
            ResourceId::Database(database) => add(&database.to_be_bytes()),
            ResourceId::Container { database, container } => {
                add(&database.to_be_bytes());
                add(&(container | CONTAINER_BIT).to_be_bytes());
            }
            ResourceId::User { database, user } => {
                add(&database.to_be_bytes());
                add(&(user & !CONTAINER_BIT).to_be_bytes());
            }
            ResourceId::Permission { database, user, permission } => {
                add(&database.to_be_bytes());
                add(&(user & !CONTAINER_BIT).to_be_bytes());
                add(&permission.to_le_bytes());
            }
            ResourceId::ClientEncryptionKey { database, key } => {
                add(&database.to_be_bytes());
                add(&[0; 4]);
                add(&key.to_be_bytes());
                add(&CLIENT_ENCRYPTION_KEY.to_le_bytes());
            }
            ResourceId::Child { database, container, kind, child } => {
                debug_assert!(child >> CHILD_BITS == 0, "the top nibble of a child id is its kind");
                let child = child & ((1 << CHILD_BITS) - 1) | u64::from(kind.nibble()) << CHILD_BITS;
                add(&database.to_be_bytes());
                add(&(container | CONTAINER_BIT).to_be_bytes());
                add(&child.to_le_bytes());
            }
        }
        (bytes, length)
    }

    /// `_self`: `dbs/{rid}/colls/{rid}/docs/{rid}/`
    pub fn self_link(&self) -> String {
        let mut link = String::with_capacity(96);
        self.write_self_link(&mut link);
        link
    }

    fn write_self_link(&self, link: &mut String) {
        if let Some(owner) = self.owner() {
            owner.write_self_link(link);
        }
        link.push_str(self.segment());
        link.push('/');
        link.push_str(self.text().as_str());
        link.push('/');
    }

    /// The rid of the resource that owns this one (a feed's `_rid`); `None` for databases and offers.
    pub fn owner(&self) -> Option<ResourceId> {
        match *self {
            ResourceId::Offer(_) | ResourceId::Database(_) => None,
            ResourceId::Container { database, .. }
            | ResourceId::User { database, .. }
            | ResourceId::ClientEncryptionKey { database, .. } => Some(ResourceId::Database(database)),
            ResourceId::Permission { database, user, .. } => Some(ResourceId::User { database, user }),
            ResourceId::Child { database, container, .. } => {
                Some(ResourceId::Container { database, container })
            }
        }
    }

    /// The path segment of links before this id.
    fn segment(&self) -> &'static str {
        match self {
            ResourceId::Offer(_) => "offers",
            ResourceId::Database(_) => "dbs",
            ResourceId::Container { .. } => "colls",
            ResourceId::User { .. } => "users",
            ResourceId::Permission { .. } => "permissions",
            ResourceId::ClientEncryptionKey { .. } => "clientencryptionkeys",
            ResourceId::Child { kind, .. } => kind.segment(),
        }
    }
}

impl ChildKind {
    /// (kind, nibble, path segment)
    const TABLE: [(ChildKind, u8, &'static str); 6] = [
        (ChildKind::Item, 0, "docs"),
        (ChildKind::Conflict, 4, "conflicts"),
        (ChildKind::PartitionKeyRange, 5, "pkranges"),
        (ChildKind::UserDefinedFunction, 6, "udfs"),
        (ChildKind::Trigger, 7, "triggers"),
        (ChildKind::StoredProcedure, 8, "sprocs"),
    ];

    fn nibble(self) -> u8 {
        ChildKind::TABLE[self as usize].1
    }

    fn segment(self) -> &'static str {
        ChildKind::TABLE[self as usize].2
    }

    fn from_nibble(nibble: u64) -> Option<ChildKind> {
        ChildKind::TABLE.iter().find(|row| u64::from(row.1) == nibble).map(|row| row.0)
    }
}

/// The `_rid` text: padded base64 with `/` written as `-`.
impl std::fmt::Display for ResourceId {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.text().as_str())
    }
}

fn nonzero(number: u32) -> Option<u32> {
    (number != 0).then_some(number)
}

fn database_of(bytes: &[u8]) -> Option<u32> {
    nonzero(u32::from_be_bytes(bytes[..4].try_into().ok()?))
}

fn owner_of_children(database: u32, second: u32) -> Option<ResourceId> {
    if second & CONTAINER_BIT != 0 {
        return Some(ResourceId::Container { database, container: second & !CONTAINER_BIT });
    }
    Some(ResourceId::User { database, user: nonzero(second)? })
}

fn grandchild(owner: &[u8], child: u64) -> Option<ResourceId> {
    if owner[4..] == [0; 4] {
        let (key, kind) = ((child as u32).swap_bytes(), (child >> 32) as u32);
        let (database, key) = (database_of(owner)?, nonzero(key)?);
        return (kind == CLIENT_ENCRYPTION_KEY).then_some(ResourceId::ClientEncryptionKey { database, key });
    }
    match ResourceId::from_bytes(owner)? {
        ResourceId::Container { database, container } => {
            let kind = ChildKind::from_nibble(child >> CHILD_BITS)?;
            let child = child & ((1 << CHILD_BITS) - 1);
            Some(ResourceId::Child { database, container, kind, child })
        }
        ResourceId::User { database, user } => {
            Some(ResourceId::Permission { database, user, permission: child })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, expect: Expect) {
        let shown = match ResourceId::parse(text) {
            Ok(rid) => {
                assert_eq!(rid.to_string(), text);
                format!("{rid:x?}\n{}\n", rid.self_link())
            }
            Err(error) => format!("{error}\n"),
        };
        expect.assert_eq(&shown);
    }

    #[test]
    fn real_ids() {
        check(
            "DPZtAA==",
            expect![[r#"
            Database(cf66d00)
            dbs/DPZtAA==/
        "#]],
        );
        check(
            "DPZtAKyOj5g=",
            expect![[r#"
            Container { database: cf66d00, container: 2c8e8f98 }
            dbs/DPZtAA==/colls/DPZtAKyOj5g=/
        "#]],
        );
        check(
            "DPZtAKyOj5gBAAAAAAAAAA==",
            expect![[r#"
            Child { database: cf66d00, container: 2c8e8f98, kind: Item, child: 1 }
            dbs/DPZtAA==/colls/DPZtAKyOj5g=/docs/DPZtAKyOj5gBAAAAAAAAAA==/
        "#]],
        );
        check(
            "DPZtAKyOj5gCAAAAAAAAUA==",
            expect![[r#"
            Child { database: cf66d00, container: 2c8e8f98, kind: PartitionKeyRange, child: 2 }
            dbs/DPZtAA==/colls/DPZtAKyOj5g=/pkranges/DPZtAKyOj5gCAAAAAAAAUA==/
        "#]],
        );
        check(
            "x7Yd",
            expect![[r#"
            Offer(c7b61d)
            offers/x7Yd/
        "#]],
        );
    }

    /// In the published example of a container, `PaYSAPH7qAA=`, byte 4 is `F1`.
    #[test]
    fn kinds_by_layout() {
        check(
            "PaYSAPH7qAA=",
            expect![[r#"
            Container { database: 3da61200, container: 71fba800 }
            dbs/PaYSAA==/colls/PaYSAPH7qAA=/
        "#]],
        );
        check(
            "PaYSAAAAAAE=",
            expect![[r#"
            User { database: 3da61200, user: 1 }
            dbs/PaYSAA==/users/PaYSAAAAAAE=/
        "#]],
        );
        check(
            "PaYSAAAAAAEHAAAAAAAAAA==",
            expect![[r#"
            Permission { database: 3da61200, user: 1, permission: 7 }
            dbs/PaYSAA==/users/PaYSAAAAAAE=/permissions/PaYSAAAAAAEHAAAAAAAAAA==/
        "#]],
        );
        check(
            "PaYSAAAAAAAAAAAFAgAAAA==",
            expect![[r#"
            ClientEncryptionKey { database: 3da61200, key: 5 }
            dbs/PaYSAA==/clientencryptionkeys/PaYSAAAAAAAAAAAFAgAAAA==/
        "#]],
        );
        check(
            "PaYSAPH7qAABAAAAAAAAgA==",
            expect![[r#"
            Child { database: 3da61200, container: 71fba800, kind: StoredProcedure, child: 1 }
            dbs/PaYSAA==/colls/PaYSAPH7qAA=/sprocs/PaYSAPH7qAABAAAAAAAAgA==/
        "#]],
        );
    }

    #[test]
    fn everything_else_is_refused() {
        let refused = [
            "",
            "a",
            "DPZtAA",   // padding is part of the text
            "DPZtAB==", // bits beyond the last byte
            "DPZtAA== ",
            "AAAAAA==",                     // database 0
            "AAAA",                         // offer 0
            "PaYSAAAAAAA=",                 // user 0
            "PaYS//H7qAA=",                 // `/` is written as `-`
            "PaYSAPH7qAABAAAAAAAAEA==",     // no kind 1
            "PaYSAAAAAAAAAAAFAQAAAA==",     // user-defined type
            "PaYSAPH7qAABAAAAAAAAABBBBBBB", // attachment
        ];
        for text in refused {
            assert_eq!(ResourceId::parse(text), Err(RidError { text: text.to_owned() }));
        }
    }

    #[test]
    fn slash_is_written_as_dash() {
        let rid = ResourceId::Database(0xFFFF_FFFF);
        assert_eq!(rid.to_string(), "-----w==");
        assert_eq!(ResourceId::parse("-----w=="), Ok(rid));
    }

    fn any_rid() -> impl Strategy<Value = ResourceId> {
        let number = 1..=u32::MAX;
        let short = 1..=u32::MAX >> 1;
        let kinds = ChildKind::TABLE.map(|row| row.0);
        prop_oneof![
            (1..1u32 << 24).prop_map(ResourceId::Offer),
            number.clone().prop_map(ResourceId::Database),
            (number.clone(), short.clone())
                .prop_map(|(database, container)| ResourceId::Container { database, container }),
            (number.clone(), short.clone()).prop_map(|(database, user)| ResourceId::User { database, user }),
            (number.clone(), short.clone(), any::<u64>()).prop_map(|(database, user, permission)| {
                ResourceId::Permission { database, user, permission }
            }),
            (number.clone(), number.clone())
                .prop_map(|(database, key)| ResourceId::ClientEncryptionKey { database, key }),
            (number, short, proptest::sample::select(kinds.to_vec()), 0..1u64 << CHILD_BITS).prop_map(
                |(database, container, kind, child)| ResourceId::Child { database, container, kind, child }
            ),
        ]
    }

    proptest! {
        #[test]
        fn parse_is_the_inverse_of_display(rid in any_rid()) {
            let text = rid.to_string();
            prop_assert_eq!(text.len() % 4, 0);
            prop_assert_eq!(ResourceId::parse(&text), Ok(rid));
            if let Some(owner) = rid.owner() {
                prop_assert!(rid.self_link().starts_with(&owner.self_link()));
            }
        }

        #[test]
        fn any_bytes_that_parse_are_written_back(bytes in proptest::collection::vec(any::<u8>(), 0..20)) {
            if let Some(rid) = ResourceId::from_bytes(&bytes) {
                prop_assert_eq!(rid.to_bytes(), bytes);
            }
        }
    }
}
