//! Lists that are only ever appended to, each value once: whether a serial order of the transactions exists that
//! explains everything that was read, in the manner of Elle (Kingsbury and Alvaro, 2020).
//!
//! The last state of a list is its history: each value names the transaction that appended it. So the order of the
//! writers is known, every read names the version it saw, and the dependencies between transactions follow:
//!
//! * write to write: the appends of two neighbouring values;
//! * write to read: the append of the last value a read saw;
//! * read to write: the append of the first value a read did not see;
//! * real time: one was answered before the other was sent.
//!
//! A transaction that was never answered counts if any of its values is there, and then all of them must be.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::graph::{Cycle, CycleKind, Dependency, Graph};
use super::history::{History, ListId, ListOperation, Transaction, TransactionOutcome, Value};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AnomalyKind {
    /// G1a: a value of a transaction that was refused.
    AbortedRead,
    /// G1b: a version in the middle of another transaction.
    IntermediateRead,
    /// A transaction does not see its own appends, or sees them too early.
    OwnWrites,
    /// A value that nobody appended.
    UnknownValue,
    /// A value twice in one list.
    Duplicate,
    /// A read that is no state the list ever had.
    OtherOrder,
    /// An acknowledged append that is not there.
    LostAppend,
    /// Two transactions read the same version and both appended to it.
    LostUpdate,
    /// Some appends of a transaction are there and others not.
    HalfTransaction,
    /// No serial order.
    Cycle(CycleKind),
}

#[derive(Clone, Debug)]
pub struct Anomaly {
    pub kind: AnomalyKind,
    pub explanation: String,
}

/// What a check went through, and what it found.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    pub anomalies: Vec<Anomaly>,
    pub committed: usize,
    pub aborted: usize,
    /// Never answered and there, and never answered and not there.
    pub unknown_there: usize,
    pub unknown_absent: usize,
    pub reads: usize,
    pub appends: usize,
    pub dependencies: usize,
}

pub fn check(history: &History) -> CheckReport {
    let mut check = HistoryCheck::new(history);
    check.last_states();
    check.appends();
    let reads = check.reads();
    check.lost_updates(&reads);
    let graph = check.graph(&reads);
    for cycle in graph.cycles() {
        check.cycle(&cycle);
    }
    check.checked.reads = reads.len();
    check.checked.dependencies = graph.edges();
    check.checked
}

struct HistoryCheck<'a> {
    history: &'a History,
    appended: HashMap<Value, AppendedValue>,
    /// Whether a transaction was committed, as far as that can be known.
    counts: Vec<bool>,
    checked: CheckReport,
}

#[derive(Clone, Copy)]
struct AppendedValue {
    transaction: usize,
    list: ListId,
    /// The transaction appended no more to this list.
    is_last: bool,
}

/// A version that a transaction saw, without its own appends.
struct ReadVersion {
    transaction: usize,
    list: ListId,
    /// How many values it had, where it is a state of the list.
    version: Option<usize>,
}

impl<'a> HistoryCheck<'a> {
    fn new(history: &'a History) -> HistoryCheck<'a> {
        let appended = appended(&history.transactions);
        let there: HashSet<usize> = history
            .last
            .values()
            .flatten()
            .filter_map(|value| Some(appended.get(value)?.transaction))
            .collect();
        let counts: Vec<bool> = (history.transactions.iter().enumerate())
            .map(|(number, transaction)| match transaction.outcome {
                TransactionOutcome::Committed => true,
                TransactionOutcome::Aborted => false,
                TransactionOutcome::Unknown => there.contains(&number),
            })
            .collect();
        HistoryCheck { history, appended, counts, checked: CheckReport::default() }
    }

    fn report(&mut self, kind: AnomalyKind, explanation: String) {
        self.checked.anomalies.push(Anomaly { kind, explanation });
    }

    fn last_of(&self, list: ListId) -> &'a [Value] {
        self.history.last.get(&list).map_or(&[], Vec::as_slice)
    }

    /// What the lists were when everything was over.
    fn last_states(&mut self) {
        for (list, values) in &self.history.last {
            self.values(*list, values, "at the end");
        }
    }

    /// Whether every value may be in a list at all; says what may not.
    fn values(&mut self, list: ListId, values: &[Value], whose: &str) -> bool {
        let before = self.checked.anomalies.len();
        let mut seen = HashSet::new();
        for value in values {
            if !seen.insert(value) {
                self.report(AnomalyKind::Duplicate, format!("{value} twice in {list:?} {whose}"));
            }
            match self.appended.get(value).copied() {
                Some(appended) if appended.list == list => self.not_aborted(*value, appended, whose),
                _ => self.report(
                    AnomalyKind::UnknownValue,
                    format!("nobody appended {value} to {list:?} {whose}"),
                ),
            }
        }
        self.checked.anomalies.len() == before
    }

    fn not_aborted(&mut self, value: Value, appended: AppendedValue, whose: &str) {
        let writer = &self.history.transactions[appended.transaction];
        if writer.outcome == TransactionOutcome::Aborted {
            let list = appended.list;
            let explanation = format!(
                "{value} in {list:?} {whose} is of a refused {}",
                shown(appended.transaction, writer)
            );
            self.report(AnomalyKind::AbortedRead, explanation);
        }
    }

    /// Every acknowledged append is there, and no transaction is there in part.
    fn appends(&mut self) {
        let there: HashSet<Value> = self.history.last.values().flatten().copied().collect();
        for (number, transaction) in self.history.transactions.iter().enumerate() {
            let values: Vec<(ListId, Value)> = appends_of(transaction).collect();
            self.count(transaction.outcome, self.counts[number], values.len());
            if !self.counts[number] {
                continue;
            }
            let missing: Vec<&(ListId, Value)> =
                values.iter().filter(|(_, value)| !there.contains(value)).collect();
            let whose = shown(number, transaction);
            if !missing.is_empty() && missing.len() < values.len() {
                self.report(AnomalyKind::HalfTransaction, format!("{whose} without {missing:?}"));
            }
            if transaction.outcome == TransactionOutcome::Committed {
                for (list, value) in missing {
                    self.report(AnomalyKind::LostAppend, format!("{value} of {whose} is not in {list:?}"));
                }
            }
        }
    }

    fn count(&mut self, outcome: TransactionOutcome, counts: bool, appends: usize) {
        let checked = &mut self.checked;
        let counter = match (outcome, counts) {
            (TransactionOutcome::Committed, _) => &mut checked.committed,
            (TransactionOutcome::Aborted, _) => &mut checked.aborted,
            (TransactionOutcome::Unknown, true) => &mut checked.unknown_there,
            (TransactionOutcome::Unknown, false) => &mut checked.unknown_absent,
        };
        *counter += 1;
        if counts {
            checked.appends += appends;
        }
    }

    /// What each transaction that counts saw of the others.
    fn reads(&mut self) -> Vec<ReadVersion> {
        let mut reads = Vec::new();
        for (number, transaction) in self.history.transactions.iter().enumerate() {
            if transaction.outcome == TransactionOutcome::Committed {
                self.reads_of(number, transaction, &mut reads);
            }
        }
        reads
    }

    fn reads_of(&mut self, number: usize, transaction: &Transaction, reads: &mut Vec<ReadVersion>) {
        let mut own: BTreeMap<ListId, Vec<Value>> = BTreeMap::new();
        for operation in &transaction.operations {
            match operation {
                ListOperation::Append { list, value } => own.entry(*list).or_default().push(*value),
                ListOperation::Read { list, values } => {
                    let appended = own.get(list).map_or(&[][..], Vec::as_slice);
                    let Some(others) = values.strip_suffix(appended) else {
                        let whose = shown(number, transaction);
                        self.report(AnomalyKind::OwnWrites, format!("{whose} read {values:?} of {list:?}"));
                        continue;
                    };
                    let version = self.version(number, transaction, *list, others);
                    reads.push(ReadVersion { transaction: number, list: *list, version });
                }
            }
        }
    }

    /// Which state of the list a read was; says what is wrong with one that is none.
    fn version(
        &mut self,
        number: usize,
        reader: &Transaction,
        list: ListId,
        values: &[Value],
    ) -> Option<usize> {
        let whose = format!("read by {}", shown(number, reader));
        let early =
            values.iter().find(|value| self.appended.get(value).is_some_and(|a| a.transaction == number));
        if let Some(early) = early {
            self.report(AnomalyKind::OwnWrites, format!("{early} in {list:?} {whose} before it appended it"));
            return None;
        }
        let whole = values.last().and_then(|last| self.appended.get(last)).is_none_or(|last| last.is_last);
        if !whole {
            self.report(
                AnomalyKind::IntermediateRead,
                format!("{values:?} of {list:?} {whose} ends inside a transaction"),
            );
        }
        let last = self.last_of(list);
        if last.starts_with(values) {
            return Some(values.len());
        }
        if self.values(list, values, &whose) {
            self.report(
                AnomalyKind::OtherOrder,
                format!("{values:?} of {list:?} {whose} is no beginning of {last:?}"),
            );
        }
        None
    }

    /// Of all that read one version of a list, one at most may append to it.
    fn lost_updates(&mut self, reads: &[ReadVersion]) {
        let mut first: HashMap<(ListId, usize), usize> = HashMap::new();
        for seen in reads {
            let Some(version) = seen.version else { continue };
            let number = seen.transaction;
            let transaction = &self.history.transactions[number];
            if appends_of(transaction).all(|(list, _)| list != seen.list) {
                continue;
            }
            let other = *first.entry((seen.list, version)).or_insert(number);
            if other != number {
                let (one, two) =
                    (shown(other, &self.history.transactions[other]), shown(number, transaction));
                let list = seen.list;
                self.report(
                    AnomalyKind::LostUpdate,
                    format!("version {version} of {list:?} was appended to by {one} and {two}"),
                );
            }
        }
    }

    fn graph(&self, reads: &[ReadVersion]) -> Graph {
        let mut graph = Graph::new(self.history.transactions.len());
        for values in self.history.last.values() {
            let writers: Vec<usize> = values.iter().filter_map(|value| self.writer(*value)).collect();
            for pair in writers.windows(2) {
                graph.add(pair[0], Dependency::WriteWrite, pair[1]);
            }
        }
        for seen in reads {
            let Some(version) = seen.version else { continue };
            let values = self.last_of(seen.list);
            let writer = |position: usize| values.get(position).and_then(|value| self.writer(*value));
            if let Some(writer) = version.checked_sub(1).and_then(writer) {
                graph.add(writer, Dependency::WriteRead, seen.transaction);
            }
            if let Some(writer) = writer(version) {
                graph.add(seen.transaction, Dependency::ReadWrite, writer);
            }
        }
        self.real_time(&mut graph);
        graph
    }

    fn writer(&self, value: Value) -> Option<usize> {
        let transaction = self.appended.get(&value)?.transaction;
        self.counts[transaction].then_some(transaction)
    }

    /// Only from the newest that were answered: the older ones come before those already.
    fn real_time(&self, graph: &mut Graph) {
        let mut moments = Vec::new();
        for (number, transaction) in
            self.history.transactions.iter().enumerate().filter(|(n, _)| self.counts[*n])
        {
            moments.push((transaction.begun, number, false));
            if transaction.outcome == TransactionOutcome::Committed {
                moments.push((transaction.ended, number, true));
            }
        }
        moments.sort_unstable();
        let mut newest: Vec<usize> = Vec::new();
        let mut before: HashMap<usize, Vec<usize>> = HashMap::new();
        for (_, number, is_end) in moments {
            if is_end {
                let passed = before.remove(&number).unwrap_or_default();
                newest.retain(|other| !passed.contains(other));
                newest.push(number);
            } else {
                newest.iter().for_each(|other| graph.add(*other, Dependency::RealTime, number));
                before.insert(number, newest.clone());
            }
        }
    }

    fn cycle(&mut self, cycle: &Cycle) {
        let steps = cycle.steps.iter().map(|(number, before)| {
            let transaction = &self.history.transactions[*number];
            format!("\n    {} {:?}\n      {before:?} ->", shown(*number, transaction), transaction.operations)
        });
        let explanation = format!("a cycle of {}:{}", cycle.steps.len(), steps.collect::<String>());
        self.report(AnomalyKind::Cycle(cycle.kind), explanation);
    }
}

fn appended(transactions: &[Transaction]) -> HashMap<Value, AppendedValue> {
    let mut appended = HashMap::new();
    for (number, transaction) in transactions.iter().enumerate() {
        let mut last: BTreeMap<ListId, Value> = BTreeMap::new();
        for (list, value) in appends_of(transaction) {
            let earlier = appended.insert(value, AppendedValue { transaction: number, list, is_last: true });
            assert!(earlier.is_none(), "{value} is appended twice: that is a mistake of the test");
            if let Some(replaced) = last.insert(list, value).and_then(|value| appended.get_mut(&value)) {
                replaced.is_last = false;
            }
        }
    }
    appended
}

fn appends_of(transaction: &Transaction) -> impl Iterator<Item = (ListId, Value)> {
    transaction.operations.iter().filter_map(|operation| match operation {
        ListOperation::Append { list, value } => Some((*list, *value)),
        ListOperation::Read { .. } => None,
    })
}

fn shown(number: usize, transaction: &Transaction) -> String {
    format!("{} {number} ({}..{})", transaction.how, transaction.begun, transaction.ended)
}

#[cfg(test)]
mod tests;
