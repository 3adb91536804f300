//! Bodies as they travel.

mod account; // the account document
pub(crate) mod batch; // operations and results of batches
mod feed; // `{"_rid":…,"Databases":[…],"_count":n}`
mod plan; // query plans
mod query; // `{"query":…,"parameters":[…]}`

pub(crate) use account::account;
pub(crate) use feed::{Feed, envelope, explained_envelope};
pub(crate) use plan::query_plan;
pub(crate) use query::parse_query;
