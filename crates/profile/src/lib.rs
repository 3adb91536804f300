//! What is stored in containers and how it is used, in bounded memory.
//!
//! Two inputs, one result. Items go through up to three passes: [`Survey`] finds the discriminator on a sample,
//! [`Scan`] takes in every item, [`Relations`] proves references by look-ups and compares pairs of items in a second
//! scan. Requests become [`Record`]s; [`Workload`] keeps a ring of them and hourly sums that outlive it.
//! [`ContainerProfile`] joins both and writes the JSON of the profile.
//! Everything is a pure state machine: no storage, no threads, no clock. The caller reads items, answers look-ups and
//! tells the time.
//! Not here: what to think of a profile (see `quire-advisor`).

mod path; // pointers with `*`, as text
mod profile; // the result: types and JSON
mod relate; // references, copies, counts, mirrors, repetition
mod scan; // structure of items
mod sketch; // distinct values, quantiles, samples
mod workload; // recorded requests

pub use path::{covers, escaped, join, names, parent, policy_path, top_level};
pub use profile::{
    ArrayGrowth, ArrayProfile, ContainerProfile, CopyProfile, CountProfile, DatabaseProfile, DateFormats,
    Discriminator, ElementKind, FollowedChanges, IdForm, ItemCounts, ItemExample, KeyOrder, KeyProfile,
    Kinds, Largest, MirrorProfile, ObjectProfile, PathProfile, ReferenceProfile, Repetition, ShapeCluster,
    TimeSeries, TypeProfile, remove_recorded_part,
};
pub use relate::{ContainerScan, LookedUpItem, Lookup, Relations, is_found_by_id};
pub use scan::{ItemInput, Scan, ScanResult, Survey};
pub use sketch::{Histogram, Summary, lower_bound};
pub use workload::{
    ActionSource, ArrayLength, ChangeSets, ContainerWorkload, CorruptWorkload, HotItem, HotKey, ItemChange,
    ItemReader, ItemSequence, KeyUse, Operation, OperationTotals, ParameterQuery, Placeholder, Projection,
    QueryShape, QueryTotals, Record, RecordedQuery, Replacement, Role, SHAPE_TEXT_BYTES_MAX, Scope,
    SequenceProfile, ShapeProfile, Workload, WriteTotals, any_value, parameter_query, rewritten, shape_of,
};
