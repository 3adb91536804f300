//! Time to live of items.

use quire_value::Node;

/// An item's own `ttl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemTtl {
    Inherit,
    Never,
    Seconds(u32),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("The input ttl '{value}' is invalid. Ensure to provide a nonzero positive integer less than or equal to '2147483647', or -1.")]
pub struct TtlError {
    pub value: String,
}

impl ItemTtl {
    /// Reads the `ttl` property of an item in a container whose TTL is on.
    pub fn of_item(_item: Node<'_>) -> Result<ItemTtl, TtlError> {
        todo!()
    }
}

/// When the item expires (epoch seconds), `None` for never. An item with `expires_at <= now` is gone.
pub fn expires_at(default_ttl: Option<i32>, item: ItemTtl, ts: i64) -> Option<i64> {
    let default = default_ttl?;
    match item {
        ItemTtl::Never => None,
        ItemTtl::Seconds(seconds) => Some(ts + i64::from(seconds)),
        ItemTtl::Inherit if default < 0 => None,
        ItemTtl::Inherit => Some(ts + i64::from(default)),
    }
}
