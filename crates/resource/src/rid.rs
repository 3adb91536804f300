//! Resource ids: the binary layout behind `_rid`, its text form and the links made from it.

/// What a 16-byte id under a container is: the high nibble of its last byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

impl ResourceId {
    pub fn parse(_text: &str) -> Result<ResourceId, RidError> {
        todo!()
    }
    /// `_self`: `dbs/{rid}/colls/{rid}/docs/{rid}/`
    pub fn self_link(&self) -> String {
        todo!()
    }
    /// The rid of the resource that owns this one (a feed's `_rid`); `None` for databases and offers.
    pub fn owner(&self) -> Option<ResourceId> {
        todo!()
    }
}

impl PartialOrd for ChildKind {
    fn partial_cmp(&self, other: &ChildKind) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for ChildKind {
    fn cmp(&self, other: &ChildKind) -> std::cmp::Ordering {
        (*self as u8).cmp(&(*other as u8))
    }
}

/// The `_rid` text: padded base64 with `/` written as `-`.
impl std::fmt::Display for ResourceId {
    fn fmt(&self, _formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        todo!()
    }
}
