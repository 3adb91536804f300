//! The manifest of a backup: its files, and the LSN of every partition.
//!
//! `manifest.json` is one line of JSON and one line with its SHA-256 in hexadecimal. A directory without one is no
//! backup.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use quire_value::{Limits, Number, Object, Value, text};
use ring::digest;

use super::file::hex;
use super::{bad, io_error};
use crate::api::EngineError;
use crate::store::keys::Counts;

pub(crate) const MANIFEST: &str = "manifest.json";
/// What this version writes and the newest it reads.
/// 2: items may have ETags of their own, and there are scripts in the catalog. Format 1 is read as it is.
const FORMAT: u64 = 2;
/// Far above what 100,000 containers need.
const MANIFEST_BYTES_MAX: u64 = 256 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub incarnation: u32,
    /// Seconds.
    pub created_at: i64,
    pub catalog_lsn: u64,
    pub files: Vec<FileEntry>,
    pub containers: Vec<ContainerEntry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileEntry {
    pub name: String,
    pub bytes: u64,
    pub chunks: u64,
    pub records: u64,
    pub sha256: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContainerEntry {
    pub number: u32,
    /// First rid counter that was never reserved.
    pub rid_counter: u64,
    pub partitions: Vec<PartitionEntry>,
}

/// Where a partition stood: together, the LSN vector of the backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartitionEntry {
    pub id: u32,
    pub counts: Counts,
}

impl Manifest {
    /// Durable when it returns.
    pub fn write(&self, directory: &Path) -> Result<(), EngineError> {
        let json = self.to_json().to_json();
        let path = directory.join(MANIFEST);
        let failed = |source| io_error("writing", &path, source);
        let mut file =
            File::options().write(true).create_new(true).mode(0o600).open(&path).map_err(failed)?;
        file.write_all(format!("{json}\n{}\n", sha256(json.as_bytes())).as_bytes()).map_err(failed)?;
        file.sync_all().map_err(failed)
    }

    pub fn read(directory: &Path) -> Result<Manifest, EngineError> {
        let path = directory.join(MANIFEST);
        let failed = |source| io_error("reading", &path, source);
        let metadata = fs::symlink_metadata(&path).map_err(failed)?;
        if !metadata.is_file() || metadata.len() > MANIFEST_BYTES_MAX {
            return Err(bad("the manifest is no regular file of a sensible size"));
        }
        let mut contents = String::new();
        let file = File::open(&path).map_err(failed)?;
        file.take(MANIFEST_BYTES_MAX).read_to_string(&mut contents).map_err(failed)?;
        let (json, rest) = contents.split_once('\n').ok_or_else(|| bad("the manifest is cut"))?;
        if rest.strip_suffix('\n') != Some(&sha256(json.as_bytes())) {
            return Err(bad("the manifest is not what was written"));
        }
        let json = text::parse(json.as_bytes(), Limits::default())
            .map_err(|error| bad(format!("the manifest: {error}")))?;
        let found = number(&json, "format").ok_or_else(|| bad("a manifest without format"))?;
        if found > FORMAT {
            let (found, supported) = (u32::try_from(found).unwrap_or(u32::MAX), FORMAT as u32);
            return Err(EngineError::NewerFormat { found, supported });
        }
        let manifest = Manifest::from_json(&json).ok_or_else(|| bad("a manifest with missing members"))?;
        manifest.check_names()?;
        Ok(manifest)
    }

    /// Names are ours: no path, no link to anything else, each once.
    fn check_names(&self) -> Result<(), EngineError> {
        for (index, file) in self.files.iter().enumerate() {
            let expected = file_name(index);
            if file.name != expected {
                return Err(bad(format!("file {:?} where {expected:?} belongs", file.name)));
            }
        }
        Ok(())
    }

    fn to_json(&self) -> Value {
        Value::Object(object([
            ("format", unsigned(FORMAT)),
            ("incarnation", unsigned(u64::from(self.incarnation))),
            ("createdAt", Value::from(self.created_at)),
            ("catalogLsn", unsigned(self.catalog_lsn)),
            ("files", Value::Array(self.files.iter().map(FileEntry::to_json).collect())),
            ("containers", Value::Array(self.containers.iter().map(ContainerEntry::to_json).collect())),
        ]))
    }

    fn from_json(json: &Value) -> Option<Manifest> {
        Some(Manifest {
            incarnation: u32::try_from(number(json, "incarnation")?).ok()?,
            created_at: json.get("createdAt")?.as_i64()?,
            catalog_lsn: number(json, "catalogLsn")?,
            files: list(json, "files", FileEntry::from_json)?,
            containers: list(json, "containers", ContainerEntry::from_json)?,
        })
    }
}

/// The catalog first, then the items.
pub(crate) fn file_name(index: usize) -> String {
    match index {
        0 => "catalog".to_owned(),
        index => format!("items-{index:06}"),
    }
}

impl FileEntry {
    fn to_json(&self) -> Value {
        Value::Object(object([
            ("name", Value::from(self.name.as_str())),
            ("bytes", unsigned(self.bytes)),
            ("chunks", unsigned(self.chunks)),
            ("records", unsigned(self.records)),
            ("sha256", Value::from(self.sha256.as_str())),
        ]))
    }

    fn from_json(json: &Value) -> Option<FileEntry> {
        Some(FileEntry {
            name: json.get("name")?.as_str()?.to_owned(),
            bytes: number(json, "bytes")?,
            chunks: number(json, "chunks")?,
            records: number(json, "records")?,
            sha256: json.get("sha256")?.as_str()?.to_owned(),
        })
    }
}

impl ContainerEntry {
    fn to_json(&self) -> Value {
        Value::Object(object([
            ("number", unsigned(u64::from(self.number))),
            ("ridCounter", unsigned(self.rid_counter)),
            ("partitions", Value::Array(self.partitions.iter().map(PartitionEntry::to_json).collect())),
        ]))
    }

    fn from_json(json: &Value) -> Option<ContainerEntry> {
        Some(ContainerEntry {
            number: u32::try_from(number(json, "number")?).ok()?,
            rid_counter: number(json, "ridCounter")?,
            partitions: list(json, "partitions", PartitionEntry::from_json)?,
        })
    }
}

impl PartitionEntry {
    fn to_json(&self) -> Value {
        Value::Object(object([
            ("id", unsigned(u64::from(self.id))),
            ("lsn", unsigned(self.counts.lsn)),
            ("items", unsigned(self.counts.items)),
            ("bytes", unsigned(self.counts.bytes)),
            ("lastTs", Value::from(self.counts.last_ts)),
        ]))
    }

    fn from_json(json: &Value) -> Option<PartitionEntry> {
        let counts = Counts {
            lsn: number(json, "lsn")?,
            items: number(json, "items")?,
            bytes: number(json, "bytes")?,
            last_ts: json.get("lastTs")?.as_i64()?,
            // A restore counts what it makes.
            ..Counts::default()
        };
        Some(PartitionEntry { id: u32::try_from(number(json, "id")?).ok()?, counts })
    }
}

fn object<const COUNT: usize>(members: [(&str, Value); COUNT]) -> Object {
    let mut object = Object::new();
    for (name, value) in members {
        object.set(name, value);
    }
    object
}

fn unsigned(number: u64) -> Value {
    Value::Number(Number::from_u64(number))
}

fn number(json: &Value, name: &str) -> Option<u64> {
    match json.get(name)?.as_number()? {
        Number::Int(number) => u64::try_from(number).ok(),
        Number::Unsigned(number) => Some(number),
        Number::Double(_) => None,
    }
}

fn list<T>(json: &Value, name: &str, read: impl Fn(&Value) -> Option<T>) -> Option<Vec<T>> {
    json.get(name)?.as_array()?.iter().map(read).collect()
}

fn sha256(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Manifest {
        let counts = Counts { lsn: u64::MAX, items: 2, bytes: 3, last_ts: -4, ..Counts::default() };
        Manifest {
            incarnation: 3,
            created_at: 1_700_000_000,
            catalog_lsn: 17,
            files: vec![FileEntry {
                name: "catalog".to_owned(),
                bytes: 100,
                chunks: 1,
                records: 5,
                sha256: "00ff".to_owned(),
            }],
            containers: vec![ContainerEntry {
                number: 7,
                rid_counter: 16385,
                partitions: vec![PartitionEntry { id: 0, counts }],
            }],
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let directory = tempfile::tempdir().unwrap();
        sample().write(directory.path()).unwrap();
        assert_eq!(Manifest::read(directory.path()).unwrap(), sample());
        let contents = fs::read_to_string(directory.path().join(MANIFEST)).unwrap();
        expect_test::expect![[r#"{"format":2,"incarnation":3,"createdAt":1700000000,"catalogLsn":17,"files":[{"name":"catalog","bytes":100,"chunks":1,"records":5,"sha256":"00ff"}],"containers":[{"number":7,"ridCounter":16385,"partitions":[{"id":0,"lsn":18446744073709551615,"items":2,"bytes":3,"lastTs":-4}]}]}"#]].assert_eq(contents.lines().next().unwrap());
    }

    #[test]
    fn a_garbled_manifest_or_a_foreign_name_is_refused() {
        for name in ["../catalog", "/etc/passwd", "items-000001", ""] {
            let directory = tempfile::tempdir().unwrap();
            let mut manifest = sample();
            manifest.files[0].name = name.to_owned();
            manifest.write(directory.path()).unwrap();
            assert!(matches!(Manifest::read(directory.path()), Err(EngineError::BadBackup { .. })), "{name}");
        }
        let directory = tempfile::tempdir().unwrap();
        sample().write(directory.path()).unwrap();
        let path = directory.path().join(MANIFEST);
        let contents = fs::read(&path).unwrap();
        for at in 0..contents.len() - 1 {
            let mut bad = contents.clone();
            bad[at] ^= 1;
            fs::write(&path, bad).unwrap();
            assert!(Manifest::read(directory.path()).is_err(), "byte {at}");
        }
    }
}
