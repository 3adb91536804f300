//! The bytes of request bodies and answers that all requests together may have in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::wire::status::RequestError;

/// Bytes that all requests together may reserve.
pub(crate) struct ByteBudget {
    reserved: AtomicUsize,
    reserved_max: usize,
}

/// A part of a [`ByteBudget`]; given back when dropped.
pub(crate) struct ByteReservation {
    budget: Arc<ByteBudget>,
    bytes: usize,
}

impl ByteBudget {
    pub fn new(reserved_max: usize) -> ByteBudget {
        ByteBudget { reserved: AtomicUsize::new(0), reserved_max }
    }

    /// Begins with no bytes.
    pub fn reserve(self: &Arc<Self>) -> ByteReservation {
        ByteReservation { budget: Arc::clone(self), bytes: 0 }
    }

    pub fn reserved(&self) -> usize {
        self.reserved.load(Ordering::Relaxed)
    }
}

impl ByteReservation {
    pub fn grow_to(&mut self, bytes: usize) -> Result<(), RequestError> {
        let more = bytes.saturating_sub(self.bytes);
        if more == 0 {
            return Ok(());
        }
        if self.budget.reserved.fetch_add(more, Ordering::Relaxed) + more > self.budget.reserved_max {
            self.budget.reserved.fetch_sub(more, Ordering::Relaxed);
            return Err(RequestError::Busy);
        }
        self.bytes += more;
        Ok(())
    }

    /// Adds bytes whether they fit or not.
    pub fn add(&mut self, bytes: usize) {
        self.budget.reserved.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
    }
}

impl Drop for ByteReservation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.reserved.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

/// About what the values of a JSON text take in memory. Short values take far more than their text: `[],` is two values, with
/// room for as many again.
pub(crate) fn parsed_bytes(text: &[u8]) -> usize {
    const VALUE_BYTES: usize = 32;
    // Two of them are a string of its own.
    const QUOTE_BYTES: usize = 16;
    let inside = |byte: &u8| match byte {
        b',' | b':' | b'[' | b'{' => VALUE_BYTES,
        b'"' => QUOTE_BYTES,
        _ => 0,
    };
    text.len() + text.iter().map(inside).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use quire_value::{Limits, text};

    use super::*;

    #[test]
    fn parsed_values_are_estimated_before_they_are_parsed() {
        let many = |part: &str| format!("[{}1]", format!("{part},").repeat(1000));
        for text in [many("[]"), many("1"), many("{}"), many(r#""a""#), many(r#"{"a":[1,"b"]}"#)] {
            let value = text::parse(text.as_bytes(), Limits::default()).unwrap();
            let (estimate, size) = (parsed_bytes(text.as_bytes()), value.approximate_size());
            assert!((size..4 * size).contains(&estimate), "{estimate} for {size} bytes: {}", &text[..20]);
        }
    }

    #[test]
    fn a_budget_refuses_what_does_not_fit() {
        let budget = Arc::new(ByteBudget::new(100));
        let mut first = budget.reserve();
        first.grow_to(60).unwrap();
        first.grow_to(60).unwrap();
        let mut second = budget.reserve();
        assert!(matches!(second.grow_to(41), Err(RequestError::Busy)));
        second.grow_to(40).unwrap();
        drop(first);
        assert_eq!(budget.reserved(), 40);
        second.add(100);
        assert!(matches!(budget.reserve().grow_to(1), Err(RequestError::Busy)));
        drop(second);
        assert_eq!(budget.reserved(), 0);
    }
}
