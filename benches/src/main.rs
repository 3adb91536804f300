//! Measurements of a live `quire` against floors that are taken in the same run.
//!
//! `benches base QUIRE_BINARY`, `benches compare QUIRE_BINARY` and the others print the tables of docs/performance.md. Machines are shared and noisy: what counts is
//! CPU time per operation and ratios within one run, each the median of several rounds taken in turn.
//! `benches floor plain|signed|durable` is the floor: a bare hyper server in a process of its own.

mod base; // the base benchmark: reads, writes, start, memory
mod client; // a load generator
mod compare; // sixteen workloads against PostgreSQL and any other server of the protocol
mod disk; // append + fdatasync
mod feed; // the feed benchmark: readers, polls, the sweep
mod floor; // a bare hyper server with the same bytes
mod growth; // one query over more and more items
mod model; // the model benchmark: links, copies and counts
mod people; // the items of most benchmarks, and their container
mod postgres; // PostgreSQL beside us, where it is installed
mod process; // CPU time and memory of a live process
mod profile; // where a server spends its time under a workload
mod scripts; // procedures, batches and functions, against PostgreSQL
mod space; // what indexing costs
mod table; // figures against their bounds

use std::path::Path;

use anyhow::{Result, bail};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["base", binary] => base::run(Path::new(binary)),
        ["compare", binary, arguments @ ..] => compare::run(Path::new(binary), arguments),
        ["profile", binary, workload, arguments @ ..] => profile::run(Path::new(binary), workload, arguments),
        ["fill", port] => compare::fill_running(port.parse()?),
        ["growth", binary] => growth::run(Path::new(binary)),
        ["space", binary] => space::run(Path::new(binary)),
        ["scripts", binary] => scripts::run(Path::new(binary), scripts::FULL),
        ["scripts", binary, "small"] => scripts::run(Path::new(binary), scripts::SMALL),
        ["feed", binary] => feed::run(Path::new(binary), feed::FULL),
        ["feed", binary, "small"] => feed::run(Path::new(binary), feed::SMALL),
        ["model", binary, "small"] => model::run(Path::new(binary), model::SMALL, &[]),
        ["model", binary, "items", count, parts @ ..] => {
            model::run(Path::new(binary), model::FULL.with_items(count.parse()?), parts)
        }
        ["model", binary, parts @ ..] => model::run(Path::new(binary), model::FULL, parts),
        ["floor", "plain"] => floor::serve(floor::Kind::Plain),
        ["floor", "signed"] => floor::serve(floor::Kind::Signed),
        ["floor", "durable"] => floor::serve(floor::Kind::Durable),
        _ => bail!(
            "usage: benches base QUIRE_BINARY | compare QUIRE_BINARY [WORKLOAD...] [OPTION...] | profile QUIRE_BINARY WORKLOAD [OPTION...] | growth QUIRE_BINARY | \
             space QUIRE_BINARY | scripts QUIRE_BINARY [small] | feed QUIRE_BINARY [small] | model QUIRE_BINARY [small|[items COUNT] PART...] | fill PORT | floor plain|signed|durable"
        ),
    }
}
