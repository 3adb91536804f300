//! Rooms: the folders of a crate, in one order. A room uses the rooms before it and none behind it. A single file at the root
//! of a crate is a room, too.

use std::collections::BTreeSet;
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

/// Lines of a file that is neither a table nor tests.
const LINES_MAX: usize = 600;
/// Files that are one table, and as long as their subject.
const TABLES: &[&str] = &["crates/server/src/wire/status.rs"];

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
    if lines > LINES_MAX && !is_tests(shown) && !TABLES.contains(&shown) {
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
    let mut used = Vec::new();
    names_after_prefix(&text, "crate::", &mut used);
    let from_root = "super::".repeat(depth(inside));
    names_after_prefix(&text, &from_root, &mut used);
    used.sort();
    used.dedup();
    let problem = move |name: String| match (rooms.iter().position(|other| *other == name), own) {
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

/// The names that follow a path prefix, one or several in braces.
fn names_after_prefix(text: &str, prefix: &str, names: &mut Vec<String>) {
    for (at, _) in text.match_indices(prefix) {
        let before = text[..at].chars().next_back();
        if before.is_some_and(|before| before.is_alphanumeric() || "_:$".contains(before)) {
            continue;
        }
        let rest = &text[at + prefix.len()..];
        match rest.strip_prefix('{') {
            Some(list) => names.extend(first_names(list)),
            None => names.push(name_of(rest)),
        }
    }
    names.retain(|name| !["", "super", "self"].contains(&name.as_str()));
}

/// The first name of every path in a list, up to the brace that closes it.
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
    fn long_files_are_found_unless_they_are_tables_or_tests() {
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
        assert_eq!(count(TABLES[0], &long), 0);
    }
}
