//! Files in archives: tar, gzip, ar and zip, each with the same bytes for the same files.

use std::io::{Cursor, Write};

use anyhow::{Context, Result};
pub use flate2::Compression;
use flate2::GzBuilder;
use ring::digest::{SHA256, digest};
use zip::write::SimpleFileOptions;

/// A file or directory of a package.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Without a leading slash.
    pub path: String,
    pub mode: u32,
    /// User and group: 0 is root.
    pub owner: u64,
    /// `None`: a directory.
    pub contents: Option<Vec<u8>>,
}

impl Entry {
    pub fn file(path: impl Into<String>, contents: impl Into<Vec<u8>>) -> Entry {
        Entry { path: path.into(), mode: 0o644, owner: 0, contents: Some(contents.into()) }
    }

    pub fn program(path: impl Into<String>, contents: impl Into<Vec<u8>>) -> Entry {
        Entry { mode: 0o755, ..Entry::file(path, contents) }
    }

    pub fn directory(path: impl Into<String>) -> Entry {
        Entry { path: path.into(), mode: 0o755, owner: 0, contents: None }
    }
}

/// Directories that no entry names are made by those who unpack; where they matter (Debian), [`with_parents`] adds them.
pub fn tar(entries: &[Entry], modified: u64) -> Result<Vec<u8>> {
    let mut builder = tar::Builder::new(Vec::new());
    for entry in entries {
        let mut header = tar::Header::new_gnu();
        header.set_mode(entry.mode);
        header.set_mtime(modified);
        header.set_uid(entry.owner);
        header.set_gid(entry.owner);
        let contents = entry.contents.as_deref().unwrap_or_default();
        header.set_size(contents.len() as u64);
        header.set_entry_type(match entry.contents {
            Some(_) => tar::EntryType::Regular,
            None => tar::EntryType::Directory,
        });
        let path = if entry.contents.is_some() { entry.path.clone() } else { format!("{}/", entry.path) };
        builder.append_data(&mut header, &path, contents).with_context(|| format!("packing {path}"))?;
    }
    Ok(builder.into_inner()?)
}

/// Every directory on the way to an entry, before it.
pub fn with_parents(entries: Vec<Entry>) -> Vec<Entry> {
    let mut all: Vec<Entry> = Vec::new();
    for entry in entries {
        for (slash, _) in entry.path.match_indices('/') {
            let parent = &entry.path[..slash];
            if all.iter().all(|known| known.path != parent) {
                all.push(Entry::directory(parent));
            }
        }
        if entry.contents.is_some() || all.iter().all(|known| known.path != entry.path) {
            all.push(entry);
        }
    }
    all
}

pub fn gzip(bytes: &[u8], compression: Compression) -> Result<Vec<u8>> {
    // Neither name nor time.
    let mut writer = GzBuilder::new().write(Vec::new(), compression);
    writer.write_all(bytes)?;
    Ok(writer.finish()?)
}

/// As Debian packages are made: names of up to 15 characters, each member at an even place.
pub fn ar(members: &[(&str, Vec<u8>)], modified: u64) -> Vec<u8> {
    let mut archive = b"!<arch>\n".to_vec();
    for (name, contents) in members {
        let header =
            format!("{name:<16}{modified:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, "100644", contents.len());
        archive.extend(header.into_bytes());
        archive.extend(contents);
        if contents.len() % 2 == 1 {
            archive.push(b'\n');
        }
    }
    archive
}

pub fn zip(entries: &[Entry], compression: Compression) -> Result<Vec<u8>> {
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for entry in entries {
        let options = SimpleFileOptions::default()
            .compression_method(zip::CompressionMethod::Deflated)
            .compression_level(Some(compression.level().into()))
            .unix_permissions(entry.mode);
        writer.start_file(&entry.path, options)?;
        writer.write_all(entry.contents.as_deref().unwrap_or_default())?;
    }
    Ok(writer.finish()?.into_inner())
}

pub fn sha256(bytes: &[u8]) -> String {
    digest(&SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_come_first_and_once() {
        let entries = vec![
            Entry::file("usr/bin/a", "1"),
            Entry::file("usr/bin/b", "2"),
            Entry { mode: 0o700, ..Entry::directory("data") },
        ];
        let paths: Vec<String> = with_parents(entries).into_iter().map(|entry| entry.path).collect();
        assert_eq!(paths, ["usr", "usr/bin", "usr/bin/a", "usr/bin/b", "data"]);
    }

    #[test]
    fn members_begin_at_even_places() {
        let archive = ar(&[("one", b"123".to_vec()), ("two", b"4".to_vec())], 7);
        let text = String::from_utf8(archive).expect("text");
        assert_eq!(text.find("two"), Some(8 + 60 + 4));
        assert!(
            text.starts_with("!<arch>\none             7           0     0     100644  3         `\n123\n")
        );
    }

    #[test]
    fn the_same_files_give_the_same_bytes() {
        let entries = [Entry::program("bin/x", "x"), Entry::directory("d")];
        assert_eq!(tar(&entries, 5).expect("packs"), tar(&entries, 5).expect("packs"));
        assert_eq!(
            gzip(b"x", Compression::best()).expect("packs"),
            gzip(b"x", Compression::best()).expect("packs")
        );
        let files = &entries[..1];
        assert_eq!(
            zip(files, Compression::fast()).expect("packs"),
            zip(files, Compression::fast()).expect("packs")
        );
    }
}
