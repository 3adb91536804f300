//! Any bytes as JSON text: agreement with serde_json, round trip, binary form.
#![no_main]

#[allow(dead_code, reason = "each target runs its part of the checks")]
#[path = "../../crates/value/tests/checks/mod.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::check_text(bytes));
