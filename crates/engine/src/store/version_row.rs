//! Rows of the version log: all versions and deletes, for the retention time of the container's change feed policy.
//!
//! One row per item and write, in the partition's order of LSNs. Value: format 1 (a byte), kind (a byte), child id 8, `_ts` of
//! the change 8, LSN of the version before 8 (0 if there was none), length of the new item row 4, the new item row, the item row
//! before. A delete has no new row. Format 2, of a version that maintenance wrote, has before the new item row the length (2) and
//! text of the names of the declarations that made it, with commas between them.

use crate::api::{EngineError, corrupt};

const FORMAT: u8 = 1;
const FORMAT_MAINTAINED: u8 = 2;
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
pub(crate) struct PreviousVersion {
    pub lsn: u64,
    pub row: Vec<u8>,
}

/// An item that goes.
#[derive(Clone, Debug)]
pub(crate) struct DeletedItem {
    pub rid: u64,
    pub before: PreviousVersion,
    pub is_expired: bool,
}

/// A row of the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VersionRow<'a> {
    pub kind: VersionKind,
    pub rid: u64,
    pub ts: i64,
    pub lsn_before: u64,
    /// Item rows; empty where there is none.
    pub current: &'a [u8],
    pub previous: &'a [u8],
    /// Names of the declarations that made it, with commas between them; empty where a client wrote it.
    pub maintained_by: &'a str,
}

impl VersionRow<'_> {
    pub fn encode(&self) -> Vec<u8> {
        let kind = match self.kind {
            VersionKind::Create => 0,
            VersionKind::Replace => 1,
            VersionKind::Delete => 2,
            VersionKind::Expire => 3,
        };
        let length = u32::try_from(self.current.len()).expect("an item row has a few megabytes at most");
        let mut bytes = Vec::with_capacity(FIXED_BYTES + self.current.len() + self.previous.len());
        bytes.extend([if self.maintained_by.is_empty() { FORMAT } else { FORMAT_MAINTAINED }, kind]);
        bytes.extend(self.rid.to_be_bytes());
        bytes.extend(self.ts.to_be_bytes());
        bytes.extend(self.lsn_before.to_be_bytes());
        bytes.extend(length.to_be_bytes());
        if !self.maintained_by.is_empty() {
            let names = self.maintained_by.as_bytes();
            let length = u16::try_from(names.len()).expect("200 declarations have names of 64 bytes");
            bytes.extend(length.to_be_bytes());
            bytes.extend(names);
        }
        bytes.extend(self.current);
        bytes.extend(self.previous);
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<VersionRow<'_>, EngineError> {
        decode(bytes).ok_or_else(|| corrupt("row of the log of versions"))
    }
}

fn decode(bytes: &[u8]) -> Option<VersionRow<'_>> {
    let (&[format, kind], rest) = bytes.split_first_chunk::<2>()?;
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
    let (maintained_by, rest) = match format {
        FORMAT => ("", rest),
        FORMAT_MAINTAINED => {
            let (names, rest) = rest.split_first_chunk()?;
            let (names, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*names)))?;
            (std::str::from_utf8(names).ok()?, rest)
        }
        _ => return None,
    };
    let (current, previous) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    let (rid, ts) = (u64::from_be_bytes(*rid), i64::from_be_bytes(*ts));
    let lsn_before = u64::from_be_bytes(*lsn_before);
    Some(VersionRow { kind, rid, ts, lsn_before, current, previous, maintained_by })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_survives_and_garbage_does_not() {
        let version = VersionRow {
            kind: VersionKind::Replace,
            rid: 7,
            ts: -3,
            lsn_before: 9,
            current: b"new row",
            previous: b"old",
            maintained_by: "",
        };
        let bytes = version.encode();
        let again = VersionRow::decode(&bytes).expect("decodes");
        assert_eq!((again.kind, again.rid, again.ts, again.lsn_before), (VersionKind::Replace, 7, -3, 9));
        assert_eq!((again.current, again.previous), (&b"new row"[..], &b"old"[..]));
        assert!((0..FIXED_BYTES + 7).all(|cut| VersionRow::decode(&bytes[..cut]).is_err()));
        assert!(VersionRow::decode(&[&[3], &bytes[1..]].concat()).is_err());
        let maintained = VersionRow { maintained_by: "a,b", ..version };
        let bytes = maintained.encode();
        let again = VersionRow::decode(&bytes).expect("decodes");
        assert_eq!(
            (again.maintained_by, again.current, again.previous),
            ("a,b", &b"new row"[..], &b"old"[..])
        );
        assert!((0..FIXED_BYTES + 12).all(|cut| VersionRow::decode(&bytes[..cut]).is_err()));
    }
}
