//! Time to live of items.

use quire_value::{Node, Number};

/// An item's own `ttl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemTtl {
    Inherit,
    Never,
    Seconds(u32),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "The input ttl '{value}' is invalid. Ensure to provide a nonzero positive integer less than or equal to '2147483647', or -1."
)]
pub struct TtlError {
    pub value: String,
}

impl ItemTtl {
    /// Reads the `ttl` property of an item in a container whose TTL is on.
    pub fn of_item(item: Node<'_>) -> Result<ItemTtl, TtlError> {
        let Some(property) = item.get("ttl") else { return Ok(ItemTtl::Inherit) };
        match seconds(property.as_number()) {
            Some(-1) => Ok(ItemTtl::Never),
            Some(seconds) => Ok(ItemTtl::Seconds(seconds.unsigned_abs())),
            None => Err(TtlError { value: property.to_value().to_json() }),
        }
    }
}

/// A time to live as items and containers write it: -1 or 1..=2147483647.
pub(crate) fn seconds(number: Option<Number>) -> Option<i32> {
    let seconds = i32::try_from(number?.as_i64()?).ok()?;
    (seconds == -1 || seconds > 0).then_some(seconds)
}

/// When the item expires (epoch seconds); `None` for never. An item with `expires_at <= now` is expired.
pub fn expires_at(default_ttl: Option<i32>, item: ItemTtl, ts: i64) -> Option<i64> {
    let default = default_ttl?;
    match item {
        ItemTtl::Never => None,
        ItemTtl::Seconds(seconds) => Some(ts + i64::from(seconds)),
        ItemTtl::Inherit if default < 0 => None,
        ItemTtl::Inherit => Some(ts + i64::from(default)),
    }
}

#[cfg(test)]
mod tests {
    use quire_value::{Item, Limits};

    use super::*;

    fn check(json: &str, expected: Result<ItemTtl, &str>) {
        let item = Item::from_json(json.as_bytes(), Limits::default()).unwrap();
        let expected = expected.map_err(|value| TtlError { value: value.to_owned() });
        assert_eq!(ItemTtl::of_item(item.root()), expected, "{json}");
    }

    #[test]
    fn own_ttl() {
        check("{}", Ok(ItemTtl::Inherit));
        check(r#"{"ttl":-1}"#, Ok(ItemTtl::Never));
        check(r#"{"ttl":1}"#, Ok(ItemTtl::Seconds(1)));
        check(r#"{"ttl":2.0}"#, Ok(ItemTtl::Seconds(2)));
        check(r#"{"ttl":2147483647}"#, Ok(ItemTtl::Seconds(i32::MAX as u32)));
        check(r#"{"a":{"ttl":0}}"#, Ok(ItemTtl::Inherit));
    }

    #[test]
    fn refused() {
        for bad in ["0", "-2", "1.5", "2147483648", "null", "true", "\"5\"", "[1]", "{}", "1e300"] {
            let item = format!(r#"{{"ttl":{bad}}}"#);
            let item = Item::from_json(item.as_bytes(), Limits::default()).unwrap();
            assert!(ItemTtl::of_item(item.root()).is_err(), "{bad}");
        }
        check(r#"{"ttl":0}"#, Err("0"));
        check(r#"{"ttl":"5"}"#, Err("\"5\""));
    }

    #[test]
    fn expiry_table() {
        let items = [ItemTtl::Inherit, ItemTtl::Never, ItemTtl::Seconds(7)];
        assert_eq!(items.map(|item| expires_at(None, item, 100)), [None, None, None]);
        assert_eq!(items.map(|item| expires_at(Some(-1), item, 100)), [None, None, Some(107)]);
        assert_eq!(items.map(|item| expires_at(Some(20), item, 100)), [Some(120), None, Some(107)]);
    }
}
