//! What declarations of models keep beside items: who refers to whom, keys by which links find items, totals, extremes, values of
//! mirrors.
//!
//! All of it is by target, whether an item is there or not ([`TargetHash`]). Rows of a link's index are exactly the references of
//! the items of a container: they change in the commits of the referrers, as every derived row does. The others change in
//! the same commits, by differences (see `maintain`).
//! Not here: what is written when (`maintain`).

mod extremes; // values of a rollup in their order
mod find; // from a reference to its target
mod mirror; // values of a mirror in the order of the referrers
mod referrers; // from a target to its referrers
mod target; // what rows call targets and referrers
mod totals; // totals of a rollup

pub(crate) use extremes::{EXTREME_COUNT_BYTES, End, ExtremeChange, extreme, extreme_ops, extreme_row};
pub(crate) use find::{FoundTarget, ScannedKey, TargetRoute, find_target, scan_for_key, visible_targets};
pub(crate) use mirror::{mirror_value_bytes, mirror_values};
pub(crate) use referrers::{Referrer, Referrers};
pub(crate) use target::{TargetHash, link_rows, referrer_order, referrer_place};
pub(crate) use totals::{read_totals, totals_op};
