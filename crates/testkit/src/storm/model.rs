//! What is there, as the one who wrote it knows.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use super::check::{ExpectedEvents, ItemEvent, Token};

/// An item that is there.
#[derive(Clone, Debug)]
pub struct WrittenItem {
    pub token: Token,
    /// Sorted by.
    pub number: i64,
    /// Compared with.
    pub group: u32,
    /// No two items of a partition key have the same.
    pub unique: u32,
}

impl WrittenItem {
    pub fn body(&self, key: &str, id: &str) -> Json {
        json!({ "id": id, "pk": key, "v": self.token, "n": self.number, "g": self.group, "u": self.unique })
    }
}

/// An item with a time to live, written once.
#[derive(Clone, Copy, Debug)]
pub struct ExpiringItem {
    pub token: Token,
    pub ttl: Duration,
    pub sent: Instant,
    pub answered: Instant,
    pub is_unsure: bool,
}

/// What one writer has written. A partition key has items of one writer only.
#[derive(Default)]
pub struct WriterModel {
    /// By partition key and id.
    pub items: BTreeMap<String, BTreeMap<String, WrittenItem>>,
    pub events: BTreeMap<String, Vec<ItemEvent>>,
    pub expiring: BTreeMap<String, ExpiringItem>,
}

impl WriterModel {
    pub fn get(&self, key: &str, id: &str) -> Option<&WrittenItem> {
        self.items.get(key)?.get(id)
    }

    pub fn write(&mut self, key: &str, id: &str, item: WrittenItem) {
        self.events.entry(id.to_owned()).or_default().push(ItemEvent::Write(item.token));
        self.items.entry(key.to_owned()).or_default().insert(id.to_owned(), item);
    }

    pub fn delete(&mut self, key: &str, id: &str) {
        self.events.entry(id.to_owned()).or_default().push(ItemEvent::Delete);
        self.items.entry(key.to_owned()).or_default().remove(id);
    }

    pub fn delete_key(&mut self, key: &str) {
        let ids: Vec<String> =
            self.items.get(key).into_iter().flat_map(|items| items.keys().cloned()).collect();
        ids.iter().for_each(|id| self.delete(key, id));
    }

    /// Whether another item of the key has the unique value.
    pub fn is_taken(&self, key: &str, id: &str, unique: u32) -> bool {
        let mut items = self.items.get(key).into_iter().flatten();
        items.any(|(other, item)| other != id && item.unique == unique)
    }

    pub fn expected(&self, all: &mut BTreeMap<String, ExpectedEvents>) {
        for (id, events) in &self.events {
            all.insert(id.clone(), ExpectedEvents { events: events.clone(), is_unsure: false });
        }
        for (id, item) in &self.expiring {
            let events = vec![ItemEvent::Write(item.token), ItemEvent::Expire];
            all.insert(id.clone(), ExpectedEvents { events, is_unsure: item.is_unsure });
        }
    }
}
