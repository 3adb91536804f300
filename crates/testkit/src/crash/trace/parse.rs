//! From strace's text (`-f -y -xx`) to events.

use super::{FileEvent, FileId};
use anyhow::{Context, Result, bail};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Calls that are traced: everything that can change a file, a name, or a file descriptor's position.
pub(super) const CALLS: &[&str] = &[
    "openat",
    "open",
    "creat",
    "close",
    "lseek",
    "dup",
    "dup2",
    "dup3",
    "write",
    "pwrite64",
    "writev",
    "pwritev",
    "pwritev2",
    "ftruncate",
    "truncate",
    "fallocate",
    "copy_file_range",
    "sendfile",
    "splice",
    "fsync",
    "fdatasync",
    "syncfs",
    "sync_file_range",
    "msync",
    "rename",
    "renameat",
    "renameat2",
    "link",
    "linkat",
    "symlink",
    "symlinkat",
    "unlink",
    "unlinkat",
    "rmdir",
    "mkdir",
    "mkdirat",
];

pub(super) fn events(text: &str, root: &Path) -> Result<Vec<FileEvent>> {
    let mut parser = TraceParser {
        root,
        events: Vec::new(),
        names: HashMap::new(),
        open: HashMap::new(),
        lengths: vec![],
    };
    let mut unfinished: HashMap<&str, (String, usize)> = HashMap::new();
    for line in text.lines() {
        let (process, rest) = line.split_once(' ').context("a line without a process id")?;
        let rest = rest.trim_start();
        if let Some(begun) = rest.strip_suffix("<unfinished ...>") {
            if begun.starts_with("close(") {
                // Its number may be given to another file before the call is seen to end.
                parser.closed(begun)?;
            }
            unfinished.insert(process, (begun.to_owned(), parser.events.len()));
        } else if rest.starts_with("<... ") {
            let (_, ending) = rest.split_once(" resumed>").context("a resumed call")?;
            let (begun, since) = unfinished.remove(process).context("a call resumed that was not begun")?;
            if !begun.starts_with("close(") {
                parser.call(&(begun + ending), since)?;
            }
        } else if !rest.starts_with("+++") && !rest.starts_with("---") {
            let since = parser.events.len();
            parser.call(rest, since)?;
        }
    }
    Ok(parser.events)
}

struct TraceParser<'a> {
    root: &'a Path,
    events: Vec<FileEvent>,
    /// Files by their present names.
    names: HashMap<PathBuf, FileId>,
    /// Open files by descriptor; threads share them.
    open: HashMap<i64, OpenFile>,
    lengths: Vec<u64>,
}

struct OpenFile {
    file: FileId,
    offset: u64,
    append: bool,
}

/// A call taken apart.
struct SystemCall<'a> {
    name: &'a str,
    arguments: &'a str,
    answer: i64,
}

impl TraceParser<'_> {
    /// One finished call, begun when `since` events had happened.
    fn call(&mut self, text: &str, since: usize) -> Result<()> {
        let call = parse_call(text)?;
        if call.answer < 0 {
            return Ok(());
        }
        self.finished(&call, since).with_context(|| format!("in {}", &text[..text.len().min(200)]))
    }

    fn finished(&mut self, call: &SystemCall<'_>, since: usize) -> Result<()> {
        match call.name {
            "openat" | "open" | "creat" => self.opened(call),
            "close" => self.closed_descriptor(call),
            "lseek" => {
                if let Some(open) = self.open.get_mut(&call.descriptor()?) {
                    open.offset = call.answer as u64;
                }
                Ok(())
            }
            "write" if call.descriptor()? == 1 => {
                let said = String::from_utf8_lossy(&call.string(0)?).into_owned();
                self.events.extend(said.lines().map(|line| FileEvent::Printed { line: line.to_owned() }));
                Ok(())
            }
            "write" => self.parse_write(call, None),
            "pwrite64" => self.parse_write(call, Some(call.last_number()?)),
            "ftruncate" => self.resized(call),
            "fsync" | "fdatasync" => self.synced(call, since),
            "syncfs" => {
                let path = call.descriptor_path()?;
                self.events.extend(self.inside(&path).then_some(FileEvent::SyncAll { since }));
                Ok(())
            }
            "rename" | "renameat" | "renameat2" => self.renamed(call),
            "unlink" | "unlinkat" | "rmdir" => self.removed(call),
            "mkdir" | "mkdirat" => {
                let path = call.path(0)?;
                self.events.extend(self.inside(&path).then_some(FileEvent::MakeFolder { path }));
                Ok(())
            }
            _ => self.not_understood(call),
        }
    }

    fn closed(&mut self, begun: &str) -> Result<()> {
        let arguments = begun.trim_start_matches("close(");
        self.closed_descriptor(&SystemCall { name: "close", arguments, answer: 0 })
    }

    fn closed_descriptor(&mut self, call: &SystemCall<'_>) -> Result<()> {
        self.open.remove(&call.descriptor()?);
        Ok(())
    }

    /// The open file a call is about; `None` for one outside the folder.
    fn open_file(&mut self, call: &SystemCall<'_>) -> Result<Option<&mut OpenFile>> {
        let descriptor = call.descriptor()?;
        if !self.open.contains_key(&descriptor) {
            let path = call.descriptor_path()?;
            anyhow::ensure!(!self.inside(&path), "{} was opened unseen", path.display());
        }
        Ok(self.open.get_mut(&descriptor))
    }

    fn inside(&self, path: &Path) -> bool {
        path.starts_with(self.root)
    }

    fn opened(&mut self, call: &SystemCall<'_>) -> Result<()> {
        let path = call.path(0)?;
        if !self.inside(&path) || call.arguments.contains("O_DIRECTORY") {
            return Ok(());
        }
        let file = match self.names.get(&path) {
            Some(file) => *file,
            None if call.arguments.contains("O_CREAT") => {
                let file = self.lengths.len();
                self.lengths.push(0);
                self.names.insert(path.clone(), file);
                self.events.push(FileEvent::Create { path, file });
                file
            }
            None => return Ok(()), // a folder opened to be synced
        };
        if call.arguments.contains("O_TRUNC") && self.lengths[file] > 0 {
            self.lengths[file] = 0;
            self.events.push(FileEvent::Resize { file, length: 0 });
        }
        let append = call.arguments.contains("O_APPEND");
        self.open.insert(call.answer, OpenFile { file, offset: 0, append });
        Ok(())
    }

    fn parse_write(&mut self, call: &SystemCall<'_>, position: Option<u64>) -> Result<()> {
        let Some(&mut OpenFile { file, offset, append }) = self.open_file(call)? else { return Ok(()) };
        let mut bytes = call.string(0)?;
        bytes.truncate(call.answer as usize);
        let offset = match position {
            Some(position) => position,
            None if append => self.lengths[file],
            None => offset,
        };
        let end = offset + bytes.len() as u64;
        if position.is_none()
            && let Some(open) = self.open_file(call)?
        {
            open.offset = end;
        }
        self.lengths[file] = self.lengths[file].max(end);
        self.events.push(FileEvent::Write { file, offset, bytes });
        Ok(())
    }

    fn resized(&mut self, call: &SystemCall<'_>) -> Result<()> {
        let Some(&mut OpenFile { file, .. }) = self.open_file(call)? else { return Ok(()) };
        let length = call.last_number()?;
        self.lengths[file] = length;
        self.events.push(FileEvent::Resize { file, length });
        Ok(())
    }

    fn synced(&mut self, call: &SystemCall<'_>, since: usize) -> Result<()> {
        if let Some(open) = self.open.get(&call.descriptor()?) {
            self.events.push(FileEvent::SyncFile { file: open.file, since });
            return Ok(());
        }
        let path = call.descriptor_path()?;
        self.events.extend(self.inside(&path).then_some(FileEvent::SyncFolder { path, since }));
        Ok(())
    }

    fn renamed(&mut self, call: &SystemCall<'_>) -> Result<()> {
        let (from, to) = (call.path(0)?, call.path(1)?);
        if !self.inside(&from) && !self.inside(&to) {
            return Ok(());
        }
        let file = self.names.remove(&from).context("only files are renamed")?;
        self.names.insert(to.clone(), file);
        self.events.push(FileEvent::Rename { from, to });
        Ok(())
    }

    fn removed(&mut self, call: &SystemCall<'_>) -> Result<()> {
        let path = call.path(0)?;
        if self.inside(&path) {
            self.names.remove(&path);
            self.events.push(FileEvent::Remove { path });
        }
        Ok(())
    }

    /// Anything else is harmless only elsewhere.
    fn not_understood(&self, call: &SystemCall<'_>) -> Result<()> {
        let touches =
            call.strings().iter().any(|bytes| self.inside(Path::new(&*String::from_utf8_lossy(bytes))));
        let descriptor = call.descriptor().is_ok_and(|descriptor| self.open.contains_key(&descriptor));
        if touches || descriptor {
            bail!("{} is not understood by the recorder", call.name);
        }
        Ok(())
    }
}

fn parse_call(text: &str) -> Result<SystemCall<'_>> {
    let (name, rest) = text.split_once('(').context("a call without arguments")?;
    let end = rest.rfind(" = ").context("a call without an answer")?;
    let arguments = rest[..end].trim_end().strip_suffix(')').context("unfinished arguments")?;
    let answer = rest[end + 3..].trim();
    let digits =
        answer.find(|letter: char| !letter.is_ascii_digit() && letter != '-').unwrap_or(answer.len());
    // A killed call has no answer: it counts as not done.
    let answer = answer[..digits].parse().unwrap_or(-1);
    Ok(SystemCall { name, arguments, answer })
}

impl SystemCall<'_> {
    /// The descriptor in the first argument.
    fn descriptor(&self) -> Result<i64> {
        let end =
            self.arguments.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(self.arguments.len());
        self.arguments[..end].parse().context("a descriptor")
    }

    /// What the first argument's descriptor is open on.
    fn descriptor_path(&self) -> Result<PathBuf> {
        let (_, rest) = self.arguments.split_once('<').context("a descriptor's path")?;
        let (hex, _) = rest.split_once('>').context("a descriptor's path")?;
        path_of(hex)
    }

    fn strings(&self) -> Vec<Vec<u8>> {
        self.arguments.split('"').skip(1).step_by(2).filter_map(|hex| unhex(hex).ok()).collect()
    }

    fn string(&self, index: usize) -> Result<Vec<u8>> {
        anyhow::ensure!(!self.arguments.contains("\"..."), "strace cut a string short");
        let hex = self.arguments.split('"').nth(index * 2 + 1).context("a string argument")?;
        unhex(hex)
    }

    /// A path argument, relative to the descriptor before it where there is one.
    fn path(&self, index: usize) -> Result<PathBuf> {
        let parts: Vec<&str> = self.arguments.split('"').collect();
        let path = path_of(parts.get(index * 2 + 1).context("a path argument")?)?;
        let before = parts[index * 2];
        match before.rsplit_once('<').and_then(|(_, rest)| rest.split_once('>')) {
            Some((folder, _)) if path.is_relative() => Ok(path_of(folder)?.join(path)),
            _ => Ok(path),
        }
    }

    fn last_number(&self) -> Result<u64> {
        let number = self.arguments.rsplit(',').next().unwrap_or_default().trim();
        number.parse().context("a number")
    }
}

fn path_of(hex: &str) -> Result<PathBuf> {
    Ok(PathBuf::from(String::from_utf8(unhex(hex)?).context("a path that is not UTF-8")?))
}

/// `\x61\x62` to bytes.
fn unhex(text: &str) -> Result<Vec<u8>> {
    let byte = |hex: &str| u8::from_str_radix(hex, 16).context("a byte");
    text.split("\\x").skip(1).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> String {
        text.bytes().map(|byte| format!("\\x{byte:02x}")).collect()
    }

    #[test]
    fn a_trace_becomes_events() {
        let (root, a, b, cwd) = (hex("/r"), hex("/r/a"), hex("/r/b"), hex("/c"));
        let text = format!(
            "7 openat(AT_FDCWD<{cwd}>, \"{a}\", O_WRONLY|O_CREAT|O_CLOEXEC, 0666) = 3<{a}>\n\
             7 write(3<{a}>, \"{one}\", 3) = 3\n\
             7 fdatasync(3<{a}> <unfinished ...>\n\
             8 pwrite64(3<{a}>, \"{x}\", 1, 9) = 1\n\
             7 <... fdatasync resumed>)          = 0\n\
             7 write(3<{a}>, \"{one}\", 3) = 3\n\
             7 ftruncate(3<{a}>, 100)  = 0\n\
             7 close(3<{a}>) = 0\n\
             7 renameat(AT_FDCWD<{cwd}>, \"{a}\", AT_FDCWD<{cwd}>, \"{b}\") = 0\n\
             7 openat(AT_FDCWD<{cwd}>, \"{root}\", O_RDONLY|O_CLOEXEC) = 4<{root}>\n\
             7 fsync(4<{root}>) = 0\n\
             7 unlinkat(4<{root}>, \"{name}\", 0) = 0\n\
             7 unlink(\"{a}\") = -1 ENOENT (No such file or directory)\n\
             7 write(1<{out}>, \"{said}\", 3) = 3\n\
             7 +++ exited with 0 +++\n",
            one = hex("one"),
            x = hex("x"),
            name = hex("b"),
            out = hex("pipe:[1]"),
            said = hex("hi\n"),
        );
        let write = |offset, text: &str| FileEvent::Write { file: 0, offset, bytes: text.into() };
        let expected = [
            FileEvent::Create { path: "/r/a".into(), file: 0 },
            write(0, "one"),
            write(9, "x"),
            FileEvent::SyncFile { file: 0, since: 2 },
            write(3, "one"),
            FileEvent::Resize { file: 0, length: 100 },
            FileEvent::Rename { from: "/r/a".into(), to: "/r/b".into() },
            FileEvent::SyncFolder { path: "/r".into(), since: 7 },
            FileEvent::Remove { path: "/r/b".into() },
            FileEvent::Printed { line: "hi".into() },
        ];
        assert_eq!(events(&text, Path::new("/r")).unwrap(), expected);
    }

    #[test]
    fn unknown_system_calls_are_errors() {
        let text = format!("7 symlink(\"{}\", \"{}\") = 0\n", hex("/x"), hex("/r/a"));
        assert!(events(&text, Path::new("/r")).is_err());
    }
}
