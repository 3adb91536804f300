//! Names of types that a reader would have to translate, or that do not say what they are of.
//!
//! A name is the word that a database engineer types into a search box (see "Words" in ARCHITECTURE.md). The list has names
//! that were used once, each with a better one. Only a definition is refused, so there are no false alarms in prose.

/// Refused names, each with what to say instead.
const REFUSED: &[(&str, &str)] = &[
    ("Asked", "a request, such as AdminRequest"),
    ("Begun", "a start or a state"),
    ("Changed", "what was changed, such as PathChangeKind"),
    ("Changing", "what changes, such as ChangedTarget"),
    ("Converted", "an outcome, such as RetypeOutcome"),
    ("Door", "Listener"),
    ("Fit", "what fits where, such as CopyDestination"),
    ("Ground", "what is worked on, such as ReplayContext or ModelSnapshot"),
    ("Hand", "ManualClock, or what it moves"),
    ("Held", "what is held, such as HeldLocks"),
    ("Holder", "who holds what, such as PassHolder"),
    ("Holding", "what is held, and why"),
    ("Keeper", "Acceptor, or what it manages"),
    ("Kept", "what is cached or retained, such as CachedRow"),
    ("Known", "what is cached, such as CachedLookup"),
    ("Left", "what remains, such as SweepRemainder"),
    ("Look", "a pass or a lookup, such as WindowPass"),
    ("Looked", "what was read, such as ScannedItems"),
    ("MadeOf", "the source, such as ScannedContainer"),
    ("Making", "a builder or writer"),
    ("Mayfly", "ExpiringItem"),
    ("Moment", "a time or a snapshot"),
    ("Noted", "what was recorded"),
    ("Renamed", "an outcome, such as RenameOutcome"),
    ("Restored", "what is restored, such as ItemToRestore"),
    ("Seen", "what was read, such as ReadSet"),
    ("Sight", "Visibility"),
    ("Spool", "a buffer"),
    ("Spot", "a position, such as ItemPosition"),
    ("Standing", "a state or position"),
    ("Still", "StoppedClock, or what does not change"),
    ("Stretch", "a span, such as RowSpan"),
    ("Stretches", "spans, such as RowSpans"),
    ("Surroundings", "the services that are used, such as WhatIfServices"),
    ("Told", "a position or a change, such as FeedPosition"),
    ("Trail", "what is counted or recorded"),
    ("Tried", "an attempt or outcome"),
    ("Turn", "a round, such as WorkerRound"),
    ("UnderWay", "what is running, such as RunningCheck"),
    ("Undone", "an outcome, such as UndoOutcome"),
    ("Upkeep", "maintenance, and of what"),
];

/// Adds a problem for every type of a file that has a refused name.
pub fn check_file(shown: &str, text: &str, problems: &mut Vec<String>) {
    for (line, name) in text.lines().enumerate().filter_map(|(at, line)| Some((at + 1, defined_type(line)?)))
    {
        if let Some((_, instead)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
            problems.push(format!("{shown}:{line}: a type called {name}; say {instead}"));
        }
    }
}

/// The name of the type that a line defines.
fn defined_type(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(')')?.1.trim_start(),
        Some(rest) => rest.trim_start(),
        None => line,
    };
    let (keyword, rest) = line.split_once(' ')?;
    let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(rest.len());
    ["struct", "enum", "trait", "type", "union"].contains(&keyword).then_some(&rest[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        let mut problems = Vec::new();
        check_file("a.rs", text, &mut problems);
        problems
    }

    #[test]
    fn definitions_with_refused_names_are_found() {
        for line in [
            "struct Told {",
            "pub struct Told(u64);",
            "pub(crate) enum Told {",
            "    pub(in crate::a) trait Told: Send {",
            "type Told<'a> = &'a str;",
        ] {
            let found = problems(&format!("use a::b;\n{line}\n"));
            assert_eq!(found.len(), 1, "{line}");
            assert!(found[0].starts_with("a.rs:2: ") && found[0].contains("FeedPosition"), "{found:?}");
        }
    }

    #[test]
    fn prose_uses_and_longer_names_are_not() {
        for line in [
            "// struct Told is gone",
            "struct ToldTwice;",
            "struct HeldLocks<'a> {",
            "impl Told {",
            "let told = Told::new();",
            "use a::Told;",
            "fn struct_of(told: Told) {}",
        ] {
            assert_eq!(problems(line), [""; 0], "{line}");
        }
    }
}
