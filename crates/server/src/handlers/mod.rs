//! One file per resource: path and headers in, an engine call, a reply out.
//!
//! The catalog is in memory, so looking up resources runs on the async worker. Everything that may touch the disk or run for
//! long (writes, queries, reads that miss the cache) runs on the pool.

mod call; // a request with its headers parsed
pub(crate) mod catalog; // what databases, users, permissions, keys and scripts have in common
mod feeds; // lists and queries of resources that are in memory
mod queries; // queries over items, and their plans

pub(crate) mod account;
pub(crate) mod addresses;
pub(crate) mod batch;
pub(crate) mod changes;
pub(crate) mod client_encryption_keys;
pub(crate) mod conflicts;
pub(crate) mod consistency;
pub(crate) mod containers;
pub(crate) mod databases;
pub(crate) mod items;
pub(crate) mod models; // what is still to be rewritten, in answers about items
pub(crate) mod offers;
pub(crate) mod partition_key_ranges;
pub(crate) mod permissions;
pub(crate) mod procedures;
pub(crate) mod response_format; // answers without system properties, or in binary
pub(crate) mod scripts;
pub(crate) mod session; // waiting until a session token can be served
pub(crate) mod users;
pub(crate) mod views; // the lag of views, in answers about them

pub(crate) use call::{Call, accepts_binary_only, partition_key};
pub(crate) use queries::{plan as query_plan, query as query_items};

use crate::wire::headers::Reply;
use crate::wire::status::HandlerError;

pub(crate) type HandlerResult = Result<Reply, HandlerError>;

/// The charges of operations on resources other than items. Fixed, since their work does not grow with the data.
pub(crate) mod charge {
    pub const ACCOUNT: f64 = 0.0;
    pub const READ: f64 = 1.0;
    pub const LIST: f64 = 1.0;
    pub const QUERY: f64 = 2.5;
    /// Nothing but the text is read.
    pub const PLAN: f64 = 0.0;
    pub const CREATE: f64 = 5.0;
    pub const REPLACE: f64 = 10.0;
    pub const DELETE: f64 = 5.0;
    /// A request that was refused after it was authenticated.
    pub const FAILED: f64 = 1.0;
}
