//! Fetching what the suites need, by the ordinary package clients, into `.test-tools/`.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::command::{check, root};

const PYTHON_PACKAGES: &[&str] = &["azure-cosmos==4.17.1", "aiohttp==3.14.5", "pytest==9.2.0"];
/// The compiler checks the examples against their declarations.
const NODE_PACKAGES: &[&str] =
    &["@azure/cosmos@4.10.1", "typescript@5.9.3", "express-session@1.19.0", "express-session-cosmosdb@0.5.0"];

/// Programs that the test command starts, with the Debian packages that bring them.
const PROGRAMS: &[(&str, &str)] = &[
    ("strace", "strace"),
    ("python3", "python3-venv"),
    ("node", "nodejs"),
    ("npm", "npm"),
    ("curl", "curl"),
    ("ip", "iproute2"),
    ("systemd-analyze", "systemd"),
];

/// Programs that fetch what a manifest names into a folder, where they are on the machine.
const MANIFESTS: &[(&str, &str, &str)] =
    &[("go", "go", "tests/sdk/go/go.mod"), ("mvn", "java", "tests/sdk/java/pom.xml")];

/// Says what the test command is about to bring to this machine.
pub fn announce() {
    for (name, packages) in [("python", PYTHON_PACKAGES), ("node", NODE_PACKAGES)] {
        if !is_there(name, packages) {
            println!("to be fetched into {}: {}", folder().join(name).display(), packages.join(", "));
        }
    }
    for (program, name, manifest) in MANIFESTS {
        if available(program) && !folder().join(name).exists() {
            println!("to be fetched into {}: what {manifest} names", folder().join(name).display());
        }
    }
    let missing = PROGRAMS.iter().filter(|(program, _)| !available(program));
    let missing: Vec<&str> = missing.map(|(_, package)| *package).collect();
    if !missing.is_empty() {
        println!("to be installed on this machine by apt-get: {}", missing.join(", "));
    }
}

/// Makes sure that all programs are there.
pub fn need_programs() -> Result<()> {
    PROGRAMS.iter().try_for_each(|(program, package)| need(program, package))
}

/// The version of a client that the suites use: `4.17.1`. Those of Java are `group:artifact`.
pub fn version(package: &str) -> Option<String> {
    let pinned = PYTHON_PACKAGES.iter().chain(NODE_PACKAGES).find_map(|pinned| {
        let version = pinned.strip_prefix(package)?;
        version.strip_prefix("==").or_else(|| version.strip_prefix('@'))
    });
    let in_manifest = || {
        let manifest = std::fs::read_to_string(root().join("tests/sdk/rust/Cargo.toml")).ok()?;
        let line = manifest.lines().find(|line| line.starts_with(&format!("{package} =")))?;
        Some(line.split_once("\"=")?.1.split_once('"')?.0.to_owned())
    };
    let in_modules = || {
        let modules = std::fs::read_to_string(root().join("tests/sdk/go/go.mod")).ok()?;
        let (_, rest) = modules.split_once(&format!("/{package} v"))?;
        Some(rest.lines().next()?.trim().to_owned())
    };
    let in_project = || {
        let (_, artifact) = package.split_once(':')?;
        let project = std::fs::read_to_string(root().join("tests/sdk/java/pom.xml")).ok()?;
        let (_, rest) = project.split_once(&format!("<artifactId>{artifact}</artifactId>"))?;
        Some(rest.split_once("<version>")?.1.split_once('<')?.0.to_owned())
    };
    pinned.map(str::to_owned).or_else(in_manifest).or_else(in_modules).or_else(in_project)
}

pub fn folder() -> PathBuf {
    root().join(".test-tools")
}

/// The Python of a virtual environment that has the SDK.
pub fn python() -> Result<PathBuf> {
    let home = folder().join("python");
    let python = home.join("bin").join("python");
    once("python", PYTHON_PACKAGES, || {
        need("python3", "python3-venv")?;
        check(Command::new("python3").args(["-m", "venv"]).arg(&home)).or_else(|_| {
            debian("python3-venv")
                .and_then(|()| check(Command::new("python3").args(["-m", "venv"]).arg(&home)))
        })?;
        check(
            Command::new(&python)
                .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
                .args(PYTHON_PACKAGES),
        )
    })?;
    Ok(python)
}

/// The folder whose `node_modules` has the SDK.
pub fn node() -> Result<PathBuf> {
    node_packages("node", NODE_PACKAGES)
}

/// PostgreSQL 15, which Debian keeps out of the search path.
pub fn postgres() -> Result<()> {
    if std::path::Path::new("/usr/lib/postgresql/15/bin/initdb").exists() {
        return Ok(());
    }
    debian("postgresql-15")
}

fn node_packages(name: &str, packages: &[&str]) -> Result<PathBuf> {
    let home = folder().join(name);
    once(name, packages, || {
        need("node", "nodejs")?;
        need("npm", "npm")?;
        std::fs::create_dir_all(&home)?;
        std::fs::write(home.join("package.json"), "{\"private\":true}\n")?;
        check(
            Command::new("npm")
                .args(["install", "--no-audit", "--no-fund", "--loglevel=error"])
                .args(packages)
                .current_dir(&home),
        )
    })?;
    Ok(home)
}

/// Runs `install` unless a stamp says that exactly these packages are there.
fn once(name: &str, packages: &[&str], install: impl FnOnce() -> Result<()>) -> Result<()> {
    if is_there(name, packages) {
        return Ok(());
    }
    std::fs::create_dir_all(folder())?;
    let home = folder().join(name);
    if home.exists() {
        std::fs::remove_dir_all(&home)?;
    }
    println!("fetching {}", packages.join(", "));
    install()?;
    let stamp = stamp(name);
    std::fs::write(&stamp, packages.join("\n")).with_context(|| format!("writing {}", stamp.display()))
}

fn stamp(name: &str) -> PathBuf {
    folder().join(format!("{name}.stamp"))
}

fn is_there(name: &str, packages: &[&str]) -> bool {
    std::fs::read_to_string(stamp(name)).is_ok_and(|found| found == packages.join("\n"))
}

/// Makes sure a program is there, by its Debian package if need be.
pub fn need(program: &str, package: &str) -> Result<()> {
    if available(program) {
        return Ok(());
    }
    debian(package)?;
    if !available(program) {
        bail!("{program} is needed; installing the Debian package {package} did not bring it");
    }
    Ok(())
}

pub fn available(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

fn debian(package: &str) -> Result<()> {
    check(Command::new("apt-get").args(["update", "--quiet", "--quiet"]))?;
    check(Command::new("apt-get").args(["install", "--quiet", "--quiet", "--yes", package]))
}
