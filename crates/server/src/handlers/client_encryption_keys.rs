//! Client encryption keys: stored for clients, never interpreted.

use std::sync::Arc;

use quire_engine::{Engine, EngineError, Resource};

use crate::handlers::catalog::{CatalogCall, CatalogResource, ChargedReply, Replace};
use crate::handlers::{Call, HandlerResult};
use crate::wire::Feed;
use crate::wire::headers::database_names;
use crate::wire::status::HandlerError;

/// The client encryption keys of a database.
pub(crate) struct Keys<'a> {
    pub database: &'a str,
}

impl CatalogResource for Keys<'_> {
    type Owner = Arc<Resource>;

    fn feed(&self) -> Feed {
        Feed::ClientEncryptionKeys
    }

    fn owner(&self, call: &Call<'_>) -> Result<Arc<Resource>, HandlerError> {
        call.owner_database(self.database)
    }

    fn owner_rid(&self, owner: &Arc<Resource>) -> String {
        owner.rid.to_string()
    }

    fn find(&self, engine: &Engine, name: &str) -> Result<Arc<Resource>, EngineError> {
        engine.catalog().client_encryption_key(self.database, name)
    }

    fn all(&self, engine: &Engine) -> Result<Vec<Arc<Resource>>, EngineError> {
        engine.catalog().client_encryption_keys(self.database)
    }

    fn create(&self, call: &Call<'_>) -> Result<CatalogCall<(Arc<Resource>, bool)>, HandlerError> {
        let (database, body) = (self.database.to_owned(), call.json()?);
        Ok(Box::new(move |engine| {
            Ok((engine.catalog().create_client_encryption_key(&database, &body)?, true))
        }))
    }

    fn answer(&self, _call: &Call<'_>, owner: &Arc<Resource>, outcome: ChargedReply) -> HandlerResult {
        let (reply, charge) = outcome?;
        Ok(reply.owner(database_names(owner), &owner.rid).charge(charge))
    }
}

impl Replace for Keys<'_> {
    fn replace(&self, call: &Call<'_>, name: &str) -> Result<CatalogCall<Arc<Resource>>, HandlerError> {
        let (body, precondition) = (call.json()?, call.precondition()?);
        let (database, name) = (self.database.to_owned(), name.to_owned());
        let replace = move |engine: &Engine| {
            engine.catalog().replace_client_encryption_key(&database, &name, &body, &precondition)
        };
        Ok(Box::new(replace))
    }
}
