//! Permissions. Every answer that shows one carries a fresh `_token` for it.

use std::sync::Arc;

use hyper::header::HeaderName;
use quire_engine::{Engine, EngineError, Resource};

use crate::auth;
use crate::handlers::call::owner_missing;
use crate::handlers::catalog::{CatalogCall, CatalogResource, ChargedReply, Delete, Replace, ResourceBody};
use crate::handlers::{Call, HandlerResult};
use crate::operations::Action;
use crate::wire::Feed;
use crate::wire::headers::user_names;
use crate::wire::status::HandlerError;

const EXPIRY: HeaderName = HeaderName::from_static("x-ms-documentdb-expiry-seconds");

/// The permissions of a user.
pub(crate) struct Permissions<'a> {
    pub database: &'a str,
    pub user: &'a str,
}

pub(crate) struct Owner {
    database: Arc<Resource>,
    user: Arc<Resource>,
}

impl CatalogResource for Permissions<'_> {
    type Owner = Owner;

    fn feed(&self) -> Feed {
        Feed::Permissions
    }

    fn owner(&self, call: &Call<'_>) -> Result<Owner, HandlerError> {
        let database = call.owner_database(self.database)?;
        let user = call.state.engine.catalog().user(self.database, self.user);
        let user = user.map_err(|error| owner_missing(error.into()))?;
        // Before anything is written: a bad lifetime must not leave a permission behind.
        if call.operation.action != Action::Delete {
            lifetime(call)?;
        }
        Ok(Owner { database, user })
    }

    fn owner_rid(&self, owner: &Owner) -> String {
        owner.user.rid.to_string()
    }

    fn find(&self, engine: &Engine, name: &str) -> Result<Arc<Resource>, EngineError> {
        engine.catalog().permission(self.database, self.user, name)
    }

    fn all(&self, engine: &Engine) -> Result<Vec<Arc<Resource>>, EngineError> {
        engine.catalog().permissions(self.database, self.user)
    }

    fn create(&self, call: &Call<'_>) -> Result<CatalogCall<(Arc<Resource>, bool)>, HandlerError> {
        let (body, upsert) = (call.json()?, call.is_upsert());
        let (database, user) = self.names();
        Ok(Box::new(move |engine| engine.catalog().create_permission(&database, &user, &body, upsert)))
    }

    fn body(&self, call: &Call<'_>) -> Result<ResourceBody, HandlerError> {
        let (state, lifetime_seconds) = (Arc::clone(call.state), lifetime(call)?);
        Ok(Box::new(move |permission| {
            let mut body = permission.to_json();
            body.set("_token", auth::resource_token(&state, permission, lifetime_seconds));
            body
        }))
    }

    fn answer(&self, _call: &Call<'_>, owner: &Owner, outcome: ChargedReply) -> HandlerResult {
        let (reply, charge) = outcome?;
        Ok(reply.owner(user_names(&owner.database, &owner.user), &owner.user.rid).charge(charge))
    }
}

impl Replace for Permissions<'_> {
    fn replace(&self, call: &Call<'_>, name: &str) -> Result<CatalogCall<Arc<Resource>>, HandlerError> {
        let (body, precondition) = (call.json()?, call.precondition()?);
        let ((database, user), name) = (self.names(), name.to_owned());
        let replace = move |engine: &Engine| {
            engine.catalog().replace_permission(&database, &user, &name, &body, &precondition)
        };
        Ok(Box::new(replace))
    }
}

impl Delete for Permissions<'_> {
    fn delete(&self, call: &Call<'_>, name: &str) -> Result<CatalogCall<()>, HandlerError> {
        let ((database, user), name, precondition) = (self.names(), name.to_owned(), call.precondition()?);
        Ok(Box::new(move |engine| engine.catalog().delete_permission(&database, &user, &name, &precondition)))
    }
}

impl Permissions<'_> {
    fn names(&self) -> (String, String) {
        (self.database.to_owned(), self.user.to_owned())
    }
}

/// Of the tokens to be made.
fn lifetime(call: &Call<'_>) -> Result<i64, HandlerError> {
    Ok(auth::lifetime_seconds(call.text(&EXPIRY)?)?)
}
