//! Rooms: the folders of a crate, in one order. A room uses the rooms before it and none behind it. A single file at the root
//! of a crate is a room, too.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

/// By crate: its rooms, each of which may use those before it. ARCHITECTURE.md says what they are for.
const ROOMS: &[(&str, &[&str])] = &[
    (
        "sql",
        &[
            "syntax",
            "error",
            "limits",
            "text",
            "geo",
            "data",
            "functions",
            "bind",
            "exec",
            "query",
            "analyse",
            "prepared",
            "plan",
        ],
    ),
    (
        "engine",
        &[
            "sync",
            "api",
            "store",
            "memory",
            "jobs",
            "model",
            "recording",
            "runtime",
            "indexes",
            "partition",
            "catalog",
            "items",
            "links",
            "maintain",
            "query",
            "feed",
            "transactions",
            "scripts",
            "integrity",
            "profiles",
            "refactorings",
            "applies",
            "what_if",
            "background",
            "engine",
            "maintenance",
            "schedules",
        ],
    ),
];

/// Lines of a file that is no test.
const LINES_MAX: usize = 600;

/// Every crate of the table has the rooms that the table names, and no other. `files` are shown from the root.
pub fn check_folders(files: &[String], problems: &mut Vec<String>) {
    for (name, rooms) in ROOMS {
        let source = format!("crates/{name}/src/");
        let inside = files.iter().filter_map(|file| file.strip_prefix(&source));
        let found: BTreeSet<&str> = inside.filter(|file| *file != "lib.rs").map(room_of).collect();
        let listed: BTreeSet<&str> = rooms.iter().copied().collect();
        for room in found.symmetric_difference(&listed) {
            problems
                .push(format!("{source}{room} and the order of rooms in xtask/src/rooms.rs do not agree"));
        }
    }
}

/// `shown` is the path from the root of the workspace.
pub fn check_file(shown: &str, text: &str, problems: &mut Vec<String>) {
    let lines = text.lines().count();
    if lines > LINES_MAX && !is_tests(shown) {
        problems
            .push(format!("{shown} has {lines} lines, more than {LINES_MAX}: which second idea is in it?"));
    }
    for (name, rooms) in ROOMS {
        let Some(inside) = shown.strip_prefix(&format!("crates/{name}/src/")) else { continue };
        if inside != "lib.rs" && !is_tests(shown) {
            problems.extend(against_order(rooms, inside, text).map(|problem| format!("{shown}: {problem}")));
        }
    }
}

fn is_tests(shown: &str) -> bool {
    let path = Path::new(shown);
    let is_named = |name: &str| path.file_name().is_some_and(|file| file == name);
    is_named("tests.rs") || path.components().any(|part| part.as_os_str() == "tests")
}

/// What a file uses that its room may not.
fn against_order(rooms: &[&str], inside: &str, text: &str) -> impl Iterator<Item = String> {
    let room = room_of(inside);
    let own = rooms.iter().position(|other| *other == room);
    let text = without_comments(without_unit_tests(text));
    let mut used = names_after_crate(&text);
    used.extend(names_after_super(&text, depth(inside)));
    used.sort();
    used.dedup();
    let problem = move |name: String| match (rooms.iter().position(|other| *other == name), own) {
        (None, _) if name == CRATE => Some("the crate is imported as a whole".to_owned()),
        (None, _) => Some(format!("`crate::{name}` does not name a room")),
        (Some(other), Some(own)) if other > own => {
            Some(format!("room `{}` uses `{name}`, which comes behind it", rooms[own]))
        }
        _ => None,
    };
    used.into_iter().filter_map(problem)
}

/// The folder at the root of the crate, or the file there.
fn room_of(inside: &str) -> &str {
    let first = inside.split('/').next().unwrap_or_default();
    first.strip_suffix(".rs").unwrap_or(first)
}

/// How many modules a file lies below the root of its crate.
fn depth(inside: &str) -> usize {
    let folders = inside.matches('/').count();
    if inside.ends_with("/mod.rs") { folders } else { folders + 1 }
}

fn without_unit_tests(text: &str) -> &str {
    let inline = text.match_indices("#[cfg(test)]\nmod tests {").next();
    inline.map_or(text, |(at, _)| &text[..at])
}

fn without_comments(text: &str) -> String {
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// The name of a use of the crate's root itself, which hides what is used of it.
const CRATE: &str = "self";

/// The names that follow `crate::`.
fn names_after_crate(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    for (at, word) in text.match_indices("crate") {
        let rest = &text[at + word.len()..];
        if !continues_path(&text[..at]) {
            names.extend(rest.strip_prefix("::").map(names_of).unwrap_or_default());
            names.extend(is_alias(rest).then(|| CRATE.to_owned()));
        }
    }
    names
}

/// The names that follow as many `super::` as lead to the root of the crate. `depth` is that of the file.
fn names_after_super(text: &str, depth: usize) -> Vec<String> {
    const STEP: &str = "super";
    let modules = inline_modules(text);
    let mut names = Vec::new();
    for (at, _) in text.match_indices(STEP) {
        if continues_path(text[..at].strip_suffix("self::").unwrap_or(&text[..at])) {
            continue;
        }
        let inline = modules.iter().filter(|module| module.contains(&at)).count();
        let mut rest = &text[at + STEP.len()..];
        for _ in 1..depth + inline {
            rest = rest.strip_prefix("::super").unwrap_or_default();
        }
        names.extend(rest.strip_prefix("::").map(names_of).unwrap_or_default());
        names.extend(is_alias(rest).then(|| CRATE.to_owned()));
    }
    names
}

/// The bytes of the modules that are written inside others. The text is formatted: a brace that closes a module is indented like
/// the line that opens it.
fn inline_modules(text: &str) -> Vec<Range<usize>> {
    let mut modules = Vec::new();
    let mut end = 0;
    for line in text.split_inclusive('\n') {
        end += line.len();
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [.., "mod", _, "{"] = words[..] {
            let indent = &line[..line.len() - line.trim_start().len()];
            let length = text[end..].find(&format!("\n{indent}}}\n"));
            modules.push(end..length.map_or(text.len(), |length| end + length));
        }
    }
    modules
}

/// Whether what follows is not the first word of a path.
fn continues_path(before: &str) -> bool {
    before.chars().next_back().is_some_and(|before| before.is_alphanumeric() || "_:$".contains(before))
}

/// Whether a path ends here and its last module gets another name.
fn is_alias(rest: &str) -> bool {
    rest.trim_start().starts_with("as ")
}

/// The first names of what follows a path: one, or several in braces.
fn names_of(rest: &str) -> Vec<String> {
    let mut names = rest.strip_prefix('{').map_or_else(|| vec![name_of(rest)], first_names);
    names.retain(|name| !name.is_empty());
    names
}

/// The first name of every path in a list, `*` among them, up to the brace that closes it.
fn first_names(list: &str) -> Vec<String> {
    let (mut depth, mut start, mut names) = (0, 0, Vec::new());
    for (at, character) in list.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                names.push(name_of(list[start..at].trim_start()));
                start = at + 1;
                if character == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    names
}

fn name_of(path: &str) -> String {
    if path.starts_with('*') {
        return CRATE.to_owned();
    }
    path.chars().take_while(|character| character.is_alphanumeric() || *character == '_').collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDER: &[&str] = &["low", "middle", "high"];

    fn problems(inside: &str, text: &str) -> Vec<String> {
        against_order(ORDER, inside, text).collect()
    }

    #[test]
    fn a_room_uses_those_before_it_only() {
        let behind = ["room `middle` uses `high`, which comes behind it".to_owned()];
        assert_eq!(problems("middle/a.rs", "use crate::high::Thing;"), behind);
        assert_eq!(problems("middle/a.rs", "use crate::{low::{A, B}, high::{self, C}};"), behind);
        assert_eq!(problems("middle/a.rs", "fn f() { crate::high::call() }"), behind);
        assert_eq!(problems("middle/a.rs", "use super::super::high::Thing;"), behind);
        assert_eq!(problems("middle/mod.rs", "use super::high::Thing;"), behind);
        assert_eq!(problems("middle/a/mod.rs", "use super::super::high::Thing;"), behind);
        assert!(problems("middle/a.rs", "use crate::low::Thing;\nuse crate::middle::Other;").is_empty());
        assert!(problems("middle/a.rs", "use super::b::Thing;").is_empty());
        assert!(problems("high/a/b.rs", "use super::super::c::Thing;").is_empty());
    }

    #[test]
    fn the_crate_is_not_imported_as_a_whole() {
        for text in [
            "use crate::*;",
            "use crate as c;",
            "use crate::{low::A, *};",
            "use crate::{self as c};",
            "use super::super as c;",
            "use super::super::*;",
        ] {
            assert_eq!(problems("low/a.rs", text), ["the crate is imported as a whole"], "{text}");
        }
        assert!(problems("low/a.rs", "pub(crate) fn a() {}\nuse super::*;\nuse super::b::*;").is_empty());
    }

    #[test]
    fn modules_inside_a_file_count() {
        let behind = ["room `middle` uses `high`, which comes behind it".to_owned()];
        let inline = |path: &str| {
            format!("mod a {{\n    pub(super) mod b {{\n        use {path};\n    }}\n}}\nuse super::low;\n")
        };
        assert_eq!(problems("middle/mod.rs", &inline("super::super::super::high::Thing")), behind);
        assert_eq!(problems("middle/mod.rs", &inline("self::super::super::super::high::Thing")), behind);
        assert!(problems("middle/a.rs", &inline("super::super::super::b::Thing")).is_empty());
        assert_eq!(problems("middle/mod.rs", "mod a {\n    fn f() {}\n}\nuse super::high::Thing;\n"), behind);
    }

    #[test]
    fn folders_and_the_table_agree() {
        let files = |rooms: &[&str]| -> Vec<String> {
            let all = ROOMS.iter().flat_map(|(name, listed)| {
                let listed = listed.iter().copied().chain(rooms.iter().copied());
                listed.map(move |room| format!("crates/{name}/src/{room}/mod.rs"))
            });
            all.chain(["crates/sql/src/lib.rs".to_owned(), "crates/sql/src/error.rs".to_owned()]).collect()
        };
        let count = |files: &[String]| {
            let mut problems = Vec::new();
            check_folders(files, &mut problems);
            problems.len()
        };
        assert_eq!(count(&files(&[])), 0);
        assert_eq!(count(&files(&["cellar"])), ROOMS.len());
        assert!(count(&[]) > 0);
    }

    #[test]
    fn a_name_without_a_room_is_refused() {
        assert_eq!(problems("middle/a.rs", "use crate::Thing;"), ["`crate::Thing` does not name a room"]);
    }

    #[test]
    fn comments_and_unit_tests_use_what_they_like() {
        assert!(problems("low/a.rs", "// use crate::high::Thing;\n/// [`crate::high`]\n").is_empty());
        assert!(problems("low/a.rs", "#[cfg(test)]\nmod tests {\n    use crate::high::Thing;\n}").is_empty());
    }

    #[test]
    fn long_files_are_found_unless_they_are_tests() {
        let long = "x\n".repeat(LINES_MAX + 1);
        let count = |shown: &str, text: &str| {
            let mut problems = Vec::new();
            check_file(shown, text, &mut problems);
            problems.len()
        };
        assert_eq!(count("crates/value/src/lib.rs", &long), 1);
        assert_eq!(count("crates/value/src/lib.rs", &"x\n".repeat(LINES_MAX)), 0);
        assert_eq!(count("crates/value/src/tests.rs", &long), 0);
        assert_eq!(count("crates/value/tests/all.rs", &long), 0);
    }
}
