//! The Python wheel: the program and the helper for tests. No build backend takes part.

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};

use super::archive::{self, Entry};
use super::{Product, source};

/// Not `quire`: that name belongs to others. The module is called `quire`.
const NAME: &str = "quire_db";
const MODULES: [&str; 5] = ["__init__.py", "__main__.py", "_server.py", "pytest_plugin.py", "py.typed"];

pub fn name(product: &Product) -> String {
    format!("{NAME}-{}-py3-none-{}.whl", product.version, tags(product).join("."))
}

/// A static program runs with every C library; any other is for this machine alone.
fn tags(product: &Product) -> Vec<String> {
    let systems: &[&str] = match product.is_static {
        true => &["manylinux2014", "manylinux_2_17", "musllinux_1_1"],
        false => &["linux"],
    };
    systems.iter().map(|system| format!("{system}_{}", product.architecture)).collect()
}

pub fn pack(product: &Product) -> Result<Vec<u8>> {
    let mut entries = Vec::new();
    for module in MODULES {
        let path = format!("quire/{module}");
        entries.push(Entry::file(&path, source(&format!("packages/python/{path}"))?));
    }
    entries.push(Entry::program("quire/_bin/quire", product.program.clone()));
    let info = format!("{NAME}-{}.dist-info", product.version);
    entries.extend(product.licence_entries(&format!("{info}/licenses")));
    entries.push(Entry::file(format!("{info}/METADATA"), metadata(product)?));
    entries.push(Entry::file(format!("{info}/WHEEL"), wheel(product)));
    entries.push(Entry::file(
        format!("{info}/entry_points.txt"),
        "[console_scripts]\nquire = quire.__main__:main\n\n[pytest11]\nquire = quire.pytest_plugin\n",
    ));
    let record = format!("{info}/RECORD");
    let mut lines: String = entries.iter().map(record_line).collect();
    lines += &format!("{record},,\n");
    entries.push(Entry::file(record, lines));
    archive::zip(&entries, product.compression)
}

fn metadata(product: &Product) -> Result<String> {
    Ok(format!(
        "Metadata-Version: 2.4\nName: quire-db\nVersion: {}\n\
         Summary: Quire, a document database that speaks the Azure Cosmos DB for NoSQL API, and a server for tests\n\
         License-Expression: Apache-2.0\nLicense-File: LICENSE\nLicense-File: THIRD-PARTY.txt\n\
         Requires-Python: >=3.9\nClassifier: Framework :: Pytest\nClassifier: Operating System :: POSIX :: Linux\n\
         Classifier: Typing :: Typed\nDescription-Content-Type: text/markdown\n\n{}",
        product.version,
        source("packages/python/README.md")?
    ))
}

fn wheel(product: &Product) -> String {
    let tags: String = tags(product).iter().map(|tag| format!("Tag: py3-none-{tag}\n")).collect();
    format!("Wheel-Version: 1.0\nGenerator: quire\nRoot-Is-Purelib: false\n{tags}")
}

fn record_line(entry: &Entry) -> String {
    let contents = entry.contents.as_deref().unwrap_or_default();
    let hash = URL_SAFE_NO_PAD.encode(digest(&SHA256, contents));
    format!("{},sha256={hash},{}\n", entry.path, contents.len())
}
