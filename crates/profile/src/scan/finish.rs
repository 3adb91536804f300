//! From a scan to the structural half of a profile.

use std::borrow::Cow;

use quire_resource::IndexingPolicy;

use crate::path;
use crate::profile::{
    ArrayProfile, ContainerProfile, DateFormats, ElementKind, IdForm, ItemCounts, Kinds, ObjectProfile,
    PathProfile, TypeProfile,
};
use crate::sketch::DistinctSample;

use super::node::{NAMES_MAX, PathStats};
use super::tree::TypeScan;
use super::{PATHS_MAX, Scan, TypeScans};

/// Share of ids that decides what they look like.
const ID_FORM_MIN: f64 = 0.9;

/// A finished scan: the profile of the structure, and samples for references.
#[derive(Clone, Debug)]
pub struct ScanResult {
    profile: ContainerProfile,
    pub(crate) ids: DistinctSample<String>,
    /// Samples of texts by type and path.
    pub(crate) samples: Vec<ValueSample>,
}

#[derive(Clone, Debug)]
pub(crate) struct ValueSample {
    pub type_name: Option<String>,
    pub path: String,
    pub values: DistinctSample<String>,
    pub distinct: u64,
    /// Every item of the container has a value of its own.
    pub unique: bool,
}

impl Scan {
    /// What was taken in until now; more may follow.
    pub fn finish(&self, revision: u64, generated_ms: u64, partitions: u32) -> ScanResult {
        let discriminator = self.survey.discriminator();
        let separated = !self.survey.separators().is_empty();
        let used = self.discriminator.as_deref().map(|name| path::join("", name));
        let is_used = used == discriminator.as_ref().map(|found| found.path.clone());
        let types = if is_used { Cow::Borrowed(&self.types) } else { Cow::Owned(self.joined_types()) };
        let key_path = self.definition.partition_key.paths.first().map_or(String::new(), pointer_of);
        let scale = (self.items as f64 / self.scanned.max(1) as f64).max(1.0);
        let risky = self.risky_ids as f64 / self.scanned.max(1) as f64;
        let profile = ContainerProfile {
            container: self.definition.id.clone(),
            revision,
            generated_ms,
            partitions,
            items: ItemCounts { count: self.items, scanned: self.scanned, bytes: self.bytes },
            size: self.size.summary(),
            depth: self.depth.summary(),
            discriminator,
            separated,
            types: types
                .iter()
                .map(|(name, types)| finish_type(name, types, &self.definition.indexing))
                .collect(),
            clusters: self.survey.clusters(),
            partition_key: self.keys.finish(key_path, self.scanned_bytes, scale),
            repetition: Vec::new(),
            references: Vec::new(),
            risky_ids: risky,
            risky_id_examples: self.risky_examples.clone(),
            ids: id_form(self.id_forms, self.scanned),
            followed: None,
            workload: Default::default(),
        };
        let samples = self.samples(&types);
        ScanResult { profile, ids: self.ids.clone(), samples }
    }

    fn joined_types(&self) -> TypeScans {
        let (mut all, mut left) = (TypeScan::default(), PATHS_MAX);
        self.types.values().for_each(|types| all.merge(types, &mut left));
        TypeScans::from([(None, all)])
    }

    fn samples(&self, types: &TypeScans) -> Vec<ValueSample> {
        let mut samples = Vec::new();
        for (type_name, types) in types {
            types.for_each(&mut |path, stats| {
                let Some(values) = &stats.sample else { return };
                let distinct = stats.distinct.estimate();
                // A sketch may be 3 % off.
                let unique = stats.kinds.string as f64 >= 0.99 * self.scanned as f64
                    && stats.items == stats.values
                    && distinct as f64 >= 0.97 * self.scanned as f64;
                samples.push(ValueSample {
                    type_name: type_name.clone(),
                    path: path.to_owned(),
                    values: values.clone(),
                    distinct,
                    unique,
                });
            });
        }
        samples
    }
}

impl ScanResult {
    pub(crate) fn into_profile(self, name: &str) -> ContainerProfile {
        debug_assert_eq!(self.profile.container, name);
        self.profile
    }

    pub(crate) fn profile(&self) -> &ContainerProfile {
        &self.profile
    }
}

fn pointer_of(path: &quire_value::Path) -> String {
    path.0.iter().fold(String::new(), |above, segment| match segment {
        quire_value::Segment::Name(name) => path::join(&above, name),
        _ => above,
    })
}

fn id_form(forms: [u64; 3], items: u64) -> IdForm {
    let is_most = |count: u64| items > 0 && count as f64 >= ID_FORM_MIN * items as f64;
    match forms {
        [_, integers, _] if is_most(integers) => IdForm::Integers,
        [_, _, dates] if is_most(dates) => IdForm::Dates,
        _ => IdForm::Other,
    }
}

fn finish_type(name: &Option<String>, types: &TypeScan, policy: &IndexingPolicy) -> TypeProfile {
    let mut profile = TypeProfile {
        name: name.clone(),
        count: types.items - types.versions,
        bytes: types.bytes,
        size: types.size.summary(),
        depth: types.depth.summary(),
        top_share: types.size.top_share(0.01),
        times: types.times.finish(),
        examples: types.examples.clone(),
        deepest: types.deepest.as_ref().map(|(_, example)| example.clone()),
        largest: types.largest.as_ref().map(|(_, example)| example.clone()),
        ..TypeProfile::default()
    };
    types.for_each(&mut |path, stats| add_path(&mut profile, path, stats, types.items, policy));
    finish_arrays(&mut profile);
    let indexed = profile.paths.iter().filter(|path| path.indexed);
    let values: u64 = indexed.map(|path| path.kinds.scalars()).sum();
    profile.indexed_values = values as f64 / types.items.max(1) as f64;
    profile
}

fn add_path(profile: &mut TypeProfile, path: &str, stats: &PathStats, items: u64, policy: &IndexingPolicy) {
    if path.is_empty() {
        profile.properties = stats.names.keys().map(|name| name.to_string()).collect();
    } else {
        profile.paths.push(path_profile(path, stats, items, profile.bytes, policy));
    }
    if let Some(array) = &stats.array {
        profile.arrays.push(ArrayProfile {
            path: path.to_owned(),
            length: array.length.summary(),
            element_bytes: array.element_bytes as f64 / array.length.sum().max(1.0),
            bytes: array.element_bytes as f64 / array.length.count().max(1) as f64,
            one_length: array.length.max() == array.shortest as f64,
            longest: array.longest.as_ref().map(|(_, example)| example.clone()),
            ..ArrayProfile::default()
        });
    }
    if let Some(wide) = &stats.wide {
        profile.objects.push(ObjectProfile {
            path: path.to_owned(),
            names: wide.names.estimate().max(NAMES_MAX as u64),
            growth_share: wide.growth_share(items),
            one_shape: wide.one_shape(),
            example: stats.example.clone(),
        });
    }
}

fn path_profile(
    path: &str,
    stats: &PathStats,
    items: u64,
    type_bytes: u64,
    policy: &IndexingPolicy,
) -> PathProfile {
    let text = stats.text.as_deref();
    let most = stats.frequent.as_ref().and_then(|values| values.values().max().copied());
    PathProfile {
        path: path.to_owned(),
        present: stats.items as f64 / items.max(1) as f64,
        items: stats.items,
        values: stats.values,
        kinds: stats.kinds,
        distinct: stats.distinct.estimate(),
        length: text.map(|text| text.length.summary()).unwrap_or_default(),
        bytes: stats.bytes as f64 / type_bytes.max(1) as f64,
        indexed: stats.kinds.scalars() > 0 && policy.is_indexed(&path::policy_path(path)),
        dates: text.map(date_formats).unwrap_or_default(),
        blobs: text.map_or(0, |text| text.blobs),
        blob_length: text.map(|text| text.blob_length.summary()).unwrap_or_default(),
        beyond_exact: stats.beyond_exact,
        max_integer: stats.max_integer,
        decided_by_sibling: stats.decided_by_sibling(),
        example: stats.example.clone(),
        odd_example: stats.uncommon.clone(),
        largest_share: most.map_or(0.0, |most| most as f64 / items.max(1) as f64),
        set: stats.set as f64 / items.max(1) as f64,
    }
}

fn date_formats(text: &super::node::TextStats) -> DateFormats {
    let sortable = text.sortable.iter().map(|(form, count)| ((*form).to_owned(), *count)).collect();
    DateFormats { dates: text.dates, sortable }
}

/// What is known of arrays from the paths of their elements.
fn finish_arrays(profile: &mut TypeProfile) {
    let paths = &profile.paths;
    for array in &mut profile.arrays {
        let element = format!("{}/*", array.path);
        let below = |found: &&PathProfile| path::covers(&element, &found.path);
        array.element =
            paths.iter().find(|found| found.path == element).map_or(ElementKind::Mixed, element_kind);
        let elements = array.length.mean * array.length.count as f64;
        let values: u64 =
            paths.iter().filter(below).filter(|found| found.indexed).map(|found| found.kinds.scalars()).sum();
        array.indexed_values = values as f64 / elements.max(1.0);
        let direct = paths.iter().filter(|found| path::parent(&found.path) == element);
        array.element_names = direct.clone().flat_map(|found| path::names(&found.path).pop()).collect();
        array.element_date = direct.into_iter().any(|found| found.dates.dates * 2 > found.values);
    }
}

fn element_kind(path: &PathProfile) -> ElementKind {
    const ONE_KIND_MIN: f64 = 0.95;
    let total = path.kinds.total() as f64;
    let is_most = |count: u64| count as f64 >= ONE_KIND_MIN * total;
    match path.kinds {
        Kinds { object, .. } if is_most(object) => ElementKind::Object,
        Kinds { string, .. } if is_most(string) => ElementKind::String,
        Kinds { number, .. } if is_most(number) => ElementKind::Number,
        Kinds { bool, .. } if is_most(bool) => ElementKind::Bool,
        Kinds { array, .. } if is_most(array) => ElementKind::Array,
        _ => ElementKind::Mixed,
    }
}
