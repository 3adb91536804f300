//! The formats of catalog rows.
//!
//! Every row is sealed (`store::sealed`); `text` is a 4-byte length and that many bytes.
//!
//! | row       | rest                                                                                          |
//! |-----------|-----------------------------------------------------------------------------------------------|
//! | store     | engine format (4), incarnation (4), secret (32)                                               |
//! | counters  | next database, container, user, permission, client encryption key, offer; LSN floor; next     |
//! |           | script, declaration (8 each)                                                                  |
//! | resource  | ts (8), etag text, body as JSON text, partition count (4), partitions, of a container: epochs   |
//! | partition | id (4), min text, max text, parent count (4), parents (4 each)                                |
//! | epochs    | index epoch (1), count (4) of older ones, each: epoch (1), body text of the container under it; |
//! |           | count (4) of missing paths, each: complete (1), path text;                                    |
//! |           | version of its rows (1), then that of each older one (1)                                      |
//! | job       | nothing: the key says it all                                                                  |
//!
//! Only containers have partitions. A container without epochs is from before there were index rows (engine format 1):
//! its items have epoch 0, which has no body. Counters without a script are from before there were any (engine format 2):
//! none has been given out; the same for declarations of models (engine format 5). Epochs without missing paths are from before there were any (engine format 3), and those
//! without versions from before engine format 5: all rows are of version 1 (up to 2 before engine format 7), and a container with full-text indexes of an older version begins
//! its next epoch when it is opened. The store row is the first thing read, and its engine format is checked before
//! anything else is: a newer one is refused.

use std::sync::Arc;

use quire_resource::{EffectivePartitionKey, EpkRange, ResourceId};
use quire_value::{Limits, Object, Path, Value, text};

use crate::api::{EngineError, Resource, corrupt};
use crate::indexes::missing::MissingPath;
use crate::indexes::{IndexEpochs, OlderEpoch, RowsVersion};
use crate::store::PartitionLayout;
use crate::store::sealed::{FieldReader, length, open, seal, write_text};

/// What this version writes and the newest it reads.
pub(crate) const ENGINE_FORMAT: u32 = 7;
/// Bodies were accepted from clients with the same limit.
const BODY_LIMITS: Limits = Limits { depth_max: 128 };

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoreRow {
    pub incarnation: u32,
    pub secret: [u8; 32],
}

/// The next number of each kind. Numbers are account-wide and never given out twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counters {
    pub database: u64,
    pub container: u64,
    pub user: u64,
    pub permission: u64,
    pub client_encryption_key: u64,
    pub offer: u64,
    /// The highest LSN of any partition that was deleted: new partitions start there, so that a session token which a
    /// client still has for a container's name is never ahead of the container that has the name now.
    pub lsn_floor: u64,
    /// Of stored procedures, triggers and user-defined functions alike.
    pub script: u64,
    /// Of declarations of models.
    pub declaration: u64,
}

impl Default for Counters {
    fn default() -> Counters {
        let first = 1;
        Counters {
            database: first,
            container: first,
            user: first,
            permission: first,
            client_encryption_key: first,
            offer: first,
            lsn_floor: 0,
            script: first,
            declaration: first,
        }
    }
}

pub(crate) struct ResourceRow {
    pub resource: Arc<Resource>,
    pub layout: Vec<PartitionLayout>,
    pub epochs: IndexEpochs,
}

impl StoreRow {
    pub fn encode(&self, key: &[u8]) -> Vec<u8> {
        let mut rest = Vec::new();
        rest.extend(ENGINE_FORMAT.to_le_bytes());
        rest.extend(self.incarnation.to_le_bytes());
        rest.extend(self.secret);
        seal(key, &rest)
    }

    /// Also whether it was written by an older version.
    pub fn decode(key: &[u8], bytes: &[u8]) -> Result<(StoreRow, bool), EngineError> {
        // The engine format stands at a fixed place in every format to come, so that a newer store is named as such.
        let found =
            bytes.get(5..).and_then(|rest| rest.first_chunk()).map(|bytes| u32::from_le_bytes(*bytes));
        match found {
            Some(found) if found > ENGINE_FORMAT => {
                return Err(EngineError::NewerFormat { found, supported: ENGINE_FORMAT });
            }
            _ => {}
        }
        let mut reader = open(key, bytes)?;
        let is_older = reader.u32()? < ENGINE_FORMAT;
        let row = StoreRow { incarnation: reader.u32()?, secret: reader.array()? };
        reader.end()?;
        Ok((row, is_older))
    }
}

impl Counters {
    pub fn encode(&self, key: &[u8]) -> Vec<u8> {
        let numbers = [
            self.database,
            self.container,
            self.user,
            self.permission,
            self.client_encryption_key,
            self.offer,
            self.lsn_floor,
            self.script,
            self.declaration,
        ];
        let rest: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        seal(key, &rest)
    }

    pub fn decode(key: &[u8], bytes: &[u8]) -> Result<Counters, EngineError> {
        let mut reader = open(key, bytes)?;
        let counters = Counters {
            database: reader.u64()?,
            container: reader.u64()?,
            user: reader.u64()?,
            permission: reader.u64()?,
            client_encryption_key: reader.u64()?,
            offer: reader.u64()?,
            lsn_floor: reader.u64()?,
            script: if reader.is_empty() { 1 } else { reader.u64()? },
            declaration: if reader.is_empty() { 1 } else { reader.u64()? },
        };
        reader.end()?;
        Ok(counters)
    }
}

impl ResourceRow {
    /// Of a container.
    pub fn encode_container(
        key: &[u8],
        resource: &Resource,
        layout: &[PartitionLayout],
        epochs: &IndexEpochs,
    ) -> Vec<u8> {
        let mut rest = ResourceRow::write(resource, layout);
        rest.push(epochs.current);
        rest.extend(length(epochs.older.len()));
        for older in &epochs.older {
            rest.push(older.epoch);
            let text =
                older.body.as_ref().map_or(String::new(), |body| Value::Object(body.clone()).to_json());
            write_text(text.as_bytes(), &mut rest);
        }
        rest.extend(length(epochs.missing.len()));
        for MissingPath { path, is_complete } in &epochs.missing {
            rest.push(u8::from(*is_complete));
            write_text(path.to_string().as_bytes(), &mut rest);
        }
        rest.push(epochs.rows.0);
        rest.extend(epochs.older.iter().map(|older| older.rows.0));
        seal(key, &rest)
    }

    /// Of anything else.
    pub fn encode(key: &[u8], resource: &Resource) -> Vec<u8> {
        seal(key, &ResourceRow::write(resource, &[]))
    }

    fn write(resource: &Resource, layout: &[PartitionLayout]) -> Vec<u8> {
        let mut rest = Vec::new();
        rest.extend(resource.ts.to_le_bytes());
        write_text(resource.etag.as_bytes(), &mut rest);
        write_text(Value::Object(resource.body.clone()).to_json().as_bytes(), &mut rest);
        rest.extend(length(layout.len()));
        for partition in layout {
            write_layout(partition, &mut rest);
        }
        rest
    }

    pub fn decode(key: &[u8], bytes: &[u8], rid: ResourceId) -> Result<ResourceRow, EngineError> {
        let mut reader = open(key, bytes)?;
        let ts = reader.i64()?;
        let etag = reader.string()?;
        let body = read_body(reader.bytes()?)?;
        let layout = reader.list(read_layout)?;
        let epochs =
            if reader.is_empty() { IndexEpochs::before_indexes() } else { read_epochs(&mut reader)? };
        let epochs = epochs.with_newest_rows(&body);
        reader.end()?;
        let id = body.get("id").and_then(Value::as_str).ok_or_else(|| corrupt("a resource without id"))?;
        let resource = Resource { rid, id: id.to_owned(), etag, ts, body };
        Ok(ResourceRow { resource: Arc::new(resource), layout, epochs })
    }
}

pub(crate) fn encode_job(key: &[u8]) -> Vec<u8> {
    seal(key, &[])
}

pub(crate) fn check_job(key: &[u8], bytes: &[u8]) -> Result<(), EngineError> {
    open(key, bytes)?.end()
}

fn read_body(bytes: &[u8]) -> Result<Object, EngineError> {
    match text::parse(bytes, BODY_LIMITS) {
        Ok(Value::Object(body)) => Ok(body),
        Ok(_) => Err(corrupt("a resource that is no object")),
        Err(error) => Err(corrupt(format!("a catalog row's JSON: {error}"))),
    }
}

fn write_layout(partition: &PartitionLayout, out: &mut Vec<u8>) {
    out.extend(partition.id.to_le_bytes());
    write_text(&partition.range.min.0, out);
    write_text(&partition.range.max.0, out);
    out.extend(length(partition.parents.len()));
    partition.parents.iter().for_each(|parent| out.extend(parent.to_le_bytes()));
}

fn read_layout(reader: &mut FieldReader<'_>) -> Result<PartitionLayout, EngineError> {
    let id = reader.u32()?;
    let min = EffectivePartitionKey(reader.bytes()?.to_vec());
    let max = EffectivePartitionKey(reader.bytes()?.to_vec());
    let parents = reader.list(FieldReader::u32)?;
    Ok(PartitionLayout { id, range: EpkRange { min, max }, parents })
}

fn read_epochs(reader: &mut FieldReader<'_>) -> Result<IndexEpochs, EngineError> {
    let [current] = reader.array()?;
    let mut older = reader.list(|reader| {
        let [epoch] = reader.array()?;
        let body = reader.bytes()?;
        let body = if body.is_empty() { None } else { Some(read_body(body)?) };
        Ok(OlderEpoch { epoch, body, rows: RowsVersion::FIRST })
    })?;
    let missing = if reader.is_empty() { Vec::new() } else { reader.list(read_missing)? };
    if reader.is_empty() {
        return Ok(IndexEpochs { current, rows: RowsVersion::FIRST, older, missing });
    }
    let rows = read_rows_version(reader)?;
    for older in &mut older {
        older.rows = read_rows_version(reader)?;
    }
    Ok(IndexEpochs { current, rows, older, missing })
}

fn read_rows_version(reader: &mut FieldReader<'_>) -> Result<RowsVersion, EngineError> {
    let [version] = reader.array()?;
    let version = RowsVersion(version);
    let is_known = (RowsVersion::FIRST..=RowsVersion::NEWEST).contains(&version);
    is_known.then_some(version).ok_or_else(|| corrupt("index rows of an unknown version"))
}

fn read_missing(reader: &mut FieldReader<'_>) -> Result<MissingPath, EngineError> {
    let [complete] = reader.array()?;
    let path = Path::parse(&reader.string()?).map_err(|_| corrupt("a path of a catalog row"))?;
    Ok(MissingPath { path, is_complete: complete != 0 })
}

/// Rows as engine format 1 wrote them.
#[cfg(test)]
pub(crate) mod format_1 {
    use super::*;

    pub(crate) fn store(key: &[u8], row: &StoreRow) -> Vec<u8> {
        let rest = [&1u32.to_le_bytes()[..], &row.incarnation.to_le_bytes(), &row.secret].concat();
        seal(key, &rest)
    }

    pub(crate) fn container(key: &[u8], row: &ResourceRow) -> Vec<u8> {
        seal(key, &ResourceRow::write(&row.resource, &row.layout))
    }
}

/// Rows as engine format 6 wrote them.
#[cfg(test)]
pub(crate) mod format_6 {
    use super::*;

    pub(crate) fn store(key: &[u8], row: &StoreRow) -> Vec<u8> {
        let rest = [&6u32.to_le_bytes()[..], &row.incarnation.to_le_bytes(), &row.secret].concat();
        seal(key, &rest)
    }

    /// Of a container that all items have the rows of.
    pub(crate) fn container(key: &[u8], row: &ResourceRow) -> Vec<u8> {
        let epochs = IndexEpochs { rows: RowsVersion::SCORED_TEXTS, ..row.epochs.clone() };
        ResourceRow::encode_container(key, &row.resource, &row.layout, &epochs)
    }
}

/// Rows as engine format 3 wrote them.
#[cfg(test)]
pub(crate) mod format_3 {
    use super::*;

    pub(crate) fn store(key: &[u8], row: &StoreRow) -> Vec<u8> {
        let rest = [&3u32.to_le_bytes()[..], &row.incarnation.to_le_bytes(), &row.secret].concat();
        seal(key, &rest)
    }

    /// Of a container that all items have the rows of.
    pub(crate) fn container(key: &[u8], row: &ResourceRow) -> Vec<u8> {
        let mut rest = ResourceRow::write(&row.resource, &row.layout);
        rest.push(row.epochs.current);
        rest.extend(length(0));
        seal(key, &rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::keys::{self, RowId};
    use crate::maintenance::backup::file::hex;
    use expect_test::{Expect, expect};

    fn check(bytes: &[u8], expected: Expect) {
        expected.assert_eq(&hex(bytes));
    }

    fn container_row() -> (Vec<u8>, ResourceId, Vec<u8>) {
        let rid = ResourceId::Container { database: 1, container: 2 };
        let mut body = Object::new();
        body.set("id", "c");
        let etag = "\"e\"".to_owned();
        let resource = Resource { rid, id: "c".to_owned(), body, etag, ts: 1_700_000_000 };
        let key = keys::row_key(RowId::Resource(rid));
        let range = EpkRange { min: EffectivePartitionKey(vec![]), max: EffectivePartitionKey(vec![0xFF]) };
        let layout = [PartitionLayout { id: 3, range, parents: vec![0] }];
        let older = |epoch, body| OlderEpoch { epoch, body, rows: RowsVersion::FIRST };
        let older = vec![older(0, None), older(1, Some(resource.body.clone()))];
        let missing = vec![MissingPath { path: Path::parse("/a/b").unwrap(), is_complete: true }];
        let epochs = IndexEpochs { current: 2, rows: RowsVersion::NEWEST, older, missing };
        let value = ResourceRow::encode_container(&key, &resource, &layout, &epochs);
        (key, rid, value)
    }

    /// On disk: a change here is a new format.
    #[test]
    fn golden_bytes() {
        let store = StoreRow { incarnation: 2, secret: [0xAB; 32] };
        check(
            &store.encode(&keys::STORE),
            expect![
                "0192d2b74d0700000002000000abababababababababababababababababababababababababababababababab"
            ],
        );
        check(
            &Counters::default().encode(&keys::COUNTERS),
            expect![
                "015b24c75e010000000000000001000000000000000100000000000000010000000000000001000000000000000100000000000000000000000000000001000000000000000100000000000000"
            ],
        );
        let (key, _, value) = container_row();
        check(&key, expect!["10020000000100000002"]);
        check(
            &value,
            expect![
                "01032ddcac00f1536500000000030000002265220a0000007b226964223a2263227d01000000030000000000000001000000ff010000000000000002020000000000000000010a0000007b226964223a2263227d0100000001040000002f612f62030101"
            ],
        );
        let job = keys::job_key(super::super::state::DropJob::User { database: 1, user: 2 });
        check(&job, expect!["20030000000100000002"]);
        check(&encode_job(&job), expect!["01ff1f3446"]);
    }

    #[test]
    fn what_was_written_is_read() {
        let store = StoreRow { incarnation: 2, secret: [0xAB; 32] };
        assert_eq!(StoreRow::decode(&keys::STORE, &store.encode(&keys::STORE)).unwrap(), (store, false));
        let counters = Counters { offer: 77, ..Counters::default() };
        let bytes = counters.encode(&keys::COUNTERS);
        assert_eq!(Counters::decode(&keys::COUNTERS, &bytes).unwrap(), counters);
        let (key, rid, value) = container_row();
        let row = ResourceRow::decode(&key, &value, rid).unwrap();
        let again = ResourceRow::encode_container(&key, &row.resource, &row.layout, &row.epochs);
        assert_eq!(again, value);
        assert_eq!(row.layout[0].parents, [0]);
    }

    #[test]
    fn a_garbled_row_or_one_in_another_place_is_noticed() {
        let (key, rid, value) = container_row();
        for at in 0..value.len() {
            let mut bad = value.clone();
            bad[at] ^= 1;
            assert!(ResourceRow::decode(&key, &bad, rid).is_err(), "byte {at}");
            assert!(ResourceRow::decode(&key, &value[..at], rid).is_err(), "cut at {at}");
        }
        let body = value[5..].to_vec();
        assert!(ResourceRow::decode(&key, &seal(&key, &body), rid).is_ok());
        let other = keys::row_key(RowId::Resource(ResourceId::Database(1)));
        assert!(ResourceRow::decode(&other, &value, rid).is_err());
    }

    #[test]
    fn what_engine_format_1_wrote_is_read() {
        let secret = "abababababababababababababababababababababababababababababababab";
        let store = bytes(&format!("0182b3ce180100000002000000{secret}"));
        let (row, is_older) = StoreRow::decode(&keys::STORE, &store).unwrap();
        assert_eq!((row.incarnation, is_older), (2, true));
        let (key, rid, _) = container_row();
        let container = bytes(
            "01b6680ba700f1536500000000030000002265220a0000007b226964223a2263227d01000000030000000000000001000000ff0100000000000000",
        );
        let row = ResourceRow::decode(&key, &container, rid).unwrap();
        assert_eq!(row.epochs, IndexEpochs::before_indexes());
    }

    #[test]
    fn texts_without_occurrences_are_scored_again() {
        let texts = r#"{"indexingPolicy":{"fullTextIndexes":[{"path":"/text"}]}}"#;
        let body = read_body(texts.as_bytes()).unwrap();
        let before = IndexEpochs { current: 3, rows: RowsVersion::FIRST, ..IndexEpochs::new() };
        let after = before.with_newest_rows(&body);
        assert_eq!((after.current, after.rows), (1, RowsVersion::NEWEST));
        let older = OlderEpoch { epoch: 3, body: Some(body.clone()), rows: RowsVersion::FIRST };
        assert_eq!(after.older, [older]);
        assert_eq!(after.clone().with_newest_rows(&body), after);
    }

    #[test]
    fn what_engine_format_2_wrote_is_read() {
        let counters = bytes(
            "0184e673bd0100000000000000010000000000000001000000000000000100000000000000010000000000000001000000000000000000000000000000",
        );
        assert_eq!(Counters::decode(&keys::COUNTERS, &counters).unwrap(), Counters::default());
        let secret = "abababababababababababababababababababababababababababababababab";
        let store = bytes(&format!("010a0372320200000002000000{secret}"));
        let (row, is_older) = StoreRow::decode(&keys::STORE, &store).unwrap();
        assert_eq!((row.incarnation, is_older), (2, true));
    }

    #[test]
    fn what_engine_format_3_wrote_is_read() {
        let (key, rid, _) = container_row();
        let container = bytes(
            "017424cc4100f1536500000000030000002265220a0000007b226964223a2263227d01000000030000000000000001000000ff010000000000000002020000000000000000010a0000007b226964223a2263227d",
        );
        let row = ResourceRow::decode(&key, &container, rid).unwrap();
        assert_eq!((row.epochs.current, row.epochs.older.len()), (2, 2));
        assert!(row.epochs.missing.is_empty());
    }

    fn bytes(hex: &str) -> Vec<u8> {
        let pairs = hex.as_bytes().chunks(2);
        pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
    }

    #[test]
    fn what_engine_format_5_wrote_is_read() {
        let counters = bytes(
            "013074687b01000000000000000100000000000000010000000000000001000000000000000100000000000000010000000000000000000000000000000100000000000000",
        );
        assert_eq!(Counters::decode(&keys::COUNTERS, &counters).unwrap(), Counters::default());
        let store = bytes(
            "015df04fc80500000002000000abababababababababababababababababababababababababababababababab",
        );
        let (row, is_older) = StoreRow::decode(&keys::STORE, &store).unwrap();
        assert_eq!((row.incarnation, is_older), (2, true));
    }

    #[test]
    fn keys_say_whose_they_are() {
        use crate::catalog::state::{DropJob, OfferOwner};
        use quire_resource::ChildKind;
        let script = |kind| ResourceId::Child { database: 1, container: 2, kind, child: 3 };
        let resources = [
            ResourceId::Database(1),
            ResourceId::Container { database: 1, container: 2 },
            ResourceId::User { database: 1, user: 2 },
            ResourceId::Permission { database: 1, user: 2, permission: u64::MAX },
            ResourceId::ClientEncryptionKey { database: 1, key: 2 },
            script(ChildKind::StoredProcedure),
            script(ChildKind::Trigger),
            script(ChildKind::UserDefinedFunction),
        ];
        let offers = [OfferOwner { database: 1, container: 0 }, OfferOwner { database: 1, container: 5 }];
        let ids = resources.map(RowId::Resource).into_iter();
        for id in ids.chain(offers.map(|owner| RowId::Offer { owner, number: 9 })) {
            let key = keys::row_key(id);
            assert_eq!(keys::parse_row_key(&key), Some(id));
            assert_eq!(keys::parse_row_key(&key[..key.len() - 1]), None);
        }
        for job in [
            DropJob::Container { container: 1 },
            DropJob::Database { database: 2 },
            DropJob::User { database: 3, user: 4 },
            DropJob::Declaration { container: 5, declaration: 6 },
        ] {
            assert_eq!(keys::parse_job_key(&keys::job_key(job)), Some(job));
        }
    }
}
