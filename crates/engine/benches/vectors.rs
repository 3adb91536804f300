//! Vector indexes on the embedded storage: how near an approximate search comes to the truth, and what it costs.
//!
//! `cargo xtask bench vectors [vectors] [kind of data] [directory]`. Vectors of 384 dimensions; CPU time, since other things may run
//! beside it. A store in a directory is kept, and the next run with the same directory only asks its queries.
//!
//! | data      | what it is                                                                                   |
//! |-----------|----------------------------------------------------------------------------------------------|
//! | clusters  | 10,000 clusters that use all dimensions, narrower than the space between them                |
//! | overlap   | 300 clusters that overlap in 32 dimensions, turned into 384, with noise: much like embeddings |
//! | uniform   | nothing is near anything: no index can help, only the scan is exact                          |

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use quire_engine::{
    BatchOperation, BatchVerb, Bulk, Clock, Container, Engine, IndexingDirective, Options, PageRequest,
    Parameters, Scope,
};
use quire_storage_local::{LocalOptions, LocalStorage};
use quire_testkit::Random;
use quire_value::{Limits, text};

const DIMENSIONS: usize = 384;
const QUERIES: usize = 100;
/// What `--cache-mb` is on a machine with 8 GB and more: half of it for the storage.
const CACHE_BYTES: usize = 1 << 30;
/// Numbers of a vector are whole multiples of this, as of embeddings of 16 bits.
const UNIT: f32 = 256.0;
/// Beside a complete store: what is asked.
const QUESTIONS: &str = "questions";

struct Fixed;

impl Clock for Fixed {
    fn now_ms(&self) -> i64 {
        1_700_000_000_000
    }
}

/// Nearly a normal distribution.
fn normal(random: &mut Random) -> f32 {
    let sum: f32 = (0..4).map(|_| (random.next_u64() >> 40) as f32 / (1 << 24) as f32).sum();
    (sum - 2.0) * 1.732
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
            "clusters" => Data::Clusters((0..10_000 * DIMENSIONS).map(|_| normal(random)).collect()),
            "overlap" => Data::Overlap {
                centres: (0..300 * LATENT).map(|_| normal(random)).collect(),
                map: (0..LATENT * DIMENSIONS).map(|_| normal(random) / 4.0).collect(),
            },
            "uniform" => Data::Uniform,
            other => panic!("there is no data {other:?}"),
        }
    }

    fn draw(&self, random: &mut Random) -> Vec<i16> {
        let mut vector = vec![0.0_f32; DIMENSIONS];
        match self {
            Data::Clusters(centres) => {
                let at = random.next_u64() as usize % (centres.len() / DIMENSIONS) * DIMENSIONS;
                let centre = &centres[at..at + DIMENSIONS];
                vector.iter_mut().zip(centre).for_each(|(to, from)| *to = from + 0.7 * normal(random));
            }
            Data::Overlap { centres, map } => {
                let at = random.next_u64() as usize % (centres.len() / LATENT) * LATENT;
                for (part, centre) in map.chunks(DIMENSIONS).zip(&centres[at..at + LATENT]) {
                    let weight = centre + 0.8 * normal(random);
                    vector.iter_mut().zip(part).for_each(|(to, from)| *to += weight * from);
                }
                vector.iter_mut().for_each(|to| *to += 0.125 * normal(random));
            }
            Data::Uniform => vector.iter_mut().for_each(|to| *to = normal(random)),
        }
        vector.iter().map(|number| (number * UNIT).round() as i16).collect()
    }
}

/// The text of every number that a vector can have: making it costs more than storing it.
struct NumberTexts(Vec<String>);

impl NumberTexts {
    fn new() -> NumberTexts {
        NumberTexts((i16::MIN..=i16::MAX).map(|number| (f32::from(number) / UNIT).to_string()).collect())
    }

    fn json_of(&self, vector: &[i16]) -> String {
        let mut json = String::from("[");
        for number in vector {
            json.push_str(&self.0[(i32::from(*number) - i32::from(i16::MIN)) as usize]);
            json.push(',');
        }
        json.pop();
        json.push(']');
        json
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let count: usize = arguments.next().map_or(1_000_000, |count| count.parse().expect("a number"));
    let kind = arguments.next().unwrap_or_else(|| "overlap".to_owned());
    let temporary = tempfile::tempdir().expect("a directory");
    let directory = arguments.next().map_or_else(|| temporary.path().to_owned(), PathBuf::from);
    let directory = directory.join(format!("{kind}-{count}"));
    let questions = match Questions::load(&directory) {
        Some(questions) => questions,
        None => load(&directory, count, &kind),
    };
    let bench = Bench::reopen(&directory);
    bench.wait();
    println!("{:?}", bench.engine.vector_indexes(&bench.container).expect("status"));
    println!("opened again; queries warm up the cache");
    bench.run(&questions, "", QUERIES, true);
    println!(
        "{:<36} {:>8} {:>14} {:>8}",
        "ORDER BY VectorDistance, TOP 10", "recall", "CPU a query", "leaves"
    );
    for (what, options, queries, index_use) in [
        ("diskANN", "", QUERIES, true),
        ("diskANN, searchListSizeMultiplier 30", ", false, {'searchListSizeMultiplier':30}", QUERIES, true),
        ("diskANN, searchListSizeMultiplier 100", ", false, {'searchListSizeMultiplier':100}", QUERIES, true),
        ("brute force by the index (exact)", ", true", 5, true),
        ("brute force over the items", "", 1, false),
    ] {
        let answers = bench.run(&questions, options, queries, index_use);
        let Answers { recall, cpu, leaves } = answers;
        println!("{what:<36} {recall:>8.3} {:>11.2} ms {leaves:>8.0}", cpu.as_secs_f64() * 1000.0);
        println!("{:>36} memory {:.0} MB", "", resident_kilobytes() as f64 / 1024.0);
    }
    bench.engine.close().expect("closes");
}

/// Makes a store and waits until its index has everything.
fn load(directory: &Path, count: usize, kind: &str) -> Questions {
    let mut random = Random(7);
    let data = Data::new(kind, &mut random);
    let bench = Bench::open(directory);
    let cpu = process_cpu();
    let vectors = bench.load(count, &data, &mut random);
    println!(
        "{count} vectors of {DIMENSIONS} dimensions ({kind}), seed 7; bulk load {:.0} s of CPU",
        cpu_since(cpu)
    );
    let cpu = process_cpu();
    bench.wait();
    println!("the index has them all after another {:.0} s of CPU", cpu_since(cpu));
    let targets = (0..QUERIES).map(|_| data.draw(&mut random));
    let norms: Vec<f64> =
        vectors.chunks(DIMENSIONS).map(|vector| (product(vector, vector) as f64).sqrt()).collect();
    let questions = Questions(targets.map(|target| (nearest(&vectors, &norms, &target), target)).collect());
    bench.engine.close().expect("closes");
    questions.save(directory);
    questions
}

/// Vectors to look for, each with the ten vectors that are nearest.
struct Questions(Vec<(Vec<usize>, Vec<i16>)>);

impl Questions {
    /// `None` if the load was not completed.
    fn load(directory: &Path) -> Option<Questions> {
        let lines = std::fs::read_to_string(directory.join(QUESTIONS)).ok()?;
        let question = |line: &str| {
            let (nearest, target) = line.split_once(';').expect("two parts");
            let nearest = nearest.split(',').map(|id| id.parse().expect("a number"));
            (nearest.collect(), target.split(',').map(|number| number.parse().expect("a number")).collect())
        };
        Some(Questions(lines.lines().map(question).collect()))
    }

    fn save(&self, directory: &Path) {
        let mut lines = String::new();
        for (nearest, target) in &self.0 {
            let nearest: Vec<String> = nearest.iter().map(usize::to_string).collect();
            let target: Vec<String> = target.iter().map(i16::to_string).collect();
            lines.push_str(&format!("{};{}\n", nearest.join(","), target.join(",")));
        }
        std::fs::write(directory.join(QUESTIONS), lines).expect("written");
    }
}

fn product(a: &[i16], b: &[i16]) -> i64 {
    // So many products of numbers below 5,000 fit into 32 bits.
    let parts = a.chunks(64).zip(b.chunks(64));
    let part =
        |(a, b): (&[i16], &[i16])| a.iter().zip(b).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum::<i32>();
    parts.map(|parts| i64::from(part(parts))).sum()
}

/// The ten vectors with the greatest cosine.
fn nearest(vectors: &[i16], norms: &[f64], target: &[i16]) -> Vec<usize> {
    let vectors = vectors.chunks(DIMENSIONS).zip(norms).enumerate();
    let cosine = |vector: &[i16], norm: &f64| product(vector, target) as f64 / norm;
    let mut all: Vec<(f64, usize)> = vectors.map(|(at, (vector, norm))| (cosine(vector, norm), at)).collect();
    all.select_nth_unstable_by(9, |a, b| b.0.total_cmp(&a.0));
    all.truncate(10);
    all.into_iter().map(|(_, at)| at).collect()
}

struct Bench {
    engine: Engine,
    container: Arc<Container>,
    texts: NumberTexts,
}

impl Bench {
    fn engine(path: &Path) -> Engine {
        let local = LocalOptions { cache_bytes: CACHE_BYTES as u64 / 2, ..LocalOptions::default() };
        let storage = LocalStorage::open(path.join("store"), local).expect("opens");
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

    fn open(path: &Path) -> Bench {
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
        Bench { engine, container, texts: NumberTexts::new() }
    }

    fn reopen(path: &Path) -> Bench {
        let engine = Bench::engine(path);
        let container = engine.catalog().container("d", "c").expect("there");
        Bench { engine, container, texts: NumberTexts::new() }
    }

    fn load(&self, count: usize, data: &Data, random: &mut Random) -> Vec<i16> {
        let mut vectors = Vec::with_capacity(count * DIMENSIONS);
        let numbers: Vec<usize> = (0..count).collect();
        for numbers in numbers.chunks(500) {
            let operations = numbers.iter().map(|number| {
                let vector = data.draw(random);
                let body = format!(r#"{{"id":"{number}","v":{}}}"#, self.texts.json_of(&vector));
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
        let (started, mut reported) = (Instant::now(), 0);
        while behind() {
            std::thread::sleep(Duration::from_millis(50));
            if started.elapsed().as_secs() / 30 > reported {
                reported += 1;
                println!("  {:?}", self.engine.vector_indexes(&self.container).expect("status"));
            }
        }
    }

    fn run(&self, questions: &Questions, options: &str, queries: usize, index_use: bool) -> Answers {
        let (mut hits, mut cpu, mut leaves) = (0, Duration::ZERO, 0.0);
        for (truth, target) in questions.0.iter().take(queries) {
            let vector = self.texts.json_of(target);
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
            leaves += leaves_in(&explain);
            let rows = text::parse(&page.rows, Limits::default()).expect("JSON");
            let rows = rows.as_array().expect("an array");
            let number = |row: &quire_value::Value| row.as_str().and_then(|id| id.parse::<usize>().ok());
            hits += rows.iter().filter_map(number).filter(|id| truth.contains(id)).count() as u32;
        }
        let of = |sum: f64| sum / queries as f64;
        Answers { recall: of(f64::from(hits)) / 10.0, cpu: cpu / queries as u32, leaves: of(leaves) }
    }
}

struct Answers {
    recall: f64,
    cpu: Duration,
    leaves: f64,
}

/// The leaves that a search has read, as its plan says.
fn leaves_in(explain: &str) -> f64 {
    let before = explain.split_once(" leaves").map_or("", |(before, _)| before);
    let leaves = before.rsplit_once(", ").and_then(|(_, leaves)| leaves.split(' ').next()?.parse().ok());
    leaves.unwrap_or(0.0)
}

fn resident_kilobytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    resident.and_then(|rest| rest.trim().split(' ').next()?.parse().ok()).unwrap_or(0)
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
