//! Structure of items: one pass over a container.
//!
//! Memory is bounded: at most [`PATHS_MAX`] paths over all types, 200 names of one object, sketches of fixed size for each.
//! The follower only adds: what a change took away stays in the sketches until the next full scan. Counts and bytes stay exact.

mod finish; // from a scan to a profile
mod keys; // partition keys
mod node; // statistics of one path
mod survey; // shapes and discriminators
pub(crate) mod text; // dates and blobs
mod times; // rising times within a key
mod tree; // paths of one type of items

use std::collections::BTreeMap;

use quire_resource::{ContainerDefinition, PartitionKey};
use quire_value::Node;

use crate::path;
use crate::profile::ItemExample;
use crate::sketch::{DistinctSample, Histogram, text_hash};

use self::keys::KeyScan;
use self::tree::TypeScan;

pub use self::finish::ScanResult;
pub use self::survey::Survey;

/// Paths with statistics of their own, over all types of a container.
pub(crate) const PATHS_MAX: usize = 800;
/// Types with statistics of their own.
const TYPES_MAX: usize = 50;
/// Ids for the overlap with other containers' values.
const IDS_SAMPLED: usize = 4_096;
const RISKY_EXAMPLES: usize = 3;
/// Share of changed items after which a new scan is due.
const REFRESH_SHARE: f64 = 0.1;

/// One item, as the caller has it.
#[derive(Clone, Copy)]
pub struct ItemInput<'a> {
    pub item: Node<'a>,
    pub partition_key: &'a PartitionKey,
    /// Of its JSON, as charges count it.
    pub bytes: u64,
    /// `_ts`
    pub ts: u64,
}

/// Takes in the items of one container.
#[derive(Clone, Debug)]
pub struct Scan {
    definition: ContainerDefinition,
    /// Top-level name of the discriminator that the survey found.
    discriminator: Option<String>,
    survey: Survey,
    types: BTreeMap<Option<String>, TypeScan>,
    paths_left: usize,
    keys: KeyScan,
    size: Histogram,
    depth: Histogram,
    ids: DistinctSample<String>,
    id_forms: [u64; 3],
    risky_ids: u64,
    risky_examples: Vec<ItemExample>,
    scanned: u64,
    /// Exact, also when only a sample was scanned.
    items: i64,
    bytes: i64,
    followed: u64,
}

impl Scan {
    /// `survey` may be of a sample of the items.
    pub fn new(definition: &ContainerDefinition, survey: &Survey) -> Scan {
        let discriminator =
            survey.discriminator().and_then(|found| path::names(&found.path).into_iter().next());
        Scan {
            definition: definition.clone(),
            discriminator,
            survey: Survey::new(),
            types: BTreeMap::new(),
            paths_left: PATHS_MAX,
            keys: KeyScan::default(),
            size: Histogram::default(),
            depth: Histogram::default(),
            ids: DistinctSample::new(IDS_SAMPLED),
            id_forms: [0; 3],
            risky_ids: 0,
            risky_examples: Vec::new(),
            scanned: 0,
            items: 0,
            bytes: 0,
            followed: 0,
        }
    }

    pub fn add(&mut self, input: ItemInput<'_>) {
        self.items += 1;
        self.bytes += input.bytes as i64;
        self.take_in(input);
    }

    /// A change after the scan: the item before and after it.
    pub fn follow(&mut self, old_bytes: Option<u64>, new: Option<ItemInput<'_>>) {
        self.followed += 1;
        self.items += i64::from(new.is_some()) - i64::from(old_bytes.is_some());
        self.bytes += new.map_or(0, |new| new.bytes as i64) - old_bytes.unwrap_or_default() as i64;
        if let Some(new) = new {
            self.take_in(new);
        }
    }

    /// What a scan of a sample did not see.
    pub fn not_scanned(&mut self, items: u64, bytes: u64) {
        self.items += items as i64;
        self.bytes += bytes as i64;
    }

    /// So much has changed that a new scan is due.
    pub fn needs_refresh(&self) -> bool {
        self.followed as f64 >= REFRESH_SHARE * (self.items.max(1) as f64)
    }

    fn take_in(&mut self, input: ItemInput<'_>) {
        let id = input.item.get("id").and_then(Node::as_str).unwrap_or_default();
        let example = || ItemExample { id: id.to_owned(), partition_key: input.partition_key.clone() };
        self.scanned += 1;
        self.survey.add(input.item);
        self.size.add(input.bytes as f64);
        self.keys.add(input.partition_key, input.bytes, input.ts, &example);
        self.take_in_id(id, &example);
        let kind = self.type_of(input.item);
        let mut left = self.paths_left;
        let of_type = self.types.entry(kind).or_default();
        let depth = of_type.add(input, &mut left, &example);
        self.paths_left = left;
        self.depth.add(depth as f64);
    }

    fn take_in_id(&mut self, id: &str, example: &dyn Fn() -> ItemExample) {
        self.ids.add(text_hash(id.as_bytes()), || id.to_owned());
        let form = match id.as_bytes() {
            text if !text.is_empty() && text.len() <= 18 && text.iter().all(u8::is_ascii_digit) => 1,
            text if text::date(text).is_some() => 2,
            _ => 0,
        };
        self.id_forms[form] += 1;
        if id.chars().any(|c| matches!(c, '/' | '\\' | '?' | '#') || c.is_control()) {
            self.risky_ids += 1;
            if self.risky_examples.len() < RISKY_EXAMPLES {
                self.risky_examples.push(example());
            }
        }
    }

    fn type_of(&self, item: Node<'_>) -> Option<String> {
        let value = survey::scalar_text(item.get(self.discriminator.as_deref()?)?)?;
        let known = Some(value);
        (self.types.len() < TYPES_MAX || self.types.contains_key(&known)).then_some(known)?
    }

    /// Joins what another scan with the same survey took in of the same container.
    pub fn merge(&mut self, other: &Scan) {
        self.survey.merge(&other.survey);
        for (kind, types) in &other.types {
            self.types.entry(kind.clone()).or_default().merge(types, &mut self.paths_left);
        }
        self.keys.merge(&other.keys);
        self.size.merge(&other.size);
        self.depth.merge(&other.depth);
        self.ids.merge(&other.ids);
        self.id_forms.iter_mut().zip(other.id_forms).for_each(|(own, other)| *own += other);
        self.risky_ids += other.risky_ids;
        self.risky_examples.extend(other.risky_examples.iter().cloned());
        self.risky_examples.truncate(RISKY_EXAMPLES);
        self.scanned += other.scanned;
        self.items += other.items;
        self.bytes += other.bytes;
        self.followed += other.followed;
    }
}
