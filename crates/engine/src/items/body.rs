//! The body of an item, as clients send and receive it.

use std::io::Write;

use quire_resource::{ChildKind, ItemTtl, ResourceId, RidText, check_item_id};
use quire_sql::SystemProperties;
use quire_value::{Item, Kind, Limits, Node, Object, Value};

use crate::api::EngineError;
use crate::catalog::Container;
use crate::store::SYSTEM_PROPERTIES;
use crate::store::item_row::Stamp;

/// Compact JSON without system properties.
pub(crate) const ITEM_BYTES_MAX: usize = 2 << 20;
/// Room for system properties behind an item's JSON.
const SYSTEM_BYTES: usize = 256;

/// Of every item; there are no attachments.
const ATTACHMENTS: &str = "attachments/";

/// A valid item, system properties removed.
#[derive(Clone)]
pub(crate) struct Body {
    pub item: Item,
    pub id: String,
    pub ttl: ItemTtl,
    pub json_bytes: u32,
    /// The JSON text, when the answer will contain it.
    pub json: Vec<u8>,
}

impl Body {
    pub fn parse(text: &[u8], want_json: bool) -> Result<Body, EngineError> {
        Body::of_item(Item::from_json(text, Limits::default())?, want_json)
    }

    /// The same of an item that comes from elsewhere than a request; its depth was checked.
    pub fn of_item(item: Item, want_json: bool) -> Result<Body, EngineError> {
        if item.root().kind() != Kind::Object {
            return Err(invalid(
                "The request payload is invalid. Ensure to provide a valid request payload.",
            ));
        }
        let item = without_system_properties(item);
        let id = id_of(item.root())?.to_owned();
        // Checked also where the container's TTL is off: it is noted for when TTL is switched on.
        let ttl = ItemTtl::of_item(item.root())?;
        let mut json = Vec::new();
        if want_json {
            json.reserve(item.as_bytes().len() + SYSTEM_BYTES);
            item.root().write_json(&mut json);
        }
        let bytes = if want_json { json.len() } else { item.root().json_len() };
        if bytes > ITEM_BYTES_MAX {
            return Err(EngineError::ItemTooLarge { bytes, bytes_max: ITEM_BYTES_MAX });
        }
        Ok(Body { item, id, ttl, json_bytes: bytes as u32, json })
    }
}

fn invalid(message: &str) -> EngineError {
    EngineError::BadRequest { message: message.to_owned() }
}

fn id_of(item: Node<'_>) -> Result<&str, EngineError> {
    let id = item.get("id").filter(|id| id.kind() != Kind::Null);
    let id = id.ok_or_else(|| EngineError::MissingProperties { names: "id".to_owned() })?;
    let id = id.as_str().ok_or_else(|| invalid("The input 'id' is invalid. Ensure to provide a string."))?;
    check_item_id(id)?;
    Ok(id)
}

fn without_system_properties(item: Item) -> Item {
    let root = item.root();
    if SYSTEM_PROPERTIES.iter().all(|name| root.get(name).is_none()) {
        return item;
    }
    let kept = root.members().filter(|(name, _)| !SYSTEM_PROPERTIES.contains(name));
    let kept: Object = kept.map(|(name, node)| (name.to_owned(), node.to_value())).collect();
    Item::from_value(&Value::Object(kept))
}

/// What the system properties of a container's items have in common.
pub(crate) struct SelfLinks {
    database: u32,
    container: u32,
    database_rid: RidText,
    container_rid: RidText,
}

impl SelfLinks {
    pub fn new(container: &Container) -> SelfLinks {
        let rid = container.resource.rid;
        let (database, number) = match rid {
            ResourceId::Container { database, container } => (database, container),
            _ => (0, 0),
        };
        let (database_rid, container_rid) = (ResourceId::Database(database).text(), rid.text());
        SelfLinks { database, container: number, database_rid, container_rid }
    }

    /// `dbs/{rid}/colls/{rid}/docs/{rid}/`, whose last rid is that of an item.
    fn link_parts<'a>(&'a self, item_rid: &'a str) -> [&'a str; 7] {
        ["dbs/", self.database_rid.as_str(), "/colls/", self.container_rid.as_str(), "/docs/", item_rid, "/"]
    }

    pub fn rid(&self, child: u64) -> String {
        self.rid_text(child).as_str().to_owned()
    }

    fn rid_text(&self, child: u64) -> RidText {
        let kind = ChildKind::Item;
        ResourceId::Child { database: self.database, container: self.container, kind, child }.text()
    }

    /// Turns the JSON of the user properties into the whole item.
    pub fn complete(&self, json: &mut Vec<u8>, child: u64, stamp: &Stamp, etag: &str) {
        debug_assert!(json.ends_with(b"}"), "an item is an object, and has at least its id");
        json.pop();
        self.write_members(json, child, stamp, etag);
        json.push(b'}');
    }

    fn write_members(&self, json: &mut Vec<u8>, child: u64, stamp: &Stamp, etag: &str) {
        let rid = self.rid_text(child);
        let rid = rid.as_str();
        let etag = etag.trim_matches('"');
        // None of these texts has a character that JSON escapes, but for the quotes of the ETag.
        let mut push = |part: &str| json.extend_from_slice(part.as_bytes());
        [",\"_rid\":\"", rid, "\",\"_self\":\""].into_iter().for_each(&mut push);
        self.link_parts(rid).into_iter().for_each(&mut push);
        let parts = ["\",\"_etag\":\"\\\"", etag, "\\\"\",\"_attachments\":\"attachments/\",\"_ts\":"];
        parts.into_iter().for_each(push);
        write!(json, "{}", stamp.ts).expect("a vector takes more");
    }

    pub fn write_json(&self, node: Node<'_>, child: u64, stamp: &Stamp, out: &mut Vec<u8>) {
        node.write_json(out);
        self.complete(out, child, stamp, stamp.etag_text().as_str());
    }
}

/// What a query sees of an item besides the user's properties.
pub(crate) struct StampedItem<'a> {
    pub links: &'a SelfLinks,
    pub child: u64,
    pub stamp: Stamp,
}

impl StampedItem<'_> {
    fn link(&self) -> String {
        self.links.link_parts(&self.links.rid(self.child)).concat()
    }
}

impl SystemProperties for StampedItem<'_> {
    fn get(&self, name: &str) -> Option<Value> {
        Some(match name {
            "_rid" => self.links.rid(self.child).into(),
            "_self" => self.link().into(),
            "_etag" => self.stamp.etag().into(),
            "_attachments" => ATTACHMENTS.into(),
            "_ts" => self.stamp.ts.into(),
            _ => return None,
        })
    }

    fn write_members(&self, out: &mut Vec<u8>) {
        self.links.write_members(out, self.child, &self.stamp, self.stamp.etag_text().as_str());
    }

    fn set_members(&self, object: &mut Object) {
        let rid = self.links.rid(self.child);
        let link = self.links.link_parts(&rid).concat();
        object.set("_rid", rid);
        object.set("_self", link);
        object.set("_etag", self.stamp.etag());
        object.set("_attachments", ATTACHMENTS);
        object.set("_ts", self.stamp.ts);
    }
}
