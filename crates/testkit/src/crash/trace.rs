//! A recorder of file writes and syncs, and what a power cut would have left.
//!
//! The child runs under `strace`, which sees every call without a seam in the code under test. [`record`] turns the
//! trace into [`Event`]s on files below one folder. [`Recording::cut_at`] replays them up to a point: what a sync
//! covered is there; of the rest, [`Rest`] says what survived. A file's bytes and its name are separate things, as
//! on a real file system: a name lives once its folder is synced, bytes once their file is.
//!
//! A call that changes files and is not understood here is an error, never skipped.

mod parse;

use anyhow::{Context, Result};
use quire_storage::fault::Random;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub type FileId = usize;

/// One thing the child did, in the order it was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Create {
        path: PathBuf,
        file: FileId,
    },
    MakeFolder {
        path: PathBuf,
    },
    Rename {
        from: PathBuf,
        to: PathBuf,
    },
    Remove {
        path: PathBuf,
    },
    Write {
        file: FileId,
        offset: u64,
        bytes: Vec<u8>,
    },
    Resize {
        file: FileId,
        length: u64,
    },
    /// Covers what happened to the file before the event numbered `since`.
    SyncFile {
        file: FileId,
        since: usize,
    },
    SyncFolder {
        path: PathBuf,
        since: usize,
    },
    /// The whole file system.
    SyncAll {
        since: usize,
    },
    /// A line on standard output.
    Said {
        line: String,
    },
}

/// What happens to changes no sync covered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// None survives.
    Dropped,
    /// All survive, as when only the process dies.
    Kept,
    /// Names survive; of each file the last write survives by half.
    Cut,
    /// Names survive up to a point; of writes some survive, some do not, some are garbled. By seed.
    Garbled(u64),
}

pub struct Recording {
    pub events: Vec<Event>,
    root: PathBuf,
}

/// Runs a command under `strace` and records what it does below `root`.
pub fn record(command: &Command, root: &Path) -> Result<Recording> {
    let output = tempfile::NamedTempFile::new().context("a file for the trace")?;
    let mut traced = Command::new("strace");
    traced.args(["-f", "-y", "-xx", "-s", "16777216", "-e"]).arg(format!("trace={}", parse::CALLS.join(",")));
    traced.arg("-o").arg(output.path()).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => traced.env(name, value),
            None => traced.env_remove(name),
        };
    }
    let ended = traced.output().context("running strace (install the package strace)")?;
    let said = String::from_utf8_lossy(&ended.stderr);
    anyhow::ensure!(ended.status.success(), "the traced child failed: {said}");
    let text = fs::read_to_string(output.path()).context("reading the trace")?;
    let root = root.canonicalize().context("the recorded folder")?;
    let events = parse::events(&text, &root)?;
    Ok(Recording { events, root })
}

/// A file system in the making.
#[derive(Clone, Default)]
struct Image {
    names: BTreeMap<PathBuf, Node>,
    contents: BTreeMap<FileId, Content>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Node {
    Folder,
    File(FileId),
}

/// Bytes up to the last one written, and the length beyond.
#[derive(Clone, Default)]
struct Content {
    bytes: Vec<u8>,
    length: u64,
}

impl Recording {
    /// The positions of all syncs, and the end.
    pub fn sync_points(&self) -> Vec<usize> {
        let is_sync = |event: &Event| event.is_sync();
        let points = (0..self.events.len()).filter(|&index| is_sync(&self.events[index]));
        points.chain([self.events.len()]).collect()
    }

    /// Lines said before a point.
    pub fn said_before(&self, point: usize) -> impl Iterator<Item = &str> {
        self.events[..point].iter().filter_map(|event| match event {
            Event::Said { line } => Some(line.as_str()),
            _ => None,
        })
    }

    /// Writes to `target` what the recorded folder would hold after a power cut just before event `point`.
    pub fn cut_at(&self, point: usize, rest: Rest, target: &Path) -> Result<()> {
        let mut image = Image::default();
        image.names.insert(self.root.clone(), Node::Folder);
        let mut pending: Vec<(usize, &Event)> = Vec::new();
        for (index, event) in self.events[..point].iter().enumerate() {
            match event {
                event if event.is_sync() => image.sync(event, &mut pending),
                Event::Said { .. } => {}
                event => pending.push((index, event)),
            }
        }
        image.survive(&pending, rest);
        image.write_below(&self.root, target)
    }
}

impl Image {
    fn sync(&mut self, sync: &Event, pending: &mut Vec<(usize, &Event)>) {
        pending.retain(|(index, event)| {
            let covered = match sync {
                Event::SyncFile { file, since } => index < since && event.file_bytes() == Some(*file),
                Event::SyncFolder { path, since } => index < since && event.folder() == Some(path),
                Event::SyncAll { since } => index < since,
                _ => false,
            };
            if covered {
                self.apply(event);
            }
            !covered
        });
    }

    fn apply(&mut self, event: &Event) {
        match event {
            Event::Create { path, file } => {
                self.names.insert(path.clone(), Node::File(*file));
                self.contents.entry(*file).or_default();
            }
            Event::MakeFolder { path } => drop(self.names.insert(path.clone(), Node::Folder)),
            Event::Rename { from, to } => {
                if let Some(node) = self.names.remove(from) {
                    self.names.insert(to.clone(), node);
                }
            }
            Event::Remove { path } => drop(self.names.remove(path)),
            Event::Write { file, offset, bytes } => {
                self.contents.entry(*file).or_default().write(*offset, bytes)
            }
            Event::Resize { file, length } => self.contents.entry(*file).or_default().resize(*length),
            Event::SyncFile { .. }
            | Event::SyncFolder { .. }
            | Event::SyncAll { .. }
            | Event::Said { .. } => {}
        }
    }

    fn survive(&mut self, pending: &[(usize, &Event)], rest: Rest) {
        match rest {
            Rest::Dropped => {}
            Rest::Kept => pending.iter().for_each(|(_, event)| self.apply(event)),
            Rest::Cut => self.survive_cut(pending),
            Rest::Garbled(seed) => self.survive_garbled(pending, &mut Random(seed)),
        }
    }

    fn survive_cut(&mut self, pending: &[(usize, &Event)]) {
        for (position, (_, event)) in pending.iter().enumerate() {
            let later_write =
                |file| pending[position + 1..].iter().any(|(_, later)| later.file_bytes() == Some(file));
            match event {
                Event::Write { file, offset, bytes } if !later_write(*file) => {
                    let half = bytes[..bytes.len() / 2].to_vec();
                    self.apply(&Event::Write { file: *file, offset: *offset, bytes: half });
                }
                event => self.apply(event),
            }
        }
    }

    fn survive_garbled(&mut self, pending: &[(usize, &Event)], random: &mut Random) {
        let names = pending.iter().filter(|(_, event)| event.folder().is_some()).count();
        let mut names_left = random.below(names as u64 + 1);
        for (_, event) in pending {
            match event {
                Event::Write { file, offset, bytes } => match random.below(3) {
                    0 => {}
                    1 => self.apply(event),
                    _ => {
                        let bytes = bytes.iter().map(|byte| byte ^ random.draw() as u8).collect();
                        self.apply(&Event::Write { file: *file, offset: *offset, bytes });
                    }
                },
                Event::Resize { .. } => self.apply(event),
                event if names_left > 0 => {
                    names_left -= 1;
                    self.apply(event);
                }
                _ => {}
            }
        }
    }

    fn write_below(&self, root: &Path, target: &Path) -> Result<()> {
        for (path, node) in &self.names {
            let reachable =
                path.ancestors().skip(1).take_while(|folder| *folder != root.parent().unwrap_or(root));
            if !reachable.into_iter().all(|folder| self.names.get(folder) == Some(&Node::Folder)) {
                continue; // its folder did not survive
            }
            let place = target.join(path.strip_prefix(root).context("a path outside the folder")?);
            match node {
                Node::Folder => fs::create_dir_all(&place).context("rebuilding a folder")?,
                Node::File(file) => self.contents.get(file).cloned().unwrap_or_default().write_to(&place)?,
            }
        }
        Ok(())
    }
}

impl Content {
    fn write(&mut self, offset: u64, bytes: &[u8]) {
        let (start, end) = (offset as usize, offset as usize + bytes.len());
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[start..end].copy_from_slice(bytes);
        self.length = self.length.max(end as u64);
    }

    fn resize(&mut self, length: u64) {
        self.bytes.truncate(length as usize);
        self.length = length;
    }

    fn write_to(&self, path: &Path) -> Result<()> {
        fs::write(path, &self.bytes).context("rebuilding a file")?;
        let file = fs::OpenOptions::new().write(true).open(path).context("rebuilding a file")?;
        file.set_len(self.length).context("rebuilding a file")
    }
}

impl Event {
    fn is_sync(&self) -> bool {
        matches!(self, Event::SyncFile { .. } | Event::SyncFolder { .. } | Event::SyncAll { .. })
    }

    /// The file whose bytes this changes.
    fn file_bytes(&self) -> Option<FileId> {
        match self {
            Event::Write { file, .. } | Event::Resize { file, .. } => Some(*file),
            _ => None,
        }
    }

    /// The folder whose names this changes.
    fn folder(&self) -> Option<&Path> {
        match self {
            Event::Create { path, .. } | Event::MakeFolder { path } | Event::Remove { path } => path.parent(),
            Event::Rename { to, .. } => to.parent(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recording() -> Recording {
        let (root, path) = (PathBuf::from("/r"), PathBuf::from("/r/a"));
        let write = |offset, text: &str| Event::Write { file: 0, offset, bytes: text.as_bytes().to_vec() };
        let events = vec![
            Event::Create { path, file: 0 },
            write(0, "one "),
            Event::SyncFile { file: 0, since: 2 },
            Event::SyncFolder { path: root.clone(), since: 3 },
            write(4, "two "),
            Event::Said { line: "two".into() },
            write(8, "three"),
            Event::SyncFile { file: 0, since: 6 },
        ];
        Recording { events, root }
    }

    fn content(point: usize, rest: Rest) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        recording().cut_at(point, rest, folder.path()).unwrap();
        fs::read_to_string(folder.path().join("a")).ok()
    }

    #[test]
    fn only_what_was_synced_is_certain() {
        assert_eq!(content(3, Rest::Dropped), None, "the name was not synced");
        assert_eq!(content(2, Rest::Kept).as_deref(), Some("one "));
        assert_eq!(content(7, Rest::Dropped).as_deref(), Some("one "));
        assert_eq!(content(7, Rest::Cut).as_deref(), Some("one two th"));
        assert_eq!(
            content(8, Rest::Dropped).as_deref(),
            Some("one two "),
            "the sync began before the last write"
        );
        assert_eq!(content(8, Rest::Kept).as_deref(), Some("one two three"));
    }

    #[test]
    fn points_and_lines() {
        assert_eq!(recording().sync_points(), [2, 3, 7, 8]);
        assert_eq!(recording().said_before(5).count(), 0);
        assert_eq!(recording().said_before(6).collect::<Vec<_>>(), ["two"]);
    }
}
