//! The log of all versions and deletes, kept for as long as the container's change feed policy says.
//!
//! One row per item and write, in the partition's order of LSNs. Value: format 1 (a byte), kind (a byte), child id 8, `_ts` of
//! the change 8, LSN of the version before 8 (0 if there was none), length of the new item row 4, the new item row, the item row
//! before. A delete has no new row.

use crate::api::{EngineError, corrupt};

const FORMAT: u8 = 1;
const FIXED_BYTES: usize = 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VersionKind {
    Create,
    Replace,
    Delete,
    /// A delete because the time to live was over.
    Expire,
}

/// What is remembered of a version that goes.
#[derive(Clone, Debug)]
pub(crate) struct Before {
    pub lsn: u64,
    pub row: Vec<u8>,
}

/// An item that goes.
#[derive(Clone, Debug)]
pub(crate) struct Deleted {
    pub rid: u64,
    pub before: Before,
    pub is_expired: bool,
}

/// A row of the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Version<'a> {
    pub kind: VersionKind,
    pub rid: u64,
    pub ts: i64,
    pub lsn_before: u64,
    /// Item rows; empty where there is none.
    pub current: &'a [u8],
    pub previous: &'a [u8],
}

impl Version<'_> {
    pub fn encode(&self) -> Vec<u8> {
        let kind = match self.kind {
            VersionKind::Create => 0,
            VersionKind::Replace => 1,
            VersionKind::Delete => 2,
            VersionKind::Expire => 3,
        };
        let length = u32::try_from(self.current.len()).expect("an item row has a few megabytes at most");
        let mut bytes = Vec::with_capacity(FIXED_BYTES + self.current.len() + self.previous.len());
        bytes.extend([FORMAT, kind]);
        bytes.extend(self.rid.to_be_bytes());
        bytes.extend(self.ts.to_be_bytes());
        bytes.extend(self.lsn_before.to_be_bytes());
        bytes.extend(length.to_be_bytes());
        bytes.extend(self.current);
        bytes.extend(self.previous);
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Version<'_>, EngineError> {
        decode(bytes).ok_or_else(|| corrupt("row of the log of versions"))
    }
}

fn decode(bytes: &[u8]) -> Option<Version<'_>> {
    let (&[FORMAT, kind], rest) = bytes.split_first_chunk::<2>()? else { return None };
    let kind = match kind {
        0 => VersionKind::Create,
        1 => VersionKind::Replace,
        2 => VersionKind::Delete,
        3 => VersionKind::Expire,
        _ => return None,
    };
    let (rid, rest) = rest.split_first_chunk()?;
    let (ts, rest) = rest.split_first_chunk()?;
    let (lsn_before, rest) = rest.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk()?;
    let (current, previous) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    let (rid, ts) = (u64::from_be_bytes(*rid), i64::from_be_bytes(*ts));
    Some(Version { kind, rid, ts, lsn_before: u64::from_be_bytes(*lsn_before), current, previous })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_survives_and_garbage_does_not() {
        let version = Version {
            kind: VersionKind::Replace,
            rid: 7,
            ts: -3,
            lsn_before: 9,
            current: b"new row",
            previous: b"old",
        };
        let bytes = version.encode();
        let again = Version::decode(&bytes).expect("decodes");
        assert_eq!((again.kind, again.rid, again.ts, again.lsn_before), (VersionKind::Replace, 7, -3, 9));
        assert_eq!((again.current, again.previous), (&b"new row"[..], &b"old"[..]));
        assert!((0..FIXED_BYTES + 7).all(|cut| Version::decode(&bytes[..cut]).is_err()));
        assert!(Version::decode(&[&[2], &bytes[1..]].concat()).is_err());
    }
}
