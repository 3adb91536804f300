//! Measurements of a live `quire` against floors that are taken in the same run.
//!
//! `benches base QUIRE_BINARY` prints the table of docs/performance.md. Machines are shared and noisy: what counts is
//! CPU time per operation and ratios within one run, each the median of several rounds taken in turn.
//! `benches floor plain|signed|durable` is the floor: a bare hyper server in a process of its own.

mod base; // the base benchmark: reads, writes, start, memory
mod client; // a load generator
mod disk; // append + fdatasync
mod floor; // a bare hyper server with the same bytes
mod postgres; // PostgreSQL beside us, where it is installed
mod process; // CPU time and memory of a live process
mod table; // figures against their bounds

use anyhow::{Result, bail};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["base", binary] => base::run(std::path::Path::new(binary)),
        ["floor", "plain"] => floor::serve(floor::Kind::Plain),
        ["floor", "signed"] => floor::serve(floor::Kind::Signed),
        ["floor", "durable"] => floor::serve(floor::Kind::Durable),
        _ => bail!("usage: benches base QUIRE_BINARY | floor plain|signed|durable"),
    }
}
