//! `benches compare QUIRE_BINARY [WORKLOAD...] [--connections 1,16] [--rounds N] [--seconds N] [--out FOLDER]
//! [--cosmos http://HOST:PORT/] [--cosmos-process PID]`.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use quire_testkit::http::Address;

use super::workload::{Workload, chosen};

pub struct Options {
    pub workloads: Vec<&'static Workload>,
    pub connections: Vec<usize>,
    pub rounds: usize,
    pub seconds: u64,
    pub out: PathBuf,
    /// Another server with the well-known key, and its process where it runs on this machine.
    pub cosmos: Option<(Address, Option<u32>)>,
}

impl Options {
    pub fn parse(arguments: &[&str]) -> Result<Options> {
        let mut options = Options {
            workloads: Vec::new(),
            connections: vec![1, 16],
            rounds: 3,
            seconds: 2,
            out: PathBuf::from("."),
            cosmos: None,
        };
        let (mut names, mut address, mut process) = (Vec::new(), None, None);
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            if !word.starts_with("--") {
                names.push((*word).to_owned());
                continue;
            }
            let value = *words.next().with_context(|| format!("{word} has no value"))?;
            match *word {
                "--connections" => {
                    let counts = value.split(',').map(|count| count.parse());
                    options.connections = counts.collect::<Result<_, _>>()?;
                }
                "--rounds" => options.rounds = value.parse()?,
                "--seconds" => options.seconds = value.parse()?,
                "--out" => options.out = PathBuf::from(value),
                "--cosmos" => address = Some(Address::parse(value)?),
                "--cosmos-process" => process = Some(value.parse()?),
                _ => bail!("unknown option {word}"),
            }
        }
        ensure!(options.rounds > 0 && options.seconds > 0, "at least one round of one second");
        ensure!(options.connections.iter().all(|count| *count > 0), "at least one connection");
        ensure!(process.is_none() || address.is_some(), "--cosmos-process without --cosmos");
        options.workloads = chosen(&names)?;
        options.cosmos = address.map(|address| (address, process));
        Ok(options)
    }
}
