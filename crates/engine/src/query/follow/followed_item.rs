//! An item of another container as it is stored. The query language writes it from its row, and asks for a value only where
//! an expression looks into it.

use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;

use quire_sql::{Item, LinkedItem, SystemProperties};
use quire_value::{Node, Object, Value};

use super::link_containers::LinkContainer;
use crate::api::EngineError;
use crate::items::body::{SelfLinks, StampedItem};
use crate::store::item_row::{ItemRow, Stamp};

/// The JSON of larger items is written again for every row: their copies would take more memory than time.
const KEPT_JSON_BYTES_MAX: u32 = 16 << 10;
/// The JSON of the system properties is about this long.
const SYSTEM_BYTES: usize = 256;

pub(crate) struct FollowedItem {
    pub json_bytes: u32,
    rid: u64,
    row: Arc<[u8]>,
    /// Where the item begins in its row.
    item_at: usize,
    stamp: Stamp,
    links: Rc<SelfLinks>,
    value: OnceCell<Value>,
    json: OnceCell<Box<[u8]>>,
}

impl FollowedItem {
    /// Of a row whose checksum was verified.
    pub fn new(end: &LinkContainer, rid: u64, row: Arc<[u8]>) -> Result<Rc<FollowedItem>, EngineError> {
        let parsed = ItemRow::trusted(&row)?;
        parsed.node()?;
        let (stamp, json_bytes) = (parsed.stamp, parsed.json_bytes);
        let item_at = row.len() - parsed.item().len();
        let links = Rc::clone(&end.links);
        let (value, json) = (OnceCell::new(), OnceCell::new());
        Ok(Rc::new(FollowedItem { json_bytes, rid, row, item_at, stamp, links, value, json }))
    }

    /// The user's properties.
    pub fn node(&self) -> Node<'_> {
        Node::of(&self.row[self.item_at..]).expect("was read when the item was made")
    }

    /// With its value and its JSON, which it may get.
    pub fn memory_bytes(&self) -> usize {
        3 * self.row.len() + self.json_bytes.min(KEPT_JSON_BYTES_MAX) as usize + 2 * SYSTEM_BYTES
    }

    fn stamped(&self) -> StampedItem<'_> {
        StampedItem { links: &self.links, child: self.rid, stamp: self.stamp }
    }
}

impl SystemProperties for FollowedItem {
    fn get(&self, name: &str) -> Option<Value> {
        self.stamped().get(name)
    }

    fn write_members(&self, out: &mut Vec<u8>) {
        self.stamped().write_members(out);
    }

    fn set_members(&self, object: &mut Object) {
        self.stamped().set_members(object);
    }
}

impl LinkedItem for FollowedItem {
    fn item(&self) -> Item<'_> {
        Item::stored(self.node(), self)
    }

    fn value(&self) -> &Value {
        self.value.get_or_init(|| self.item().to_value())
    }

    fn write_json(&self, out: &mut Vec<u8>) {
        if let Some(json) = self.json.get() {
            out.extend_from_slice(json);
            return;
        }
        let start = out.len();
        self.item().write_json(out);
        if self.json_bytes <= KEPT_JSON_BYTES_MAX {
            self.json.get_or_init(|| out[start..].into());
        }
    }

    fn approximate_size(&self) -> usize {
        2 * self.row.len() + SYSTEM_BYTES
    }
}
