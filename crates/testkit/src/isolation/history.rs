//! What clients did and saw: transactions with their outcome and their place in real time.

use std::collections::BTreeMap;

/// A list of one logical partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListId {
    pub partition: u32,
    pub number: u32,
}

/// Appended at most once in a history.
pub type Value = u32;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListOperation {
    Append {
        list: ListId,
        value: Value,
    },
    /// The whole list; a list that does not exist is empty.
    Read {
        list: ListId,
        values: Vec<Value>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionOutcome {
    Committed,
    /// Answered with an error: nothing of it may ever be seen.
    Aborted,
    /// Never answered: it may be there or not, but not in part.
    Unknown,
}

#[derive(Clone, Debug)]
pub struct Transaction {
    /// How it was done, for the report.
    pub how: &'static str,
    /// In the order in which they took effect inside the transaction.
    pub operations: Vec<ListOperation>,
    pub outcome: TransactionOutcome,
    /// Ticks of one clock of all clients: before the request was sent, and after its answer came.
    pub begun: u64,
    pub ended: u64,
}

#[derive(Clone, Debug, Default)]
pub struct History {
    pub transactions: Vec<Transaction>,
    /// The lists when everything was over. Empty ones need not be named.
    pub last: BTreeMap<ListId, Vec<Value>>,
}
