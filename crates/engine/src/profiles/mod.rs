//! Profiles: what is stored in the containers of a database, and what the advisor said about it.
//!
//! [`ProfileBuild`] walks over the items of one snapshot and feeds `quire-profile`. [`Profiles`] keeps the last profile of every
//! database in memory for the advisor; as JSON it is in the storage (`rows`).
//! Not here: jobs (see `background::profiles`), rules (see `quire-advisor`).

mod build; // walks over items
mod lookups; // values of references that are looked up
mod ready; // the last profiles, in memory
mod rows; // profiles and advice in the storage

pub(crate) use build::{BuildOptions, BuiltProfile, ProfileBuild, SCAN_MAX_DEFAULT};
pub(crate) use ready::Profiles;
