//! What a run costs before it does anything; run with `--nocapture` for the figures.

mod support;

use std::time::{Duration, Instant};

use quire_script::*;
use support::*;

/// Far above what it takes, so that only a change of kind fails.
#[test]
fn a_run_is_cheap() {
    const RUN_COUNT: u32 = 300;
    let scripts = Scripts::new(Limits::default());
    let text = body("c.createDocument(link, {id: 'x'}, () => {}); c.upsertDocument(link, {id: 'a', n: 1})");
    let started = Instant::now();
    for _ in 0..RUN_COUNT {
        let mut host = MemoryHost::default();
        assert_eq!(show(scripts.run(&procedure(&text, "[]"), &mut host)), "\"\"");
    }
    let each = started.elapsed() / RUN_COUNT;
    println!("one run: {each:?}");
    assert!(each < Duration::from_millis(50), "{each:?}");
}
