//! Users.

use std::sync::Arc;

use quire_engine::{Engine, EngineError, Resource};

use crate::handlers::catalog::{CatalogCall, CatalogResource, ChargedReply, Delete, Replace};
use crate::handlers::{Call, HandlerResult};
use crate::wire::Feed;
use crate::wire::headers::database_names;
use crate::wire::status::HandlerError;

/// The users of a database.
pub(crate) struct Users<'a> {
    pub database: &'a str,
}

impl CatalogResource for Users<'_> {
    type Owner = Arc<Resource>;

    fn feed(&self) -> Feed {
        Feed::Users
    }

    fn owner(&self, call: &Call<'_>) -> Result<Arc<Resource>, HandlerError> {
        call.owner_database(self.database)
    }

    fn owner_rid(&self, owner: &Arc<Resource>) -> String {
        owner.rid.to_string()
    }

    fn find(&self, engine: &Engine, name: &str) -> Result<Arc<Resource>, EngineError> {
        engine.catalog().user(self.database, name)
    }

    fn all(&self, engine: &Engine) -> Result<Vec<Arc<Resource>>, EngineError> {
        engine.catalog().users(self.database)
    }

    fn create(&self, call: &Call<'_>) -> Result<CatalogCall<(Arc<Resource>, bool)>, HandlerError> {
        let (database, body, upsert) = (self.database.to_owned(), call.json()?, call.is_upsert());
        Ok(Box::new(move |engine| engine.catalog().create_user(&database, &body, upsert)))
    }

    fn answer(&self, _call: &Call<'_>, owner: &Arc<Resource>, outcome: ChargedReply) -> HandlerResult {
        let (reply, charge) = outcome?;
        Ok(reply.owner(database_names(owner), &owner.rid).charge(charge))
    }
}

impl Replace for Users<'_> {
    fn replace(&self, call: &Call<'_>, name: &str) -> Result<CatalogCall<Arc<Resource>>, HandlerError> {
        let (body, precondition) = (call.json()?, call.precondition()?);
        let (database, name) = (self.database.to_owned(), name.to_owned());
        Ok(Box::new(move |engine| engine.catalog().replace_user(&database, &name, &body, &precondition)))
    }
}

impl Delete for Users<'_> {
    fn delete(&self, call: &Call<'_>, name: &str) -> Result<CatalogCall<()>, HandlerError> {
        let (database, name, precondition) =
            (self.database.to_owned(), name.to_owned(), call.precondition()?);
        Ok(Box::new(move |engine| engine.catalog().delete_user(&database, &name, &precondition)))
    }
}
