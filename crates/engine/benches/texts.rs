//! What ORDER BY RANK FullTextScore costs with a full-text index and by reading every item.
//!
//! `cargo bench -p quire-engine --bench texts [ITEMS]`. CPU time of the thread that runs the query, so that a busy
//! machine changes little; in memory, 20,000 texts of 60 words unless another number is given.

use std::fs;
use std::sync::Arc;

use quire_engine::{
    Answer, Clock, Container, Engine, Options, Page, PageRequest, Parameters, WriteItem, WriteKind,
};
use quire_storage::memory::MemoryStorage;
use quire_value::{Limits, text};

const WORDS_PER_TEXT: u64 = 60;
const VOCABULARY: u64 = 20_000;
/// One text in so many has the rare word, the uncommon one and the common one.
const RARE: u64 = 400;
const UNCOMMON: u64 = 100;
const COMMON: u64 = 10;

const QUERIES: [(&str, &str); 6] = [
    (
        "a word that 1 in 400 texts has, TOP 10",
        "SELECT TOP 10 c.id FROM c ORDER BY RANK FullTextScore(c.text, 'zebra')",
    ),
    (
        "a word that 1 in 10 texts has, TOP 10",
        "SELECT TOP 10 c.id FROM c ORDER BY RANK FullTextScore(c.text, 'meadow')",
    ),
    (
        "both words and a filter that leaves half, TOP 10",
        "SELECT TOP 10 c.id FROM c WHERE c.even ORDER BY RANK FullTextScore(c.text, 'zebra', 'meadow')",
    ),
    ("a phrase, TOP 10", "SELECT TOP 10 c.id FROM c ORDER BY RANK FullTextScore(c.text, 'zebra crossing')"),
    (
        "RRF of two scores, TOP 10",
        "SELECT TOP 10 c.id FROM c ORDER BY RANK RRF(FullTextScore(c.text, 'zebra'), FullTextScore(c.text, 'stable'))",
    ),
    (
        "the statistics of a plan",
        "SELECT COUNT(1) AS documentCount, [{\"totalWordCount\": SUM(_FullTextWordCount(c.text)), \"hitCounts\": \
         [COUNTIF(FullTextContains(c.text, \"meadow\"))]}] AS fullTextStatistics FROM c",
    ),
];

struct Fixed;

impl Clock for Fixed {
    fn now_ms(&self) -> i64 {
        1_700_000_000_000
    }
}

fn main() {
    let items = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(20_000);
    let (engine, container) = fill(items);
    println!(
        "| {items} items | by index | by scan | scan to index | items read | index rows read | charge | by scan |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for (what, query) in QUERIES {
        let run = |index_use: bool| -> Answer<Page> {
            let request = PageRequest { index_use, ..PageRequest::default() };
            engine.query_items(&container, query, &Parameters::default(), &request)
        };
        let (by_index, found) = cpu_of(20, || run(true));
        let (by_scan, scanned) = cpu_of(3, || run(false));
        let charges = (found.charge, scanned.charge);
        let (found, scanned) = (found.result.expect(query), scanned.result.expect(query));
        assert_eq!(found.rows, scanned.rows, "{query}");
        println!(
            "| {what} | {by_index:.2} ms | {by_scan:.1} ms | {:.0}x | {} | {} | {:.2} RU | {:.0} RU |",
            by_scan / by_index,
            found.metrics.loaded_count,
            found.metrics.index_rows,
            charges.0,
            charges.1,
        );
    }
}

/// The median in milliseconds of this thread's CPU, and what the last run gave.
fn cpu_of<T>(rounds: usize, mut run: impl FnMut() -> T) -> (f64, T) {
    let mut last = run();
    let mut spent: Vec<u64> = (0..rounds)
        .map(|_| {
            let before = thread_cpu_nanos();
            last = run();
            thread_cpu_nanos() - before
        })
        .collect();
    spent.sort_unstable();
    (spent[rounds / 2] as f64 / 1e6, last)
}

/// The first number is the time on a processor.
fn thread_cpu_nanos() -> u64 {
    let statistics = fs::read_to_string("/proc/thread-self/schedstat").expect("Linux keeps these");
    statistics.split_whitespace().next().and_then(|nanos| nanos.parse().ok()).expect("a number")
}

fn fill(items: u64) -> (Engine, Arc<Container>) {
    let engine = Engine::open(
        Arc::new(MemoryStorage::new()),
        Options {
            clock: Arc::new(Fixed),
            partitions: 1,
            cache_bytes: 256 << 20,
            scripts: Default::default(),
            query_memory: Default::default(),
            query_temp: Default::default(),
        },
    );
    let engine = engine.expect("opens");
    let json = |json: &str| text::parse(json.as_bytes(), Limits::default()).expect("JSON");
    engine.catalog().create_database(&json(r#"{"id":"d"}"#), None).expect("a database");
    let body = r#"{"id":"c","partitionKey":{"paths":["/pk"]},"indexingPolicy":{"excludedPaths":[{"path":"/text/?"}],
        "fullTextIndexes":[{"path":"/text"}]},
        "fullTextPolicy":{"defaultLanguage":"en-US","fullTextPaths":[{"path":"/text"}]}}"#;
    let container = engine.catalog().create_container("d", &json(body), None).expect("a container");
    let mut random = 1u64;
    for id in 0..items {
        let mut words: Vec<String> = (0..WORDS_PER_TEXT).map(|_| word(&mut random)).collect();
        for (every, word) in [(RARE, "zebra crossing"), (UNCOMMON, "stable"), (COMMON, "meadow")] {
            if id % every == every / 2 {
                words.insert((next(&mut random) % WORDS_PER_TEXT) as usize, word.to_owned());
            }
        }
        let (text, even) = (words.join(" "), id % 2 == 0);
        let body = format!(r#"{{"id":"{id}","pk":"{}","even":{even},"text":"{text}"}}"#, id % 997);
        let write = WriteItem::new(WriteKind::Create, None, body);
        engine.write_item(&container, write).result.expect("created");
    }
    (engine, container)
}

/// Low numbers are common, as words of a language are.
fn word(random: &mut u64) -> String {
    let (one, two) = (next(random) % VOCABULARY, next(random) % VOCABULARY);
    format!("word{}", one * two / VOCABULARY)
}

fn next(random: &mut u64) -> u64 {
    *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *random >> 33
}
