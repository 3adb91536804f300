//! Profiles and advice as text.

use std::fmt::Write;

use quire_value::Value;

use super::{findings, text};

/// One line for each container, and one for each of its references.
pub fn profiles(profiles: &[Value]) -> String {
    let head = ["container", "items", "bytes", "p95", "max", "paths", "types"].map(str::to_owned).to_vec();
    let mut rows = vec![head];
    for profile in profiles {
        let number = |path: [&str; 2]| figure(profile.get(path[0]).and_then(|own| own.get(path[1])));
        let count = |member: &str| profile.get(member).and_then(Value::as_array).map_or(0, <[Value]>::len);
        rows.push(vec![
            text(profile, "container").to_owned(),
            number(["items", "count"]),
            number(["items", "bytes"]),
            number(["size", "p95"]),
            number(["size", "max"]),
            count("paths").to_string(),
            count("types").to_string(),
        ]);
    }
    let mut out = aligned(&rows);
    let references: Vec<Vec<String>> = profiles.iter().flat_map(references).collect();
    if !references.is_empty() {
        let head = ["reference", "to", "overlap", "dangling"].map(str::to_owned).to_vec();
        let rows: Vec<Vec<String>> = std::iter::once(head).chain(references).collect();
        out.push('\n');
        out += &aligned(&rows);
    }
    out
}

fn references(profile: &Value) -> Vec<Vec<String>> {
    let references = profile.get("references").and_then(Value::as_array).unwrap_or_default();
    let row = |reference: &Value| {
        let to = reference.get("to").cloned().unwrap_or(Value::Null);
        vec![
            format!("{} {}", text(profile, "container"), text(reference, "path")),
            format!("{} {}", text(&to, "container"), text(&to, "key")),
            figure(reference.get("overlap")),
            figure(reference.get("dangling")),
        ]
    };
    references.iter().map(row).collect()
}

pub fn table(list: &Value) -> String {
    let head =
        ["", "severity", "rule", "container", "path", "saved/day", "title"].map(str::to_owned).to_vec();
    let mut rows = vec![head];
    for (place, finding) in findings(list).iter().enumerate() {
        let state = text(finding, "state");
        let severity = if state == "open" { text(finding, "severity") } else { state };
        rows.push(vec![
            (place + 1).to_string(),
            severity.to_owned(),
            text(finding, "rule").to_owned(),
            text(finding, "container").to_owned(),
            text(finding, "path").to_owned(),
            saved(finding),
            text(finding, "title").to_owned(),
        ]);
    }
    let mut out = match rows.len() {
        1 => "Nothing to say.\n".to_owned(),
        _ => aligned(&rows),
    };
    out += &not_enough(list);
    out
}

/// What applying a finding came to.
pub fn applied(result: &Value) -> String {
    let refactoring = text(result, "refactoring");
    let container = result.get("definition").map(|own| text(own, "container")).unwrap_or_default();
    let names = result.get("declarations").and_then(Value::as_array).unwrap_or_default();
    let names: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
    match (refactoring, container, names.is_empty()) {
        ("", "", true) => "was declared already".to_owned(),
        ("", "", false) => format!("declared {}", names.join(", ")),
        ("", container, _) => format!("{container} is changed"),
        (refactoring, ..) => format!("{refactoring} is {}", text(result, "state")),
    }
}

pub fn markdown(list: &Value) -> String {
    let mut out = format!("# Advice for {}\n", text(list, "database"));
    for finding in findings(list) {
        let path = text(finding, "path");
        let _ = write!(
            out,
            "\n## {}\n\n`{}` in `{}`{}: {}, {}.\n\n{}\n",
            text(finding, "title"),
            text(finding, "rule"),
            text(finding, "container"),
            if path.is_empty() { String::new() } else { format!(" at `{path}`") },
            text(finding, "severity"),
            text(finding, "state"),
            text(finding, "text"),
        );
        let steps = finding.get("apply").and_then(|apply| apply.get("steps")?.as_array()).unwrap_or_default();
        for (number, step) in steps.iter().enumerate() {
            let start = if number == 0 { "\n" } else { "" };
            let _ = writeln!(out, "{start}{}. {}", number + 1, step.as_str().unwrap_or_default());
        }
    }
    out.push('\n');
    out += &not_enough(list);
    out
}

/// What a replay of recorded requests came to, in the old form and in the new one.
pub fn what_if(finding: &Value, result: &Value) -> String {
    let side = |name: &str, member: &str| figure(result.get(name).and_then(|side| side.get(member)));
    let latency = |name: &str, member: &str| {
        figure(result.get(name).and_then(|side| side.get("latencyMs")?.get(member)))
    };
    let mut rows = vec![["", "count", "now", "then"].map(str::to_owned).to_vec()];
    for own in result.get("operations").and_then(Value::as_array).unwrap_or_default() {
        let name = format!("charge of {}", text(own, "operation"));
        rows.push(vec![name, figure(own.get("count")), figure(own.get("now")), figure(own.get("then"))]);
    }
    for (name, member) in [
        ("charge", "charge"),
        ("bytes read", "bytesRead"),
        ("bytes written", "bytesWritten"),
        ("round trips", "roundTrips"),
    ] {
        rows.push(vec![name.to_owned(), String::new(), side("now", member), side("then", member)]);
    }
    for quantile in ["p50", "p95", "p99"] {
        let name = format!("ms, {quantile}");
        rows.push(vec![name, String::new(), latency("now", quantile), latency("then", quantile)]);
    }
    let mut out = format!("{}\n\n{}\n", text(finding, "title"), aligned(&rows));
    let head = ["saved/day", "predicted", "measured", "error"].map(str::to_owned).to_vec();
    let figures = ["predicted", "measured", "error"].map(|name| figure(result.get(name)));
    let saved = std::iter::once(String::new()).chain(figures).collect();
    out += &aligned(&[head, saved]);
    let sample = result.get("sample").cloned().unwrap_or(Value::Null);
    let _ = write!(
        out,
        "\n{} operations on {} items, {} of all\n",
        figure(result.get("replayed")),
        figure(sample.get("items")),
        figure(sample.get("share")),
    );
    for (reason, count) in
        result.get("skipped").and_then(Value::as_object).into_iter().flat_map(|own| own.iter())
    {
        let _ = writeln!(out, "skipped {}: {reason}", figure(Some(count)));
    }
    out
}

/// How many rules had too little to go by.
fn not_enough(list: &Value) -> String {
    let entries = list.get("notEnough").and_then(Value::as_array).unwrap_or_default();
    let mut rules: Vec<&str> = entries.iter().map(|entry| text(entry, "rule")).collect();
    rules.sort_unstable();
    rules.dedup();
    let all = figure(list.get("looked").and_then(|looked| looked.get("rules")));
    match rules.len() {
        0 => String::new(),
        count => format!("{count} of {all} rules had too little to go by in some container.\n"),
    }
}

fn saved(finding: &Value) -> String {
    let charge = finding.get("effect").and_then(|effect| effect.get("chargePerDay"));
    let saved = charge.and_then(|charge| charge.get("saved")?.as_number()).map(|saved| saved.as_f64());
    match saved {
        Some(saved) if saved > 0.0 => format!("{saved:.0}"),
        _ => String::new(),
    }
}

fn figure(value: Option<&Value>) -> String {
    value.filter(|value| value.as_number().is_some()).map_or_else(String::new, Value::to_json)
}

fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        out += cells.join("  ").trim_end();
        out.push('\n');
    }
    out
}
