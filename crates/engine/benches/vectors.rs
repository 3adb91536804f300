//! Vector indexes on the embedded storage: how near an approximate search comes to the truth, and what it costs.
//!
//! `cargo xtask bench vectors [vectors] [kind of data]`. Vectors of 384 dimensions; CPU time, since other things may run beside it.
//!
//! | data      | what it is                                                                                   |
//! |-----------|----------------------------------------------------------------------------------------------|
//! | clusters  | 10,000 clusters that use all dimensions, narrower than the space between them                |
//! | overlap   | 300 clusters that overlap in 32 dimensions, turned into 384, with noise: much like embeddings |
//! | uniform   | nothing is near anything: no index can help, only the scan is exact                          |

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use quire_engine::{
    BatchOperation, BatchVerb, Bulk, Clock, Container, Engine, IndexingDirective, Options, PageRequest,
    Parameters, Scope,
};
use quire_storage_local::{LocalOptions, LocalStorage};
use quire_value::{Limits, text};

const DIMENSIONS: usize = 384;
const QUERIES: usize = 100;
/// What `--cache-mb` is on a machine with 8 GB and more: half of it for the storage.
const CACHE_BYTES: usize = 1 << 30;
/// Numbers of a vector are whole multiples of this, as of embeddings of 16 bits.
const UNIT: f32 = 256.0;

struct Fixed;

impl Clock for Fixed {
    fn now_ms(&self) -> i64 {
        1_700_000_000_000
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Nearly a normal distribution.
    fn normal(&mut self) -> f32 {
        let sum: f32 = (0..4).map(|_| (self.next() >> 40) as f32 / (1 << 24) as f32).sum();
        (sum - 2.0) * 1.732
    }
}

enum Data {
    Clusters(Vec<f32>),
    Overlap { centres: Vec<f32>, map: Vec<f32> },
    Uniform,
}

const LATENT: usize = 32;

impl Data {
    fn new(kind: &str, random: &mut Random) -> Data {
        match kind {
            "clusters" => Data::Clusters((0..10_000 * DIMENSIONS).map(|_| random.normal()).collect()),
            "overlap" => Data::Overlap {
                centres: (0..300 * LATENT).map(|_| random.normal()).collect(),
                map: (0..LATENT * DIMENSIONS).map(|_| random.normal() / 4.0).collect(),
            },
            "uniform" => Data::Uniform,
            other => panic!("there is no data {other:?}"),
        }
    }

    fn draw(&self, random: &mut Random) -> Vec<i16> {
        let mut vector = vec![0.0_f32; DIMENSIONS];
        match self {
            Data::Clusters(centres) => {
                let at = random.next() as usize % (centres.len() / DIMENSIONS) * DIMENSIONS;
                let centre = &centres[at..at + DIMENSIONS];
                vector.iter_mut().zip(centre).for_each(|(to, from)| *to = from + 0.7 * random.normal());
            }
            Data::Overlap { centres, map } => {
                let at = random.next() as usize % (centres.len() / LATENT) * LATENT;
                for (part, centre) in map.chunks(DIMENSIONS).zip(&centres[at..at + LATENT]) {
                    let weight = centre + 0.8 * random.normal();
                    vector.iter_mut().zip(part).for_each(|(to, from)| *to += weight * from);
                }
                vector.iter_mut().for_each(|to| *to += 0.125 * random.normal());
            }
            Data::Uniform => vector.iter_mut().for_each(|to| *to = random.normal()),
        }
        vector.iter().map(|number| (number * UNIT).round() as i16).collect()
    }
}

fn json_of(vector: &[i16]) -> String {
    let numbers: Vec<String> = vector.iter().map(|number| (f32::from(*number) / UNIT).to_string()).collect();
    format!("[{}]", numbers.join(","))
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let count: usize = arguments.next().map_or(1_000_000, |count| count.parse().expect("a number"));
    let kind = arguments.next().unwrap_or_else(|| "overlap".to_owned());
    let mut random = Random(7);
    let data = Data::new(&kind, &mut random);
    let directory = tempfile::tempdir().expect("a directory");
    let bench = Bench::open(directory.path());
    let cpu = process_cpu();
    let vectors = bench.load(count, &data, &mut random);
    println!(
        "{count} vectors of {DIMENSIONS} dimensions ({kind}), seed 7; bulk load {:.0} s of CPU",
        cpu_since(cpu)
    );
    let cpu = process_cpu();
    bench.wait();
    println!("the index has them all after another {:.0} s of CPU", cpu_since(cpu));
    let targets: Vec<Vec<i16>> = (0..QUERIES).map(|_| data.draw(&mut random)).collect();
    let truth: Vec<Vec<usize>> = targets.iter().map(|target| nearest(&vectors, target)).collect();
    drop(vectors);
    bench.engine.close().expect("closes");
    drop(bench);
    let bench = Bench::reopen(directory.path());
    bench.wait();
    println!("opened again; queries warm up the cache");
    bench.measure(&targets, &truth, "", QUERIES);
    println!("{:<34} {:>10} {:>14}", "ORDER BY VectorDistance, TOP 10", "recall", "CPU a query");
    for (what, options, queries) in [
        ("diskANN", "", QUERIES),
        ("diskANN, searchListSizeMultiplier 30", ", false, {'searchListSizeMultiplier':30}", QUERIES),
        ("brute force by the index (exact)", ", true", 5),
    ] {
        let (recall, cpu) = bench.measure(&targets, &truth, options, queries);
        println!("{what:<34} {recall:>10.3} {:>11.2} ms", cpu.as_secs_f64() * 1000.0);
    }
    let (recall, cpu) = bench.scan(&targets, &truth);
    println!("{:<34} {recall:>10.3} {:>11.2} ms", "brute force over the items", cpu.as_secs_f64() * 1000.0);
}

/// The ten vectors with the greatest cosine.
fn nearest(vectors: &[i16], target: &[i16]) -> Vec<usize> {
    let cosine = |vector: &[i16]| {
        let (mut product, mut square) = (0_i64, 0_i64);
        for (a, b) in vector.iter().zip(target) {
            product += i64::from(*a) * i64::from(*b);
            square += i64::from(*a) * i64::from(*a);
        }
        product as f64 / (square as f64).sqrt()
    };
    let mut all: Vec<(f64, usize)> =
        vectors.chunks(DIMENSIONS).enumerate().map(|(at, vector)| (cosine(vector), at)).collect();
    all.select_nth_unstable_by(9, |a, b| b.0.total_cmp(&a.0));
    all.truncate(10);
    all.into_iter().map(|(_, at)| at).collect()
}

struct Bench {
    engine: Engine,
    container: Arc<Container>,
}

impl Bench {
    fn engine(path: &std::path::Path) -> Engine {
        let local = LocalOptions { cache_bytes: CACHE_BYTES as u64 / 2, ..LocalOptions::default() };
        let storage = LocalStorage::open(path, local).expect("opens");
        let options = Options {
            clock: Arc::new(Fixed),
            partitions: 1,
            cache_bytes: CACHE_BYTES / 2,
            scripts: Default::default(),
            query_memory: Default::default(),
            query_temp: None,
        };
        Engine::open(Arc::new(storage), options).expect("opens")
    }

    fn open(path: &std::path::Path) -> Bench {
        let engine = Bench::engine(path);
        let json = |text: &str| text::parse(text.as_bytes(), Limits::default()).expect("JSON");
        engine.catalog().create_database(&json(r#"{"id":"d"}"#), None).expect("database");
        let body = format!(
            r#"{{"id":"c","partitionKey":{{"paths":["/id"],"kind":"Hash","version":2}},
            "vectorEmbeddingPolicy":{{"vectorEmbeddings":[{{"path":"/v","dataType":"float32","dimensions":{DIMENSIONS},
            "distanceFunction":"cosine"}}]}},"indexingPolicy":{{"includedPaths":[{{"path":"/*"}}],
            "excludedPaths":[{{"path":"/v/*"}}],"vectorIndexes":[{{"path":"/v","type":"diskANN"}}]}}}}"#
        );
        let container = engine.catalog().create_container("d", &json(&body), None).expect("container");
        Bench { engine, container }
    }

    fn reopen(path: &std::path::Path) -> Bench {
        let engine = Bench::engine(path);
        let container = engine.catalog().container("d", "c").expect("there");
        Bench { engine, container }
    }

    fn load(&self, count: usize, data: &Data, random: &mut Random) -> Vec<i16> {
        let mut vectors = Vec::with_capacity(count * DIMENSIONS);
        let numbers: Vec<usize> = (0..count).collect();
        for numbers in numbers.chunks(500) {
            let operations = numbers.iter().map(|number| {
                let vector = data.draw(random);
                let body = format!(r#"{{"id":"{number}","v":{}}}"#, json_of(&vector));
                vectors.extend(vector);
                BatchOperation {
                    verb: BatchVerb::Create,
                    body: Bytes::from(body),
                    if_match: None,
                    if_none_match: None,
                    indexing: IndexingDirective::Default,
                    partition_key: None,
                    want_body: false,
                }
            });
            let (partition_id, partition_key, session, cancel) = Default::default();
            let operations = operations.collect();
            let continue_on_error = false;
            let bulk = Bulk { operations, partition_id, partition_key, continue_on_error, session, cancel };
            let results = self.engine.bulk(&self.container, bulk).result.expect("written");
            results.into_iter().for_each(|result| drop(result.result.expect("created")));
        }
        vectors
    }

    /// Until the index has everything.
    fn wait(&self) {
        let behind = || {
            let indexes = self.engine.vector_indexes(&self.container).expect("status");
            indexes.iter().any(|index| index.is_building || index.lag > 0)
        };
        let (started, mut told) = (Instant::now(), 0);
        while behind() {
            std::thread::sleep(Duration::from_millis(50));
            if started.elapsed().as_secs() / 30 > told {
                told += 1;
                println!("  {:?}", self.engine.vector_indexes(&self.container).expect("status"));
            }
        }
    }

    fn measure(
        &self,
        targets: &[Vec<i16>],
        truth: &[Vec<usize>],
        options: &str,
        queries: usize,
    ) -> (f64, Duration) {
        self.run(targets, truth, options, queries, true)
    }

    fn scan(&self, targets: &[Vec<i16>], truth: &[Vec<usize>]) -> (f64, Duration) {
        self.run(targets, truth, "", 1, false)
    }

    fn run(
        &self,
        targets: &[Vec<i16>],
        truth: &[Vec<usize>],
        options: &str,
        queries: usize,
        index_use: bool,
    ) -> (f64, Duration) {
        let (mut hits, mut cpu) = (0, Duration::ZERO);
        for (target, truth) in targets.iter().zip(truth).take(queries) {
            let vector = json_of(target);
            let text = format!("SELECT TOP 10 VALUE c.id FROM c ORDER BY VectorDistance(c.v, @v{options})");
            let parameters = format!(r#"[{{"name":"@v","value":{vector}}}]"#);
            let parameters = text::parse(parameters.as_bytes(), Limits::default()).expect("JSON");
            let parameters = parameters.as_array().expect("an array").iter().filter_map(|parameter| {
                let parameter = parameter.as_object()?;
                Some((parameter.get("name")?.as_str()?.to_owned(), parameter.get("value")?.clone()))
            });
            let parameters = Parameters(parameters.collect());
            let request = PageRequest {
                scope: Scope::default(),
                item_count_max: Some(-1),
                index_use,
                explain: true,
                ..PageRequest::default()
            };
            let before = thread_cpu();
            let page = self.engine.query_items(&self.container, &text, &parameters, &request);
            cpu += thread_cpu() - before;
            let page = page.result.expect("rows");
            let explain = page.explain.expect("asked for");
            assert!(!index_use || explain.contains("Nearest in diskANN"), "{explain}");
            let rows = text::parse(&page.rows, Limits::default()).expect("JSON");
            let rows = rows.as_array().expect("an array");
            let number = |row: &quire_value::Value| row.as_str().and_then(|id| id.parse::<usize>().ok());
            hits += rows.iter().filter_map(number).filter(|id| truth.contains(id)).count();
        }
        (hits as f64 / (10 * queries) as f64, cpu / queries as u32)
    }
}

fn clock(id: rustix::time::ClockId) -> Duration {
    let time = rustix::time::clock_gettime(id);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn thread_cpu() -> Duration {
    clock(rustix::time::ClockId::ThreadCPUTime)
}

fn process_cpu() -> Duration {
    clock(rustix::time::ClockId::ProcessCPUTime)
}

fn cpu_since(before: Duration) -> f64 {
    (process_cpu() - before).as_secs_f64()
}
