//! The profile of a container: what the scans found and what was recorded.
//!
//! Only part of it is in the JSON (`json`); the rest is for the advisor.

mod json;
mod without_record; // without what was recorded // the profile as JSON

pub use without_record::remove_recorded_part;

use quire_resource::{ContainerDefinition, PartitionKey};

use crate::relate::Relations;
use crate::scan::ScanResult;
use crate::sketch::Summary;
use crate::workload::ContainerWorkload;

/// The profiles of a database's containers, by name.
#[derive(Clone, Debug, Default)]
pub struct DatabaseProfile {
    pub database: String,
    pub containers: Vec<ContainerProfile>,
}

#[derive(Clone, Debug)]
pub struct ContainerProfile {
    pub container: String,
    pub revision: u64,
    /// Milliseconds since the epoch.
    pub generated_ms: u64,
    pub partitions: u32,
    pub items: ItemCounts,
    /// What changed since the items were scanned.
    pub followed: Option<FollowedChanges>,
    pub size: Summary,
    pub depth: Summary,
    pub discriminator: Option<Discriminator>,
    /// One without a name where there is no discriminator.
    pub types: Vec<TypeProfile>,
    /// Groups of items with similar names of properties, largest first.
    pub clusters: Vec<ShapeCluster>,
    /// A scalar distinguishes those groups, whatever the number of items with each of its values.
    pub separated: bool,
    pub partition_key: KeyProfile,
    pub repetition: Vec<Repetition>,
    pub references: Vec<ReferenceProfile>,
    /// Share of ids with characters that URLs and tools trip over.
    pub risky_ids: f64,
    pub risky_id_examples: Vec<ItemExample>,
    pub ids: IdForm,
    pub workload: ContainerWorkload,
}

/// What ids look like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdForm {
    #[default]
    Other,
    /// `17`
    Integers,
    /// `2026-11-17`
    Dates,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ItemCounts {
    pub count: u64,
    pub scanned: u64,
    pub bytes: u64,
}

/// Changes after a scan. They only added to what is known of paths, and counts and bytes of items are of the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FollowedChanges {
    /// When the items were scanned, in milliseconds since the epoch.
    pub since_ms: u64,
    pub changes: u64,
}

#[derive(Clone, Debug)]
pub struct Discriminator {
    pub path: String,
    pub purity: f64,
    pub values: Vec<(String, u64)>,
}

#[derive(Clone, Debug)]
pub struct ShapeCluster {
    pub count: u64,
    pub names: Vec<String>,
}

/// A stored item that a finding can show.
#[derive(Clone, Debug, PartialEq)]
pub struct ItemExample {
    pub id: String,
    pub partition_key: PartitionKey,
}

/// Items with one value of the discriminator.
#[derive(Clone, Debug, Default)]
pub struct TypeProfile {
    pub name: Option<String>,
    pub count: u64,
    pub bytes: u64,
    pub size: Summary,
    pub depth: Summary,
    /// Share of the bytes that the largest 1 % of the items hold.
    pub top_share: f64,
    /// Values that the indexing policy covers, of an average item.
    pub indexed_values: f64,
    pub properties: Vec<String>,
    pub paths: Vec<PathProfile>,
    pub arrays: Vec<ArrayProfile>,
    pub objects: Vec<ObjectProfile>,
    pub times: Vec<TimeSeries>,
    pub examples: Vec<ItemExample>,
    pub deepest: Option<ItemExample>,
    pub largest: Option<ItemExample>,
}

/// How often each kind of value was met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds {
    pub null: u64,
    pub bool: u64,
    pub number: u64,
    pub string: u64,
    pub array: u64,
    pub object: u64,
}

#[derive(Clone, Debug, Default)]
pub struct PathProfile {
    pub path: String,
    /// Share of the items of the type.
    pub present: f64,
    pub items: u64,
    pub values: u64,
    pub kinds: Kinds,
    pub distinct: u64,
    /// Of texts, in bytes.
    pub length: Summary,
    /// Share of the bytes of the type.
    pub bytes: f64,
    pub indexed: bool,
    pub dates: DateFormats,
    /// Texts that are base64 or `data:` URLs and at least 20 KB long.
    pub blobs: u64,
    pub blob_length: Summary,
    /// Integers beyond 2^53.
    pub beyond_exact: u64,
    pub max_integer: f64,
    /// A text beside it decides of which type it is.
    pub decided_by_sibling: bool,
    pub example: Option<ItemExample>,
    pub odd_example: Option<ItemExample>,
    /// Share of the items that have its most frequent value; only of top-level scalars.
    pub largest_share: f64,
    /// Share of the items in which it is true, or a text, or a number.
    pub set: f64,
}

/// What texts that look like dates have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DateFormats {
    /// Texts that are dates of any kind.
    pub dates: u64,
    /// Of those, ISO 8601 in UTC, by precision: `date`, `s`, `ms`, and so on.
    pub sortable: Vec<(String, u64)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ElementKind {
    #[default]
    Mixed,
    Object,
    String,
    Number,
    Bool,
    Array,
}

#[derive(Clone, Debug, Default)]
pub struct ArrayProfile {
    pub path: String,
    pub length: Summary,
    pub element: ElementKind,
    pub element_bytes: f64,
    /// Bytes of the array in an average item that has it.
    pub bytes: f64,
    /// Values of an element that the policy covers, on average.
    pub indexed_values: f64,
    /// Every array has the same number of elements.
    pub one_length: bool,
    /// Names that elements have; for objects.
    pub element_names: Vec<String>,
    /// An element holds a date.
    pub element_date: bool,
    pub growth: Option<ArrayGrowth>,
    pub longest: Option<ItemExample>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ArrayGrowth {
    /// Items with three recorded versions or more.
    pub versioned: u64,
    /// Share of those that grew twice or more and never shrank.
    pub growing: f64,
    pub shrinking: f64,
    /// Elements that a write adds, on average.
    pub per_write: f64,
    /// Elements that were added to an item that grew, on average, in all of the recorded time.
    pub per_item: f64,
    /// The same by recorded day.
    pub per_day: f64,
}

/// An object whose names look like data.
#[derive(Clone, Debug, Default)]
pub struct ObjectProfile {
    pub path: String,
    pub names: u64,
    /// Share of the names that were first met in the second half of the items.
    pub growth_share: f64,
    pub one_shape: bool,
    pub example: Option<ItemExample>,
}

/// A time that rises within each key, in the order in which items were made.
#[derive(Clone, Debug, Default)]
pub struct TimeSeries {
    pub path: String,
    pub rising: f64,
    pub gap_seconds: Summary,
}

#[derive(Clone, Debug, Default)]
pub struct KeyProfile {
    pub path: String,
    pub values: u64,
    pub largest: Largest,
    pub gini: f64,
    pub kinds: Kinds,
    pub absent: f64,
    pub order: KeyOrder,
    pub odd_example: Option<ItemExample>,
    pub largest_example: Option<ItemExample>,
    pub smallest_bytes: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Largest {
    pub items: u64,
    pub bytes: u64,
    pub share: f64,
}

/// Whether key values follow time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KeyOrder {
    /// Share of key values that are dates.
    pub dates: f64,
    /// Rank correlation of key values with the time of their first item.
    pub correlation: f64,
}

/// Objects that are the same wherever one of their properties is.
#[derive(Clone, Debug)]
pub struct Repetition {
    pub path: String,
    pub key: String,
    pub keys: u64,
    pub per_key: Summary,
    pub identical: f64,
    /// Bytes of one such object.
    pub bytes: f64,
    pub example: Option<ItemExample>,
}

#[derive(Clone, Debug)]
pub struct ReferenceProfile {
    pub path: String,
    pub type_name: Option<String>,
    pub to: String,
    pub key: String,
    /// Share of sampled values that are in the other container.
    pub overlap: f64,
    pub distinct: u64,
    /// References that were compared, and how many of them have no target.
    pub pairs: u64,
    pub dangling: u64,
    pub per_item: Summary,
    pub per_target: Summary,
    /// Share of the referred targets with one referrer.
    pub exclusive: f64,
    pub declared: Option<String>,
    pub copies: Vec<CopyProfile>,
    pub counts: Vec<CountProfile>,
    pub mirror: Option<MirrorProfile>,
    /// The name of the path says where it points.
    pub named: bool,
    /// How the target's partition key is found; see [`crate::Relations`].
    pub route: Option<Vec<String>>,
    pub target_bytes: f64,
    pub target_values: f64,
    /// Bytes of referrer and target together, at most in 95 of 100.
    pub together_p95: f64,
    pub example: Option<ItemExample>,
    pub dangling_examples: Vec<ItemExample>,
}

#[derive(Clone, Debug)]
pub struct CopyProfile {
    /// Path of the referrer.
    pub path: String,
    /// Path of the target.
    pub of: String,
    pub pairs: u64,
    pub equal: u64,
    pub unequal_examples: Vec<ItemExample>,
}

#[derive(Clone, Debug)]
pub struct CountProfile {
    /// Path of the target.
    pub path: String,
    /// `count` or `sum`.
    pub op: &'static str,
    /// What is summed: a path of the referrer.
    pub value: Option<String>,
    /// Over every reference, not every item once.
    pub references: bool,
    pub targets: u64,
    pub equal: u64,
    pub unequal_examples: Vec<ItemExample>,
}

#[derive(Clone, Debug)]
pub struct MirrorProfile {
    /// Path of the target's array.
    pub path: String,
    pub targets: u64,
    pub equal: u64,
    pub unequal_examples: Vec<ItemExample>,
}

impl ContainerProfile {
    /// Joins what was scanned, proven and recorded.
    pub fn new(
        definition: &ContainerDefinition,
        scan: ScanResult,
        relations: &Relations,
        workload: ContainerWorkload,
    ) -> ContainerProfile {
        let name = definition.id.clone();
        let mut profile = scan.into_profile(&name);
        profile.references = relations.references(&name);
        profile.repetition = relations.repetition(&name);
        profile.set_workload(workload);
        profile
    }

    /// What was recorded, in the place of what was known before.
    pub fn set_workload(&mut self, workload: ContainerWorkload) {
        self.workload = workload;
        self.set_growth();
    }

    fn set_growth(&mut self) {
        for array in self.types.iter_mut().flat_map(|kind| &mut kind.arrays) {
            array.growth = self.workload.growth.get(&array.path).copied();
        }
    }

    pub fn reference(&self, path: &str) -> Option<&ReferenceProfile> {
        self.references.iter().find(|reference| reference.path == path)
    }

    pub fn path(&self, path: &str) -> Option<&PathProfile> {
        self.types.iter().find_map(|kind| kind.path(path))
    }

    /// Items of an average container: mean bytes of an item.
    pub fn mean_size(&self) -> f64 {
        self.size.mean
    }

    pub fn indexed_values(&self) -> f64 {
        let values: f64 = self.types.iter().map(|kind| kind.indexed_values * kind.count as f64).sum();
        values / (self.items.scanned.max(1) as f64)
    }
}

impl TypeProfile {
    pub fn path(&self, path: &str) -> Option<&PathProfile> {
        self.paths.iter().find(|own| own.path == path)
    }

    pub fn array(&self, path: &str) -> Option<&ArrayProfile> {
        self.arrays.iter().find(|own| own.path == path)
    }
}

impl Kinds {
    pub fn shares(&self) -> Vec<(&'static str, f64)> {
        let all = self.named();
        let total: u64 = all.iter().map(|(_, count)| count).sum();
        let share = |count: u64| count as f64 / total.max(1) as f64;
        all.into_iter().filter(|(_, count)| *count > 0).map(|(name, count)| (name, share(count))).collect()
    }

    pub fn named(&self) -> [(&'static str, u64); 6] {
        [
            ("null", self.null),
            ("boolean", self.bool),
            ("number", self.number),
            ("string", self.string),
            ("array", self.array),
            ("object", self.object),
        ]
    }

    pub fn scalars(&self) -> u64 {
        self.null + self.bool + self.number + self.string
    }

    pub fn total(&self) -> u64 {
        self.scalars() + self.array + self.object
    }
}

impl ArrayProfile {
    /// Share of the arrays that are as long as the longest.
    pub fn at_max(&self) -> f64 {
        self.length.at_max as f64 / self.length.count.max(1) as f64
    }
}

impl ReferenceProfile {
    /// Whether the other one only repeats what this one's target is called.
    pub(crate) fn copies_into(&self, other: &ReferenceProfile) -> bool {
        let is_copy = |copy: &CopyProfile| copy.path == other.path && copy.of == other.key;
        (&self.to, &self.type_name) == (&other.to, &other.type_name) && self.copies.iter().any(is_copy)
    }

    pub fn dangling_share(&self) -> f64 {
        self.dangling as f64 / self.pairs.max(1) as f64
    }
}

impl CopyProfile {
    pub fn equal_share(&self) -> f64 {
        self.equal as f64 / self.pairs.max(1) as f64
    }
}
