//! Rows that declarations of models keep beside items.

use std::collections::HashMap;

use super::store::Verifier;
use crate::api::EngineError;
use crate::catalog::read_jobs;
use crate::catalog::state::DropJob;
use crate::indexes::IndexId;
use crate::maintenance::derived::DerivedRow;
use crate::maintenance::model_rows::ModelRows;
use crate::partition::deleted_keys::DeletedKeys;
use crate::store::for_each_row;
use crate::store::item_row::ItemRow;
use crate::store::keys::{self, INDEX, LOOKUPS, LinkKeys};

/// The models of all databases, and how many rows their items ask for.
#[derive(Default)]
pub(super) struct ModelCheck {
    /// By database.
    pub models: Vec<(u32, ModelRows)>,
    /// Rows of links' indexes, by container.
    links: HashMap<u32, u64>,
    /// Other rows, by container and declaration.
    lookups: HashMap<(u32, u32), u64>,
}

impl ModelCheck {
    /// Takes an item in; the rows that follow from it.
    pub fn add(
        &mut self,
        database: u32,
        container: u32,
        key: &[u8],
        value: &[u8],
    ) -> Result<Vec<DerivedRow>, EngineError> {
        let model = self.models.iter_mut().find(|(own, _)| *own == database);
        let Some(((_, model), rid)) = model.zip(keys::rid_of_item_key(key)) else { return Ok(Vec::new()) };
        let rows = model.add(container, rid, &ItemRow::parse(value)?)?;
        self.note(&rows);
        Ok(rows)
    }

    /// Before the items of a container are taken in.
    pub fn set_deleted_keys(&mut self, database: u32, container: u32, deleted: DeletedKeys) {
        let model = self.models.iter_mut().find(|(own, _)| *own == database);
        if let Some((_, model)) = model {
            model.set_deleted_keys(container, deleted);
        }
    }

    pub fn expected_links(&self, container: u32) -> u64 {
        self.links.get(&container).copied().unwrap_or_default()
    }

    fn note(&mut self, rows: &[DerivedRow]) {
        for row in rows {
            let Some(container) = row.key.first_chunk().map(|bytes| u32::from_be_bytes(*bytes)) else {
                continue;
            };
            match keys::declaration_of_row(&row.key).filter(|_| row.space == LOOKUPS) {
                Some(declaration) => *self.lookups.entry((container, declaration)).or_default() += 1,
                None => *self.links.entry(container).or_default() += 1,
            }
        }
    }
}

impl Verifier<'_> {
    /// Rows of links that are being built, have failed or are gone: nothing says which there must be.
    pub(super) fn count_unchecked_links(&self, container: u32) -> Result<u64, EngineError> {
        let models = self.models.models.iter().flat_map(|(_, model)| model.link_indexes(container));
        let unchecked = models.filter(|(_, is_complete)| !is_complete).map(|(own, _)| own);
        let mut count = 0;
        for own in unchecked.chain(self.reclaimed_links(container)?) {
            count += self.count(INDEX, &own.prefix())?;
        }
        Ok(count)
    }

    fn reclaimed_links(&self, container: u32) -> Result<Vec<LinkKeys>, EngineError> {
        let index = |declaration| IndexId::of_link(declaration).0;
        let own = |job| match job {
            DropJob::Declaration { container: own, declaration } if own == container => {
                Some(LinkKeys { container, index: index(declaration) })
            }
            _ => None,
        };
        Ok(read_jobs(self.snapshot)?.into_iter().filter_map(own).collect())
    }

    /// Totals, extremes, mirrors and keys: all that follow from the items are there, and no others.
    pub(super) fn check_models<'c>(
        &mut self,
        containers: impl Iterator<Item = &'c u32>,
    ) -> Result<(), EngineError> {
        let mut models = std::mem::take(&mut self.models.models);
        for (_, model) in &mut models {
            model.drain_rows(|row, is_certain| {
                if !is_certain && self.snapshot.get(row.space, &row.key)?.is_none() {
                    return Ok(());
                }
                self.models.note(std::slice::from_ref(&row));
                let container = row.key.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
                self.check_derived(container, std::slice::from_ref(&row))
            })?;
        }
        self.models.models = models;
        let states: HashMap<u32, bool> =
            self.models.models.iter().flat_map(|(_, model)| model.declarations()).collect();
        let jobs = read_jobs(self.snapshot)?;
        for container in containers {
            for ((_, declaration), found) in self.declaration_rows(*container)? {
                let expected = self.models.lookups.get(&(*container, declaration)).copied().unwrap_or(0);
                let job = DropJob::Declaration { container: *container, declaration };
                let what = match states.get(&declaration) {
                    Some(false) => continue,
                    Some(true) if found == expected => continue,
                    Some(true) => format!("has {found} rows where its items need {expected}"),
                    None if jobs.contains(&job) => continue,
                    None => "is unknown".to_owned(),
                };
                self.report.problem(format!("container {container}, declaration {declaration} {what}"));
            }
        }
        Ok(())
    }

    /// How many rows each declaration has in a container.
    fn declaration_rows(&self, container: u32) -> Result<HashMap<(u32, u32), u64>, EngineError> {
        let mut found = HashMap::new();
        for prefix in keys::declaration_rows(container) {
            for_each_row(self.snapshot, LOOKUPS, &prefix, |key, _| {
                if let Some(declaration) = keys::declaration_of_row(key) {
                    *found.entry((container, declaration)).or_default() += 1;
                }
                Ok(())
            })?;
        }
        Ok(found)
    }
}
