//! What is recorded of a request. No value of an item, ever: names of paths, sizes, counts and keyed hashes.

use std::sync::Arc;

use quire_value::{Object, Value};

/// Items that a query returned and that are recorded.
pub(crate) const RETURNED_ITEMS_MAX: usize = 100;
pub(crate) const CHANGED_PATHS_MAX: usize = 64;
/// Room for elements that a list may have for nothing.
const SPARE_MAX: usize = 4;

#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// When it was answered, in milliseconds since the epoch.
    pub time_ms: u64,
    pub action: Option<(u64, ActionSource)>,
    pub container: Arc<str>,
    pub operation: Operation,
    pub status: u16,
    pub sub_status: u32,
    pub charge: f64,
    /// Of the request or the answer, whichever carries the item.
    pub bytes: u64,
    pub micros: u64,
    /// The item's internal number.
    pub item: Option<u64>,
    /// Keyed hash of its id: shows that an item was created again under another key.
    pub id: Option<u64>,
    /// Keyed hash.
    pub partition_key: Option<u64>,
    pub change: Option<ItemChange>,
    pub query: Option<RecordedQuery>,
    /// How many requests the record stands for: more than 1 where actions are sampled.
    pub weight: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ActionSource {
    /// `x-quire-action`
    Header,
    /// `traceparent`
    Trace,
    /// One connection, requests no more than 2 s apart.
    Connection,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    Read,
    Create,
    Replace,
    Upsert,
    Patch,
    Delete,
    Query,
    Feed,
    Batch,
    Procedure,
}

/// What a write did to an item.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ItemChange {
    /// Generic: `*` for elements. Empty when nothing changed, or for a new item.
    pub paths: Vec<String>,
    pub size_before: Option<u64>,
    pub size_after: Option<u64>,
    pub if_match: bool,
    pub lengths: Vec<ArrayLength>,
    /// Keyed hashes of the keys of changed elements.
    pub element_keys: Vec<u64>,
    /// The only changed path is a number, before and after.
    pub one_number: bool,
    /// Part of a batch, procedure or transaction.
    pub in_batch: bool,
    /// Keyed hash of the discriminator, or of the names of properties.
    pub item_type: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayLength {
    pub path: String,
    pub before: u64,
    pub after: u64,
}

/// A page of a query.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordedQuery {
    /// [`crate::QueryShape::id`]
    pub shape: u64,
    /// All pages of one execution have the same number.
    pub execution: u64,
    pub rows_read: u64,
    pub returned: u64,
    /// Numbers of the first 100 items returned.
    pub items: Vec<u64>,
    /// There is no further page.
    pub is_last: bool,
    /// Refused for lack of an index.
    pub refused: bool,
}

impl Record {
    /// Cuts lists to what may be recorded, and gives back the memory of the rest.
    pub(crate) fn bounded(mut self) -> Record {
        if let Some(query) = &mut self.query {
            cut(&mut query.items, RETURNED_ITEMS_MAX);
        }
        if let Some(change) = &mut self.change {
            cut(&mut change.paths, CHANGED_PATHS_MAX);
            cut(&mut change.lengths, CHANGED_PATHS_MAX);
            cut(&mut change.element_keys, CHANGED_PATHS_MAX);
        }
        self
    }

    pub fn memory(&self) -> usize {
        size_of::<Record>() + self.variable_memory()
    }

    /// Memory of what is not of the same size in every record.
    pub(crate) fn variable_memory(&self) -> usize {
        let change = self.change.as_ref().map_or(0, |change| {
            let paths = change.paths.iter().chain(change.lengths.iter().map(|length| &length.path));
            let texts: usize = paths.map(|path| path.capacity() + size_of::<String>()).sum();
            texts + 24 * change.lengths.capacity() + 10 * change.element_keys.capacity()
        });
        let query = self.query.as_ref().map_or(0, |query| 10 * query.items.capacity());
        self.container.len() + change + query
    }

    /// A line of `GET workload` as NDJSON. The caller makes the time text.
    pub fn to_json(&self, time: &dyn Fn(u64) -> String) -> Value {
        let mut json = Object::new();
        json.set("time", time(self.time_ms));
        if let Some((action, source)) = self.action {
            json.set("action", hash_text(action));
            json.set("actionBy", source.name());
        }
        json.set("container", &*self.container);
        json.set("operation", self.operation.name());
        json.set("status", u64::from(self.status));
        json.set("subStatus", u64::from(self.sub_status));
        json.set("charge", self.charge);
        json.set("bytes", self.bytes);
        json.set("micros", self.micros);
        for (name, value) in [("item", self.item), ("id", self.id), ("partitionKey", self.partition_key)] {
            if let Some(value) = value {
                json.set(name, hash_text(value));
            }
        }
        json.set("weight", u64::from(self.weight));
        if let Some(change) = &self.change {
            json.set("change", change.to_json());
        }
        if let Some(query) = &self.query {
            json.set("query", query.to_json());
        }
        Value::from(json)
    }

    pub fn is_success(&self) -> bool {
        self.status < 400
    }

    /// A write that was made together with others, by a request that has a record of its own.
    pub fn is_in_batch(&self) -> bool {
        self.operation.is_write() && self.change.as_ref().is_some_and(|change| change.in_batch)
    }

    /// A write of an item that was there before.
    pub fn is_change(&self) -> bool {
        self.is_success() && self.change.as_ref().is_some_and(|change| change.size_before.is_some())
    }
}

fn cut<T>(list: &mut Vec<T>, length_max: usize) {
    list.truncate(length_max);
    // A little room costs less than another allocation.
    if list.capacity() > 2 * list.len() + SPARE_MAX {
        list.shrink_to_fit();
    }
}

impl ItemChange {
    fn to_json(&self) -> Value {
        let mut json = Object::new();
        let texts =
            |texts: &[String]| texts.iter().map(|text| Value::from(text.as_str())).collect::<Vec<_>>();
        json.set("paths", texts(&self.paths));
        for (name, size) in [("sizeBefore", self.size_before), ("sizeAfter", self.size_after)] {
            if let Some(size) = size {
                json.set(name, size);
            }
        }
        json.set("ifMatch", self.if_match);
        let length = |length: &ArrayLength| {
            let mut json = Object::new();
            json.set("path", length.path.as_str());
            json.set("before", length.before);
            json.set("after", length.after);
            Value::from(json)
        };
        json.set("lengths", self.lengths.iter().map(length).collect::<Vec<_>>());
        Value::from(json)
    }
}

impl RecordedQuery {
    fn to_json(&self) -> Value {
        let mut json = Object::new();
        json.set("shape", hash_text(self.shape));
        json.set("rowsRead", self.rows_read);
        json.set("returned", self.returned);
        json.set("items", self.items.iter().map(|item| Value::from(hash_text(*item))).collect::<Vec<_>>());
        json.set("isLast", self.is_last);
        json.set("refused", self.refused);
        Value::from(json)
    }
}

impl ActionSource {
    fn name(self) -> &'static str {
        match self {
            ActionSource::Header => "header",
            ActionSource::Trace => "trace",
            ActionSource::Connection => "connection",
        }
    }
}

/// Numbers of 64 bits are text: not every reader of JSON keeps them.
fn hash_text(number: u64) -> String {
    format!("{number:016x}")
}

impl Operation {
    pub const ALL: [(Operation, &'static str); 10] = [
        (Operation::Read, "read"),
        (Operation::Create, "create"),
        (Operation::Replace, "replace"),
        (Operation::Upsert, "upsert"),
        (Operation::Patch, "patch"),
        (Operation::Delete, "delete"),
        (Operation::Query, "query"),
        (Operation::Feed, "feed"),
        (Operation::Batch, "batch"),
        (Operation::Procedure, "procedure"),
    ];

    pub fn name(self) -> &'static str {
        Operation::ALL.iter().find(|(own, _)| *own == self).map_or("", |(_, name)| name)
    }

    pub fn is_write(self) -> bool {
        use Operation::{Create, Delete, Patch, Replace, Upsert};
        matches!(self, Create | Replace | Upsert | Patch | Delete)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_off_takes_no_memory() {
        let record = Record {
            time_ms: 1,
            action: None,
            container: Arc::from("c"),
            operation: Operation::Replace,
            status: 200,
            sub_status: 0,
            charge: 1.0,
            bytes: 1,
            micros: 1,
            item: Some(1),
            id: None,
            partition_key: None,
            change: Some(ItemChange {
                lengths: vec![ArrayLength { path: String::new(), before: 1, after: 2 }; 100_000],
                ..ItemChange::default()
            }),
            query: Some(RecordedQuery { items: Vec::with_capacity(100_000), ..RecordedQuery::default() }),
            weight: 1,
        };
        assert!(record.memory() > 1_000_000);
        let record = record.bounded();
        assert!(record.memory() < 8_192, "{}", record.memory());
        assert_eq!(record.change.expect("a change").lengths.len(), CHANGED_PATHS_MAX);
    }
}
