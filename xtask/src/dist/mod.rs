//! `cargo xtask dist`: what people install, made from one binary.
//!
//! A program is built ([`build`]), described by a [`Product`], and packed as a tar.gz, a Debian package, a container image, a
//! Python wheel and an npm package, one file each. Everything is made here, from files of the repository: nothing is
//! pulled. The same commit and program give the same bytes. What was made is then tried ([`check`]).

mod archive; // files in tar, gzip, ar and zip
mod build; // the program itself
mod check; // what was packed, installed and used
mod debian; // a package with a service
mod image; // a container image
mod licences; // what the program is made of
mod npm; // a package for Node.js
mod python; // a wheel
mod tarball; // binary, manual pages, completions
mod times; // how long it takes to be ready

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::command::{self, TestCounts, root, target_dir};
use archive::{Compression, Entry};

/// Everything that the packages have in common.
pub struct Product {
    version: String,
    /// `x86_64` or `aarch64`.
    architecture: &'static str,
    /// Needs nothing of the machine but its kernel.
    is_static: bool,
    program: Vec<u8>,
    licence: String,
    /// Licences of what it is made of.
    third_party: String,
    /// Manual pages by name.
    pages: Vec<(String, Vec<u8>)>,
    /// Completions by shell.
    completions: Vec<(&'static str, Vec<u8>)>,
    /// Of all files, in seconds: the time of the last commit.
    modified: u64,
    /// The same as text: `2026-11-17T10:07:00Z`.
    created: String,
    compression: Compression,
}

/// What was packed, and where.
pub struct Packed {
    product: Product,
    tarball: PathBuf,
    debian: PathBuf,
    image: PathBuf,
    wheel: PathBuf,
    npm: PathBuf,
}

const IMAGE_BYTES_MAX: u64 = 30_000_000;
/// Of those for package managers.
const PACKAGE_BYTES_MAX: u64 = 15_000_000;

const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];

/// Builds, packs and tries. The files are in `target/dist`.
pub fn run() -> Result<TestCounts> {
    let built = build::for_distribution()?;
    let packed = pack(Product::new(&built)?, &target_dir().join("dist"))?;
    for file in packed.files() {
        println!("{:>9} KB  {}", std::fs::metadata(file)?.len() / 1024, file.display());
    }
    check_sizes(&packed)?;
    check::run(&packed)
}

/// Builds and packs, and measures starts and memory.
pub fn times() -> Result<()> {
    let built = build::for_distribution()?;
    let packed = pack(Product::new(&built)?, &target_dir().join("dist"))?;
    times::run(&built.program, &packed)
}

fn check_sizes(packed: &Packed) -> Result<()> {
    let limits = [
        (&packed.image, IMAGE_BYTES_MAX),
        (&packed.wheel, PACKAGE_BYTES_MAX),
        (&packed.npm, PACKAGE_BYTES_MAX),
    ];
    for (file, bytes_max) in limits {
        let bytes = std::fs::metadata(file)?.len();
        ensure!(bytes <= bytes_max, "{} has {bytes} bytes, at most {bytes_max} are wanted", file.display());
    }
    Ok(())
}

/// In the test command: the program of the other suites is packed, which takes no time to build.
pub fn test() -> Result<TestCounts> {
    test_program(&command::build_server()?)
}

/// Packs a program that is there and tries the packages.
pub fn test_program(program: &Path) -> Result<TestCounts> {
    let built = build::Built::of(program)?;
    let packed = pack(Product::new(&built)?, &target_dir().join("dist-test"))?;
    check::run(&packed)
}

fn pack(product: Product, folder: &Path) -> Result<Packed> {
    if folder.exists() {
        std::fs::remove_dir_all(folder).with_context(|| format!("removing {}", folder.display()))?;
    }
    std::fs::create_dir_all(folder)?;
    let save = |name: String, bytes: Vec<u8>| -> Result<PathBuf> {
        let path = folder.join(name);
        std::fs::write(&path, bytes).with_context(|| format!("writing {}", path.display()))?;
        Ok(path)
    };
    let packed = Packed {
        tarball: save(tarball::name(&product), tarball::pack(&product)?)?,
        debian: save(debian::name(&product), debian::pack(&product)?)?,
        image: save(image::name(&product), image::pack(&product)?)?,
        wheel: save(python::name(&product), python::pack(&product)?)?,
        npm: save(npm::name(&product), npm::pack(&product)?)?,
        product,
    };
    let sums: String = packed.files().iter().map(|file| checksum_line(file)).collect::<Result<_>>()?;
    save("SHA256SUMS".to_owned(), sums.into_bytes())?;
    Ok(packed)
}

/// As `sha256sum` reads it.
fn checksum_line(path: &Path) -> Result<String> {
    let name = path.file_name().and_then(|name| name.to_str()).context("a file name")?;
    Ok(format!("{}  {name}\n", archive::sha256(&std::fs::read(path)?)))
}

impl Packed {
    fn files(&self) -> [&PathBuf; 5] {
        [&self.tarball, &self.debian, &self.image, &self.wheel, &self.npm]
    }
}

impl Product {
    fn new(built: &build::Built) -> Result<Product> {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "x86_64",
            "aarch64" => "aarch64",
            other => bail!("there are no packages for {other}"),
        };
        let modified = last_commit()?;
        Ok(Product {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            architecture,
            is_static: built.target.is_some(),
            program: std::fs::read(&built.program)
                .with_context(|| format!("reading {}", built.program.display()))?,
            licence: std::fs::read_to_string(root().join("LICENSE"))?,
            third_party: licences::third_party(built.target)?,
            pages: manual_pages(&built.program)?,
            completions: SHELLS
                .iter()
                .map(|shell| completions(&built.program, shell))
                .collect::<Result<_>>()?,
            modified,
            created: date(modified)?,
            compression: built.compression,
        })
    }

    /// As Debian and container images call it.
    fn short_architecture(&self) -> &'static str {
        match self.architecture {
            "aarch64" => "arm64",
            _ => "amd64",
        }
    }

    /// Licences, for the folder in which a package has its documents.
    fn licence_entries(&self, folder: &str) -> Vec<Entry> {
        vec![
            Entry::file(format!("{folder}/LICENSE"), self.licence.clone()),
            Entry::file(format!("{folder}/THIRD-PARTY.txt"), self.third_party.clone()),
        ]
    }
}

/// A file of the repository.
fn source(path: &str) -> Result<String> {
    std::fs::read_to_string(root().join(path)).with_context(|| format!("reading {path}"))
}

fn completions(program: &Path, shell: &'static str) -> Result<(&'static str, Vec<u8>)> {
    let output = Command::new(program).args(["completions", shell]).output().context("making completions")?;
    if !output.status.success() {
        bail!("quire completions {shell} ended with {}", output.status);
    }
    Ok((shell, output.stdout))
}

fn manual_pages(program: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let folder = target_dir().join("dist-man");
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    command::check(Command::new(program).args(["man", "--out"]).arg(&folder))?;
    let mut pages = Vec::new();
    for entry in std::fs::read_dir(&folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).context("a name of a page")?.to_owned();
        pages.push((name, std::fs::read(&path)?));
    }
    pages.sort();
    Ok(pages)
}

/// The time of packages. What is built of changed files has that of the commit before.
fn last_commit() -> Result<u64> {
    if let Ok(set) = std::env::var("SOURCE_DATE_EPOCH") {
        return set.parse().context("SOURCE_DATE_EPOCH is no number");
    }
    let output = Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root()).output();
    let text = String::from_utf8(output.context("asking git for the last commit")?.stdout)?;
    text.trim().parse().context("git gave no time of the last commit; set SOURCE_DATE_EPOCH")
}

fn date(seconds: u64) -> Result<String> {
    let mut command = Command::new("date");
    command.args(["--utc", &format!("--date=@{seconds}"), "+%Y-%m-%dT%H:%M:%SZ"]);
    Ok(String::from_utf8(command.output().context("starting date")?.stdout)?.trim().to_owned())
}
