//! Which paths change together: every question about parts of an item is answered from sets of changed paths.

use std::collections::BTreeMap;

use crate::path::covers;

/// Different sets that are kept; writes with further ones count as changes of everything.
const SETS_MAX: usize = 500;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChangeSets {
    pub(super) sets: BTreeMap<Vec<String>, u64>,
    pub(super) others: u64,
}

impl ChangeSets {
    pub(super) fn add(&mut self, paths: &[String], count: u64) {
        let mut paths = paths.to_vec();
        paths.sort_unstable();
        paths.dedup();
        if self.sets.len() < SETS_MAX || self.sets.contains_key(&paths) {
            *self.sets.entry(paths).or_default() += count;
        } else {
            self.others += count;
        }
    }

    pub(super) fn merge(&mut self, other: &ChangeSets) {
        other.sets.iter().for_each(|(paths, count)| self.add(paths, *count));
        self.others += other.others;
    }

    /// Writes of existing items.
    pub fn writes(&self) -> u64 {
        self.sets.values().sum::<u64>() + self.others
    }

    /// Writes that changed something.
    pub fn changing(&self) -> u64 {
        self.count(|paths| !paths.is_empty()) + self.others
    }

    /// Writes that changed something at or below `path`.
    pub fn touching(&self, path: &str) -> u64 {
        self.count(|paths| paths.iter().any(|changed| covers(path, changed))) + self.others
    }

    /// Writes that changed something below `path` and nothing else.
    pub fn only(&self, path: &str) -> u64 {
        self.count(|paths| !paths.is_empty() && paths.iter().all(|changed| covers(path, changed)))
    }

    /// Writes that changed something, but nothing below any of the paths.
    pub fn without(&self, paths: &[&str]) -> u64 {
        self.count(|changed| {
            !changed.is_empty()
                && !changed.iter().any(|changed| paths.iter().any(|path| covers(path, changed)))
        })
    }

    /// Writes that changed something inside an element of the array, and not its length alone.
    pub fn inside_elements(&self, array: &str) -> u64 {
        let elements = format!("{array}/*/");
        self.count(|paths| paths.iter().any(|changed| changed.starts_with(&elements)))
    }

    /// Every changed path with the number of writes that changed it, and that changed nothing else.
    pub fn paths(&self) -> BTreeMap<&str, (u64, u64)> {
        let mut found: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for (paths, count) in &self.sets {
            for path in paths {
                let entry = found.entry(path).or_default();
                entry.0 += count;
                entry.1 += if paths.len() == 1 { *count } else { 0 };
            }
        }
        found
    }

    fn count(&self, fits: impl Fn(&[String]) -> bool) -> u64 {
        self.sets.iter().filter(|(paths, _)| fits(paths)).map(|(_, count)| count).sum()
    }
}
