//! One container under evaluation, with all that a rule may ask.

use std::cell::RefCell;
use std::collections::BTreeSet;

use quire_model::Model;
use quire_profile::{
    ContainerProfile, ContainerWorkload, DatabaseProfile, ItemExample, KeyProfile, Operation,
    ReferenceProfile, SequenceProfile, ShapeProfile, TypeProfile,
};
use quire_resource::ContainerDefinition;

use crate::finding::{Candidate, Effect, Example};
use crate::options::Thresholds;
use crate::price;

/// A Cosmos DB partition holds this much.
const COSMOS_PARTITION_BYTES: f64 = 50e9;

pub struct Case<'a> {
    pub database: &'a DatabaseProfile,
    pub profile: &'a ContainerProfile,
    pub definition: &'a ContainerDefinition,
    pub definitions: &'a [ContainerDefinition],
    pub model: &'a Model,
    pub thresholds: &'a Thresholds,
    /// Days for which the workload stands.
    pub days: f64,
    pub conditions: &'a Conditions,
}

/// Conditions of rules by name. A test switches one off and sees that a case of the corpus changes.
#[derive(Debug, Default)]
pub struct Conditions {
    pub off: Option<String>,
    pub seen: RefCell<BTreeSet<&'static str>>,
}

impl Conditions {
    pub fn holds(&self, name: &'static str, condition: bool) -> bool {
        self.seen.borrow_mut().insert(name);
        condition || self.off.as_deref() == Some(name)
    }
}

impl<'a> Case<'a> {
    /// Every condition of a rule passes here.
    pub fn holds(&self, name: &'static str, condition: bool) -> bool {
        self.conditions.holds(name, condition)
    }

    pub fn name(&self) -> &'a str {
        &self.profile.container
    }

    pub fn workload(&self) -> &'a ContainerWorkload {
        &self.profile.workload
    }

    pub fn key(&self) -> &'a KeyProfile {
        &self.profile.partition_key
    }

    /// Types with enough items to be judged.
    pub fn types(&self) -> impl Iterator<Item = &'a TypeProfile> {
        let types: Vec<&TypeProfile> = self.profile.types.iter().collect();
        types.into_iter().filter(|kind| self.holds("items", kind.count as f64 >= self.thresholds.min_items))
    }

    pub fn shapes(&self) -> impl Iterator<Item = &'a ShapeProfile> + use<'a> {
        self.profile.workload.shapes.iter()
    }

    pub fn sequence(&self, path: &str, backward: bool) -> Option<&'a SequenceProfile> {
        self.profile.workload.sequences.iter().find(|found| found.from == path && found.backward == backward)
    }

    pub fn other(&self, container: &str) -> Option<&'a ContainerProfile> {
        self.database.containers.iter().find(|profile| profile.container == container)
    }

    pub fn other_definition(&self, container: &str) -> Option<&'a ContainerDefinition> {
        self.definitions.iter().find(|definition| definition.id == container)
    }

    pub fn references_to(&self, path: &str) -> Option<&'a ReferenceProfile> {
        self.profile.reference(path)
    }

    pub fn per_day(&self, count: f64) -> f64 {
        count / self.days
    }

    /// Point reads a day.
    pub fn reads_per_day(&self) -> f64 {
        self.per_day(self.workload().count(Operation::Read) as f64)
    }

    /// Writes a day of items that were there before.
    pub fn changes_per_day(&self) -> f64 {
        self.per_day(self.workload().changes() as f64)
    }

    /// All writes a day.
    pub fn writes_per_day(&self) -> f64 {
        let writes = Operation::ALL.iter().filter(|(operation, _)| operation.is_write());
        self.per_day(writes.map(|(operation, _)| self.workload().count(*operation) as f64).sum())
    }

    pub fn charge_per_day(&self) -> f64 {
        self.per_day(self.workload().total_charge())
    }

    pub fn queries(&self) -> u64 {
        self.shapes().map(|found| found.totals.count).sum()
    }

    /// Charge of queries, as recorded.
    pub fn query_charge(&self) -> f64 {
        self.shapes().map(|found| found.totals.charge_sum).sum()
    }

    pub fn partitions(&self) -> f64 {
        f64::from(self.profile.partitions)
    }

    /// Mean size of items that are changed, or of all.
    pub fn changed_size(&self) -> f64 {
        let changed = self.workload().writes.size_before.mean;
        if changed > 0.0 { changed } else { self.profile.mean_size() }
    }

    pub fn values(&self) -> f64 {
        self.profile.indexed_values()
    }

    pub fn replace_now(&self) -> f64 {
        price::replace(self.changed_size(), self.values())
    }

    /// Saves charge of the given operations a day.
    pub fn effect(&self, charge_now: f64, saved: f64) -> Effect {
        let bytes: u64 = self.workload().operations.values().map(|totals| totals.bytes).sum();
        let bytes = self.per_day(bytes as f64);
        let trips = self.per_day(self.workload().total_operations() as f64);
        let storage = self.profile.items.bytes as f64;
        Effect {
            charge_now: charge_now.max(saved),
            saved,
            bytes_now: bytes,
            bytes_then: bytes,
            round_trips_now: trips,
            round_trips_then: trips,
            storage_now: storage,
            storage_then: storage,
            partitions_on_cosmos: (storage / COSMOS_PARTITION_BYTES).ceil().max(self.partitions()).max(1.0),
        }
    }

    pub fn no_effect(&self) -> Effect {
        self.effect(0.0, 0.0)
    }

    pub fn example(&self, item: &ItemExample) -> Example {
        Example { container: self.name().to_owned(), item: item.clone() }
    }

    pub fn examples<'e>(&self, items: impl IntoIterator<Item = &'e ItemExample>) -> Vec<Example> {
        items.into_iter().map(|item| self.example(item)).collect()
    }

    /// Items of the container, where a rule is about no item in particular.
    pub fn any_examples(&self) -> Vec<Example> {
        let largest = self.profile.types.iter().max_by_key(|kind| kind.count);
        self.examples(largest.iter().flat_map(|kind| &kind.examples))
    }

    /// A finding about the whole container.
    pub fn about_container(&self, title: String, text: String) -> Candidate {
        Candidate {
            title,
            text,
            examples: self.any_examples(),
            effect: self.no_effect(),
            ..Candidate::default()
        }
    }

    pub fn is_expiring(&self) -> bool {
        self.definition.default_ttl.is_some()
    }
}
