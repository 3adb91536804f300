//! Measurements against floors that are taken in the same run: see `benches/`.

use anyhow::Result;

use crate::command::{build_server, cargo, check, target_dir};

pub fn base() -> Result<()> {
    let server = build_server()?;
    check(cargo().args(["build", "--release", "--package", "benches"]))?;
    check(std::process::Command::new(target_dir().join("release").join("benches")).arg("base").arg(server))
}
