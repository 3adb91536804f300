//! Catalog resources as clients see them.

use quire_resource::ResourceId;
use quire_value::Object;

use crate::api::Resource;

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
