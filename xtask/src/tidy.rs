//! What a reviewer should not have to check: format, lints, and rules about text that no compiler knows.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command::{cargo, check, root};
use crate::{compat, rooms, words};

pub fn run() -> Result<()> {
    check(cargo().args(["fmt", "--all", "--", "--check"])).context("run `cargo fmt --all`")?;
    let mut problems = Vec::new();
    let files = tracked_files()?;
    for file in &files {
        check_file(file, &mut problems);
    }
    dependencies_are_explained(&mut problems)?;
    compat::check()?;
    arrows_point_up(&mut problems)?;
    rooms::check_folders(&files, &mut problems);
    if !problems.is_empty() {
        bail!("tidy found:\n  {}", problems.join("\n  "));
    }
    check(cargo().args([
        "clippy",
        "--quiet",
        "--release",
        "--workspace",
        "--all-targets",
        "--",
        "--deny",
        "warnings",
    ]))
}

/// Paths from the root.
fn tracked_files() -> Result<Vec<String>> {
    let listed = Command::new("git")
        .args(["ls-files"])
        .current_dir(root())
        .output()
        .context("listing tracked files")?;
    Ok(String::from_utf8(listed.stdout)?
        .lines()
        .filter(|line| root().join(line).is_file())
        .map(str::to_owned)
        .collect())
}

/// Words that are never right in the source, each with its reason. Split so that this file does not name them whole.
const FORBIDDEN: &[(&str, &str)] = &[
    (concat!("todo", "!("), "unfinished code"),
    (concat!("unimplemented", "!("), "unfinished code"),
    (concat!("FIX", "ME"), "unfinished code"),
    (concat!("#[ig", "nore"), "a test that is switched off"),
];

fn check_file(shown: &str, problems: &mut Vec<String>) {
    let Ok(text) = std::fs::read_to_string(root().join(shown)) else { return };
    if !shown.ends_with(".rs") {
        return;
    }
    rooms::check_file(shown, &text, problems);
    words::check_file(shown, &text, problems);
    for (word, reason) in FORBIDDEN {
        if let Some(line) = text.lines().position(|line| line.contains(word)) {
            problems.push(format!("{shown}:{}: {word} ({reason})", line + 1));
        }
    }
    let is_run = |line: &&str| {
        let fence = ["/// ", "//! "]
            .iter()
            .find_map(|comment| line.trim_start().strip_prefix(comment)?.strip_prefix("```"));
        fence.is_some_and(|language| ["", "rust", "should_panic", "no_run"].contains(&language))
    };
    // An opening fence has its language; a closing one follows it.
    if let Some(line) = text.lines().filter(|line| line.contains("```")).step_by(2).find(is_run) {
        problems.push(format!("{shown}: {line} opens an example that no test runs"));
    }
    if shown.ends_with("/src/lib.rs") && !text.starts_with("//!") {
        problems.push(format!("{shown}: a lib.rs introduces itself with a `//!` comment"));
    }
}

/// Every third-party dependency of the workspace has its line in docs/dependencies.md.
fn dependencies_are_explained(problems: &mut Vec<String>) -> Result<()> {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml"))?;
    let explained = std::fs::read_to_string(root().join("docs/dependencies.md"))?;
    let section = manifest.split("[workspace.dependencies]").nth(1).context("no [workspace.dependencies]")?;
    let names = section
        .lines()
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split_once(" ="))
        .map(|(name, _)| name);
    for name in names.filter(|name| !name.starts_with("quire-") && !name.starts_with('#')) {
        if !explained.contains(&format!("| `{name}` |")) {
            problems.push(format!("docs/dependencies.md does not say why `{name}` is used"));
        }
    }
    Ok(())
}

/// Which workspace crates a crate may depend on, as ARCHITECTURE.md draws it.
const ARROWS: &[(&str, &[&str])] = &[
    ("value", &[]),
    ("resource", &["value"]),
    ("sql", &["value", "resource"]),
    ("model", &["value", "resource", "sql"]),
    ("profile", &["value", "resource", "sql"]),
    ("advisor", &["value", "resource", "sql", "model", "profile"]),
    ("storage", &[]),
    ("storage-local", &["storage"]),
    ("script", &["value"]),
    ("engine", &["value", "resource", "sql", "model", "profile", "script", "storage"]),
    ("server", &["engine", "advisor", "profile", "resource", "value"]),
];

fn arrows_point_up(problems: &mut Vec<String>) -> Result<()> {
    for (name, allowed) in ARROWS {
        let manifest = std::fs::read_to_string(root().join("crates").join(name).join("Cargo.toml"))?;
        let section = manifest.split("[dependencies]").nth(1).unwrap_or_default();
        for line in section.lines().take_while(|line| !line.starts_with('[')) {
            let Some(dependency) =
                line.strip_prefix("quire-").and_then(|line| line.split(['.', ' ', '=']).next())
            else {
                continue;
            };
            if !allowed.contains(&dependency) {
                problems.push(format!("crates/{name} may not depend on crates/{dependency}"));
            }
        }
    }
    Ok(())
}
