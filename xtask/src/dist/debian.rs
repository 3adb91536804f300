//! The Debian package: the program, a service of its own user, settings that upgrades leave alone.

use anyhow::Result;

use super::archive::{self, Entry};
use super::tarball::manual_and_completions;
use super::{Product, source};

const SETTINGS: &str = "etc/quire/quire.toml";

pub fn name(product: &Product) -> String {
    format!("quire_{}_{}.deb", product.version, product.short_architecture())
}

/// Three members: the format's version, what the package says of itself, its files.
pub fn pack(product: &Product) -> Result<Vec<u8>> {
    let files = files(product)?;
    let control = archive::tar(&control(product, &files)?, product.modified)?;
    let data = archive::tar(&archive::with_parents(files), product.modified)?;
    let members = [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", archive::gzip(&control, product.compression)?),
        ("data.tar.gz", archive::gzip(&data, product.compression)?),
    ];
    Ok(archive::ar(&members, product.modified))
}

fn files(product: &Product) -> Result<Vec<Entry>> {
    let changelog = archive::gzip(source("CHANGELOG.md")?.as_bytes(), product.compression)?;
    let mut files = vec![
        Entry::file(SETTINGS, source("packages/debian/quire.toml")?),
        Entry::program("usr/bin/quire", product.program.clone()),
        Entry::file("usr/lib/systemd/system/quire.service", source("packages/debian/quire.service")?),
        Entry::file("usr/share/doc/quire/changelog.gz", changelog),
        Entry::file("usr/share/doc/quire/copyright", source("packages/debian/copyright")?),
        Entry::file(
            "usr/share/doc/quire/THIRD-PARTY.txt.gz",
            archive::gzip(product.third_party.as_bytes(), product.compression)?,
        ),
    ];
    files.extend(manual_and_completions(product, "usr/share", true)?);
    Ok(files)
}

fn control(product: &Product, files: &[Entry]) -> Result<Vec<Entry>> {
    let contents = |entry: &Entry| entry.contents.as_ref().map_or(0, Vec::len);
    let kilobytes = files.iter().map(contents).sum::<usize>().div_ceil(1024);
    let control = source("packages/debian/control")?
        .replace("@version@", &product.version)
        .replace("@architecture@", product.short_architecture())
        .replace("@installed_size@", &kilobytes.to_string());
    let mut entries =
        vec![Entry::file("control", control), Entry::file("conffiles", format!("/{SETTINGS}\n"))];
    for script in ["postinst", "prerm", "postrm"] {
        entries.push(Entry::program(script, source(&format!("packages/debian/{script}"))?));
    }
    Ok(entries)
}
