//! The program that is packed: static, so that it runs on every Linux of its architecture and in an empty image.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::archive::Compression;
use crate::command::{cargo, check, target_dir};
use crate::tools;

const PROFILE: &str = "distribution";

pub struct Built {
    pub program: PathBuf,
    /// The target of a static program; `None` for one that needs the C library of this machine.
    pub target: Option<&'static str>,
    /// Small files are for those who install them; a test has no time for that.
    pub compression: Compression,
}

impl Built {
    /// One that is there already, for tests.
    pub fn of(program: &Path) -> Result<Built> {
        let listed = Command::new("ldd").arg(program).output().context("starting ldd")?;
        let printed =
            [listed.stdout, listed.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        let is_static = printed.contains("statically linked") || printed.contains("not a dynamic executable");
        let target = if is_static { Some(static_target()?) } else { None };
        Ok(Built { program: program.to_owned(), target, compression: Compression::fast() })
    }
}

/// With the profile for distribution, which takes minutes.
pub fn for_distribution() -> Result<Built> {
    let target = static_target()?;
    need_target(target)?;
    // The C code (scripts, allocator, cryptography) is compiled against the same C library.
    tools::need("musl-gcc", "musl-tools")?;
    check(cargo().args(["build", "--profile", PROFILE, "--package", "quire-cli", "--target", target]))?;
    let program = target_dir().join(target).join(PROFILE).join("quire");
    Ok(Built { program, target: Some(target), compression: Compression::best() })
}

fn static_target() -> Result<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("x86_64-unknown-linux-musl"),
        "aarch64" => Ok("aarch64-unknown-linux-musl"),
        other => bail!("there is no static target for {other}"),
    }
}

fn need_target(target: &str) -> Result<()> {
    let listed = Command::new("rustc").args(["--print", "target-libdir", "--target", target]).output();
    let folder = String::from_utf8(listed.context("asking rustc for its targets")?.stdout)?;
    if Path::new(folder.trim()).is_dir() {
        return Ok(());
    }
    println!("fetching the target {target}");
    check(Command::new("rustup").args(["target", "add", target]))
        .with_context(|| format!("the target {target} is needed"))
}
