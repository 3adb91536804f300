//! Databases.

use std::sync::Arc;

use quire_engine::{Engine, EngineError, Resource};

use crate::handlers::catalog::{CatalogCall, CatalogResource, ChargedReply, Delete};
use crate::handlers::{Call, HandlerResult};
use crate::operations::Action;
use crate::wire::Feed;
use crate::wire::status::HandlerError;

pub(crate) struct Databases;

impl CatalogResource for Databases {
    /// The account.
    type Owner = ();

    fn feed(&self) -> Feed {
        Feed::Databases
    }

    fn owner(&self, _call: &Call<'_>) -> Result<(), HandlerError> {
        Ok(())
    }

    fn owner_rid(&self, (): &()) -> String {
        String::new()
    }

    fn find(&self, engine: &Engine, name: &str) -> Result<Arc<Resource>, EngineError> {
        engine.catalog().database(name)
    }

    fn all(&self, engine: &Engine) -> Result<Vec<Arc<Resource>>, EngineError> {
        Ok(engine.catalog().databases())
    }

    fn create(&self, call: &Call<'_>) -> Result<CatalogCall<(Arc<Resource>, bool)>, HandlerError> {
        let (body, throughput) = (call.json()?, call.throughput()?);
        Ok(Box::new(move |engine| Ok((engine.catalog().create_database(&body, throughput)?, true))))
    }

    fn answer(&self, call: &Call<'_>, (): &(), outcome: ChargedReply) -> HandlerResult {
        let (reply, charge) = outcome?;
        let reply = reply.charge(charge);
        if call.operation.action != Action::Create {
            return Ok(reply);
        }
        Ok(reply.database_usage(call.state.engine.catalog().databases().len()))
    }
}

impl Delete for Databases {
    fn delete(&self, call: &Call<'_>, name: &str) -> Result<CatalogCall<()>, HandlerError> {
        let (name, precondition) = (name.to_owned(), call.precondition()?);
        Ok(Box::new(move |engine| engine.catalog().delete_database(&name, &precondition)))
    }
}
