//! Catalog resources as clients see them.

use quire_resource::ResourceId;
use quire_value::Object;

/// A catalog resource: database, container, script, user, permission, client encryption key or offer.
#[derive(Debug)]
pub struct Resource {
    pub rid: ResourceId,
    pub id: String,
    /// What the client defined, normalised; no system properties.
    pub body: Object,
    pub etag: String, // with its quotes
    pub ts: i64,      // seconds
}

/// What kind of script a resource is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScriptKind {
    StoredProcedure,
    Trigger,
    UserDefinedFunction,
}

/// Conditions on a catalog write.
#[derive(Clone, Debug, Default)]
pub struct Precondition {
    pub if_match: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Migrate {
    ToAutoscale,
    ToManual,
}

impl Resource {
    /// The whole resource: `body`, then `_rid`, `_self`, `_etag`, `_ts` and the constant link members of its kind.
    /// (A permission's `_token` is added by the server.)
    pub fn to_json(&self) -> Object {
        let mut json = self.body.clone();
        json.set("_rid", self.rid.to_string());
        json.set("_self", self.rid.self_link());
        json.set("_etag", self.etag.as_str());
        json.set("_ts", self.ts);
        for (name, link) in links(&self.rid) {
            json.set(*name, *link);
        }
        json
    }
}

/// Where a resource's children are, relative to it.
fn links(rid: &ResourceId) -> &'static [(&'static str, &'static str)] {
    match rid {
        ResourceId::Database(_) => &[("_colls", "colls/"), ("_users", "users/")],
        ResourceId::Container { .. } => &[
            ("_docs", "docs/"),
            ("_sprocs", "sprocs/"),
            ("_triggers", "triggers/"),
            ("_udfs", "udfs/"),
            ("_conflicts", "conflicts/"),
        ],
        ResourceId::User { .. } => &[("_permissions", "permissions/")],
        ResourceId::Offer(_)
        | ResourceId::Permission { .. }
        | ResourceId::ClientEncryptionKey { .. }
        | ResourceId::Child { .. } => &[],
    }
}
