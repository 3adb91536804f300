//! Jobs that rewrite more referrers of a target than one request may.
//!
//! There is one job for a link and a target. It walks the index of the link and writes into every referrer what the target says
//! then; of a target that is gone it does what `onDelete` says. A row by the target says that the job is pending:
//! it comes with the commit of the target's write and goes with the last commit of the job. A further change of the target
//! raises `rounds` in its own commit: a walk that began with fewer rounds is followed by another one.
//!
//! Both are read and written under the target's lock: exclusively by writes of the target, shared by the job.

use quire_model::TargetKey;
use quire_resource::PartitionKey;
use quire_storage::Op;
use quire_value::{Object, Value};

use super::Unit;
use crate::api::{EngineError, corrupt};
use crate::jobs::{JobId, JobOwner, NewJob, PreparedJob};
use crate::links::TargetHash;
use crate::store::keys::LOOKUPS;

/// The kind of these jobs.
pub(crate) const FAN_OUT: &str = "fan-out";

const ROW_FORMAT: u8 = 1;
const PAYLOAD_FORMAT: u8 = 1;

/// What a unit leaves to a job.
#[derive(Clone, Debug)]
pub(crate) struct FanOut {
    /// Number of the link in the model.
    pub link: usize,
    pub target: TargetKey,
    /// The target is gone, and `onDelete` says what becomes of its referrers.
    pub is_deletion: bool,
    /// No copy is older than the target was at this LSN.
    pub since_lsn: u64,
}

/// That a job is pending, by link and target.
///
/// Format 1 (a byte), is it a deletion (a byte), job, rounds, LSN (8 bytes each, little-endian).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FanOutRow {
    pub job: JobId,
    /// How often the target changed since the job was made, and once.
    pub rounds: u64,
    pub is_deletion: bool,
    pub since_lsn: u64,
}

/// What the job has to know.
///
/// Format 1 (a byte), number of the link's declaration (4 bytes, little-endian), length of the key's value (4 bytes), the value,
/// then the partition key as items have it, or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FanOutPayload {
    pub declaration: u32,
    pub target: TargetKey,
}

impl FanOutRow {
    pub fn encode(&self) -> Vec<u8> {
        let mut row = vec![ROW_FORMAT, u8::from(self.is_deletion)];
        for number in [self.job.0, self.rounds, self.since_lsn] {
            row.extend(number.to_le_bytes());
        }
        row
    }

    pub fn decode(row: &[u8]) -> Result<FanOutRow, EngineError> {
        let bad = || corrupt("row of a fan-out");
        let (&[ROW_FORMAT, is_deletion], rest) = row.split_first_chunk().ok_or_else(bad)? else {
            return Err(bad());
        };
        let number = |at: usize| {
            let bytes = rest.get(8 * at..8 * at + 8)?.try_into().ok()?;
            Some(u64::from_le_bytes(bytes))
        };
        if rest.len() != 24 || is_deletion > 1 {
            return Err(bad());
        }
        let (job, rounds) = (number(0).ok_or_else(bad)?, number(1).ok_or_else(bad)?);
        let since_lsn = number(2).ok_or_else(bad)?;
        Ok(FanOutRow { job: JobId(job), rounds, is_deletion: is_deletion == 1, since_lsn })
    }
}

impl FanOutPayload {
    pub fn encode(&self) -> Vec<u8> {
        let mut payload = vec![PAYLOAD_FORMAT];
        payload.extend(self.declaration.to_le_bytes());
        let length = u32::try_from(self.target.value.len()).expect("an item has at most 2 MB");
        payload.extend(length.to_le_bytes());
        payload.extend(self.target.value.as_bytes());
        if let Some(partition_key) = &self.target.partition_key {
            partition_key.encode(&mut payload);
        }
        payload
    }

    pub fn decode(payload: &[u8]) -> Result<FanOutPayload, EngineError> {
        decode_payload(payload).ok_or_else(|| corrupt("payload of a fan-out"))
    }
}

fn decode_payload(payload: &[u8]) -> Option<FanOutPayload> {
    let (&PAYLOAD_FORMAT, rest) = payload.split_first()? else { return None };
    let (declaration, rest) = rest.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk()?;
    let (value, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    let partition_key = match rest {
        [] => None,
        rest => match PartitionKey::decode(rest).ok()? {
            (key, []) => Some(key),
            _ => return None,
        },
    };
    let value = std::str::from_utf8(value).ok()?.to_owned();
    let target = TargetKey { value, partition_key };
    Some(FanOutPayload { declaration: u32::from_le_bytes(*declaration), target })
}

impl Unit<'_> {
    /// The rows of what is left to jobs, and the jobs that are new.
    pub(super) fn fan_out_ops(&self) -> Result<(Vec<Op>, Vec<PreparedJob>), EngineError> {
        let (mut ops, mut jobs) = (Vec::new(), Vec::new());
        for own in &self.fan_outs {
            let rows = self.base.route(own.link).rows();
            let key = rows.fan_out(&TargetHash::of(&own.target).0);
            let pending = match self.base.snapshot.get(LOOKUPS, &key)? {
                Some(_) => self.still_pending(&key)?,
                None => None,
            };
            let row = match pending.as_deref().map(FanOutRow::decode).transpose()? {
                Some(row) => FanOutRow {
                    rounds: row.rounds + 1,
                    is_deletion: row.is_deletion || own.is_deletion,
                    ..row
                },
                None => {
                    let job = self.base.shared.jobs.prepare(self.new_job(own))?;
                    let row = FanOutRow {
                        job: job.id,
                        rounds: 1,
                        is_deletion: own.is_deletion,
                        since_lsn: own.since_lsn,
                    };
                    #[cfg(test)]
                    let ops = if self.is_job_row_separate() { &mut Vec::new() } else { &mut ops };
                    ops.push(job.op());
                    jobs.push(job);
                    row
                }
            };
            ops.push(Op::Put { space: LOOKUPS, key, value: row.encode() });
        }
        Ok((ops, jobs))
    }

    #[cfg(test)]
    fn is_job_row_separate(&self) -> bool {
        self.base.shared.injected_bug.is(crate::runtime::injected_bug::InjectedBug::JobRowInSecondCommit)
    }

    /// The row of a job that has not ended: its last commit may have been in doubt when the unit's snapshot was taken.
    fn still_pending(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        let shared = self.base.shared;
        shared.jobs.settle()?;
        Ok(shared.storage.snapshot()?.get(LOOKUPS, key)?)
    }

    fn new_job(&self, own: &FanOut) -> NewJob {
        let site = &self.base.sites[self.base.referrer_site(own.link)];
        let declaration = self.base.link_declaration(own.link);
        let mut about = Object::new();
        about.set("link", declaration.name.as_str());
        about.set("container", self.base.link(own.link).link.to.container.as_str());
        about.set("key", own.target.value.as_str());
        let header = own.target.partition_key.as_ref().map(|key| Value::from(key.to_header()));
        about.set("partitionKey", header.unwrap_or(Value::Null));
        about.set("sinceLsn", own.since_lsn as i64);
        let payload = FanOutPayload { declaration: declaration.number, target: own.target.clone() };
        let database = &site.container.database;
        let number = match database.rid {
            quire_resource::ResourceId::Database(number) => number,
            _ => 0,
        };
        NewJob {
            kind: FAN_OUT,
            unit: "items",
            database: Some(JobOwner { number, name: database.id.clone() }),
            container: Some(JobOwner {
                number: site.container.number,
                name: site.container.definition.id.clone(),
            }),
            about,
            payload: payload.encode(),
        }
    }
}

#[cfg(test)]
mod tests {
    use quire_resource::Component;

    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// On disk: a change here is a new format.
    #[test]
    fn golden_bytes() {
        let row = FanOutRow { job: JobId(0x17), rounds: 2, is_deletion: true, since_lsn: 9 };
        assert_eq!(
            hex(&row.encode()),
            "0101 1700000000000000 0200000000000000 0900000000000000".replace(' ', "")
        );
        let key = PartitionKey(vec![Component::String("p".to_owned())]);
        let target = TargetKey { value: "a1".to_owned(), partition_key: Some(key) };
        let payload = FanOutPayload { declaration: 7, target };
        assert_eq!(hex(&payload.encode()), "01 07000000 02000000 6131 01 08 0100 70".replace(' ', ""));
    }

    #[test]
    fn what_was_written_is_read_and_garbage_is_not() {
        let row = FanOutRow { job: JobId(3), rounds: u64::MAX, is_deletion: false, since_lsn: 0 };
        assert_eq!(FanOutRow::decode(&row.encode()).unwrap(), row);
        let key = PartitionKey(vec![Component::Null, Component::Number(1.5)]);
        for partition_key in [None, Some(key)] {
            let target = TargetKey { value: "é".to_owned(), partition_key };
            let payload = FanOutPayload { declaration: u32::MAX, target };
            let bytes = payload.encode();
            assert_eq!(FanOutPayload::decode(&bytes).unwrap(), payload);
            let shorter = (0..bytes.len()).filter_map(|at| FanOutPayload::decode(&bytes[..at]).ok());
            assert!(shorter.into_iter().all(|read| read != payload));
        }
        let bytes = row.encode();
        assert!((0..bytes.len()).all(|at| FanOutRow::decode(&bytes[..at]).is_err()));
        assert!(FanOutRow::decode(&[bytes, vec![0]].concat()).is_err());
    }
}
