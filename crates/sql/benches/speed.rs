//! Nanoseconds per item on top of storage: `cargo bench -p quire-sql`. Items of about 1 KB, in memory, one thread.

use std::hint::black_box;
use std::ops::ControlFlow;
use std::time::Instant;

use quire_sql::{Item, ItemSink, Parameters, Query, QueryShape, SqlError, SystemProperties};
use quire_value::{Limits, Object, Value};

/// Far more than the CPU caches hold, as in a scan; `ITEMS=1000` measures without waiting for memory.
const ITEM_COUNT: usize = 100_000;
/// The best of at least this many rounds, and of more if they are short.
const ROUNDS_MIN: usize = 10;

const QUERIES: &[&str] = &[
    "SELECT VALUE c.id FROM c WHERE c.n < 1",
    "SELECT * FROM c WHERE c.n < 1",
    "SELECT c.id, c.category FROM c",
    "SELECT * FROM c",
    "SELECT VALUE c.id FROM c WHERE CONTAINS(c.text, 'needle')",
    "SELECT VALUE c.id FROM c WHERE c.text LIKE '%needle%'",
    "SELECT VALUE c.id FROM c WHERE RegexMatch(c.text, 'need[kl]e')",
    "SELECT VALUE c.id FROM c WHERE c.address.city IN ('city1', 'city2', 'city3')",
    "SELECT VALUE c.id FROM c WHERE ARRAY_CONTAINS(c.tags, 'tag7')",
    "SELECT VALUE c.id FROM c WHERE EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t = 'tag7')",
    "SELECT VALUE COUNT(1) FROM c",
    "SELECT c.category, COUNT(1) AS n FROM c GROUP BY c.category",
    "SELECT c.category, c.address.city, SUM(c.price) AS total FROM c GROUP BY c.category, c.address.city",
    "SELECT DISTINCT VALUE c.address.city FROM c",
    "SELECT TOP 10 c.id FROM c ORDER BY c.price DESC",
];

struct System;

impl SystemProperties for System {
    fn get(&self, name: &str) -> Option<Value> {
        (name == "_ts").then(|| Value::from(1_700_000_000))
    }
    fn write_members(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b",\"_ts\":1700000000");
    }
    fn set_members(&self, object: &mut Object) {
        object.set("_ts", 1_700_000_000);
    }
}

fn item(index: usize) -> quire_value::Item {
    let filler = "lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor ".repeat(8);
    let needle = if index.is_multiple_of(100) { "needle" } else { "" };
    let json = format!(
        r#"{{"id":"item{index}","category":"category{}","n":{},"price":{}.25,"active":{},"tags":["tag{}","tag{}","tag{}"],
        "address":{{"street":"Main Street {index}","city":"city{}","zip":"{:05}"}},"text":"{filler}{needle}","rank":{index}}}"#,
        index % 50,
        index % 100,
        index * 7919 % 100_000,
        index.is_multiple_of(2),
        index % 10,
        index % 20,
        index % 30,
        index % 200,
        index % 99_999,
    );
    quire_value::Item::from_json(json.as_bytes(), Limits::default()).expect("an item")
}

fn main() {
    let item_count = std::env::var("ITEMS").ok().and_then(|count| count.parse().ok()).unwrap_or(ITEM_COUNT);
    let items: Vec<quire_value::Item> = (0..item_count).map(item).collect();
    let bytes: usize = items.iter().map(|item| item.as_bytes().len()).sum();
    println!("{item_count} items of {} bytes", bytes / item_count);
    for text in QUERIES {
        let query = Query::compile(text, &Parameters::default(), &[]).expect("compiles");
        let mut best = f64::INFINITY;
        let mut count = 0;
        for _ in 0..ROUNDS_MIN.max(500_000 / item_count) {
            let started = Instant::now();
            count = black_box(run(&query, &items));
            best = best.min(started.elapsed().as_nanos() as f64 / item_count as f64);
        }
        println!("{best:8.1} ns  {count:6} rows  {text}");
    }
}

fn run(query: &Query, items: &[quire_value::Item]) -> usize {
    let (mut page, mut count) = (Vec::new(), 0);
    let mut emit = |row: &quire_sql::Row<'_>| {
        page.clear();
        row.write_json(&mut page);
        count += 1;
        ControlFlow::Continue(())
    };
    if let QueryShape::Streaming { .. } = query.shape() {
        let mut evaluator = query.start().expect("starts");
        for item in items {
            evaluator.rows_of(&Item::stored(item.root(), &System), &mut emit).expect("rows");
        }
        return count;
    }
    let scan = &mut |sink: &mut ItemSink<'_>| {
        let _enough = items.iter().try_for_each(|item| sink(&Item::stored(item.root(), &System), 1));
        Ok::<(), SqlError>(())
    };
    query.run(scan, &mut emit).expect("rows");
    count
}
