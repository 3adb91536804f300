//! Any bytes as a binary item: reading never panics, validation accepts only what is written.
#![no_main]

#[allow(dead_code, reason = "each target runs its part of the checks")]
#[path = "../../crates/value/tests/checks/mod.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::check_item(bytes));
