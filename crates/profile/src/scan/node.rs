//! Statistics of one path.

use std::collections::{BTreeMap, HashMap};

use quire_value::{Kind, Node};

use crate::profile::{ItemExample, Kinds};
use crate::sketch::{Distinct, DistinctSample, Histogram, value_hash};

use super::text::{self, DateText};

/// Values of a path that are looked up in other containers.
pub(crate) const VALUES_SAMPLED: usize = 256;
/// Longer values are no references.
const SAMPLED_BYTES_MAX: usize = 100;
/// Names that one object's statistics keep.
pub(crate) const NAMES_MAX: usize = 200;
const SIBLINGS_MAX: usize = 8;
const SIBLING_VALUES_MAX: usize = 50;
/// Integers up to here are exact in a double.
const EXACT_INTEGER: f64 = 9_007_199_254_740_992.0;
const CHILD_NAMES_MAX: usize = 400;

#[derive(Clone, Debug, Default)]
pub(super) struct PathStats {
    /// Items that have it.
    pub items: u64,
    pub last_item: u64,
    pub values: u64,
    pub kinds: Kinds,
    pub bytes: u64,
    pub distinct: Distinct,
    pub sample: Option<DistinctSample<String>>,
    pub text: Option<Box<TextStats>>,
    pub beyond_exact: u64,
    pub max_integer: f64,
    pub set: u64,
    pub array: Option<Box<ArrayStats>>,
    pub names: BTreeMap<Box<str>, u32>,
    pub element: Option<u32>,
    pub wide: Option<Box<WideObject>>,
    /// How often each hash comes, of top-level scalars.
    pub frequent: Option<HashMap<u64, u64>>,
    pub siblings: BTreeMap<Box<str>, Option<HashMap<u64, Kinds>>>,
    pub example: Option<ItemExample>,
    pub uncommon: Option<ItemExample>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct TextStats {
    pub length: Histogram,
    pub dates: u64,
    pub sortable: BTreeMap<&'static str, u64>,
    pub blobs: u64,
    pub blob_length: Histogram,
}

#[derive(Clone, Debug, Default)]
pub(super) struct ArrayStats {
    pub length: Histogram,
    pub shortest: u64,
    pub element_bytes: u64,
    pub longest: Option<(u64, ItemExample)>,
}

/// An object with more names than are kept.
#[derive(Clone, Debug, Default)]
pub(super) struct WideObject {
    pub names: Distinct,
    /// Names met so far, at growing numbers of items.
    pub checkpoints: Vec<(u64, u64)>,
    pub child_kinds: Kinds,
    pub child_names: std::collections::HashSet<u64>,
    pub child_name_count: u64,
}

impl PathStats {
    pub fn add(&mut self, node: Node<'_>, item_number: u64, example: &dyn Fn() -> ItemExample) {
        self.values += 1;
        if self.last_item != item_number {
            self.last_item = item_number;
            self.items += 1;
        }
        self.count_kind(node);
        match node.kind() {
            Kind::String => self.add_text(node, example),
            Kind::Number => self.add_number(node, example),
            _ => {}
        }
        if !matches!(node.kind(), Kind::Array | Kind::Object) {
            self.add_scalar(node);
        }
        if self.example.is_none() {
            self.example = Some(example());
        }
    }

    fn count_kind(&mut self, node: Node<'_>) {
        match node.kind() {
            Kind::Null => self.kinds.null += 1,
            Kind::Bool => self.kinds.bool += 1,
            Kind::Number => self.kinds.number += 1,
            Kind::String => self.kinds.string += 1,
            Kind::Array => self.kinds.array += 1,
            Kind::Object => self.kinds.object += 1,
            Kind::Undefined => {}
        }
        let is_set = match node.kind() {
            Kind::Bool => node.as_bool() == Some(true),
            Kind::Number => node.as_number().is_some_and(|number| number.as_f64() != 0.0),
            Kind::String => node.as_text().is_some_and(|text| !text.is_empty()),
            _ => false,
        };
        self.set += u64::from(is_set);
    }

    fn add_scalar(&mut self, node: Node<'_>) {
        let hash = value_hash(node);
        self.distinct.add(hash);
        if let Some(frequent) = &mut self.frequent {
            *frequent.entry(hash).or_default() += 1;
            if frequent.len() > VALUES_SAMPLED * 4 {
                self.frequent = None;
            }
        }
        if let Some(text) = node.as_str().filter(|text| !text.is_empty() && text.len() <= SAMPLED_BYTES_MAX) {
            let sample = self.sample.get_or_insert_with(|| DistinctSample::new(VALUES_SAMPLED));
            sample.add(hash, || text.to_owned());
        }
    }

    fn add_text(&mut self, node: Node<'_>, example: &dyn Fn() -> ItemExample) {
        let bytes = node.as_text().unwrap_or_default();
        let stats = self.text.get_or_insert_default();
        stats.length.add(bytes.len() as f64);
        match text::date(bytes) {
            Some(DateText::Sortable(precision)) => {
                stats.dates += 1;
                *stats.sortable.entry(precision).or_default() += 1;
            }
            Some(DateText::Other) => {
                stats.dates += 1;
                self.uncommon.get_or_insert_with(example);
            }
            None => {}
        }
        if text::is_blob(bytes) {
            stats.blobs += 1;
            stats.blob_length.add(bytes.len() as f64);
        }
    }

    fn add_number(&mut self, node: Node<'_>, example: &dyn Fn() -> ItemExample) {
        let Some(number) = node.as_number() else { return };
        let is_integer = number.as_i64().is_some() || number.as_u64().is_some();
        let magnitude = number.as_f64().abs();
        if is_integer {
            self.max_integer = self.max_integer.max(magnitude);
            if magnitude > EXACT_INTEGER {
                self.beyond_exact += 1;
                self.uncommon = Some(example());
            }
        }
    }

    /// Which value of a sibling comes with which kind of this one; kept once there are two kinds.
    pub fn add_siblings(&mut self, node: Node<'_>, own: &str, holder: Node<'_>) {
        if self.distinct_kinds() < 2 {
            return;
        }
        let mut kinds = Kinds::default();
        std::mem::swap(&mut kinds, &mut self.kinds);
        self.count_kind_only(node);
        std::mem::swap(&mut kinds, &mut self.kinds);
        let texts = holder.members().filter(|(name, value)| *name != own && value.kind() == Kind::String);
        for (name, value) in texts.take(SIBLINGS_MAX) {
            if !self.siblings.contains_key(name) && self.siblings.len() >= SIBLINGS_MAX {
                continue;
            }
            let entry = self.siblings.entry(name.into()).or_insert_with(|| Some(HashMap::new()));
            if let Some(values) = entry {
                values.entry(value_hash(value)).or_default().add(&kinds);
                if values.len() > SIBLING_VALUES_MAX {
                    *entry = None;
                }
            }
        }
    }

    fn count_kind_only(&mut self, node: Node<'_>) {
        let set = self.set;
        self.count_kind(node);
        self.set = set;
    }

    /// About how much memory it holds.
    pub fn held_bytes(&self) -> usize {
        const ENTRY_BYTES: usize = 32;
        let sample = self.sample.as_ref().map_or(0, DistinctSample::len) * super::TEXT_ENTRY_BYTES;
        let text =
            self.text.as_ref().map_or(0, |text| text.length.held_bytes() + text.blob_length.held_bytes());
        let array = self.array.as_ref().map_or(0, |array| array.length.held_bytes());
        let names = self.wide.as_ref().map_or(0, |wide| wide.names.held_bytes());
        let frequent = self.frequent.as_ref().map_or(0, HashMap::len);
        let siblings: usize = self.siblings.values().flatten().map(HashMap::len).sum();
        let entries = (self.names.len() + frequent + 2 * siblings) * ENTRY_BYTES;
        size_of::<PathStats>() + self.distinct.held_bytes() + sample + text + array + names + entries
    }

    pub fn distinct_kinds(&self) -> usize {
        self.kinds.named().iter().filter(|(name, count)| *name != "null" && *count > 0).count()
    }

    /// A sibling's value decides the kind in 99 of 100 cases.
    pub fn decided_by_sibling(&self) -> bool {
        const DECIDED_MIN: f64 = 0.99;
        self.siblings.values().flatten().any(|values| {
            let most = |kinds: &Kinds| kinds.named().iter().map(|(_, count)| *count).max().unwrap_or(0);
            let total: u64 = values.values().map(Kinds::total).sum();
            let decided: u64 = values.values().map(most).sum();
            values.len() >= 2 && total > 0 && decided as f64 >= DECIDED_MIN * total as f64
        })
    }

    pub fn add_array(&mut self, length: u64, element_bytes: u64, example: &dyn Fn() -> ItemExample) {
        let is_first = self.array.is_none();
        let stats = self.array.get_or_insert_default();
        stats.shortest = if is_first { length } else { stats.shortest.min(length) };
        stats.length.add(length as f64);
        stats.element_bytes += element_bytes;
        if stats.longest.as_ref().is_none_or(|(longest, _)| length > *longest) {
            stats.longest = Some((length, example()));
        }
    }

    /// Counts names of an object that has, or had, more than are kept.
    pub fn add_wide(&mut self, object: Node<'_>, items: u64) {
        if self.wide.is_none() {
            let mut wide = WideObject::default();
            self.names.keys().for_each(|name| wide.names.add(crate::sketch::text_hash(name.as_bytes())));
            self.wide = Some(Box::new(wide));
        }
        let Some(wide) = &mut self.wide else { return };
        for (name, child) in object.members() {
            wide.names.add(crate::sketch::text_hash(name.as_bytes()));
            wide.add_child(child);
        }
        let due = wide.checkpoints.last().is_none_or(|(last, _)| items as f64 >= *last as f64 * 1.05);
        if due {
            let names = wide.names.estimate();
            wide.checkpoints.push((items, names));
        }
    }

    pub fn merge(&mut self, other: &PathStats) {
        self.items += other.items;
        self.values += other.values;
        self.kinds.add(&other.kinds);
        self.bytes += other.bytes;
        self.distinct.merge(&other.distinct);
        merge_option(&mut self.sample, &other.sample, DistinctSample::merge);
        merge_option(&mut self.text, &other.text, |own, other| own.merge(other));
        merge_option(&mut self.array, &other.array, |own, other| own.merge(other));
        merge_option(&mut self.wide, &other.wide, |own, other| own.merge(other));
        self.beyond_exact += other.beyond_exact;
        self.max_integer = self.max_integer.max(other.max_integer);
        self.set += other.set;
        self.frequent = match (self.frequent.take(), &other.frequent) {
            (Some(mut own), Some(other)) => {
                other.iter().for_each(|(hash, count)| *own.entry(*hash).or_default() += count);
                Some(own)
            }
            _ => None,
        };
        self.example = self.example.take().or_else(|| other.example.clone());
        self.uncommon = self.uncommon.take().or_else(|| other.uncommon.clone());
        for (name, values) in &other.siblings {
            let own = self.siblings.entry(name.clone()).or_insert_with(|| Some(HashMap::new()));
            match (own.as_mut(), values) {
                (Some(own), Some(values)) => {
                    values.iter().for_each(|(hash, kinds)| own.entry(*hash).or_default().add(kinds));
                }
                _ => *own = None,
            }
        }
    }
}

impl TextStats {
    fn merge(&mut self, other: &TextStats) {
        self.length.merge(&other.length);
        self.dates += other.dates;
        other.sortable.iter().for_each(|(form, count)| *self.sortable.entry(form).or_default() += count);
        self.blobs += other.blobs;
        self.blob_length.merge(&other.blob_length);
    }
}

impl ArrayStats {
    fn merge(&mut self, other: &ArrayStats) {
        self.length.merge(&other.length);
        self.shortest = self.shortest.min(other.shortest);
        self.element_bytes += other.element_bytes;
        if other.longest.as_ref().map(|longest| longest.0) > self.longest.as_ref().map(|longest| longest.0) {
            self.longest = other.longest.clone();
        }
    }
}

impl WideObject {
    fn add_child(&mut self, child: Node<'_>) {
        match child.kind() {
            Kind::Object => self.child_kinds.object += 1,
            Kind::Array => self.child_kinds.array += 1,
            Kind::String => self.child_kinds.string += 1,
            Kind::Number => self.child_kinds.number += 1,
            Kind::Bool => self.child_kinds.bool += 1,
            _ => self.child_kinds.null += 1,
        }
        for (name, _) in child.members() {
            self.child_name_count += 1;
            if self.child_names.len() < CHILD_NAMES_MAX {
                self.child_names.insert(crate::sketch::text_hash(name.as_bytes()));
            }
        }
    }

    fn merge(&mut self, other: &WideObject) {
        self.names.merge(&other.names);
        self.child_kinds.add(&other.child_kinds);
        self.child_name_count += other.child_name_count;
        self.child_names.extend(other.child_names.iter().take(CHILD_NAMES_MAX));
        // Parts are scanned side by side: the growth of the larger one stands for both.
        if other.checkpoints.last() > self.checkpoints.last() {
            self.checkpoints = other.checkpoints.clone();
        }
    }

    /// Children of one kind; objects with mostly the same names.
    pub fn one_shape(&self) -> bool {
        const ONE_KIND_MIN: f64 = 0.95;
        const NAMES_SPREAD_MAX: f64 = 3.0;
        let total = self.child_kinds.total() as f64;
        let most = self.child_kinds.named().iter().map(|(_, count)| *count).max().unwrap_or(0) as f64;
        let mean = self.child_name_count as f64 / (self.child_kinds.object.max(1) as f64);
        most >= ONE_KIND_MIN * total
            && (self.child_kinds.object == 0 || self.child_names.len() as f64 <= NAMES_SPREAD_MAX * mean)
    }

    /// Share of the names that were first met in the second half of the items.
    pub fn growth_share(&self, items: u64) -> f64 {
        let total = self.names.estimate();
        let half = self.checkpoints.iter().take_while(|(at, _)| *at <= items / 2).last();
        let before = half.map_or(0, |(_, names)| *names);
        total.saturating_sub(before) as f64 / total.max(1) as f64
    }
}

fn merge_option<T: Clone>(own: &mut Option<T>, other: &Option<T>, merge: impl FnOnce(&mut T, &T)) {
    match (own.as_mut(), other) {
        (Some(own), Some(other)) => merge(own, other),
        (None, Some(other)) => *own = Some(other.clone()),
        (_, None) => {}
    }
}
