//! Profiles of the containers of a database, and the advice about them.
//!
//! [`ProfileBuild`] walks over the items of one snapshot and feeds `quire-profile`; [`ProfileFollow`] looks only at what writers
//! touched since. [`Profiles`] keeps the last profile of every database in memory for the advisor and for what follows; as JSON it is
//! in the storage (`rows`).
//! Not here: jobs (see `background::profiles`), rules (see `quire-advisor`).

mod build; // walks over items
mod follow; // items that were touched since
mod lookups; // values of references that are looked up
mod registry; // the last profiles, in memory
mod retained; // what the next refresh goes on with
mod rows; // profiles and advice in the storage

pub(crate) use build::{BuildOptions, BuiltProfile, ProfileBuild, SCAN_MAX_DEFAULT};
pub(crate) use follow::ProfileFollow;
pub(crate) use registry::Profiles;
pub(crate) use retained::RetainedScans;
