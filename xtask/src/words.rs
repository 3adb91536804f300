//! Names of types and functions that a reader would have to translate, or that do not say what they are of.
//!
//! A name is the word that a database engineer types into a search box (see "Words" in ARCHITECTURE.md). The lists have names
//! that were used once, each with a better one. Only a definition is refused, so there are no false alarms in prose.

/// Refused names of types, each with what to say instead.
const TYPES: &[(&str, &str)] = &[
    ("Accumulating", "a state, such as GroupState"),
    ("After", "a version, such as NewItemVersion"),
    ("Anything", "what is accepted, such as AnyCertificate"),
    ("Asked", "a request, such as AdminRequest"),
    ("AtOnce", "what is in force, such as ImmediateSettings"),
    ("Before", "a version, such as StoredItemVersion"),
    ("Begun", "a start or a state"),
    ("Broken", "a bug or an error, such as InjectedBug"),
    ("Chance", "Random, of quire-testkit"),
    ("Changed", "what was changed, such as PathChangeKind"),
    ("Changing", "what changes, such as ChangedTarget"),
    ("Compared", "a comparison, such as ReferrerComparison"),
    ("Converted", "an outcome, such as RetypeOutcome"),
    ("Converting", "a state, such as UnitConversions"),
    ("Counted", "what is counted, such as CountedItems"),
    ("Door", "Listener"),
    ("Everything", "what there is all of, such as AllIntrinsics"),
    ("Explored", "a result, such as ExplorationResult"),
    ("Extracting", "what it works with, such as ExtractContext"),
    ("Filled", "what is filled, such as FilledPage"),
    ("Fit", "what fits where, such as CopyDestination"),
    ("Followed", "what is followed, such as FollowedChanges"),
    ("Found", "what was found, such as FoundTarget"),
    ("Ground", "what is worked on, such as ReplayContext or ModelSnapshot"),
    ("Hand", "ManualClock, or what it moves"),
    ("Held", "what is held, such as HeldLocks"),
    ("Holder", "who holds what, such as PassHolder"),
    ("Holding", "what is held, and why"),
    ("Holds", "what it protects, such as ReadProtection"),
    ("Home", "a location, such as DataLocation or LogicalPartition"),
    ("InTurn", "what alternates, such as AlternatingForms"),
    ("Jumping", "JumpingClock, or what jumps"),
    ("Keeper", "Acceptor, or what it manages"),
    ("Kept", "what is cached or retained, such as CachedRow"),
    ("KeptMemory", "RetainedMemory"),
    ("Knowledge", "what is expected, such as ExpectedItems"),
    ("Known", "what is cached, such as CachedLookup"),
    ("Left", "what remains, such as SweepRemainder"),
    ("Look", "a pass or a lookup, such as WindowPass"),
    ("Looked", "what was read, such as ScannedItems"),
    ("Made", "what was created, such as SeedCounts"),
    ("MadeOf", "the source, such as ScannedContainer"),
    ("Making", "a builder or writer"),
    ("Mayfly", "ExpiringItem"),
    ("Measured", "a measurement, such as TargetMeasures"),
    ("Merged", "what is merged, such as MergedRow"),
    ("Merging", "a merge, such as RunMerge"),
    ("Mirrored", "an entry, such as MirrorEntry"),
    ("Moment", "a time or a snapshot"),
    ("Moving", "a handover, such as ThreadHandover"),
    ("Named", "a name, such as PageName"),
    ("Noted", "what was recorded"),
    ("Opened", "a state, such as StoreState"),
    ("Ours", "whose, such as QuireFigures"),
    ("Pace", "a rate, such as BuildRate"),
    ("Picture", "a dump, such as StoreDump"),
    ("Placed", "an outcome, such as PutOutcome"),
    ("PutBack", "an outcome, such as RestoreOutcome"),
    ("Question", "a query or a request, such as QueryTarget"),
    ("Recorded", "what is recorded, such as RecordedOperation"),
    ("Removed", "an outcome, such as RemoveOutcome"),
    ("Renamed", "an outcome, such as RenameOutcome"),
    ("Replaced", "what was replaced, such as ReplacedItem"),
    ("Restored", "what is restored, such as ItemToRestore"),
    ("Right", "what is expected, such as ExpectedPathValue"),
    ("Seen", "what was read, such as ReadSet"),
    ("Sight", "Visibility"),
    ("Site", "a container or a position, such as ModelContainer"),
    ("Spool", "a buffer"),
    ("Spot", "a position, such as ItemPosition"),
    ("Standing", "a state or position"),
    ("Stated", "what is stated, such as ModelExpression"),
    ("Still", "StoppedClock, or what does not change"),
    ("StillOpen", "what is open, such as OpenConnection"),
    ("Stretch", "a span, such as RowSpan"),
    ("Stretches", "spans, such as RowSpans"),
    ("Surroundings", "the services that are used, such as WhatIfServices"),
    ("Theirs", "whose, such as PostgresFigures"),
    ("Ticking", "TickingClock, or what advances"),
    ("Told", "a position or a change, such as FeedPosition"),
    ("Trail", "what is counted or recorded"),
    ("Tried", "an attempt or outcome"),
    ("Truth", "what is expected, such as ExpectedItems"),
    ("Turn", "a round, such as WorkerRound"),
    ("UnderWay", "what is running, such as RunningCheck"),
    ("Undone", "an outcome, such as UndoOutcome"),
    ("Unfit", "a mismatch, such as ModelMismatch"),
    ("Upkeep", "maintenance, and of what"),
    ("Visited", "an outcome, such as VisitOutcome"),
    ("Walked", "a result, such as SearchResult"),
    ("Way", "how, such as QueryRun"),
    ("What", "which kind, such as MeasureKind"),
];

/// Refused names of functions, likewise.
const FUNCTIONS: &[(&str, &str)] = &[
    ("affect", "apply, such as apply_effect"),
    ("apart", "what it is not in, such as unindexed"),
    ("ask", "send, request or query"),
    ("asked", "requested, or what was recorded"),
    ("blame", "record what was refused, such as set_refused_slot"),
    ("bring_in", "add or apply"),
    ("bring_up", "rebuild or update"),
    ("bury", "remove"),
    ("convict", "record, such as record_deleted"),
    ("dangle", "count or add what dangles"),
    ("give_back", "release or return"),
    ("go_back", "undo"),
    ("go_through", "run or visit"),
    ("is_lasting", "is_permanent"),
    ("is_passing", "is_transient"),
    ("judge", "evaluate or check"),
    ("let_go", "evict or release"),
    ("look", "read, preview or check"),
    ("look_again", "read or check again, and what"),
    ("look_at", "evaluate or examine, and what"),
    ("odd", "what is unusual about it"),
    ("pass_barrier", "wait_for_barrier"),
    ("plant", "load, such as load_seed"),
    ("revive", "resume"),
    ("saw", "record what was read"),
    ("see", "scan or read"),
    ("stray", "residual"),
    ("take_in", "add, such as add_record"),
    ("tell", "notify, report or send"),
    ("told", "returned, reported or read"),
    ("unmake", "remove what was created"),
    ("until_taken", "retry_until_accepted"),
    ("wait_in_vain", "wait, and for how long"),
];

/// Adds a problem for every type and function of a file that has a refused name.
pub fn check_file(shown: &str, text: &str, problems: &mut Vec<String>) {
    for (at, line) in text.lines().enumerate() {
        let Some((kind, name)) = definition(line) else { continue };
        let refused = if kind == "function" { FUNCTIONS } else { TYPES };
        if let Some((_, instead)) = refused.iter().find(|(refused, _)| *refused == name) {
            problems.push(format!("{shown}:{}: a {kind} called {name}; say {instead}", at + 1));
        }
    }
}

/// What a line defines, a type or a function, and its name.
fn definition(line: &str) -> Option<(&'static str, &str)> {
    let line = line.trim_start();
    let mut line = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(')')?.1.trim_start(),
        Some(rest) => rest.trim_start(),
        None => line,
    };
    while let Some(rest) = ["async ", "const ", "unsafe "].iter().find_map(|word| line.strip_prefix(word)) {
        line = rest;
    }
    let (keyword, rest) = line.split_once(' ')?;
    let kind = match keyword {
        "struct" | "enum" | "trait" | "type" | "union" => "type",
        "fn" => "function",
        _ => return None,
    };
    let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(rest.len());
    Some((kind, &rest[..end]))
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
            "fn told() -> u64 {",
            "    pub(super) async fn told<'a>(&self) {",
            "pub const fn told(",
        ] {
            let found = problems(&format!("use a::b;\n{line}\n"));
            assert_eq!(found.len(), 1, "{line}");
            assert!(found[0].starts_with("a.rs:2: a ") && found[0].contains("called "), "{found:?}");
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
            "fn told_twice() {}",
            "self.told(",
            "const told: u64 = 1;",
        ] {
            assert_eq!(problems(line), [""; 0], "{line}");
        }
    }

    /// Sorted, so that a name is found and none stands twice.
    #[test]
    fn lists_are_sorted() {
        for list in [TYPES, FUNCTIONS] {
            assert!(list.is_sorted_by(|(one, _), (other, _)| one < other));
        }
    }
}
