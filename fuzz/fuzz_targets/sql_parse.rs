//! Any text as a query: compiling, planning, printing and running never panic, and what is printed means the same.
#![no_main]

#[path = "../../crates/sql/tests/checks/mod.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|text: &str| checks::check_query(text));
