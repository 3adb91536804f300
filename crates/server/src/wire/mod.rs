//! Wire formats: bodies, headers and status codes.

mod account; // the account document
pub(crate) mod binary_json; // binary request bodies turned into text
pub(crate) mod binary_json_writer; // and values turned into binary answers
mod feed; // `{"_rid":…,"Databases":[…],"_count":n}`
pub(crate) mod headers; // response headers
pub(crate) mod hybrid_row; // batches in binary form
pub(crate) mod item_operations; // operations and results of batches and transactions
mod plan; // query plans
mod query; // `{"query":…,"parameters":[…]}`
mod reply_headers; // the headers of one answer as a map
pub(crate) mod status; // from errors to status codes

pub(crate) use account::account;
pub(crate) use feed::{Feed, envelope, envelope_head, finish_envelope};
pub(crate) use plan::query_plan;
pub(crate) use query::{QueryBody, parse_query};
pub(crate) use quire_value::iso_date;
