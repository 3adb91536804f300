//! `--seed`: databases, containers with their policies, scripts and items to begin with.
//!
//! A seed is a JSON file, or a directory whose `*.json` files are read in the order of their names. `databases` is what
//! makes a file a seed: in a directory a file that a seed names as a file of items is none, whatever its name is.
//!
//! ```json
//! {"databases": [{"id": "shop", "throughput": 400, "containers": [
//!   {"id": "orders", "partitionKey": {"paths": ["/customer"]}, "defaultTtl": -1, "throughput": 4000,
//!    "storedProcedures": [{"id": "close", "file": "close.js"}],
//!    "triggers": [{"id": "stamp", "body": "function stamp() {}", "triggerType": "Pre", "triggerOperation": "All"}],
//!    "userDefinedFunctions": [], "items": [{"id": "1", "customer": "ada"}], "itemFiles": ["orders.jsonl"]}]}]}
//! ```
//!
//! Everything is read and checked for its form before anything is made. What exists already is left as it is, so a seed
//! that was cut short can be read again.

mod files; // which files of a directory are seeds

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, anyhow, bail};
use bytes::Bytes;
use quire_engine::{Container, Engine, EngineError, ScriptKind, WriteItem, WriteKind};
use quire_resource::Throughput;
use quire_value::{Limits, Object, Value, text};
use ring::digest::{Context as Digest, SHA256};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::private;

/// Items that are written at once: their commits share a sync.
const WRITERS: usize = 16;
/// Of one file, which is read as a whole.
const SEED_BYTES_MAX: u64 = 1 << 30;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document<'a> {
    #[serde(borrow)]
    databases: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct DatabaseEntry<'a> {
    id: String,
    throughput: Option<i64>,
    autoscale_max_throughput: Option<i64>,
    #[serde(borrow, default)]
    containers: Vec<&'a RawValue>,
}

/// Members of a container that are not of its definition.
#[derive(Default)]
struct ContainerEntry<'a> {
    throughput: Option<i64>,
    autoscale_max_throughput: Option<i64>,
    scripts: Vec<(ScriptKind, &'a RawValue)>,
    items: Vec<&'a RawValue>,
    item_files: Vec<PathBuf>,
    /// The definition, as the service takes it.
    body: Object,
}

/// A text and where it comes from.
struct Source {
    path: Arc<Path>,
    text: String,
    /// The offset of each line: a seed asks for the line of every item.
    line_starts: Vec<usize>,
}

/// Where something stands.
#[derive(Clone)]
struct SeedLine {
    path: Arc<Path>,
    line: usize,
}

struct Database {
    place: SeedLine,
    id: String,
    throughput: Option<Throughput>,
    containers: Vec<SeedContainer>,
}

/// A container that a seed makes.
struct SeedContainer {
    place: SeedLine,
    id: String,
    body: Value,
    throughput: Option<Throughput>,
    scripts: Vec<(SeedLine, ScriptKind, Value)>,
    items: Vec<(SeedLine, Bytes)>,
}

/// How many were made.
#[derive(Default)]
struct SeedCounts {
    databases: usize,
    containers: usize,
    scripts: usize,
    items: usize,
}

/// `mark` is a file with the digests of the seeds that the store has had; without one every start loads them again.
pub fn load(seed: &Path, mark: Option<&Path>, engine: &Engine) -> Result<()> {
    let mut reader = Reader { digest: Digest::new(&SHA256) };
    let databases = reader.read(seed)?;
    let digest: String = reader.digest.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let had = mark.and_then(|mark| std::fs::read_to_string(mark).ok()).unwrap_or_default();
    if had.lines().any(|line| line == digest) {
        tracing::info!(seed = %seed.display(), "seed already applied");
        return Ok(());
    }
    let made = load_seed(&databases, engine)?;
    if let Some(mark) = mark {
        if let Some(folder) = mark.parent() {
            private::create_directory(folder)?;
        }
        private::write(mark, &format!("{had}{digest}\n"))?;
    }
    tracing::info!(
        seed = %seed.display(), databases = made.databases, containers = made.containers, scripts = made.scripts,
        items = made.items, "seeded"
    );
    Ok(())
}

impl SeedLine {
    /// An error here, with the place in front.
    fn error(&self, error: impl std::fmt::Display) -> anyhow::Error {
        anyhow!("{}:{}: {error}", self.path.display(), self.line)
    }
}

/// The text of a file that may be a pipe, whose length is not known before.
fn read_within(path: &Path, bytes_max: u64) -> Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(bytes_max + 1).read_to_string(&mut text)?;
    if text.len() as u64 > bytes_max {
        bail!("it has more than the {bytes_max} bytes that a file of a seed may have");
    }
    Ok(text)
}

impl Source {
    fn open(path: &Path) -> Result<Source> {
        let text = read_within(path, SEED_BYTES_MAX)
            .with_context(|| format!("reading the seed {}", path.display()))?;
        Ok(Source::new(path, text))
    }

    fn new(path: &Path, text: String) -> Source {
        let line_starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Source { path: path.into(), text, line_starts }
    }

    /// Of a part of the text.
    fn place(&self, part: &str) -> SeedLine {
        let offset = (part.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        SeedLine {
            path: Arc::clone(&self.path),
            line: self.line_starts.partition_point(|start| *start <= offset),
        }
    }

    fn parse<'a, T: Deserialize<'a>>(&'a self, part: &'a str) -> Result<T> {
        let first = self.place(part).line;
        serde_json::from_str(part).map_err(|error| {
            let line = first + error.line().saturating_sub(1);
            // The library ends with a place of its own, counted from the part.
            let message = error.to_string();
            let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message);
            SeedLine { path: Arc::clone(&self.path), line }.error(message)
        })
    }

    /// A value with exact numbers, as the engine takes it.
    fn value(&self, part: &str) -> Result<Value> {
        text::parse(part.as_bytes(), Limits::default()).map_err(|error| self.place(part).error(error))
    }
}

/// Reads files, and what they are made of into one digest.
struct Reader {
    digest: Digest,
}

impl Reader {
    fn read(&mut self, seed: &Path) -> Result<Vec<Database>> {
        let mut databases = Vec::new();
        for path in files::seeds(seed)? {
            let source = self.open(&path)?;
            let document: Document<'_> = source.parse(&source.text)?;
            for database in document.databases {
                databases.push(self.database(&source, database.get())?);
            }
        }
        Ok(databases)
    }

    fn open(&mut self, path: &Path) -> Result<Source> {
        let source = Source::open(path)?;
        self.digest.update(path.as_os_str().as_encoded_bytes());
        self.digest.update(&(source.text.len() as u64).to_le_bytes());
        self.digest.update(source.text.as_bytes());
        Ok(source)
    }

    fn database(&mut self, source: &Source, part: &str) -> Result<Database> {
        let (place, entry) = (source.place(part), source.parse::<DatabaseEntry<'_>>(part)?);
        let throughput = throughput(entry.throughput, entry.autoscale_max_throughput);
        let throughput =
            throughput.map_err(|error| place.error(format!("database '{}': {error}", entry.id)))?;
        let mut containers = Vec::new();
        for container in entry.containers {
            containers.push(self.container(source, container.get())?);
        }
        Ok(Database { place, id: entry.id, throughput, containers })
    }

    fn container(&mut self, source: &Source, part: &str) -> Result<SeedContainer> {
        let (place, entry) = (source.place(part), container_entry(source, part)?);
        let id = entry.body.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
        let throughput = throughput(entry.throughput, entry.autoscale_max_throughput);
        let throughput = throughput.map_err(|error| place.error(format!("container '{id}': {error}")))?;
        let mut scripts = Vec::new();
        for (kind, script) in entry.scripts {
            let place = source.place(script.get());
            let script =
                self.script(source, script.get()).map_err(|error| place.error(format!("{error:#}")))?;
            scripts.push((place, kind, script));
        }
        let items = entry.items.iter().map(|item| item.get());
        let mut items: Vec<_> =
            items.map(|item| (source.place(item), Bytes::copy_from_slice(item.as_bytes()))).collect();
        for file in &entry.item_files {
            items.extend(self.item_file(&beside(source, file))?);
        }
        Ok(SeedContainer { place, id, body: entry.body.into(), throughput, scripts, items })
    }

    /// `file` names a file with the body, beside the seed.
    fn script(&mut self, source: &Source, part: &str) -> Result<Value> {
        let mut script = source.value(part)?;
        let Some(object) = script.as_object_mut() else { bail!("a script is an object") };
        if let Some(file) = object.remove("file") {
            let Some(file) = file.as_str() else { bail!("'file' must be a string") };
            if object.get("body").is_some() {
                bail!("a script has 'body' or 'file', not both");
            }
            let body = self.open(&beside(source, Path::new(file)))?;
            object.set("body", body.text);
        }
        Ok(script)
    }

    /// An array of items, or one item a line.
    fn item_file(&mut self, path: &Path) -> Result<Vec<(SeedLine, Bytes)>> {
        let source = self.open(path)?;
        let item = |part: &str| (source.place(part), Bytes::copy_from_slice(part.as_bytes()));
        if source.text.trim_start().starts_with('[') {
            let items: Vec<&RawValue> = source.parse(&source.text)?;
            return Ok(items.iter().map(|part| item(part.get())).collect());
        }
        let lines = source.text.lines().filter(|line| !line.trim().is_empty());
        lines
            .map(|line| {
                let _: &RawValue = source.parse(line)?;
                Ok(item(line))
            })
            .collect()
    }
}

fn container_entry<'a>(source: &'a Source, part: &'a str) -> Result<ContainerEntry<'a>> {
    let mut entry = ContainerEntry::default();
    for (name, member) in source.parse::<BTreeMap<String, &'a RawValue>>(part)? {
        let member = member.get();
        let script_kind = match name.as_str() {
            "throughput" => {
                entry.throughput = source.parse(member)?;
                continue;
            }
            "autoscaleMaxThroughput" => {
                entry.autoscale_max_throughput = source.parse(member)?;
                continue;
            }
            "items" => {
                entry.items = source.parse(member)?;
                continue;
            }
            "itemFiles" => {
                entry.item_files = source.parse(member)?;
                continue;
            }
            "storedProcedures" => ScriptKind::StoredProcedure,
            "triggers" => ScriptKind::Trigger,
            "userDefinedFunctions" => ScriptKind::UserDefinedFunction,
            _ => {
                entry.body.set(&name, source.value(member)?);
                continue;
            }
        };
        let scripts = source.parse::<Vec<&'a RawValue>>(member)?;
        entry.scripts.extend(scripts.into_iter().map(|script| (script_kind, script)));
    }
    Ok(entry)
}

fn beside(source: &Source, file: &Path) -> PathBuf {
    source.path.parent().unwrap_or(Path::new("")).join(file)
}

fn throughput(manual: Option<i64>, autoscale: Option<i64>) -> Result<Option<Throughput>> {
    let manual = manual.map(|value| value.to_string());
    let autoscale = autoscale.map(|value| format!("{{\"maxThroughput\": {value}}}"));
    Ok(Throughput::from_headers(manual.as_deref(), autoscale.as_deref())?)
}

fn load_seed(databases: &[Database], engine: &Engine) -> Result<SeedCounts> {
    let mut made = SeedCounts::default();
    for database in databases {
        let mut body = Object::new();
        body.set("id", database.id.as_str());
        let created = engine.catalog().create_database(&body.into(), database.throughput);
        let what = || format!("database '{}'", database.id);
        made.databases +=
            count(created).map_err(|error| database.place.error(format!("{}: {error}", what())))?;
        for container in &database.containers {
            load_container(engine, &database.id, container, &mut made)?;
        }
    }
    Ok(made)
}

fn load_container(
    engine: &Engine,
    database: &str,
    seeded: &SeedContainer,
    made: &mut SeedCounts,
) -> Result<()> {
    let failed = |error: EngineError| seeded.place.error(format!("container '{}': {error}", seeded.id));
    made.containers += count(engine.catalog().create_container(database, &seeded.body, seeded.throughput))
        .map_err(failed)?;
    let container = engine.catalog().container(database, &seeded.id).map_err(failed)?;
    for (place, kind, body) in &seeded.scripts {
        let created = engine.catalog().create_script(database, &seeded.id, *kind, body);
        made.scripts += count(created).map_err(|error| place.error(error))?;
    }
    made.items += load_items(engine, &container, &seeded.items)?;
    Ok(())
}

/// Each writer takes the next item; of the items that failed, the first one of the file is reported.
fn load_items(engine: &Engine, container: &Arc<Container>, items: &[(SeedLine, Bytes)]) -> Result<usize> {
    let (next, failed_at) = (AtomicUsize::new(0), AtomicUsize::new(usize::MAX));
    let write_some = || -> (usize, Option<(usize, anyhow::Error)>) {
        let mut created = 0;
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= items.len() || failed_at.load(Ordering::Relaxed) < at {
                return (created, None);
            }
            match write_item(engine, container, &items[at]) {
                Ok(count) => created += count,
                Err(error) => {
                    failed_at.fetch_min(at, Ordering::Relaxed);
                    return (created, Some((at, error)));
                }
            }
        }
    };
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS.min(items.len())).map(|_| scope.spawn(write_some)).collect();
        writers.into_iter().map(|writer| writer.join().map_err(|_| anyhow!("a writer panicked"))).collect()
    });
    let (mut created, mut failures) = (0, Vec::new());
    for outcome in outcomes {
        let (count, failure) = outcome?;
        created += count;
        failures.extend(failure);
    }
    match failures.into_iter().min_by_key(|(at, _)| *at) {
        Some((_, error)) => Err(error),
        None => Ok(created),
    }
}

fn write_item(
    engine: &Engine,
    container: &Arc<Container>,
    (place, body): &(SeedLine, Bytes),
) -> Result<usize> {
    let write = WriteItem::new(WriteKind::Create, None, body.clone());
    count(engine.write_item(container, write).result).map_err(|error| place.error(error))
}

/// 1 for what was made, 0 for what was there.
fn count<T>(created: Result<T, EngineError>) -> Result<usize, EngineError> {
    match created {
        Ok(_) => Ok(1),
        Err(EngineError::AlreadyExists { .. } | EngineError::ItemExists { .. }) => Ok(0),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_text_have_their_lines() {
        let source = Source::new(Path::new("seed.json"), "[\n{},\r\n\n  {}]\n".to_owned());
        let line_at = |offset: usize| source.place(&source.text[offset..]).line;
        assert_eq!([0, 1, 2, 5, 6, 7, 9, 12, 13].map(line_at), [1, 1, 2, 2, 2, 3, 4, 4, 4]);
    }

    #[test]
    fn a_file_without_end_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("seed.json");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read_within(&path, 5).unwrap(), "12345");
        assert!(read_within(&path, 4).unwrap_err().to_string().contains("more than the 4 bytes"));
        if cfg!(target_os = "linux") {
            assert!(read_within(Path::new("/dev/zero"), 1 << 20).is_err());
        }
    }
}
