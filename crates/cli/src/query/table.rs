//! Rows as a table. Columns are the properties of a page's rows in the order they turn up; a page with other columns than
//! the one before gets a heading of its own, so that no more than a page is held.

use std::io::{Result, Write};

use quire_value::Value;

/// Longer values are cut: the whole of them is what the other format is for.
const CELL_CHARACTERS_MAX: usize = 60;
/// The heading of rows that are no objects.
const VALUE_COLUMN: &str = "value";

#[derive(Default)]
pub struct Table {
    columns: Vec<String>,
    widths: Vec<usize>,
}

impl Table {
    pub fn write(&mut self, rows: &[Value], out: &mut impl Write) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let columns = columns(rows);
        let cells: Vec<Vec<String>> =
            rows.iter().map(|row| columns.iter().map(|column| cell(row, column)).collect()).collect();
        let is_new = columns != self.columns;
        let widths = |column: usize| {
            let longest = cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
            longest.max(columns[column].chars().count())
        };
        let widths: Vec<usize> = (0..columns.len()).map(widths).collect();
        if is_new {
            if !self.columns.is_empty() {
                writeln!(out)?;
            }
            self.widths = widths;
            self.columns = columns;
            self.write_line(&self.columns, out)?;
            let rule: Vec<String> = self.widths.iter().map(|width| "-".repeat(*width)).collect();
            self.write_line(&rule, out)?;
        } else {
            self.widths.iter_mut().zip(widths).for_each(|(known, width)| *known = width.max(*known));
        }
        cells.iter().try_for_each(|row| self.write_line(row, out))
    }

    fn write_line(&self, cells: &[String], out: &mut impl Write) -> Result<()> {
        let padded = |(cell, width): (&String, &usize)| {
            format!("{cell}{}", " ".repeat(width.saturating_sub(cell.chars().count())))
        };
        let line: Vec<String> = cells.iter().zip(&self.widths).map(padded).collect();
        writeln!(out, "{}", line.join("  ").trim_end())
    }
}

fn columns(rows: &[Value]) -> Vec<String> {
    let mut columns: Vec<String> = Vec::new();
    let mut known = std::collections::HashSet::new();
    for row in rows {
        let names: Vec<&str> = match row {
            Value::Object(object) => object.iter().map(|(name, _)| name).collect(),
            _ => vec![VALUE_COLUMN],
        };
        for name in names {
            if known.insert(name.to_owned()) {
                columns.push(name.to_owned());
            }
        }
    }
    columns
}

/// Text without its quotes, everything else as JSON; what would break the line is written as JSON writes it.
fn cell(row: &Value, column: &str) -> String {
    let value = match row {
        Value::Object(_) => row.get(column),
        value => (column == VALUE_COLUMN).then_some(value),
    };
    let text = match value {
        None => String::new(),
        Some(Value::String(text)) if !text.contains(char::is_control) => text.clone(),
        Some(value) => value.to_json(),
    };
    if text.chars().count() <= CELL_CHARACTERS_MAX {
        return text;
    }
    let kept: String = text.chars().take(CELL_CHARACTERS_MAX - 1).collect();
    kept + "…"
}

#[cfg(test)]
mod tests {
    use quire_value::{Limits, text};

    use super::*;

    fn check(pages: &[&str], expected: &str) {
        let (mut table, mut out) = (Table::default(), Vec::new());
        for page in pages {
            let rows = text::parse(page.as_bytes(), Limits::default()).expect("JSON");
            table.write(rows.as_array().expect("an array"), &mut out).expect("memory");
        }
        assert_eq!(String::from_utf8(out).expect("text"), expected);
    }

    #[test]
    fn columns_follow_the_rows() {
        check(
            &[r#"[{"id":"1","name":"Ada"},{"id":"22","tags":[1,2]},7]"#],
            "id  name  tags   value\n--  ----  -----  -----\n1   Ada\n22        [1,2]\n                 7\n",
        );
        check(&["[]"], "");
    }

    #[test]
    fn later_pages_go_on_or_start_again() {
        check(&[r#"[{"a":1}]"#, "[]", r#"[{"a":234}]"#, r#"[{"b":5}]"#], "a\n-\n1\n234\n\nb\n-\n5\n");
    }

    #[test]
    fn cells_stay_on_their_line() {
        let long = format!(r#"[{{"a":"{}"}},{{"a":"x\ny"}}]"#, "é".repeat(70));
        check(&[&long], &format!("a\n{}\n{}…\n\"x\\ny\"\n", "-".repeat(60), "é".repeat(59)));
    }
}
