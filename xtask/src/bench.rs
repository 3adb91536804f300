//! Measurements against floors that are taken in the same run.

use anyhow::Result;

pub fn base() -> Result<()> {
    anyhow::bail!("the base benchmark is not there yet")
}
