//! The engine as a library: a directory opened, an item written and read, in a dozen lines.
//!
//! `cargo run -p quire-engine --example embedded -- some-directory`

use std::sync::Arc;

use quire_engine::{Clock, Engine, ItemRead, Options, ReadItem, WriteItem, WriteKind};
use quire_resource::PartitionKey;
use quire_storage_local::{LocalOptions, LocalStorage};
use quire_value::{Limits, text};

struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place where time comes in")]
    fn now_ms(&self) -> i64 {
        let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since_epoch.map_or(0, |elapsed| elapsed.as_millis() as i64)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| "quire-data".to_owned());
    let storage = Arc::new(LocalStorage::open(&directory, LocalOptions::default())?);
    let options = Options {
        clock: Arc::new(SystemClock),
        partitions: 1,
        cache_bytes: 64 << 20,
        scripts: Default::default(),
        query_memory: Default::default(),
        query_temp: None,
    };
    let engine = Engine::open(storage, options)?;
    if engine.catalog().database("shop").is_err() {
        let container =
            br#"{"id": "orders", "partitionKey": {"paths": ["/customer"], "kind": "Hash", "version": 2}}"#;
        engine.catalog().create_database(&text::parse(br#"{"id": "shop"}"#, Limits::default())?, None)?;
        engine.catalog().create_container("shop", &text::parse(container, Limits::default())?, None)?;
    }
    let orders = engine.catalog().container("shop", "orders")?;
    let write = WriteItem::new(
        WriteKind::Upsert,
        None,
        br#"{"id": "1", "customer": "ada", "total": 12.5}"#.as_slice(),
    );
    let written = engine.write_item(&orders, write);
    println!("written for {} request units, etag {}", written.charge, written.result?.etag);
    let customer = PartitionKey::from_header(r#"["ada"]"#)?;
    let read = ReadItem { id: "1", partition_key: &customer, if_none_match: None, session: None };
    if let ItemRead::Found { body, .. } = engine.read_item(&orders, &read).result? {
        println!("{}", String::from_utf8_lossy(&body));
    }
    Ok(engine.close()?)
}
