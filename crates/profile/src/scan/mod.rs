//! Structure of items: one pass over a container.
//!
//! Memory is bounded: at most [`PATHS_MAX`] paths over all types, 200 names of one object, sketches of fixed size for each.
//! Following only adds: what a change took away stays in the sketches until the next full scan. Counts and bytes stay exact, for
//! the caller knows them ([`Scan::set_total`]).

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
/// Of an entry of a sample of texts, about.
pub(crate) const TEXT_ENTRY_BYTES: usize = 100;
/// Share of changed items after which a new scan is due.
const REFRESH_SHARE: f64 = 0.1;

/// By value of the discriminator.
type TypeScans = BTreeMap<Option<String>, TypeScan>;

/// One item, as the caller has it.
#[derive(Clone, Copy)]
pub struct ItemInput<'a> {
    /// Names the item among those of its container, whatever becomes of its id.
    pub number: u64,
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
    types: TypeScans,
    paths_left: usize,
    keys: KeyScan,
    size: Histogram,
    depth: Histogram,
    ids: DistinctSample<String>,
    id_forms: [u64; 3],
    risky_ids: u64,
    risky_examples: Vec<ItemExample>,
    /// Items, whatever the number of their versions that were followed.
    scanned: u64,
    scanned_bytes: u64,
    /// Exact, also when only a sample was scanned.
    items: u64,
    bytes: u64,
    /// Changes since the scan.
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
            scanned_bytes: 0,
            items: 0,
            bytes: 0,
            followed: 0,
        }
    }

    pub fn add(&mut self, input: ItemInput<'_>) {
        self.items += 1;
        self.bytes += input.bytes;
        self.add_item(input);
    }

    /// A new item, or a new version of one, after the scan. Versions add to what is known of paths, and to nothing that is counted
    /// by item.
    pub fn follow(&mut self, input: ItemInput<'_>, is_new: bool) {
        self.followed += 1;
        match is_new {
            true => self.add_item(input),
            false => self.add_version(input),
        }
    }

    /// An item went after the scan, or is not among the sampled ones.
    pub fn count_unscanned_change(&mut self) {
        self.followed += 1;
    }

    /// How many items there are after all that was followed.
    pub fn set_total(&mut self, items: u64, bytes: u64) {
        (self.items, self.bytes) = (items, bytes);
    }

    /// Changes that were followed since the scan.
    pub fn followed(&self) -> u64 {
        self.followed
    }

    /// What a scan of a sample did not see.
    pub fn add_unscanned(&mut self, items: u64, bytes: u64) {
        self.items += items;
        self.bytes += bytes;
    }

    /// With so many further changes a new scan is due.
    pub fn needs_refresh(&self, further: u64) -> bool {
        (self.followed + further) as f64 >= REFRESH_SHARE * (self.items as f64)
    }

    fn add_item(&mut self, input: ItemInput<'_>) {
        let id = id_of(input.item);
        let example = || ItemExample { id: id.to_owned(), partition_key: input.partition_key.clone() };
        self.scanned += 1;
        self.scanned_bytes += input.bytes;
        self.survey.add(input.item);
        self.keys.add(input.partition_key, input.bytes, input.ts, &example);
        self.add_id(id, &example);
        self.add_paths(input, true, &example);
    }

    fn add_version(&mut self, input: ItemInput<'_>) {
        let id = id_of(input.item);
        let example = || ItemExample { id: id.to_owned(), partition_key: input.partition_key.clone() };
        self.add_paths(input, false, &example);
    }

    fn add_paths(&mut self, input: ItemInput<'_>, is_new: bool, example: &dyn Fn() -> ItemExample) {
        let kind = self.type_of(input.item);
        let mut left = self.paths_left;
        let of_type = self.types.entry(kind).or_default();
        let depth = of_type.add(input, is_new, &mut left, example);
        self.paths_left = left;
        self.size.add(input.bytes as f64);
        self.depth.add(depth as f64);
    }

    fn add_id(&mut self, id: &str, example: &dyn Fn() -> ItemExample) {
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

    /// About how much memory it holds.
    pub fn held_bytes(&self) -> usize {
        let types: usize = self.types.values().map(TypeScan::held_bytes).sum();
        types + self.keys.held_bytes() + self.survey.held_bytes() + self.ids.len() * TEXT_ENTRY_BYTES
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
        self.scanned_bytes += other.scanned_bytes;
        self.items += other.items;
        self.bytes += other.bytes;
        self.followed += other.followed;
    }
}

fn id_of(item: Node<'_>) -> &str {
    item.get("id").and_then(Node::as_str).unwrap_or_default()
}
