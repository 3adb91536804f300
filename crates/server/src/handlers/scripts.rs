//! Stored procedures, triggers and user-defined functions, as resources of a container. Running a procedure is in
//! [`procedures`](super::procedures).

use std::sync::Arc;

use quire_engine::{Container, Engine, EngineError, Resource, ScriptKind};

use crate::handlers::catalog::{CatalogCall, CatalogResource, ChargedReply, Delete, Replace};
use crate::handlers::{Call, HandlerResult, charge, items};
use crate::operations::Action;
use crate::wire::Feed;
use crate::wire::headers::Reply;
use crate::wire::status::{Failure, HandlerError};

/// The scripts of one kind of a container.
pub(crate) struct Scripts<'a> {
    pub kind: ScriptKind,
    pub database: &'a str,
    pub container: &'a str,
}

impl CatalogResource for Scripts<'_> {
    type Owner = Arc<Container>;

    fn feed(&self) -> Feed {
        match self.kind {
            ScriptKind::StoredProcedure => Feed::StoredProcedures,
            ScriptKind::Trigger => Feed::Triggers,
            ScriptKind::UserDefinedFunction => Feed::UserDefinedFunctions,
        }
    }

    fn owner(&self, call: &Call<'_>) -> Result<Arc<Container>, HandlerError> {
        call.owner_container(self.database, self.container)
    }

    fn owner_rid(&self, owner: &Arc<Container>) -> String {
        owner.resource.rid.to_string()
    }

    fn find(&self, engine: &Engine, name: &str) -> Result<Arc<Resource>, EngineError> {
        engine.catalog().script(self.database, self.container, self.kind, name)
    }

    fn all(&self, engine: &Engine) -> Result<Vec<Arc<Resource>>, EngineError> {
        engine.catalog().scripts(self.database, self.container, self.kind)
    }

    fn create(&self, call: &Call<'_>) -> Result<CatalogCall<(Arc<Resource>, bool)>, HandlerError> {
        let (body, precondition, upsert) = (call.json()?, call.precondition()?, call.is_upsert());
        let (kind, (database, container)) = (self.kind, self.names());
        Ok(Box::new(move |engine| match upsert {
            true => engine.catalog().upsert_script(&database, &container, kind, &body, &precondition),
            false => Ok((engine.catalog().create_script(&database, &container, kind, &body)?, true)),
        }))
    }

    /// Charge, owner and session, also on failures. Scripts belong to no partition: the token is that of the first, because
    /// clients read no more than one from an answer. As writes of items do, writes of scripts say what the container holds.
    fn answer(&self, call: &Call<'_>, owner: &Arc<Container>, outcome: ChargedReply) -> HandlerResult {
        let (reply, charge) = match outcome {
            Ok(done) => done,
            Err(error) => (Reply::failure(Failure::from(&error)), charge::FAILED),
        };
        let reply = items::with_positions(reply, owner, charge, None);
        if matches!(call.operation.action, Action::Read | Action::ReadFeed | Action::Query) {
            return Ok(reply);
        }
        let (item_count, size_bytes) = owner.usage();
        Ok(reply.usage(item_count, size_bytes))
    }
}

impl Replace for Scripts<'_> {
    fn replace(&self, call: &Call<'_>, name: &str) -> Result<CatalogCall<Arc<Resource>>, HandlerError> {
        let (body, precondition) = (call.json()?, call.precondition()?);
        let (kind, (database, container), name) = (self.kind, self.names(), name.to_owned());
        let replace = move |engine: &Engine| {
            engine.catalog().replace_script(&database, &container, kind, &name, &body, &precondition)
        };
        Ok(Box::new(replace))
    }
}

impl Delete for Scripts<'_> {
    fn delete(&self, call: &Call<'_>, name: &str) -> Result<CatalogCall<()>, HandlerError> {
        let (kind, (database, container), name) = (self.kind, self.names(), name.to_owned());
        let precondition = call.precondition()?;
        let delete = move |engine: &Engine| {
            engine.catalog().delete_script(&database, &container, kind, &name, &precondition)
        };
        Ok(Box::new(delete))
    }
}

impl Scripts<'_> {
    fn names(&self) -> (String, String) {
        (self.database.to_owned(), self.container.to_owned())
    }
}
