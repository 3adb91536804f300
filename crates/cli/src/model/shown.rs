//! Answers as text for people.

use quire_value::Value;

const INDENT: usize = 2;

/// `_changes` of an answer: a line for each list that has something.
pub fn changes(answer: &Value) -> String {
    let mut lines = String::new();
    let Some(changes) = answer.get("_changes").and_then(Value::as_object) else { return lines };
    for (list, names) in changes.iter() {
        let names: Vec<&str> =
            names.as_array().unwrap_or_default().iter().filter_map(Value::as_str).collect();
        if !names.is_empty() {
            lines.push_str(&format!("{list}: {}\n", names.join(", ")));
        }
    }
    for warning in answer.get("_warnings").and_then(Value::as_array).unwrap_or_default() {
        lines.push_str(&format!("warning at '{}': {}\n", text(warning, "at"), text(warning, "message")));
    }
    lines
}

/// One line for each declaration that would be built.
pub fn estimates(answer: &Value) -> String {
    let estimates = answer.get("estimates").and_then(Value::as_array).unwrap_or_default();
    let line = |own: &Value| {
        let fan_out = own.get("fanOut").map_or(0, |fan_out| number(fan_out, "max"));
        format!(
            "{}: {} of {} items would change, {} references, {} dangling, {} duplicate keys, at most {fan_out} referrers\n",
            text(own, "declaration"),
            number(own, "wouldChange"),
            number(own, "items"),
            number(own, "references"),
            number(own, "dangling"),
            number(own, "duplicateKeys"),
        )
    };
    estimates.iter().map(line).collect()
}

/// The result of a check.
pub fn findings(result: &Value) -> String {
    let findings = result.get("findings").and_then(Value::as_array).unwrap_or_default();
    let (items, references) = (number(result, "items"), number(result, "references"));
    let mut lines = match findings.is_empty() {
        true => format!("clean: {items} items, {references} references\n"),
        false => format!("{items} items, {references} references\n"),
    };
    for finding in findings {
        lines.push_str(&format!(
            "{}: {} {}\n",
            text(finding, "declaration"),
            number(finding, "count"),
            text(finding, "problem")
        ));
        for example in finding.get("examples").and_then(Value::as_array).unwrap_or_default() {
            lines.push_str(&example_line(example));
        }
    }
    lines
}

pub fn repaired(result: &Value) -> String {
    format!("{} items repaired\n", number(result, "repaired"))
}

fn example_line(example: &Value) -> String {
    let json = |member: &str| example.get(member).map_or("nothing".to_owned(), Value::to_json);
    let mut line =
        format!("  {} {} {}", text(example, "container"), json("partitionKey"), text(example, "id"));
    line.push_str(&format!(" {}: {}", text(example, "path"), json("found")));
    if example.get("expected").is_some() {
        line.push_str(&format!(", expected {}", json("expected")));
    }
    line + "\n"
}

/// JSON with a member to a line.
pub fn pretty(value: &Value) -> String {
    let mut text = String::new();
    write(value, 0, &mut text);
    text + "\n"
}

fn write(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::Object(object) if !object.is_empty() => {
            let members: Vec<(String, &Value)> = object
                .iter()
                .map(|(name, value)| (format!("{}: ", Value::from(name).to_json()), value))
                .collect();
            write_lines(members, ('{', '}'), indent, out);
        }
        Value::Array(elements) if !elements.is_empty() => {
            let elements = elements.iter().map(|element| (String::new(), element)).collect();
            write_lines(elements, ('[', ']'), indent, out);
        }
        other => out.push_str(&other.to_json()),
    }
}

fn write_lines(lines: Vec<(String, &Value)>, (open, close): (char, char), indent: usize, out: &mut String) {
    let last = lines.len() - 1;
    out.push(open);
    for (number, (name, value)) in lines.into_iter().enumerate() {
        out.push_str(&format!("\n{:width$}{name}", "", width = indent + INDENT));
        write(value, indent + INDENT, out);
        if number < last {
            out.push(',');
        }
    }
    out.push_str(&format!("\n{:indent$}{close}", ""));
}

fn text(json: &Value, member: &str) -> String {
    json.get(member).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn number(json: &Value, member: &str) -> u64 {
    json.get(member).and_then(Value::as_u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use quire_value::{Limits, text};

    use super::*;

    #[test]
    fn json_with_a_member_to_a_line() {
        let json = r#"{"version":1,"links":[{"name":"l"}],"none":[],"empty":{}}"#;
        let value = text::parse(json.as_bytes(), Limits::default()).expect("JSON");
        let shown = pretty(&value);
        assert_eq!(text::parse(shown.as_bytes(), Limits::default()).expect("JSON"), value);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[..4], ["{", "  \"version\": 1,", "  \"links\": [", "    {"]);
        assert_eq!(lines[lines.len() - 3..], ["  \"none\": [],", "  \"empty\": {}", "}"]);
    }
}
