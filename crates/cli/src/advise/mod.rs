//! `quire profile` and `quire advise`: what is stored in a database, and what the rules say about it.
//!
//! Everything is asked of a running server. Results go to standard output, notes and progress to standard error.

mod shown; // results as text

use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use hyper::Method;
use quire_value::{Object, Value};

use crate::model::server::Server;
use crate::model::{Target, shown as model_shown};
use crate::{EXIT_FOUND, output};

const SEVERITIES: [&str; 3] = ["note", "warning", "serious"];

#[derive(clap::Args)]
pub struct ProfileArguments {
    #[command(flatten)]
    target: Target,
    /// Only these containers
    #[arg(long = "container", value_name = "NAME")]
    containers: Vec<String>,
    /// Items of a container that are scanned; of a larger one it is a sample
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    scan_max: Option<u64>,
    /// Print one JSON value
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub struct AdviseArguments {
    #[command(flatten)]
    target: Target,
    /// For how long the recorded workload stands, such as 7d or 12h
    #[arg(long, value_name = "TIME", value_parser = days)]
    stands_for: Option<f64>,
    /// Only findings of this rule
    #[arg(long, value_name = "NAME")]
    rule: Option<String>,
    /// How the list is printed
    #[arg(long, default_value = "table", value_parser = ["table", "json", "markdown"])]
    format: String,
    /// The same as --format json
    #[arg(long, conflicts_with_all = ["format", "markdown"])]
    json: bool,
    /// The same as --format markdown
    #[arg(long, conflicts_with = "format")]
    markdown: bool,
    /// Exit with 3 when an open finding is at least so severe
    #[arg(long, value_name = "SEVERITY", value_parser = SEVERITIES)]
    fail_on: Option<String>,
    /// Show one finding of the last list with all its details: its place in the list, or its id
    #[arg(long, value_name = "N", conflicts_with_all = ["dismiss", "reopen"])]
    show: Option<String>,
    /// Try a finding of the last list on a copy of some items, with the recorded requests
    #[arg(long, value_name = "N", conflicts_with_all = ["show", "apply", "dismiss", "reopen", "markdown"])]
    what_if: Option<String>,
    /// Apply a finding of the last list, or all that are open, and wait for it
    #[arg(long, value_name = "N", conflicts_with_all = ["show", "dismiss", "reopen"])]
    apply: Option<String>,
    /// Let go of the old form at once
    #[arg(long, requires = "apply")]
    finish: bool,
    /// Do not ask before it is applied
    #[arg(long, requires = "apply")]
    yes: bool,
    /// A finding of the last list that is not wanted
    #[arg(long, value_name = "N", requires = "reason", conflicts_with = "reopen")]
    dismiss: Option<String>,
    /// Why it is not wanted
    #[arg(long, value_name = "TEXT", requires = "dismiss")]
    reason: Option<String>,
    /// A dismissed finding that is wanted again
    #[arg(long, value_name = "N")]
    reopen: Option<String>,
}

pub fn profile(arguments: &ProfileArguments) -> Result<ExitCode> {
    let mut server = arguments.target.connect()?;
    let mut order = Object::new();
    if !arguments.containers.is_empty() {
        let names = arguments.containers.iter().map(|name| Value::from(name.as_str()));
        order.set("containers", names.collect::<Value>());
    }
    if let Some(scan_max) = arguments.scan_max {
        order.set("scanMax", scan_max);
    }
    server.run_job_about("profile", "", order).map_err(|error| match arguments.containers.is_empty() {
        true => error,
        false => anyhow!("{error:#}, or it has no such container"),
    })?;
    let profiles = server.send_below_database("profile", Method::GET, "", &[], String::new())?;
    let all = profiles.get("containers").and_then(Value::as_array).unwrap_or_default();
    let names = &arguments.containers;
    let is_wanted = |profile: &&Value| {
        names.is_empty() || names.iter().any(|name| text(profile, "container") == name.as_str())
    };
    let wanted: Vec<Value> = all.iter().filter(is_wanted).cloned().collect();
    let text = match arguments.json {
        true => {
            let mut shown = profiles.clone();
            shown.as_object_mut().context("the answer is no object")?.set("containers", wanted);
            format!("{}\n", shown.to_json())
        }
        false => shown::profiles(&wanted),
    };
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

pub fn advise(arguments: &AdviseArguments) -> Result<ExitCode> {
    let mut server = arguments.target.connect()?;
    if let Some(place) = &arguments.show {
        let finding = find(&list(&mut server)?, place)?;
        output::print(&model_shown::pretty(&finding))?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(place) = &arguments.what_if {
        return what_if(&mut server, place, arguments.format());
    }
    if let Some(place) = &arguments.dismiss {
        let reason = arguments.reason.as_deref().unwrap_or_default();
        return decide(&mut server, place, "dismiss", Object::from_iter([("reason", reason)]));
    }
    if let Some(place) = &arguments.apply {
        return apply(&mut server, place, arguments);
    }
    if let Some(place) = &arguments.reopen {
        return decide(&mut server, place, "reopen", Object::new());
    }
    let mut order = Object::new();
    if let Some(days) = arguments.stands_for {
        order.set("standsForDays", days);
    }
    server.run_job_about("advice", "", order)?;
    let list = of_rule(list(&mut server)?, arguments.rule.as_deref());
    output::print(&match arguments.format() {
        "json" => format!("{}\n", list.to_json()),
        "markdown" => shown::markdown(&list),
        _ => shown::table(&list),
    })?;
    Ok(if fails(&list, arguments.fail_on.as_deref()) {
        ExitCode::from(EXIT_FOUND)
    } else {
        ExitCode::SUCCESS
    })
}

impl AdviseArguments {
    fn format(&self) -> &str {
        match (self.json, self.markdown) {
            (true, _) => "json",
            (_, true) => "markdown",
            _ => &self.format,
        }
    }
}

fn list(server: &mut Server) -> Result<Value> {
    server.send_below_database("advice", Method::GET, "", &[], String::new())
}

fn findings(list: &Value) -> &[Value] {
    list.get("findings").and_then(Value::as_array).unwrap_or_default()
}

fn text<'v>(value: &'v Value, member: &str) -> &'v str {
    value.get(member).and_then(Value::as_str).unwrap_or_default()
}

/// By its place in the list, or its id.
fn find(list: &Value, place: &str) -> Result<Value> {
    let by_place = place.parse::<usize>().ok().and_then(|place| findings(list).get(place.checked_sub(1)?));
    let found = by_place.or_else(|| findings(list).iter().find(|finding| text(finding, "id") == place));
    match found {
        Some(finding) => Ok(finding.clone()),
        None => bail!("there is no finding '{place}' in the last list of {}", findings(list).len()),
    }
}

fn decide(server: &mut Server, place: &str, act: &str, order: Object) -> Result<ExitCode> {
    let finding = find(&list(server)?, place)?;
    let below = format!("/{}/{act}", text(&finding, "id"));
    let finding =
        server.send_below_database("advice", Method::POST, &below, &[], Value::Object(order).to_json())?;
    output::print(&format!("{} is {}\n", text(&finding, "title"), text(&finding, "state")))?;
    Ok(ExitCode::SUCCESS)
}

/// What a change would save, predicted and measured.
fn what_if(server: &mut Server, place: &str, format: &str) -> Result<ExitCode> {
    let finding = find(&list(server)?, place)?;
    let order = Object::from_iter([("finding", text(&finding, "id"))]);
    let result = server.run_job_about("what-if", "", order)?;
    output::print(&match format {
        "json" => format!("{}\n", result.to_json()),
        _ => shown::what_if(&finding, &result),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// One finding, or `all` that are open: one that cannot be applied does not keep the others back.
fn apply(server: &mut Server, place: &str, arguments: &AdviseArguments) -> Result<ExitCode> {
    let list = list(server)?;
    let chosen: Vec<Value> = match place {
        "all" => findings(&list).iter().filter(|own| text(own, "state") == "open").cloned().collect(),
        place => vec![find(&list, place)?],
    };
    if !arguments.yes && !is_wanted(&chosen)? {
        bail!("nothing was applied");
    }
    let (count, mut refused) = (chosen.len(), 0);
    for finding in chosen {
        let finish = if arguments.finish { "auto" } else { "manual" };
        let below = format!("/{}/apply", text(&finding, "id"));
        match server.run_job_about("advice", &below, Object::from_iter([("finish", finish)])) {
            Ok(result) => {
                output::print(&format!("{}: {}\n", text(&finding, "title"), shown::applied(&result)))?;
            }
            Err(error) if place == "all" => {
                refused += 1;
                eprintln!("{}: {error:#}", text(&finding, "title"));
            }
            Err(error) => return Err(error),
        }
    }
    if refused > 0 { bail!("{refused} of {count} findings were not applied") } else { Ok(ExitCode::SUCCESS) }
}

/// Asks on a terminal; elsewhere nobody would answer, and there is undo.
fn is_wanted(chosen: &[Value]) -> Result<bool> {
    if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) || chosen.is_empty() {
        return Ok(true);
    }
    chosen.iter().for_each(|finding| eprintln!("  {}", text(finding, "title")));
    eprint!(
        "Apply {}? [y/N] ",
        if chosen.len() == 1 { "this".to_owned() } else { format!("these {}", chosen.len()) }
    );
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).context("reading the answer")?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}

fn of_rule(mut list: Value, rule: Option<&str>) -> Value {
    let Some(rule) = rule else { return list };
    let wanted: Vec<Value> =
        findings(&list).iter().filter(|finding| text(finding, "rule") == rule).cloned().collect();
    if let Some(list) = list.as_object_mut() {
        list.set("findings", wanted);
    }
    list
}

fn fails(list: &Value, fail_on: Option<&str>) -> bool {
    let rank = |name: &str| SEVERITIES.iter().position(|own| *own == name);
    let open = findings(list).iter().filter(|finding| text(finding, "state") == "open");
    fail_on
        .is_some_and(|least| open.into_iter().any(|finding| rank(text(finding, "severity")) >= rank(least)))
}

/// `7d`, `12h` or `30m`, in days.
fn days(time: &str) -> Result<f64, String> {
    let wrong = || "a number and one of d, h, m, such as 7d".to_owned();
    let unit = time.chars().last().ok_or_else(wrong)?;
    let per_day = match unit {
        'd' => 1.0,
        'h' => 24.0,
        'm' => 1_440.0,
        _ => return Err(wrong()),
    };
    let count: f64 = time[..time.len() - 1].parse().map_err(|_| wrong())?;
    if count.is_finite() && count > 0.0 { Ok(count / per_day) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        assert_eq!((days("7d"), days("12h"), days("36m")), (Ok(7.0), Ok(0.5), Ok(0.025)));
        for wrong in ["", "7", "d", "-1d", "0h", "7w", "infd", "7é"] {
            assert!(days(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_open_findings_fail() {
        let list = quire_value::text::parse(
            br#"{"findings":[{"id":"a-1","state":"dismissed","severity":"serious"},{"id":"a-2","state":"open","severity":"warning"}]}"#,
            Default::default(),
        )
        .expect("JSON");
        assert!(fails(&list, Some("note")) && fails(&list, Some("warning")));
        assert!(!fails(&list, Some("serious")) && !fails(&list, None));
        assert_eq!(text(&find(&list, "2").expect("the second"), "id"), "a-2");
        assert_eq!(text(&find(&list, "a-1").expect("by its id"), "id"), "a-1");
        assert!(find(&list, "0").is_err() && find(&list, "3").is_err());
    }
}
