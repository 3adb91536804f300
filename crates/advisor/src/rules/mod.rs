//! The rules: one file each, one table.
//!
//! | column      | meaning                                                                     |
//! |-------------|-----------------------------------------------------------------------------|
//! | priced      | listed only if it saves enough, or a limit is near                          |
//! | load        | needs recorded requests                                                     |
//! | data        | needs stored items                                                          |

mod blob_in_item;
mod composite_missing;
mod composite_redundant;
mod contended_item;
mod copy_missing;
mod dangling_references;
mod data_as_names;
mod deep_nesting;
mod deep_offset;
mod embed_together;
mod event_items;
mod extract_part;
mod function_hides_index;
mod growing_references;
mod history_in_item;
mod hot_and_cold;
mod hot_copy;
mod index_missing;
mod index_not_needed;
mod index_on_vectors;
mod index_unused;
mod join_blow_up;
mod join_items;
mod key_few_values;
mod key_hot;
mod key_monotone;
mod key_mutable;
mod key_near_limit;
mod key_odd_values;
mod key_skewed;
mod key_unused;
mod large_array;
mod large_items;
mod latest_by_scan;
mod lost_updates;
mod mirror_broken;
mod missing_discriminator;
mod n_plus_one;
mod not_atomic;
mod number_fidelity;
mod outliers;
mod query_for_point_read;
mod read_modify_write;
mod repeated_aggregate;
mod risky_ids;
mod rollup_wrong;
mod scan_for_analytics;
mod second_path;
mod soft_deletes;
mod sparse_attributes;
mod stale_copies;
mod type_drift;
mod unbounded_array;
mod unbounded_result;
mod unsortable_dates;

use crate::case::Case;
use crate::finding::Candidate;

pub struct Rule {
    pub name: &'static str,
    pub group: Group,
    pub is_priced: bool,
    pub needs_load: bool,
    pub needs_items: bool,
    pub evaluate: fn(&Case<'_>) -> Vec<Candidate>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    Shape,
    Relationships,
    Integrity,
    PartitionKey,
    Indexing,
    Queries,
}

impl Group {
    pub fn name(self) -> &'static str {
        match self {
            Group::Shape => "shape",
            Group::Relationships => "relationships",
            Group::Integrity => "integrity",
            Group::PartitionKey => "partition-key",
            Group::Indexing => "indexing",
            Group::Queries => "queries",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Priced {
    Yes,
    No,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    Data,
    Load,
}

use Group::{Indexing, Integrity, PartitionKey, Queries, Relationships, Shape};
use Needs::{Data, Load};
use Priced::{No, Yes};

#[rustfmt::skip]
pub const RULES: &[Rule] = &[
    //   name                      group          priced  needs  evaluate
    rule("unbounded-array",         Shape,         Yes,  Data,  unbounded_array::evaluate),
    rule("large-array",             Shape,         Yes,  Load,  large_array::evaluate),
    rule("large-items",             Shape,         Yes,  Load,  large_items::evaluate),
    rule("hot-and-cold",            Shape,         Yes,  Load,  hot_and_cold::evaluate),
    rule("blob-in-item",            Shape,         Yes,  Data,  blob_in_item::evaluate),
    rule("missing-discriminator",   Shape,         No,   Data,  missing_discriminator::evaluate),
    rule("sparse-attributes",       Shape,         No,   Load,  sparse_attributes::evaluate),
    rule("data-as-names",           Shape,         No,   Data,  data_as_names::evaluate),
    rule("deep-nesting",            Shape,         No,   Data,  deep_nesting::evaluate),
    rule("number-fidelity",         Shape,         No,   Data,  number_fidelity::evaluate),
    rule("type-drift",              Shape,         No,   Data,  type_drift::evaluate),
    rule("unsortable-dates",        Shape,         No,   Data,  unsortable_dates::evaluate),
    rule("risky-ids",               Shape,         No,   Data,  risky_ids::evaluate),
    rule("outliers",                Shape,         No,   Data,  outliers::evaluate),
    rule("history-in-item",         Shape,         Yes,  Data,  history_in_item::evaluate),
    rule("embed-together",          Relationships, Yes,  Load,  embed_together::evaluate),
    rule("extract-part",            Relationships, Yes,  Load,  extract_part::evaluate),
    rule("hot-copy",                Relationships, Yes,  Load,  hot_copy::evaluate),
    rule("copy-missing",            Relationships, Yes,  Load,  copy_missing::evaluate),
    rule("n-plus-one",              Relationships, No,   Load,  n_plus_one::evaluate),
    rule("growing-references",      Relationships, Yes,  Data,  growing_references::evaluate),
    rule("join-items",              Relationships, Yes,  Load,  join_items::evaluate),
    rule("repeated-aggregate",      Relationships, Yes,  Load,  repeated_aggregate::evaluate),
    rule("not-atomic",              Relationships, No,   Load,  not_atomic::evaluate),
    rule("stale-copies",            Integrity,     No,   Data,  stale_copies::evaluate),
    rule("dangling-references",     Integrity,     No,   Data,  dangling_references::evaluate),
    rule("mirror-broken",           Integrity,     No,   Data,  mirror_broken::evaluate),
    rule("rollup-wrong",            Integrity,     No,   Data,  rollup_wrong::evaluate),
    rule("lost-updates",            Integrity,     No,   Load,  lost_updates::evaluate),
    rule("read-modify-write",       Integrity,     No,   Load,  read_modify_write::evaluate),
    rule("key-few-values",          PartitionKey,  No,   Data,  key_few_values::evaluate),
    rule("key-skewed",              PartitionKey,  No,   Data,  key_skewed::evaluate),
    rule("key-near-limit",          PartitionKey,  No,   Data,  key_near_limit::evaluate),
    rule("key-hot",                 PartitionKey,  No,   Load,  key_hot::evaluate),
    rule("key-monotone",            PartitionKey,  No,   Load,  key_monotone::evaluate),
    rule("key-unused",              PartitionKey,  No,   Load,  key_unused::evaluate),
    rule("key-mutable",             PartitionKey,  No,   Load,  key_mutable::evaluate),
    rule("second-path",             PartitionKey,  Yes,  Load,  second_path::evaluate),
    rule("key-odd-values",          PartitionKey,  No,   Data,  key_odd_values::evaluate),
    rule("index-unused",            Indexing,      Yes,  Load,  index_unused::evaluate),
    rule("index-missing",           Indexing,      Yes,  Load,  index_missing::evaluate),
    rule("composite-missing",       Indexing,      No,   Load,  composite_missing::evaluate),
    rule("composite-redundant",     Indexing,      No,   Data,  composite_redundant::evaluate),
    rule("function-hides-index",    Indexing,      Yes,  Load,  function_hides_index::evaluate),
    rule("index-not-needed",        Indexing,      Yes,  Load,  index_not_needed::evaluate),
    rule("index-on-vectors",        Indexing,      Yes,  Data,  index_on_vectors::evaluate),
    rule("query-for-point-read",    Queries,       Yes,  Load,  query_for_point_read::evaluate),
    rule("deep-offset",             Queries,       No,   Load,  deep_offset::evaluate),
    rule("unbounded-result",        Queries,       No,   Load,  unbounded_result::evaluate),
    rule("scan-for-analytics",      Queries,       Yes,  Load,  scan_for_analytics::evaluate),
    rule("join-blow-up",            Queries,       No,   Load,  join_blow_up::evaluate),
    rule("event-items",             Queries,       Yes,  Load,  event_items::evaluate),
    rule("contended-item",          Queries,       No,   Load,  contended_item::evaluate),
    rule("soft-deletes",            Queries,       No,   Load,  soft_deletes::evaluate),
    rule("latest-by-scan",          Queries,       Yes,  Load,  latest_by_scan::evaluate),
];

const fn rule(
    name: &'static str,
    group: Group,
    priced: Priced,
    needs: Needs,
    evaluate: fn(&Case<'_>) -> Vec<Candidate>,
) -> Rule {
    let (is_priced, needs_load) = (matches!(priced, Yes), matches!(needs, Load));
    Rule { name, group, is_priced, needs_load, needs_items: !needs_load, evaluate }
}
