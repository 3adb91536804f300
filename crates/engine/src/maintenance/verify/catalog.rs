//! The catalog's own consistency.

use std::collections::{BTreeMap, BTreeSet};

use quire_resource::{ContainerDefinition, ResourceId};
use quire_storage::Snapshot;

use super::VerifyReport;
use crate::api::{EngineError, ScriptKind};
use crate::catalog::check_script;
use crate::catalog::keys::{self as catalog_keys, RowId};
use crate::catalog::model_row::ModelRow;
use crate::catalog::row::{Counters, ResourceRow};
use crate::indexes::Indexes;
use crate::maintenance::model_rows::ModelRows;
use crate::store::keys::CATALOG;
use crate::store::{PartitionLayout, stored_definition};

/// The catalog's own consistency.
#[derive(Default)]
pub(super) struct CatalogCheck {
    seen: BTreeSet<ResourceId>,
    names: BTreeSet<(Option<ResourceId>, u8, String)>,
    pub containers: BTreeMap<u32, CheckedContainer>,
    /// By database.
    pub models: Vec<(u32, ModelRow)>,
    highest: HighestNumbers,
}

/// A container whose row is sound.
pub(super) struct CheckedContainer {
    /// Number of its database.
    pub database: u32,
    pub definition: ContainerDefinition,
    pub layout: Vec<PartitionLayout>,
    pub indexes: Indexes,
}

/// The highest number of each kind.
#[derive(Default)]
struct HighestNumbers {
    database: u32,
    container: u32,
    user: u32,
    permission: u64,
    client_encryption_key: u32,
    offer: u32,
    script: u64,
    declaration: u32,
}

impl CatalogCheck {
    pub fn check(&mut self, id: RowId, row: ResourceRow, report: &mut VerifyReport) {
        let rid = id.rid();
        let owner = match id {
            RowId::Offer { owner, .. } => Some(owner.rid()),
            RowId::Resource(rid) => rid.owner(),
        };
        if owner.is_some_and(|owner| !self.seen.contains(&owner)) {
            report.problem(format!("resource {rid} has no owner"));
        }
        self.seen.insert(rid);
        self.highest.note(rid);
        let kind = catalog_keys::row_key(id)[1];
        if !self.names.insert((owner, kind, row.resource.id.clone())) {
            report.problem(format!("two resources of one owner are called {:?}", row.resource.id));
        }
        if let Some(kind) = ScriptKind::of(&rid)
            && let Err(error) = check_script(kind, &row.resource.body)
        {
            report.problem(format!("script {rid}: {error}"));
        }
        if let ResourceId::Container { container, database } = rid {
            let checked = stored_definition(&row.resource.body).and_then(|definition| {
                let indexes = Indexes::of(&definition, &row.epochs)?;
                Ok(CheckedContainer { database, definition, layout: row.layout, indexes })
            });
            match checked {
                Ok(checked) => drop(self.containers.insert(container, checked)),
                Err(error) => report.problem(format!("definition of container {rid}: {error}")),
            }
        }
    }

    /// Containers are checked before.
    pub fn check_model(&mut self, database: u32, row: ModelRow, report: &mut VerifyReport) {
        if !self.seen.contains(&ResourceId::Database(database)) {
            report.problem(format!("a model without its database {database}"));
            return;
        }
        let mut numbers = BTreeSet::new();
        for (_, declaration) in row.declarations.iter() {
            self.highest.declaration = self.highest.declaration.max(declaration.number);
            if !numbers.insert(declaration.number) {
                report.problem(format!("two declarations of database {database} have one number"));
            }
        }
        for name in row.model.containers() {
            let owner = Some(ResourceId::Database(database));
            if !self.names.contains(&(owner, catalog_keys::CONTAINER, name.to_owned())) {
                report
                    .problem(format!("the model of database {database} names {name:?}, which is not there"));
                return;
            }
        }
        self.models.push((database, row));
    }

    /// The models, ready to say which rows there must be.
    pub fn model_rows(&self, report: &mut VerifyReport) -> Vec<(u32, ModelRows)> {
        let mut models = Vec::new();
        for (database, row) in &self.models {
            let own = self.containers.iter().filter(|(_, checked)| checked.database == *database);
            let definitions: Vec<_> = own.map(|(number, checked)| (*number, &checked.definition)).collect();
            match ModelRows::new(row.clone(), &definitions) {
                Ok(rows) => models.push((*database, rows)),
                Err(error) => report.problem(format!("the model of database {database}: {error}")),
            }
        }
        models
    }

    pub fn check_counters(
        &self,
        snapshot: &dyn Snapshot,
        report: &mut VerifyReport,
    ) -> Result<(), EngineError> {
        let Some(value) = snapshot.get(CATALOG, &catalog_keys::COUNTERS)? else {
            report.problem("no counters row".to_owned());
            return Ok(());
        };
        let next = Counters::decode(&catalog_keys::COUNTERS, &value)?;
        let highest = &self.highest;
        let pairs = [
            ("databases", next.database, u64::from(highest.database)),
            ("containers", next.container, u64::from(highest.container)),
            ("users", next.user, u64::from(highest.user)),
            ("permissions", next.permission, highest.permission),
            ("client encryption keys", next.client_encryption_key, u64::from(highest.client_encryption_key)),
            ("offers", next.offer, u64::from(highest.offer)),
            ("scripts", next.script, highest.script),
            ("declarations", next.declaration, u64::from(highest.declaration)),
        ];
        for (kind, next, highest) in pairs {
            if next <= highest {
                report.problem(format!("the next number of {kind} is {next}, but {highest} is in use"));
            }
        }
        Ok(())
    }
}

impl HighestNumbers {
    fn note(&mut self, rid: ResourceId) {
        match rid {
            ResourceId::Database(number) => self.database = self.database.max(number),
            ResourceId::Container { container, .. } => self.container = self.container.max(container),
            ResourceId::User { user, .. } => self.user = self.user.max(user),
            ResourceId::Permission { permission, .. } => self.permission = self.permission.max(permission),
            ResourceId::ClientEncryptionKey { key, .. } => {
                self.client_encryption_key = self.client_encryption_key.max(key);
            }
            ResourceId::Offer(number) => self.offer = self.offer.max(number),
            ResourceId::Child { child, .. } => self.script = self.script.max(child),
        }
    }
}
