//! Any bytes as a message between the server and a script worker: read or refused, never a panic.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    quire_script::is_worker_message(bytes);
});
