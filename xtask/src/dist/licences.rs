//! What the program is made of: every crate that is linked into it, with its licence, and the texts once each.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::command::cargo;

const PROGRAM: &str = "quire-cli";
/// How deep in a crate's folder licences are looked for.
const DEPTH_MAX: usize = 3;
/// How the file with a licence may begin.
const NAMES: [&str; 5] = ["license", "licence", "copying", "notice", "unlicense"];

/// For a static program also what is linked from the C library and the standard library.
pub fn third_party(target: Option<&str>) -> Result<String> {
    let mut texts = Texts::default();
    let mut list = String::new();
    for package in linked_packages(target)? {
        list += &format!("  {} {}: {}\n", package.name, package.version, package.licence);
        texts.read_folder(&package.folder, &package.name, DEPTH_MAX)?;
    }
    // Its text of Apache-2.0 is that of Quire itself.
    list += "  the standard library of Rust: MIT OR Apache-2.0\n";
    if target.is_some_and(|target| target.ends_with("musl")) {
        list += "  musl, the C library: MIT\n";
        texts.read_file(Path::new("/usr/share/doc/musl/copyright"), "musl")?;
    }
    Ok(format!("Quire is linked with:\n\n{list}{}", texts.written()))
}

struct Package {
    name: String,
    version: String,
    licence: String,
    folder: PathBuf,
}

/// Those that the program depends on, without what is only needed to build or to test it.
fn linked_packages(target: Option<&str>) -> Result<Vec<Package>> {
    let mut command = cargo();
    command.args(["metadata", "--format-version", "1", "--locked"]);
    let host = host()?;
    command.args(["--filter-platform", target.unwrap_or(&host)]);
    let output = command.output().context("starting cargo metadata")?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let packages: HashMap<&str, &Value> =
        array(&metadata["packages"]).iter().filter_map(|it| Some((it["id"].as_str()?, it))).collect();
    let nodes: HashMap<&str, &Value> =
        array(&metadata["resolve"]["nodes"]).iter().filter_map(|it| Some((it["id"].as_str()?, it))).collect();
    let program = packages.iter().find(|(_, package)| package["name"] == PROGRAM);
    let (program, _) = program.with_context(|| format!("there is no package {PROGRAM}"))?;
    let mut found = BTreeSet::new();
    let mut waiting = vec![*program];
    while let Some(id) = waiting.pop() {
        if found.insert(id) {
            waiting.extend(
                array(&nodes[id]["deps"])
                    .iter()
                    .filter(|it| is_linked(it))
                    .filter_map(|it| it["pkg"].as_str()),
            );
        }
    }
    let mut linked: Vec<Package> = found.iter().filter_map(|id| Package::of(packages[id])).collect();
    linked.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    Ok(linked)
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn is_linked(dependency: &Value) -> bool {
    array(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"].is_null())
}

impl Package {
    /// `None` for our own.
    fn of(package: &Value) -> Option<Package> {
        let text = |name: &str| package[name].as_str().map(str::to_owned);
        text("source")?;
        Some(Package {
            name: text("name")?,
            version: text("version")?,
            licence: text("license").unwrap_or_else(|| "see its text".to_owned()),
            folder: PathBuf::from(text("manifest_path")?).parent()?.to_owned(),
        })
    }
}

/// Texts of licences, each with those who use it.
#[derive(Default)]
struct Texts(BTreeMap<String, BTreeSet<String>>);

impl Texts {
    /// Also of C code that a crate brings along.
    fn read_folder(&mut self, folder: &Path, user: &str, depth: usize) -> Result<()> {
        for entry in std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
            let path = entry?.path();
            if !path.is_dir() {
                self.read_licence(&path, user)?;
            } else if depth > 0 {
                self.read_folder(&path, user, depth - 1)?;
            }
        }
        Ok(())
    }

    fn read_licence(&mut self, path: &Path, user: &str) -> Result<()> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_lowercase();
        let is_text = path.extension().is_none_or(|ending| {
            ["txt", "md", "mit", "apache"].iter().any(|it| ending.eq_ignore_ascii_case(it))
        });
        // Where there is a choice it is not that one.
        if path.is_file()
            && is_text
            && !name.contains("gpl")
            && NAMES.iter().any(|start| name.starts_with(start))
        {
            self.read_file(path, user)?;
        }
        Ok(())
    }

    fn read_file(&mut self, path: &Path, user: &str) -> Result<()> {
        let bytes = std::fs::read(path).with_context(|| format!("reading the licence {}", path.display()))?;
        let text = String::from_utf8_lossy(&bytes).replace("\r\n", "\n").trim().to_owned();
        if !text.is_empty() {
            self.0.entry(text).or_default().insert(user.to_owned());
        }
        Ok(())
    }

    fn written(&self) -> String {
        let rule = "-".repeat(100);
        let of_text = |(text, users): (&String, &BTreeSet<String>)| {
            let users: Vec<&str> = users.iter().map(String::as_str).collect();
            format!("\n{rule}\n{}\n\n{text}\n", users.join(", "))
        };
        self.0.iter().map(of_text).collect()
    }
}

fn host() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("starting rustc")?;
    let version = String::from_utf8(output.stdout)?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc does not say its host")?.to_owned())
}
