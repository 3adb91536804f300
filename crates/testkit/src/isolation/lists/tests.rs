//! Histories made by hand: good ones, and one of each anomaly. The check must be able to fail.

use super::*;

const X: ListId = ListId { partition: 0, number: 0 };
const Y: ListId = ListId { partition: 0, number: 1 };

/// `r x 1 2`, `a x 3`; transactions that follow each other unless `over` says that they overlap.
fn operation(text: &str) -> ListOperation {
    let mut words = text.split_whitespace();
    let (verb, list) = (words.next(), words.next());
    let list = if list == Some("x") { X } else { Y };
    let values: Vec<Value> = words.map(|word| word.parse().expect("a value")).collect();
    match verb {
        Some("a") => ListOperation::Append { list, value: values[0] },
        _ => ListOperation::Read { list, values },
    }
}

fn transaction(text: &str, begun: u64, ended: u64) -> Transaction {
    let (outcome, text) = match text.split_at(1) {
        ("!", rest) => (TransactionOutcome::Aborted, rest),
        ("?", rest) => (TransactionOutcome::Unknown, rest),
        _ => (TransactionOutcome::Committed, text),
    };
    let operations = text.split(',').map(str::trim).filter(|text| !text.is_empty()).map(operation).collect();
    Transaction { how: "test", operations, outcome, begun, ended }
}

fn history(transactions: Vec<Transaction>, x: &[Value], y: &[Value]) -> History {
    let last = [(X, x.to_vec()), (Y, y.to_vec())].into();
    History { transactions, last }
}

/// All at once, so that real time says nothing.
fn check_concurrent(texts: &[&str], x: &[Value], y: &[Value], expected: &[AnomalyKind]) {
    let transactions = texts.iter().map(|text| transaction(text, 0, 1)).collect();
    assert_kinds(&history(transactions, x, y), texts, expected);
}

/// One after the other.
fn check_in_turn(texts: &[&str], x: &[Value], y: &[Value], expected: &[AnomalyKind]) {
    let turn = |(number, text): (usize, &&str)| transaction(text, number as u64 * 2, number as u64 * 2 + 1);
    let transactions = texts.iter().enumerate().map(turn).collect();
    assert_kinds(&history(transactions, x, y), texts, expected);
}

fn assert_kinds(history: &History, texts: &[&str], expected: &[AnomalyKind]) {
    let checked = check(history);
    let mut found: Vec<AnomalyKind> = checked.anomalies.iter().map(|anomaly| anomaly.kind).collect();
    found.sort_unstable();
    found.dedup();
    assert_eq!(found, expected, "{texts:?}: {:#?}", checked.anomalies);
}

#[test]
fn serial_histories_pass() {
    check_in_turn(&[], &[], &[], &[]);
    check_in_turn(&["r x, a x 1", "r x 1, a x 2, r x 1 2", "r y, r x 1 2"], &[1, 2], &[], &[]);
    check_concurrent(&["r x 1 2", "a x 2, a y 3", "r x, r y", "a x 1"], &[1, 2], &[3], &[]);
    check_concurrent(&["a x 1, a x 2, r x 1 2", "r x 1 2 3", "a x 3"], &[1, 2, 3], &[], &[]);
}

#[test]
fn unanswered_writes_may_be_read_or_not() {
    check_in_turn(&["a x 1", "?a x 2, a y 3", "r x 1 2, r y 3"], &[1, 2], &[3], &[]);
    check_in_turn(&["a x 1", "?a x 2, a y 3", "r x 1, r y"], &[1], &[], &[]);
    // It may also take effect long after its connection was cut.
    check_in_turn(&["a x 1", "?a x 2, a y 3", "r x 1, r y"], &[1, 2], &[3], &[]);
    check_in_turn(&["a x 1", "?a x 2, a y 3"], &[1, 2], &[], &[AnomalyKind::HalfTransaction]);
}

#[test]
fn refused_transactions_leave_nothing() {
    check_in_turn(&["a x 1", "!a x 2", "r x 1"], &[1], &[], &[]);
    check_in_turn(&["a x 1", "!a x 2", "r x 1 2"], &[1], &[], &[AnomalyKind::AbortedRead]);
    check_in_turn(&["a x 1", "!a x 2"], &[1, 2], &[], &[AnomalyKind::AbortedRead]);
}

#[test]
fn the_middle_of_a_transaction_is_not_seen() {
    let skew = AnomalyKind::Cycle(CycleKind::ReadSkew);
    check_concurrent(&["a x 1, a x 2", "r x 1"], &[1, 2], &[], &[AnomalyKind::IntermediateRead, skew]);
}

#[test]
fn own_writes_are_seen_and_not_before_they_are_made() {
    check_concurrent(&["a x 1, r x"], &[1], &[], &[AnomalyKind::OwnWrites]);
    check_concurrent(&["r x 1, a x 1"], &[1], &[], &[AnomalyKind::OwnWrites]);
}

#[test]
fn values_come_from_somebody_and_once() {
    check_concurrent(&["r x 7"], &[], &[], &[AnomalyKind::UnknownValue]);
    check_concurrent(&["a x 1", "a y 2"], &[1, 2], &[2], &[AnomalyKind::UnknownValue]);
    check_concurrent(&["a x 1"], &[1, 1], &[], &[AnomalyKind::Duplicate]);
}

#[test]
fn a_read_is_a_state_of_the_list() {
    check_concurrent(&["a x 1", "a x 2", "r x 2"], &[1, 2], &[], &[AnomalyKind::OtherOrder]);
}

#[test]
fn acknowledged_writes_are_read() {
    check_in_turn(&["a x 1", "a x 2"], &[1], &[], &[AnomalyKind::LostAppend]);
    check_in_turn(&["a x 1, a y 2"], &[1], &[], &[AnomalyKind::LostAppend, AnomalyKind::HalfTransaction]);
}

#[test]
fn lost_updates() {
    // The second overwrites the first.
    let lost = [AnomalyKind::LostAppend, AnomalyKind::LostUpdate];
    check_concurrent(&["r x, a x 1", "r x, a x 2"], &[2], &[], &lost);
    // Both are there, but one of them did not see the other.
    let skew = [AnomalyKind::LostUpdate, AnomalyKind::Cycle(CycleKind::ReadSkew)];
    check_concurrent(&["r x, a x 1", "r x, a x 2"], &[1, 2], &[], &skew);
}

#[test]
fn no_serial_order() {
    let cycle = |kind| [AnomalyKind::Cycle(kind)];
    let interleaved = ["a x 1, a y 3", "a x 2, a y 4"];
    check_concurrent(&interleaved, &[1, 2], &[4, 3], &cycle(CycleKind::DirtyWrite));
    let each_other = ["a x 1, r y 2", "a y 2, r x 1"];
    check_concurrent(&each_other, &[1], &[2], &cycle(CycleKind::CircularInformation));
    check_concurrent(&["a x 1, a y 2", "r x 1, r y"], &[1], &[2], &cycle(CycleKind::ReadSkew));
    check_concurrent(&["r x, a y 1", "r y, a x 2"], &[2], &[1], &cycle(CycleKind::WriteSkew));
}

#[test]
fn real_time_is_kept() {
    check_in_turn(&["a x 1", "r x"], &[1], &[], &[AnomalyKind::Cycle(CycleKind::RealTime)]);
    check_concurrent(&["a x 1", "r x"], &[1], &[], &[]);
    // Through a third one: only the newest answered are remembered.
    check_in_turn(&["a x 1", "r y", "r y", "r x"], &[1], &[], &[AnomalyKind::Cycle(CycleKind::RealTime)]);
}

#[test]
fn figures_say_what_was_checked() {
    let texts = ["r x, a x 1", "!a x 2", "?a x 3", "?a x 4"];
    let transactions = texts.iter().map(|text| transaction(text, 0, 1)).collect();
    let checked = check(&history(transactions, &[1, 3], &[]));
    let figures = (checked.committed, checked.aborted, checked.unknown_there, checked.unknown_absent);
    assert_eq!(figures, (1, 1, 1, 1));
    assert_eq!((checked.reads, checked.appends), (1, 2));
}
