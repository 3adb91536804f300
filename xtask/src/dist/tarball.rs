//! The tar.gz: unpack it anywhere, or over `/usr/local`.

use anyhow::Result;

use super::archive::{self, Entry};
use super::{Product, source};

pub fn name(product: &Product) -> String {
    format!("{}.tar.gz", folder(product))
}

/// What it unpacks to.
pub fn folder(product: &Product) -> String {
    format!("quire-{}-linux-{}", product.version, product.architecture)
}

pub fn pack(product: &Product) -> Result<Vec<u8>> {
    let mut entries = vec![
        Entry::program("bin/quire", product.program.clone()),
        Entry::file("share/doc/quire/README.md", source("README.md")?),
        Entry::file("share/doc/quire/CHANGELOG.md", source("CHANGELOG.md")?),
        Entry::file("share/doc/quire/quire.service", source("packages/debian/quire.service")?),
    ];
    entries.extend(product.licence_entries("share/doc/quire"));
    entries.extend(manual_and_completions(product, "share", false)?);
    let sums: String = entries
        .iter()
        .filter_map(|entry| Some((entry.contents.as_ref()?, &entry.path)))
        .map(|(contents, path)| format!("{}  {path}\n", archive::sha256(contents)))
        .collect();
    entries.push(Entry::file("SHA256SUMS", sums));
    let folder = folder(product);
    for entry in &mut entries {
        entry.path = format!("{folder}/{}", entry.path);
    }
    archive::gzip(&archive::tar(&archive::with_parents(entries), product.modified)?, product.compression)
}

/// Where shells and `man` look below a `share` folder. Debian wants pages compressed.
pub fn manual_and_completions(product: &Product, share: &str, compress: bool) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for (name, page) in &product.pages {
        entries.push(if compress {
            Entry::file(format!("{share}/man/man1/{name}.gz"), archive::gzip(page, product.compression)?)
        } else {
            Entry::file(format!("{share}/man/man1/{name}"), page.clone())
        });
    }
    for (shell, script) in &product.completions {
        let place = match *shell {
            "zsh" => "zsh/vendor-completions/_quire",
            "fish" => "fish/vendor_completions.d/quire.fish",
            _ => "bash-completion/completions/quire",
        };
        entries.push(Entry::file(format!("{share}/{place}"), script.clone()));
    }
    Ok(entries)
}
