//! The formats of job rows.
//!
//! Rows are sealed as those of the catalog are (`store::sealed`): integers little-endian, `text` a 4-byte length and that
//! many bytes, an absent number `u64::MAX`, an absent time `i64::MIN`.
//!
//! | row        | rest                                                                                               |
//! |------------|----------------------------------------------------------------------------------------------------|
//! | job        | kind text, unit text, database number (4) and name text, container number (4) and name text,       |
//! |            | created (8, ms), about as JSON text, payload text; then hold (1), error text, result as JSON text  |
//! | checkpoint | started (8, ms), done (8), total (8), position text                                                |
//! | finished   | the same as job up to the payload, which is empty; then state (1), started, finished (8 each, ms), |
//! |            | done, total (8 each), error text, result as JSON text                                              |
//!
//! Payload and position are the kind's own. Numbers of databases and containers are 0 where there is none.

use quire_storage::{Op, Snapshot};
use quire_value::{Limits, Object, Value, text};

use super::id::JobId;
use crate::api::{EngineError, corrupt};
use crate::store::keys::{self, CATALOG};
use crate::store::sealed::{FieldReader, open, seal, write_text};

const JSON_LIMITS: Limits = Limits { depth_max: 256 };
const NONE: i64 = i64::MIN;

/// A job to create.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NewJob {
    pub kind: &'static str,
    pub unit: &'static str,
    pub database: Option<JobOwner>,
    pub container: Option<JobOwner>,
    pub about: Object,
    /// What its kind must know, in a form of the kind's own.
    pub payload: Vec<u8>,
}

/// What a job is about, which never changes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JobBody {
    pub kind: String,
    pub unit: String,
    pub database: Option<JobOwner>,
    pub container: Option<JobOwner>,
    pub about: Object,
    pub payload: Vec<u8>,
    pub created_ms: i64,
}

/// The database or container of a job, which may be gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JobOwner {
    pub number: u32,
    pub name: String,
}

/// Why an unfinished job does not run, or only to be cancelled.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum JobHold {
    #[default]
    None,
    Paused,
    Blocked {
        error: String,
        result: Value,
    },
    Cancelling,
}

/// The durable progress of a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Checkpoint {
    pub started_ms: Option<i64>,
    pub done: u64,
    pub total: Option<u64>,
    pub position: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct FinishedJob {
    pub body: JobBody,
    pub outcome: JobOutcome,
    pub started_ms: Option<i64>,
    pub finished_ms: i64,
    pub done: u64,
    pub total: Option<u64>,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum JobOutcome {
    Done(Value),
    Failed { error: String, result: Value },
    Cancelled,
}

/// Whether a key is one of a job's: those in a backup.
pub(crate) fn is_job_key(key: &[u8]) -> bool {
    keys::job_of_key(key).is_some()
}

/// What the row of an unfinished job says; `None` for any other row.
pub(crate) fn unfinished_job(key: &[u8], value: &[u8]) -> Result<Option<(JobId, JobBody)>, EngineError> {
    match keys::job_of_key(key) {
        Some((keys::JobRow::Body, id)) => Ok(Some((JobId(id), decode_body(key, value)?.0))),
        _ => Ok(None),
    }
}

/// Whether the row of a job is in a restored store. How far it was is not: a job starts again there, for what it had made
/// besides items is not in a backup.
pub(crate) fn restored_row(key: &[u8], value: &[u8]) -> Result<bool, EngineError> {
    let (kind, _) = keys::job_of_key(key).ok_or_else(|| corrupt("key of a job"))?;
    match kind {
        keys::JobRow::Body => decode_body(key, value).map(|_| true),
        keys::JobRow::Finished => FinishedJob::decode(key, value).map(|_| true),
        keys::JobRow::Checkpoint => Checkpoint::decode(key, value).map(|_| false),
    }
}

impl NewJob {
    pub(super) fn body(self, created_ms: i64) -> JobBody {
        let NewJob { kind, unit, database, container, about, payload } = self;
        JobBody {
            kind: kind.to_owned(),
            unit: unit.to_owned(),
            database,
            container,
            about,
            payload,
            created_ms,
        }
    }
}

impl JobBody {
    fn write(&self, payload: &[u8]) -> Vec<u8> {
        let mut rest = Vec::new();
        write_text(self.kind.as_bytes(), &mut rest);
        write_text(self.unit.as_bytes(), &mut rest);
        for owner in [&self.database, &self.container] {
            let (number, name) = owner.as_ref().map_or((0, ""), |owner| (owner.number, owner.name.as_str()));
            rest.extend(number.to_le_bytes());
            write_text(name.as_bytes(), &mut rest);
        }
        rest.extend(self.created_ms.to_le_bytes());
        write_text(Value::Object(self.about.clone()).to_json().as_bytes(), &mut rest);
        write_text(payload, &mut rest);
        rest
    }

    fn read(reader: &mut FieldReader<'_>) -> Result<JobBody, EngineError> {
        Ok(JobBody {
            kind: reader.string()?,
            unit: reader.string()?,
            database: read_owner(reader)?,
            container: read_owner(reader)?,
            created_ms: reader.i64()?,
            about: match read_json(reader)? {
                Value::Object(about) => about,
                _ => return Err(corrupt("what a job is about")),
            },
            payload: reader.bytes()?.to_vec(),
        })
    }
}

/// The row of an unfinished job.
pub(super) fn put_body(id: JobId, body: &JobBody, hold: &JobHold) -> Op {
    let key = keys::job(id.0);
    let mut rest = body.write(&body.payload);
    let (tag, error, result) = match hold {
        JobHold::None => (0, "", &Value::Null),
        JobHold::Paused => (1, "", &Value::Null),
        JobHold::Blocked { error, result } => (2, error.as_str(), result),
        JobHold::Cancelling => (3, "", &Value::Null),
    };
    rest.push(tag);
    write_text(error.as_bytes(), &mut rest);
    write_text(result.to_json().as_bytes(), &mut rest);
    let value = seal(&key, &rest);
    Op::Put { space: CATALOG, key, value }
}

pub(super) fn decode_body(key: &[u8], value: &[u8]) -> Result<(JobBody, JobHold), EngineError> {
    let mut reader = open(key, value)?;
    let body = JobBody::read(&mut reader)?;
    let [tag] = reader.array()?;
    let (error, result) = (reader.string()?, read_json(&mut reader)?);
    reader.end()?;
    let hold = match tag {
        0 => JobHold::None,
        1 => JobHold::Paused,
        2 => JobHold::Blocked { error, result },
        3 => JobHold::Cancelling,
        _ => return Err(corrupt("hold of a job")),
    };
    Ok((body, hold))
}

impl Checkpoint {
    pub fn read(snapshot: &dyn Snapshot, id: JobId) -> Result<(Checkpoint, Option<Vec<u8>>), EngineError> {
        let key = keys::job_checkpoint(id.0);
        let row = snapshot.get(CATALOG, &key)?;
        let checkpoint = row.as_deref().map(|row| Checkpoint::decode(&key, row)).transpose()?;
        Ok((checkpoint.unwrap_or_default(), row))
    }

    pub fn encode(&self, key: &[u8]) -> Vec<u8> {
        let mut rest = Vec::new();
        rest.extend(self.started_ms.unwrap_or(NONE).to_le_bytes());
        rest.extend(self.done.to_le_bytes());
        rest.extend(self.total.unwrap_or(u64::MAX).to_le_bytes());
        write_text(&self.position, &mut rest);
        seal(key, &rest)
    }

    pub fn decode(key: &[u8], value: &[u8]) -> Result<Checkpoint, EngineError> {
        let mut reader = open(key, value)?;
        let checkpoint = Checkpoint {
            started_ms: time(reader.i64()?),
            done: reader.u64()?,
            total: total(reader.u64()?),
            position: reader.bytes()?.to_vec(),
        };
        reader.end()?;
        Ok(checkpoint)
    }
}

impl FinishedJob {
    pub fn put(&self, id: JobId) -> Op {
        let key = keys::finished_job(id.0);
        let value = self.encode(&key);
        Op::Put { space: CATALOG, key, value }
    }

    fn encode(&self, key: &[u8]) -> Vec<u8> {
        let mut rest = self.body.write(&[]);
        let (tag, error, result) = match &self.outcome {
            JobOutcome::Done(result) => (0, "", result),
            JobOutcome::Failed { error, result } => (1, error.as_str(), result),
            JobOutcome::Cancelled => (2, "", &Value::Null),
        };
        rest.push(tag);
        rest.extend(self.started_ms.unwrap_or(NONE).to_le_bytes());
        rest.extend(self.finished_ms.to_le_bytes());
        rest.extend(self.done.to_le_bytes());
        rest.extend(self.total.unwrap_or(u64::MAX).to_le_bytes());
        write_text(error.as_bytes(), &mut rest);
        write_text(result.to_json().as_bytes(), &mut rest);
        seal(key, &rest)
    }

    pub fn decode(key: &[u8], value: &[u8]) -> Result<FinishedJob, EngineError> {
        FinishedJob::decode_with(key, value, read_json)
    }

    /// Without the result, which may be large.
    pub fn decode_summary(key: &[u8], value: &[u8]) -> Result<FinishedJob, EngineError> {
        FinishedJob::decode_with(key, value, |reader| reader.bytes().map(|_| Value::Null))
    }

    fn decode_with(
        key: &[u8],
        value: &[u8],
        read_result: impl Fn(&mut FieldReader<'_>) -> Result<Value, EngineError>,
    ) -> Result<FinishedJob, EngineError> {
        let mut reader = open(key, value)?;
        let body = JobBody::read(&mut reader)?;
        let [tag] = reader.array()?;
        let (started_ms, finished_ms) = (time(reader.i64()?), reader.i64()?);
        let (done, total) = (reader.u64()?, total(reader.u64()?));
        let (error, result) = (reader.string()?, read_result(&mut reader)?);
        reader.end()?;
        let outcome = match tag {
            0 => JobOutcome::Done(result),
            1 => JobOutcome::Failed { error, result },
            2 => JobOutcome::Cancelled,
            _ => return Err(corrupt("state of a finished job")),
        };
        Ok(FinishedJob { body, outcome, started_ms, finished_ms, done, total })
    }
}

fn time(ms: i64) -> Option<i64> {
    (ms != NONE).then_some(ms)
}

fn total(number: u64) -> Option<u64> {
    (number != u64::MAX).then_some(number)
}

fn read_owner(reader: &mut FieldReader<'_>) -> Result<Option<JobOwner>, EngineError> {
    let owner = JobOwner { number: reader.u32()?, name: reader.string()? };
    Ok((owner.number != 0).then_some(owner))
}

fn read_json(reader: &mut FieldReader<'_>) -> Result<Value, EngineError> {
    text::parse(reader.bytes()?, JSON_LIMITS).map_err(|_| corrupt("JSON of a job"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body() -> JobBody {
        JobBody {
            kind: "build".to_owned(),
            unit: "items".to_owned(),
            database: Some(JobOwner { number: 7, name: "library".to_owned() }),
            container: None,
            about: Object::from_iter([("revision", 3)]),
            payload: vec![1, 2],
            created_ms: 1_700_000_000_000,
        }
    }

    fn value(op: Op) -> (Vec<u8>, Vec<u8>) {
        match op {
            Op::Put { key, value, .. } => (key, value),
            other => panic!("{other:?}"),
        }
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// On disk: a change here is a new format.
    #[test]
    fn golden_bytes() {
        let (key, row) = value(put_body(JobId(17), &body(), &JobHold::Paused));
        assert_eq!(hex(&key), "d00000000000000011");
        expect_test::expect!["017c98cb79050000006275696c64050000006974656d7307000000070000006c69627261727900000000000000000068e5cf8b0100000e0000007b227265766973696f6e223a337d0200000001020100000000040000006e756c6c"].assert_eq(&hex(&row));
        let checkpoint = Checkpoint { started_ms: Some(5), done: 4, total: None, position: vec![9] };
        let key = keys::job_checkpoint(17);
        assert_eq!(hex(&key), "d10000000000000011");
        expect_test::expect!["019879867105000000000000000400000000000000ffffffffffffffff0100000009"]
            .assert_eq(&hex(&checkpoint.encode(&key)));
        let finished = FinishedJob {
            body: body(),
            outcome: JobOutcome::Failed { error: "no".to_owned(), result: Value::Null },
            started_ms: Some(5),
            finished_ms: 6,
            done: 4,
            total: Some(8),
        };
        let (key, row) = value(finished.put(JobId(17)));
        assert_eq!(hex(&key), "d20000000000000011");
        expect_test::expect!["019c477bfa050000006275696c64050000006974656d7307000000070000006c69627261727900000000000000000068e5cf8b0100000e0000007b227265766973696f6e223a337d00000000010500000000000000060000000000000004000000000000000800000000000000020000006e6f040000006e756c6c"].assert_eq(&hex(&row));
    }

    #[test]
    fn what_was_written_is_read() {
        let blocked = JobHold::Blocked { error: "two".to_owned(), result: Value::from(2) };
        for hold in [JobHold::None, JobHold::Paused, blocked, JobHold::Cancelling] {
            let (key, row) = value(put_body(JobId(1), &body(), &hold));
            assert_eq!(decode_body(&key, &row).unwrap(), (body(), hold));
            assert!((0..row.len()).all(|cut| decode_body(&key, &row[..cut]).is_err()));
        }
        let checkpoint = Checkpoint { started_ms: None, done: 4, total: Some(5), position: vec![9] };
        let key = keys::job_checkpoint(1);
        assert_eq!(Checkpoint::decode(&key, &checkpoint.encode(&key)).unwrap(), checkpoint);
        for outcome in [
            JobOutcome::Done(Value::from(1)),
            JobOutcome::Failed { error: "e".to_owned(), result: Value::from(2) },
            JobOutcome::Cancelled,
        ] {
            let (started_ms, finished_ms, done, total) = (None, 6, 4, None);
            let body = JobBody { payload: Vec::new(), ..body() };
            let finished = FinishedJob { body, outcome, started_ms, finished_ms, done, total };
            let (key, row) = value(finished.put(JobId(1)));
            assert_eq!(FinishedJob::decode(&key, &row).unwrap(), finished);
        }
    }
}
