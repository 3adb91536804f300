//! JSON values: what an item is made of.
//!
//! [`Value`] (with `undefined`) and [`Number`] (exact integers or doubles), their total order, [`Path`]s,
//! the text form ([`text`]), the order-preserving key encoding ([`key`]) and the binary item form that is
//! read in place ([`item`]).
//! Not here: containers, partition keys, anything that is stored or sent.

mod date; // `2026-11-15T18:32:04.007Z`
pub mod hash; // the hash by which clients order arrays and objects
pub mod item; // binary form: `Item` (owned), `Node` (a value inside it)
pub mod key; // order-preserving encoding: comparing bytes compares values
pub mod murmur; // MurmurHash3
mod number; // i64, u64 or f64, compared by exact value
mod order; // the total order and equality
mod path; // `/a/"b c"/0` paths
pub mod random; // numbers that follow from a seed
pub mod text; // JSON text in and out
mod value;

pub use date::iso_date;
pub use item::{Item, Node};
pub use number::Number;
pub use path::{Path, PathError, Segment};
pub use text::{Limits, ParseError};
pub use value::{Kind, Object, Value};
