//! Reads everything again: a store that no engine has open, or a backup.
//!
//! Of a store: every catalog row, every item row (checksum, structure, partition key, size), every row that follows from
//! an item and none besides, every partition's counts and LSN, no rows of unknown containers. Of a backup: every byte of
//! its files, every record, the items they come to against the counts of the manifest.

mod backup; // the files of a backup
mod catalog; // catalog rows
mod items; // item rows
mod models; // rows of declared links
mod store; // rows of containers

pub use backup::verify_backup;
pub(crate) use backup::{check_files, for_each_item};
pub(crate) use items::check_row;
pub use store::verify;

/// Problems that are described; beyond that they are only counted.
const PROBLEMS_DESCRIBED_MAX: usize = 100;

/// What was read, and what was wrong with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    pub containers: u64,
    pub items: u64,
    pub problem_count: u64,
    /// The first of them.
    pub problems: Vec<String>,
}

impl VerifyReport {
    pub fn is_sound(&self) -> bool {
        self.problem_count == 0
    }

    pub(super) fn problem(&mut self, what: String) {
        self.problem_count += 1;
        if self.problems.len() < PROBLEMS_DESCRIBED_MAX {
            self.problems.push(what);
        }
    }
}
