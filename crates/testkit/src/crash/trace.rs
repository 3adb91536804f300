//! A recorder of file writes and syncs, and what a power cut would have left.
//!
//! The child runs under `strace`, which sees every call without a seam in the code under test. [`record`] turns the
//! trace into [`FileEvent`]s on files below one folder. [`FileRecording::cut_at`] replays them up to a point: what a sync
//! covered is there; of the rest, [`UnsyncedChanges`] says what survived. A file's bytes and its name are separate things, as
//! on a real file system: a name lives once its folder is synced, bytes once their file is.
//!
//! A call that changes files and is not understood here is an error, never skipped.

mod parse;

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Random;

pub type FileId = usize;

/// One thing the child did, in the order it was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileEvent {
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
    Printed {
        line: String,
    },
}

/// What happens to changes no sync covered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnsyncedChanges {
    /// None survives.
    Dropped,
    /// All survive, as when only the process dies.
    Kept,
    /// Names survive; of each file the last write survives by half.
    Cut,
    /// Names survive up to a point; of writes some survive, some do not, some are garbled. By seed.
    Garbled(u64),
}

pub struct FileRecording {
    pub events: Vec<FileEvent>,
    root: PathBuf,
}

/// Runs a command under `strace` and records what it does below `root`.
pub fn record(command: &Command, root: &Path) -> Result<FileRecording> {
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
    Ok(FileRecording { events, root })
}

/// A file system in the making.
#[derive(Clone, Default)]
struct FileSystemImage {
    names: BTreeMap<PathBuf, FileNode>,
    contents: BTreeMap<FileId, FileContent>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FileNode {
    Folder,
    File(FileId),
}

/// Bytes up to the last one written, and the length beyond.
#[derive(Clone, Default)]
struct FileContent {
    bytes: Vec<u8>,
    length: u64,
}

impl FileRecording {
    /// The positions of all syncs, and the end.
    pub fn sync_points(&self) -> Vec<usize> {
        let is_sync = |event: &FileEvent| event.is_sync();
        let points = (0..self.events.len()).filter(|&index| is_sync(&self.events[index]));
        points.chain([self.events.len()]).collect()
    }

    /// Lines said before a point.
    pub fn printed_before(&self, point: usize) -> impl Iterator<Item = &str> {
        self.events[..point].iter().filter_map(|event| match event {
            FileEvent::Printed { line } => Some(line.as_str()),
            _ => None,
        })
    }

    /// Writes to `target` what the recorded folder would hold after a power cut just before event `point`.
    pub fn cut_at(&self, point: usize, rest: UnsyncedChanges, target: &Path) -> Result<()> {
        let mut image = FileSystemImage::default();
        image.names.insert(self.root.clone(), FileNode::Folder);
        let mut pending: Vec<(usize, &FileEvent)> = Vec::new();
        for (index, event) in self.events[..point].iter().enumerate() {
            match event {
                event if event.is_sync() => image.sync(event, &mut pending),
                FileEvent::Printed { .. } => {}
                event => pending.push((index, event)),
            }
        }
        image.apply_pending(&pending, rest);
        image.write_below(&self.root, target)
    }
}

impl FileSystemImage {
    fn sync(&mut self, sync: &FileEvent, pending: &mut Vec<(usize, &FileEvent)>) {
        pending.retain(|(index, event)| {
            let covered = match sync {
                FileEvent::SyncFile { file, since } => index < since && event.file_bytes() == Some(*file),
                FileEvent::SyncFolder { path, since } => index < since && event.folder() == Some(path),
                FileEvent::SyncAll { since } => index < since,
                _ => false,
            };
            if covered {
                self.apply(event);
            }
            !covered
        });
    }

    fn apply(&mut self, event: &FileEvent) {
        match event {
            FileEvent::Create { path, file } => {
                self.names.insert(path.clone(), FileNode::File(*file));
                self.contents.entry(*file).or_default();
            }
            FileEvent::MakeFolder { path } => drop(self.names.insert(path.clone(), FileNode::Folder)),
            FileEvent::Rename { from, to } => {
                if let Some(node) = self.names.remove(from) {
                    self.names.insert(to.clone(), node);
                }
            }
            FileEvent::Remove { path } => drop(self.names.remove(path)),
            FileEvent::Write { file, offset, bytes } => {
                self.contents.entry(*file).or_default().write(*offset, bytes)
            }
            FileEvent::Resize { file, length } => self.contents.entry(*file).or_default().resize(*length),
            FileEvent::SyncFile { .. }
            | FileEvent::SyncFolder { .. }
            | FileEvent::SyncAll { .. }
            | FileEvent::Printed { .. } => {}
        }
    }

    fn apply_pending(&mut self, pending: &[(usize, &FileEvent)], rest: UnsyncedChanges) {
        match rest {
            UnsyncedChanges::Dropped => {}
            UnsyncedChanges::Kept => pending.iter().for_each(|(_, event)| self.apply(event)),
            UnsyncedChanges::Cut => self.apply_cut(pending),
            UnsyncedChanges::Garbled(seed) => self.apply_garbled(pending, &mut Random(seed)),
        }
    }

    fn apply_cut(&mut self, pending: &[(usize, &FileEvent)]) {
        for (position, (_, event)) in pending.iter().enumerate() {
            let later_write =
                |file| pending[position + 1..].iter().any(|(_, later)| later.file_bytes() == Some(file));
            match event {
                FileEvent::Write { file, offset, bytes } if !later_write(*file) => {
                    let half = bytes[..bytes.len() / 2].to_vec();
                    self.apply(&FileEvent::Write { file: *file, offset: *offset, bytes: half });
                }
                event => self.apply(event),
            }
        }
    }

    fn apply_garbled(&mut self, pending: &[(usize, &FileEvent)], random: &mut Random) {
        let names = pending.iter().filter(|(_, event)| event.folder().is_some()).count();
        let mut names_left = random.below(names as u64 + 1);
        for (_, event) in pending {
            match event {
                FileEvent::Write { file, offset, bytes } => match random.below(3) {
                    0 => {}
                    1 => self.apply(event),
                    _ => {
                        let bytes = bytes.iter().map(|byte| byte ^ random.next_u64() as u8).collect();
                        self.apply(&FileEvent::Write { file: *file, offset: *offset, bytes });
                    }
                },
                FileEvent::Resize { .. } => self.apply(event),
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
            if !reachable.into_iter().all(|folder| self.names.get(folder) == Some(&FileNode::Folder)) {
                continue; // its folder did not survive
            }
            let place = target.join(path.strip_prefix(root).context("a path outside the folder")?);
            match node {
                FileNode::Folder => fs::create_dir_all(&place).context("rebuilding a folder")?,
                FileNode::File(file) => {
                    self.contents.get(file).cloned().unwrap_or_default().write_to(&place)?
                }
            }
        }
        Ok(())
    }
}

impl FileContent {
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

impl FileEvent {
    fn is_sync(&self) -> bool {
        matches!(self, FileEvent::SyncFile { .. } | FileEvent::SyncFolder { .. } | FileEvent::SyncAll { .. })
    }

    /// The file whose bytes this changes.
    fn file_bytes(&self) -> Option<FileId> {
        match self {
            FileEvent::Write { file, .. } | FileEvent::Resize { file, .. } => Some(*file),
            _ => None,
        }
    }

    /// The folder whose names this changes.
    fn folder(&self) -> Option<&Path> {
        match self {
            FileEvent::Create { path, .. } | FileEvent::MakeFolder { path } | FileEvent::Remove { path } => {
                path.parent()
            }
            FileEvent::Rename { to, .. } => to.parent(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recording() -> FileRecording {
        let (root, path) = (PathBuf::from("/r"), PathBuf::from("/r/a"));
        let write =
            |offset, text: &str| FileEvent::Write { file: 0, offset, bytes: text.as_bytes().to_vec() };
        let events = vec![
            FileEvent::Create { path, file: 0 },
            write(0, "one "),
            FileEvent::SyncFile { file: 0, since: 2 },
            FileEvent::SyncFolder { path: root.clone(), since: 3 },
            write(4, "two "),
            FileEvent::Printed { line: "two".into() },
            write(8, "three"),
            FileEvent::SyncFile { file: 0, since: 6 },
        ];
        FileRecording { events, root }
    }

    fn content(point: usize, rest: UnsyncedChanges) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        recording().cut_at(point, rest, folder.path()).unwrap();
        fs::read_to_string(folder.path().join("a")).ok()
    }

    #[test]
    fn only_what_was_synced_is_certain() {
        assert_eq!(content(3, UnsyncedChanges::Dropped), None, "the name was not synced");
        assert_eq!(content(2, UnsyncedChanges::Kept).as_deref(), Some("one "));
        assert_eq!(content(7, UnsyncedChanges::Dropped).as_deref(), Some("one "));
        assert_eq!(content(7, UnsyncedChanges::Cut).as_deref(), Some("one two th"));
        assert_eq!(
            content(8, UnsyncedChanges::Dropped).as_deref(),
            Some("one two "),
            "the sync began before the last write"
        );
        assert_eq!(content(8, UnsyncedChanges::Kept).as_deref(), Some("one two three"));
    }

    #[test]
    fn points_and_lines() {
        assert_eq!(recording().sync_points(), [2, 3, 7, 8]);
        assert_eq!(recording().printed_before(5).count(), 0);
        assert_eq!(recording().printed_before(6).collect::<Vec<_>>(), ["two"]);
    }
}
