//! Any bytes as a binary batch: read or refused, never a panic; what is read takes no more than the bytes have.
#![no_main]

#[allow(dead_code, reason = "results are only written")]
#[path = "../../crates/server/src/wire/hybrid_row.rs"]
mod hybrid_row;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let stream = bytes::Bytes::copy_from_slice(bytes);
    if let Ok(operations) = hybrid_row::read_operations(&stream, 100) {
        let body_bytes: usize =
            operations.iter().flat_map(|operation| &operation.body).map(|body| body.len()).sum();
        assert!(body_bytes <= bytes.len() && operations.len() <= 100);
    }
});
