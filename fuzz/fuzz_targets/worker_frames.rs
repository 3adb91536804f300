//! Any bytes as a message between the server and a script worker: read or refused, never a panic. What a worker's message says
//! is written and read again as the same, and takes no more than its bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let is_message = quire_script::is_worker_message(bytes);
    let Some(written) = quire_script::worker_message_rewritten(bytes) else { return };
    assert!(is_message && written.len() <= bytes.len());
    assert_eq!(quire_script::worker_message_rewritten(&written), Some(written.clone()));
});
