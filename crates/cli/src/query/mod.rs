//! `quire query`: runs a query and prints its rows, all pages of them, or how it would be run.

mod problem; // what was wrong with a query, shown below its text
mod source; // where pages come from: a server, or a directory that none has open
mod table; // rows as a table

use std::io::{Read, Write};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use quire_engine::Parameters;
use quire_resource::PartitionKey;
use quire_value::{Limits, Value, text};

use crate::client::ServerArguments;
use source::{Page, QueryTarget, Source};
use table::Table;

#[derive(clap::Args)]
pub struct QueryArguments {
    /// The database
    database: String,
    /// The container
    container: String,
    /// SQL text; `-` reads it from standard input
    query: String,
    #[command(flatten)]
    server: ServerArguments,
    /// Ask no server but this data directory, which none may have open
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Value of a parameter, as in `name="Ada"` or `ids=[1,2]`: the name, with or without @, and JSON
    #[arg(short, long = "parameter", value_name = "NAME=JSON")]
    parameters: Vec<String>,
    /// Only this partition key: JSON, as in `"ada"`, `7` or, for a hierarchical key, `["ada", 2026]`
    #[arg(long, value_name = "JSON")]
    partition_key: Option<String>,
    /// Print how the query is run instead of its rows
    #[arg(long)]
    explain: bool,
    /// How rows are printed
    #[arg(long, value_name = "FORMAT", default_value = "lines")]
    format: Format,
    /// Rows asked for at a time
    #[arg(long, value_name = "ROWS", default_value = "1000", value_parser = clap::value_parser!(u32).range(1..))]
    page_size: u32,
}

#[derive(clap::ValueEnum, Clone, Copy)]
enum Format {
    /// One row of JSON a line
    Lines,
    /// Columns, one row a line, long values cut
    Table,
}

pub fn run(arguments: &QueryArguments) -> Result<()> {
    let query_target = QueryTarget {
        database: arguments.database.clone(),
        container: arguments.container.clone(),
        text: read_text(&arguments.query)?,
        parameters: read_parameters(&arguments.parameters)?,
        partition_key: arguments.partition_key.as_deref().map(read_partition_key).transpose()?,
        page_size: arguments.page_size,
        explain: arguments.explain,
    };
    let mut source = match &arguments.data {
        Some(directory) => Source::directory(directory, query_target)?,
        None => Source::server(&arguments.server, query_target)?,
    };
    let printed = print_pages(&mut source, arguments);
    source.close().and(printed)
}

fn print_pages(source: &mut Source, arguments: &QueryArguments) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let mut table = Table::default();
    let mut continuation = None;
    loop {
        let Page { rows, continuation: next, explained } = source.page(continuation.as_deref())?;
        let written = if arguments.explain {
            let text = explained.context("the server does not explain queries")?;
            writeln!(out, "{}", text.trim_end())
        } else {
            match arguments.format {
                Format::Lines => rows.iter().try_for_each(|row| writeln!(out, "{}", row.to_json())),
                Format::Table => table.write(&rows, &mut out),
            }
        };
        match written.and_then(|()| out.flush()) {
            // As `quire query … | head` does.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
            written => written.context("printing rows")?,
        }
        match next {
            Some(next) if !arguments.explain => continuation = Some(next),
            _ => return Ok(()),
        }
    }
}

fn read_text(argument: &str) -> Result<String> {
    if argument != "-" {
        return Ok(argument.to_owned());
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).context("reading the query from standard input")?;
    Ok(text)
}

fn read_parameters(arguments: &[String]) -> Result<Parameters> {
    let mut parameters: Vec<(String, Value)> = Vec::with_capacity(arguments.len());
    for argument in arguments {
        let Some((name, json)) = argument.split_once('=') else {
            bail!("--parameter {argument:?} is not NAME=JSON");
        };
        let name = format!("@{}", name.trim().trim_start_matches('@'));
        if parameters.iter().any(|(known, _)| *known == name) {
            bail!("the parameter {name} is given twice");
        }
        let value = text::parse(json.as_bytes(), Limits::default())
            .with_context(|| format!("the parameter {name} is not JSON (text stands in quotes): {json}"))?;
        parameters.push((name, value));
    }
    Ok(Parameters(parameters))
}

fn read_partition_key(json: &str) -> Result<PartitionKey> {
    let doing = || format!("--partition-key is not JSON (text stands in quotes): {json}");
    let value = text::parse(json.as_bytes(), Limits::default()).with_context(doing)?;
    let header = if matches!(value, Value::Array(_)) { json.to_owned() } else { format!("[{json}]") };
    Ok(PartitionKey::from_header(&header)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_names_and_json() {
        let read = |arguments: &[&str]| {
            read_parameters(&arguments.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
        };
        let found = read(&["a=1", "@b={\"x\": \"=\"}"]).expect("reads").0;
        assert_eq!(found[0], ("@a".to_owned(), Value::from(1)));
        assert_eq!(found[1].1.to_json(), r#"{"x":"="}"#);
        for bad in [&["a"][..], &["a=ada"], &["a=1", "@a=2"]] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn partition_keys_are_json() {
        for (json, header) in
            [("\"ada\"", "[\"ada\"]"), ("7", "[7]"), ("[\"a\", null]", "[\"a\",null]"), ("{}", "[{}]")]
        {
            assert_eq!(read_partition_key(json).expect(json).to_header(), header);
        }
        assert!(read_partition_key("ada").is_err());
    }
}
