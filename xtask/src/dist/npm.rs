//! The npm package: the program and the helper for tests.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::archive::{self, Entry};
use super::{Product, source};

const FILES: [&str; 4] = ["README.md", "index.d.ts", "index.js", "index.mjs"];

pub fn name(product: &Product) -> String {
    format!("quire-db-{}-linux-{}.tgz", product.version, cpu(product))
}

/// As Node.js calls it.
fn cpu(product: &Product) -> &'static str {
    match product.architecture {
        "aarch64" => "arm64",
        _ => "x64",
    }
}

pub fn pack(product: &Product) -> Result<Vec<u8>> {
    let mut manifest: Value = serde_json::from_str(&source("packages/npm/package.json")?)
        .context("reading packages/npm/package.json")?;
    manifest["version"] = json!(product.version);
    manifest["cpu"] = json!([cpu(product)]);
    let mut entries = vec![Entry::file("package/package.json", format!("{manifest:#}\n"))];
    for file in FILES {
        entries.push(Entry::file(format!("package/{file}"), source(&format!("packages/npm/{file}"))?));
    }
    entries.push(Entry::program("package/bin/quire", product.program.clone()));
    entries.extend(product.licence_entries("package"));
    archive::gzip(&archive::tar(&entries, product.modified)?, product.compression)
}
