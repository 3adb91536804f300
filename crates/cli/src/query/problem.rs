//! What was wrong with a query, with carets below the place.

use anyhow::{Error, anyhow};
use quire_value::{Limits, Value, text};

/// `start..end` are characters of the query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub code: String,
    pub message: String,
    pub start: usize,
    pub end: usize,
}

/// An error answer: problems with their places if it has any, its text otherwise.
pub fn report(status: u16, message: &str, query: &str) -> Error {
    let reason = message.split("\r\nActivityId: ").next().unwrap_or(message);
    match problems(reason) {
        Some(problems) if !problems.is_empty() => show(&problems, query),
        _ => anyhow!("the server answered {status}: {}", reason.trim()),
    }
}

/// `Message: {"errors":[{"location":{"start":7,"end":11},"code":"SC1001","message":"…"}]}`
fn problems(message: &str) -> Option<Vec<Problem>> {
    let json = text::parse(message.strip_prefix("Message: ")?.as_bytes(), Limits::default()).ok()?;
    let read = |error: &Value| {
        let place = |name| usize::try_from(error.get("location")?.get(name)?.as_i64()?).ok();
        let words = |name| Some(error.get(name)?.as_str()?.to_owned());
        Some(Problem {
            code: words("code")?,
            message: words("message")?,
            start: place("start")?,
            end: place("end")?,
        })
    };
    json.get("errors")?.as_array()?.iter().map(read).collect()
}

pub fn show(problems: &[Problem], query: &str) -> Error {
    let shown: Vec<String> = problems.iter().map(|problem| problem.show(query)).collect();
    anyhow!(shown.join("\n"))
}

impl Problem {
    fn show(&self, query: &str) -> String {
        let (line, column) = self.place(query);
        let text: String = query.lines().nth(line).unwrap_or_default().replace('\t', " ");
        let room = text.chars().count().saturating_sub(column).max(1);
        let carets = "^".repeat(self.end.saturating_sub(self.start).clamp(1, room));
        let heading = format!("{} in line {}, column {}: {}", self.code, line + 1, column + 1, self.message);
        format!("{heading}\n\n    {text}\n    {}{carets}", " ".repeat(column))
    }

    /// Line and column of the start, both from 0. The end of the text counts as its last line.
    fn place(&self, query: &str) -> (usize, usize) {
        let before: String = query.chars().take(self.start).collect();
        let line = before.matches('\n').count();
        (line, before.rsplit('\n').next().unwrap_or_default().chars().count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(query: &str, start: usize, end: usize, expected: &str) {
        let problem = Problem { code: "SC1001".to_owned(), message: "No.".to_owned(), start, end };
        assert_eq!(show(&[problem], query).to_string(), expected);
    }

    #[test]
    fn carets_stand_below_the_place() {
        check(
            "SELECT FROM c",
            7,
            11,
            "SC1001 in line 1, column 8: No.\n\n    SELECT FROM c\n           ^^^^",
        );
        check(
            "SELECT '日本', x\nFROM c\tWHER c.x",
            22,
            26,
            "SC1001 in line 2, column 8: No.\n\n    FROM c WHER c.x\n           ^^^^",
        );
        check("SELECT", 6, 6, "SC1001 in line 1, column 7: No.\n\n    SELECT\n          ^");
        check("", 0, 0, "SC1001 in line 1, column 1: No.\n\n    \n    ^");
        // A place over two lines is marked as far as its first goes, one outside the text at least once.
        check("SELECT (1\n+", 7, 11, "SC1001 in line 1, column 8: No.\n\n    SELECT (1\n           ^^");
        check("x", 90, 99, "SC1001 in line 1, column 2: No.\n\n    x\n     ^");
    }

    #[test]
    fn answers_without_positions_are_printed_unchanged() {
        let reported = |message| report(400, message, "SELECT 1").to_string();
        assert_eq!(
            reported("Owner is gone\r\nActivityId: 1, quire/1"),
            "the server answered 400: Owner is gone"
        );
        assert_eq!(
            reported("Message: {\"Errors\":[\"Division by zero.\"]}\r\nActivityId: 1, quire/1"),
            "the server answered 400: Message: {\"Errors\":[\"Division by zero.\"]}"
        );
        let placed = "Message: {\"errors\":[{\"severity\":\"Error\",\"location\":{\"start\":0,\"end\":6},\
                      \"code\":\"SC1001\",\"message\":\"No.\"}]}\r\nActivityId: 1, quire/1";
        assert_eq!(reported(placed), "SC1001 in line 1, column 1: No.\n\n    SELECT 1\n    ^^^^^^");
    }
}
