//! What was packed, tried from the files alone: unpacked, installed, run, removed.
//!
//! The scripts of `packages/tests` and the tests of the packages for Python and Node.js do the work.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use flate2::read::GzDecoder;
use serde_json::Value;

use super::{Packed, archive, image, tarball as packed_tarball};
use crate::command::{self, TestCounts, root, target_dir};
use crate::tools;

/// One thing that is tried, in a scratch directory of its own.
struct Check {
    name: &'static str,
    /// Users, mounts and packages are only root's.
    as_root: bool,
    run: fn(&Packed, &Path) -> Result<TestCounts>,
}

const CHECKS: &[Check] = &[
    Check { name: "tarball", as_root: false, run: tarball },
    Check { name: "debian", as_root: true, run: debian },
    Check { name: "image", as_root: true, run: image_runs },
    Check { name: "python", as_root: false, run: python },
    Check { name: "npm", as_root: false, run: npm },
    // It uses what those before have installed.
    Check { name: "first_use", as_root: false, run: first_use },
    Check { name: "documents", as_root: false, run: documents },
];

/// What is left out when root does not run it.
const AS_ROOT: &str = "packages/tests, Debian package and image, which need root,";

pub fn run(packed: &Packed) -> Result<TestCounts> {
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n");
    let mut test_counts = TestCounts::default();
    for check in CHECKS {
        println!("\n--- packages: {}", check.name);
        if check.as_root && !is_root {
            test_counts.left_out.insert(AS_ROOT);
            continue;
        }
        let scratch = scratch(check.name)?;
        test_counts.add((check.run)(packed, &scratch).unwrap_or_else(|error| {
            println!("{}: {error:#}", check.name);
            TestCounts::counted(0, 1)
        }));
    }
    Ok(test_counts)
}

pub fn scratch(name: &str) -> Result<PathBuf> {
    let folder = target_dir().join("dist-check").join(name);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
    }
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn script(name: &str) -> Command {
    Command::new(root().join("packages/tests").join(name))
}

/// One passed test, unless it fails.
fn passes(command: &mut Command) -> Result<TestCounts> {
    command::check(command)?;
    Ok(TestCounts::counted(1, 0))
}

fn tarball(packed: &Packed, scratch: &Path) -> Result<TestCounts> {
    passes(script("tarball.sh").arg(&packed.tarball).arg(scratch))
}

fn debian(packed: &Packed, scratch: &Path) -> Result<TestCounts> {
    tools::need("systemd-analyze", "systemd")?;
    let (python, modules) = (tools::python()?, tools::node()?.join("node_modules"));
    passes(script("debian.sh").arg(&packed.debian).arg(python).arg(modules).arg(scratch))
}

/// Its parts are what their names say, and its files are enough.
fn image_runs(packed: &Packed, scratch: &Path) -> Result<TestCounts> {
    let parts = read_tar(&std::fs::read(&packed.image)?)?;
    let config = check_parts(&parts)?;
    let files = scratch.join("root");
    unpack_layer(&parts, &files)?;
    if !packed.product.is_static {
        copy_libraries(&files)?;
    }
    let words = |value: &Value| -> String {
        let words = value.as_array().map(Vec::as_slice).unwrap_or_default();
        words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")
    };
    let config = &config["config"];
    // The words after `CMD`.
    let health = words(&config["Healthcheck"]["Test"]);
    let mut run = script("image.sh");
    run.arg(&files).arg(scratch);
    run.env("USER_ID", config["User"].as_str().unwrap_or_default());
    run.env("ENVIRONMENT", words(&config["Env"])).env("ENTRYPOINT", words(&config["Entrypoint"]));
    run.env("HEALTH", health.trim_start_matches("CMD "));
    passes(&mut run)
}

type Parts = BTreeMap<String, Vec<u8>>;

fn read_tar(bytes: &[u8]) -> Result<Parts> {
    let mut parts = Parts::new();
    for entry in tar::Archive::new(bytes).entries()? {
        let mut entry = entry?;
        let path = entry.path()?.display().to_string();
        let mut contents = Vec::new();
        entry.read_to_end(&mut contents)?;
        parts.insert(path, contents);
    }
    Ok(parts)
}

fn part<'a>(parts: &'a Parts, path: &str) -> Result<&'a [u8]> {
    parts.get(path).map(Vec::as_slice).with_context(|| format!("the image has no {path}"))
}

fn json(parts: &Parts, path: &str) -> Result<Value> {
    serde_json::from_slice(part(parts, path)?).with_context(|| format!("reading {path}"))
}

/// Every name of a blob is its digest, both indexes name the same blobs, and the layer is the one that the
/// configuration names. Returns the configuration.
fn check_parts(parts: &Parts) -> Result<Value> {
    for (path, contents) in parts {
        if let Some(digest) = path.strip_prefix("blobs/sha256/").filter(|digest| !digest.is_empty()) {
            ensure!(archive::sha256(contents) == digest, "{path} has another digest");
        }
    }
    let path = |value: &Value| -> Result<String> {
        let digest = value["digest"].as_str().and_then(|digest| digest.strip_prefix("sha256:"));
        Ok(format!("blobs/sha256/{}", digest.context("a descriptor without a digest")?))
    };
    let index = json(parts, "index.json")?;
    let manifest = json(parts, &path(&index["manifests"][0])?)?;
    let (config, layer) = (path(&manifest["config"])?, path(&manifest["layers"][0])?);
    let for_docker = json(parts, "manifest.json")?;
    ensure!(for_docker[0]["Config"] == *config && for_docker[0]["Layers"][0] == *layer, "{for_docker}");
    let config = json(parts, &config)?;
    let unpacked = archive::sha256(&unzipped(part(parts, &layer)?)?);
    ensure!(config["rootfs"]["diff_ids"][0] == *format!("sha256:{unpacked}"), "the layer is another one");
    Ok(config)
}

fn unzipped(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut unzipped = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut unzipped)?;
    Ok(unzipped)
}

fn unpack_layer(parts: &Parts, folder: &Path) -> Result<()> {
    let for_docker = json(parts, "manifest.json")?;
    let layer = for_docker[0]["Layers"][0].as_str().context("an image without a layer")?;
    let unzipped = unzipped(part(parts, layer)?)?;
    let mut layer = tar::Archive::new(unzipped.as_slice());
    layer.set_preserve_ownerships(true);
    layer.set_preserve_permissions(true);
    layer.unpack(folder).with_context(|| format!("unpacking into {}", folder.display()))
}

/// A program that is not static finds its libraries as on this machine.
fn copy_libraries(files: &Path) -> Result<()> {
    let output = Command::new("ldd").arg(files.join(image::PROGRAM)).output().context("starting ldd")?;
    let listed = String::from_utf8(output.stdout)?;
    for word in listed.split_whitespace().filter(|word| word.starts_with('/')) {
        let copy = files.join(word.trim_start_matches('/'));
        std::fs::create_dir_all(copy.parent().context("a library lies in a folder")?)?;
        std::fs::copy(word, &copy).with_context(|| format!("copying {word}"))?;
    }
    Ok(())
}

/// An environment that has nothing but the wheel; the SDK and pytest are lent to it.
fn python(packed: &Packed, scratch: &Path) -> Result<TestCounts> {
    let python = install_wheel(packed, scratch)?;
    let mut tests = Command::new(&python);
    tests.args(["-m", "pytest", "-q", "-rpfE", "-p", "no:cacheprovider", "packages/python/tests"]);
    tests.current_dir(root()).env("PYTHONDONTWRITEBYTECODE", "1").env("XDG_STATE_HOME", scratch);
    command::counted(&mut tests, command::pytest_line)
}

/// Returns the environment's Python.
pub fn install_wheel(packed: &Packed, scratch: &Path) -> Result<PathBuf> {
    let sdk = tools::python()?;
    let home = scratch.join("environment");
    command::check(Command::new(&sdk).args(["-m", "venv", "--without-pip"]).arg(&home))?;
    let python = home.join("bin/python");
    let mut install = Command::new(&sdk);
    install.args(["-m", "pip", "--quiet", "--disable-pip-version-check", "--python"]).arg(&python);
    command::check(install.args(["install", "--no-index", "--no-deps"]).arg(&packed.wheel))?;
    link_packages(&sdk, &python)?;
    Ok(python)
}

/// A file that makes the packages of one environment visible in another.
fn link_packages(from: &Path, to: &Path) -> Result<()> {
    let packages = |python: &Path| -> Result<String> {
        let script = "import sysconfig; print(sysconfig.get_path('purelib'))";
        let output = Command::new(python).args(["-c", script]).output().context("starting Python")?;
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    };
    std::fs::write(Path::new(&packages(to)?).join("lent.pth"), packages(from)?)?;
    Ok(())
}

/// A folder that has nothing but the package; the SDK is lent to it.
fn npm(packed: &Packed, scratch: &Path) -> Result<TestCounts> {
    let sdk = tools::node()?;
    install_npm(packed, scratch)?;
    for file in std::fs::read_dir(root().join("packages/npm/tests"))? {
        let path = file?.path();
        std::fs::copy(&path, scratch.join(path.file_name().context("a file name")?))?;
    }
    for linked in ["@azure", "typescript"] {
        link_folder(&sdk, scratch, linked)?;
    }
    let compiler = sdk.join("node_modules/typescript/bin/tsc");
    command::check(Command::new("node").arg(compiler).args(["--project", "."]).current_dir(scratch))
        .context("the types of the package")?;
    let mut tests = Command::new("node");
    tests.args(["--test", "--test-reporter=spec", "package.test.mjs"]).current_dir(scratch);
    tests.env("XDG_STATE_HOME", scratch).env("QUIRE_README", root().join("README.md"));
    command::counted(&mut tests, command::node_line)
}

pub fn install_npm(packed: &Packed, scratch: &Path) -> Result<()> {
    std::fs::write(scratch.join("package.json"), "{\"private\":true}\n")?;
    let mut install = Command::new("npm");
    install.args(["install", "--offline", "--no-audit", "--no-fund", "--loglevel=error"]).arg(&packed.npm);
    command::check(install.current_dir(scratch))
}

/// The programs of the README against the `quire` of every package.
fn first_use(packed: &Packed, scratch: &Path) -> Result<TestCounts> {
    let checks = scratch.parent().context("a scratch directory lies in a folder")?;
    let unpacked = checks.join("tarball").join(packed_tarball::folder(&packed.product)).join("bin/quire");
    let debian = scratch.join("debian");
    command::check(Command::new("dpkg-deb").arg("--extract").arg(&packed.debian).arg(&debian))?;
    let installed = [
        unpacked,
        debian.join("usr/bin/quire"),
        checks.join("python/environment/bin/quire"),
        checks.join("npm/node_modules/.bin/quire"),
    ];
    let (python, modules) = (tools::python()?, tools::node()?.join("node_modules"));
    let mut test_counts = TestCounts::default();
    for (number, program) in installed.iter().enumerate() {
        println!("{}", program.display());
        let folder = scratch.join(number.to_string());
        std::fs::create_dir_all(&folder)?;
        let mut run = script("first_use.sh");
        test_counts.add(passes(run.arg(program).arg(&python).arg(&modules).arg(&folder))?);
    }
    Ok(test_counts)
}

/// The commands of README, docs/troubleshooting.md and docs/migrating.md, as they are written there.
fn documents(packed: &Packed, scratch: &Path) -> Result<TestCounts> {
    let packages = packed.tarball.parent().context("a package lies in a folder")?;
    let modules = tools::node()?.join("node_modules");
    let mut run = Command::new("python3");
    run.arg(root().join("packages/tests/documents.py")).arg(packages).arg(tools::python()?);
    passes(run.arg(modules).arg(scratch))
}

fn link_folder(from: &Path, to: &Path, name: &str) -> Result<()> {
    let (from, to) = (from.join("node_modules").join(name), to.join("node_modules").join(name));
    if !from.exists() {
        bail!("{} is missing", from.display());
    }
    std::os::unix::fs::symlink(&from, &to).with_context(|| format!("linking {}", to.display()))
}
