//! `.qt` files: the query language by example.
//!
//! A file is a list of blocks with blank lines between them; `#` lines are comments. A block starts with its kind:
//!
//! ```text
//! items                                 one item per line, in force until the next `items`
//! parameters                            one JSON object, `{"@name": value}`, likewise
//! computed                              one `{"name": …, "query": …}` per line, likewise
//! items NAME                            items of another container, in force until the next `items NAME`
//! links                                 one link of a model per line, likewise; the queries' own container is `items`
//! query   text  ----  rows              one JSON value per line
//! error   text  ----  what is wrong     one line per diagnostic
//! plan    text  ----  the query plan    as a client that asks for one gets it
//! ```
//!
//! The part after `----` is refreshed with `UPDATE=1`. Queries run through a [`Runner`], so that the same files check the
//! language alone, the engine, and a server behind HTTP.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use quire_value::{Limits, Value, text};

/// What runs the queries of a file.
pub trait Runner {
    /// Rows, or the error as `error` blocks print it: one line per diagnostic.
    fn query(&self, setup: &QuerySetup, text: &str) -> Result<Vec<Value>, String>;

    /// The query plan in its wire form. `None`: this runner has none, and `plan` blocks are skipped.
    fn plan(&self, _setup: &QuerySetup, _text: &str) -> Option<Result<String, String>> {
        None
    }
}

/// What is in force where a query stands.
#[derive(Clone, Debug, Default)]
pub struct QuerySetup {
    pub items: Vec<Value>,
    pub parameters: Vec<(String, Value)>,
    pub computed: Vec<(String, String)>,
    /// Other containers, for links.
    pub others: BTreeMap<String, Vec<Value>>,
    /// As a model declares them.
    pub links: Vec<Value>,
}

/// Every `.qt` file below a folder, in order.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "qt") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Runs a file and says what differs, if anything; with `UPDATE=1` writes what came out instead.
pub fn run(path: &Path, runner: &dyn Runner) -> Result<()> {
    let source = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let outcome = check(&source, runner).with_context(|| path.display().to_string())?;
    if std::env::var_os("UPDATE").is_some_and(|update| update == "1") {
        if outcome.updated != source {
            std::fs::write(path, outcome.updated)?;
        }
        return Ok(());
    }
    if !outcome.differences.is_empty() {
        bail!("{}:\n{}", path.display(), outcome.differences);
    }
    Ok(())
}

struct FileOutcome {
    /// Empty when all is as written.
    differences: String,
    /// The file with what came out in place of what was expected.
    updated: String,
}

fn check(source: &str, runner: &dyn Runner) -> Result<FileOutcome> {
    let mut setup = QuerySetup::default();
    let mut outcome = FileOutcome { differences: String::new(), updated: String::new() };
    let mut lines = source.lines().enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        outcome.updated.push_str(line);
        outcome.updated.push('\n');
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut block = QtBlock { line: number + 1, kind: line, body: Vec::new(), expected: None };
        while let Some((_, line)) = lines.next_if(|(_, line)| !line.is_empty()) {
            match (&mut block.expected, line) {
                (None, "----") => block.expected = Some(Vec::new()),
                (None, line) => block.body.push(line),
                (Some(expected), line) => expected.push(line),
            }
        }
        block
            .run(&mut setup, runner, &mut outcome)
            .with_context(|| format!("block at line {}", number + 1))?;
    }
    Ok(outcome)
}

struct QtBlock<'s> {
    line: usize,
    kind: &'s str,
    body: Vec<&'s str>,
    expected: Option<Vec<&'s str>>,
}

impl QtBlock<'_> {
    fn run(&self, setup: &mut QuerySetup, runner: &dyn Runner, outcome: &mut FileOutcome) -> Result<()> {
        match self.kind {
            "items" => setup.items = self.values()?,
            "parameters" => setup.parameters = members(self.value()?)?,
            "computed" => setup.computed = self.values()?.into_iter().map(computed).collect::<Result<_>>()?,
            "links" => setup.links = self.values()?,
            "query" | "error" | "plan" => return self.compare(setup, runner, outcome),
            other => match other.strip_prefix("items ") {
                Some(name) => _ = setup.others.insert(name.to_owned(), self.values()?),
                None => bail!("{other:?} is no kind of block"),
            },
        }
        for line in &self.body {
            outcome.updated.push_str(line);
            outcome.updated.push('\n');
        }
        Ok(())
    }

    fn values(&self) -> Result<Vec<Value>> {
        self.body.iter().map(|line| parse(line)).collect()
    }

    fn value(&self) -> Result<Value> {
        parse(&self.body.join("\n"))
    }

    fn compare(&self, setup: &QuerySetup, runner: &dyn Runner, outcome: &mut FileOutcome) -> Result<()> {
        let query = self.body.join("\n");
        let expected = self.expected.clone().unwrap_or_default().join("\n");
        let actual = match self.kind {
            "query" => runner
                .query(setup, &query)
                .map(|rows| lines(&rows))
                .map_err(|error| format!("error: {error}")),
            "error" => match runner.query(setup, &query) {
                Ok(rows) => Err(format!("rows: {}", lines(&rows))),
                Err(error) => Ok(error),
            },
            _ => match runner.plan(setup, &query) {
                None => Ok(expected.clone()),
                Some(plan) => plan,
            },
        };
        let actual = actual.unwrap_or_else(|unexpected| unexpected);
        writeln!(outcome.updated, "{query}\n----")?;
        if !actual.is_empty() {
            writeln!(outcome.updated, "{}", actual.trim_end())?;
        }
        if actual.trim_end() != expected {
            writeln!(
                outcome.differences,
                "line {}: {query}\n  expected:\n{}\n  came out:\n{}",
                self.line,
                indent(&expected),
                indent(actual.trim_end())
            )?;
        }
        Ok(())
    }
}

fn parse(json: &str) -> Result<Value> {
    text::parse(json.as_bytes(), Limits::default()).with_context(|| format!("parsing {json}"))
}

fn members(value: Value) -> Result<Vec<(String, Value)>> {
    let Value::Object(object) = value else { bail!("parameters are a JSON object") };
    Ok(object.into_iter().collect())
}

fn computed(value: Value) -> Result<(String, String)> {
    let text = |name| value.get(name).and_then(Value::as_str).map(str::to_owned);
    text("name").zip(text("query")).context("a computed property has a name and a query")
}

fn lines(rows: &[Value]) -> String {
    rows.iter().map(Value::to_json).collect::<Vec<_>>().join("\n")
}

fn indent(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Echo;

    impl Runner for Echo {
        fn query(&self, setup: &QuerySetup, text: &str) -> Result<Vec<Value>, String> {
            if text == "bad" { Err("it is bad".to_owned()) } else { Ok(setup.items.clone()) }
        }
    }

    const FILE: &str = "# a comment\nitems\n1\n2\n\nquery\nall\n----\n1\n2\n\nerror\nbad\n----\nit is bad\n";

    #[test]
    fn what_is_expected_stays_as_it_is() {
        let outcome = check(FILE, &Echo).unwrap();
        assert_eq!(outcome.differences, "");
        assert_eq!(outcome.updated, FILE);
    }

    #[test]
    fn every_kind_of_difference_is_reported() {
        for wrong in [
            FILE.replace("----\n1", "----\n3"),
            FILE.replace("query\nall", "query\nbad"),
            FILE.replace("error\nbad", "error\nall"),
        ] {
            let outcome = check(&wrong, &Echo).unwrap();
            assert_ne!(outcome.differences, "");
        }
        assert!(check("nonsense\n", &Echo).is_err());
    }
}
