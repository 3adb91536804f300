//! Serves the requests of a script from its transaction.
//!
//! What a script can answer for goes to its callback: an item that is missing or in the way, a stale ETag, a body or query
//! that is wrong. What it cannot (the storage failed, the time is over) stops the run, and the reason is kept.

use bytes::Bytes;
use quire_resource::PartitionKey;
use quire_script::{Answer, Caller, Host, IndexAction, ItemLink, Reply, Request};
use quire_sql::{Parameters, SqlError};
use quire_value::{Limits, Value, text};

use super::ScriptAllowance;
use crate::api::{EngineError, IndexingDirective, Page, ScriptError, corrupt};
use crate::transactions::{ChangeItem, Transaction, TransactionChange, TransactionRead};

const NOT_FOUND: &str = "Entity with the specified id does not exist in the system.";
const ALREADY_EXISTS: &str = "Entity with the specified id already exists in the system.";
const PRECONDITION_FAILED: &str =
    "Operation cannot be performed because one of the specified precondition is not met.";
const OTHER_PARTITION_KEY: &str = "Requests originating from scripts cannot reference partition keys other than the one \
                                   for which client request was submitted.";

pub(super) struct ItemHost<'t, 'a> {
    transaction: &'t mut Transaction<'a>,
    key: &'t PartitionKey,
    allowance: &'t ScriptAllowance<'t>,
    /// Why the run was stopped.
    stopped: Option<EngineError>,
}

impl<'t, 'a> ItemHost<'t, 'a> {
    pub fn new(
        transaction: &'t mut Transaction<'a>,
        key: &'t PartitionKey,
        allowance: &'t ScriptAllowance<'t>,
    ) -> ItemHost<'t, 'a> {
        ItemHost { transaction, key, allowance, stopped: None }
    }

    pub fn into_stopped(self) -> Option<EngineError> {
        self.stopped
    }

    fn serve(&mut self, request: Request, callback: Callback) -> Result<Reply, EngineError> {
        match request {
            Request::Read { item, if_none_match } => self.read(item, if_none_match.as_deref()),
            Request::ReadFeed { page_size, continuation } => {
                page(self.transaction.feed(page_size, continuation.as_deref())?)
            }
            Request::Query { text, parameters, page_size, continuation } => {
                let parameters = parameters_of(parameters.as_deref())?;
                page(self.transaction.query(&text, &parameters, page_size, continuation.as_deref())?)
            }
            Request::Create { body, index_action } => {
                self.write(TransactionChange::Create, body, None, index_action, callback)
            }
            Request::Upsert { body, if_match, index_action } => {
                self.write(TransactionChange::Upsert, body, if_match, index_action, callback)
            }
            Request::Replace { item, body, if_match, index_action } => {
                let id = self.id_of(item)?;
                self.write(TransactionChange::Replace { id }, body, if_match, index_action, callback)
            }
            Request::Delete { item, if_match, partition_key } => {
                self.check_key(partition_key.as_deref())?;
                let id = self.id_of(item)?;
                let (change, action) = (TransactionChange::Delete { id }, IndexAction::Default);
                self.write(change, String::new(), if_match, action, callback)
            }
        }
    }

    fn read(&mut self, item: ItemLink, if_none_match: Option<&str>) -> Result<Reply, EngineError> {
        let id = self.id_of(item)?;
        Ok(match self.transaction.read(&id, if_none_match)? {
            TransactionRead::Found { json, .. } => Reply::Item { status: 200, body: json },
            TransactionRead::NotModified { .. } => Reply::NotModified,
        })
    }

    fn write(
        &mut self,
        change: TransactionChange,
        body: String,
        if_match: Option<String>,
        index_action: IndexAction,
        callback: Callback,
    ) -> Result<Reply, EngineError> {
        let indexing = match index_action {
            IndexAction::Default => IndexingDirective::Default,
            IndexAction::Include => IndexingDirective::Include,
            IndexAction::Exclude => IndexingDirective::Exclude,
        };
        let is_delete = matches!(change, TransactionChange::Delete { .. });
        let (body, if_none_match) = (Bytes::from(body), None);
        let change = ChangeItem { change, body, if_match, if_none_match, indexing };
        let changed = self.transaction.write(change)?;
        if is_delete {
            return Ok(Reply::Deleted);
        }
        let status = if changed.created { 201 } else { 200 };
        let body = match callback {
            Callback::Given => self.transaction.json_of(&changed),
            Callback::Missing => String::new(),
        };
        Ok(Reply::Item { status, body })
    }

    fn id_of(&mut self, item: ItemLink) -> Result<String, EngineError> {
        match item {
            ItemLink::Id(id) => Ok(id),
            ItemLink::Rid(rid) => match self.transaction.id_of_rid(&rid)? {
                Some(id) => Ok(id),
                None => Err(EngineError::ItemNotFound { id: rid }),
            },
        }
    }

    /// A delete may name its partition key, which can only be the one of the run.
    fn check_key(&self, given: Option<&str>) -> Result<(), EngineError> {
        let Some(given) = given else { return Ok(()) };
        if PartitionKey::from_header(given)? == *self.key {
            return Ok(());
        }
        Err(EngineError::PartitionKeyMismatch)
    }
}

/// Whether the script looks at the item that a write gives.
#[derive(Clone, Copy)]
enum Callback {
    Given,
    Missing,
}

impl ItemHost<'_, '_> {
    fn answer(&mut self, request: Request, callback: Callback) -> Answer {
        let allowance = self.allowance;
        let served = if allowance.is_over() || allowance.client.is_cancelled() {
            Err(EngineError::Cancelled)
        } else if matches!(request, Request::Query { .. }) {
            // Its functions are a part of the script.
            self.serve(request, callback)
        } else {
            allowance.unwatched(|| self.serve(request, callback))
        };
        let reply = served.unwrap_or_else(|error| match script_error(&error) {
            Some((status, message)) => Reply::Error { status, message },
            None => {
                self.stopped = Some(error);
                Reply::Stop
            }
        });
        let accepting = self.allowance.is_ample(self.transaction.charge()) && self.transaction.has_room();
        Answer { reply, accepting }
    }
}

impl Host for ItemHost<'_, '_> {
    fn call(&mut self, request: Request) -> Answer {
        self.answer(request, Callback::Given)
    }

    fn call_without_callback(&mut self, request: Request) -> Answer {
        self.answer(request, Callback::Missing)
    }

    fn caller(&self) -> Caller {
        let client = self.allowance.client.clone();
        Caller::with_check(move || client.check_disconnect())
    }
}

fn page(page: Page) -> Result<Reply, EngineError> {
    let items = String::from_utf8(page.rows).map_err(|error| corrupt(error.to_string()))?;
    Ok(Reply::Page { items, continuation: page.continuation })
}

/// From a JSON array of `{name, value}`.
fn parameters_of(json: Option<&str>) -> Result<Parameters, EngineError> {
    let Some(json) = json else { return Ok(Parameters::default()) };
    let invalid = || EngineError::BadRequest {
        message: "The parameters of a query must be an array of objects with 'name' and 'value'.".to_owned(),
    };
    let one = |parameter: &Value| {
        let name = parameter.get("name").and_then(Value::as_str)?;
        let value = parameter.get("value").cloned().unwrap_or(Value::Undefined);
        Some((name.to_owned(), value))
    };
    let json = text::parse(json.as_bytes(), Limits::default())?;
    let parameters = json.as_array().ok_or_else(invalid)?.iter().map(one).collect::<Option<Vec<_>>>();
    parameters.map(Parameters).ok_or_else(invalid)
}

/// The status and text of an error for a script, if a script can handle it. `quire-server` uses the same for clients.
pub(super) fn script_error(error: &EngineError) -> Option<(u16, String)> {
    use EngineError::*;
    let fixed = |status: u16, message: &str| Some((status, message.to_owned()));
    match error {
        ItemNotFound { .. } => fixed(404, NOT_FOUND),
        ItemExists { .. } => fixed(409, ALREADY_EXISTS),
        UniqueKeyTaken { .. } => fixed(409, "Unique index constraint violation."),
        HashCollision => Some((409, error.to_string())),
        PreconditionFailed => fixed(412, PRECONDITION_FAILED),
        ItemTooLarge { .. } => fixed(413, "Request size is too large"),
        TransactionTooLarge { .. } => Some((413, error.to_string())),
        PartitionKeyMismatch => fixed(400, OTHER_PARTITION_KEY),
        BadContinuation => fixed(400, "Invalid Continuation Token"),
        MissingProperties { names } => Some((400, missing(names))),
        Sql(SqlError::Compile(diagnostics)) => {
            let said: Vec<String> =
                diagnostics.iter().map(|found| format!("{} {}", found.code, found.message)).collect();
            Some((400, said.join("\n")))
        }
        BadJson(_) | BadRequest { .. } | BadName(_) | BadTtl(_) | BadPartitionKey(_) => {
            Some((400, error.to_string()))
        }
        Sql(_) | CrossPartitionAggregate | NotSupported { .. } => Some((400, error.to_string())),
        // Of functions that a query called.
        Script(failure) if failure.error == ScriptError::TimedOut => Some((408, error.to_string())),
        Script(_) => Some((400, error.to_string())),
        ScriptBlocked { .. } | ScriptStuck { .. } => Some((403, error.to_string())),
        // Whatever else there is or will be is not the script's to handle.
        _ => None,
    }
}

fn missing(names: &str) -> String {
    format!("The input content is invalid because the required properties - '{names}; ' - are missing")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_pairs_of_name_and_value() {
        let parameters =
            parameters_of(Some(r#"[{"name": "@a", "value": [1]}, {"name": "@b"}]"#)).expect("two");
        let named: Vec<_> =
            parameters.0.iter().map(|(name, value)| (name.as_str(), value.to_json())).collect();
        assert_eq!(named[0], ("@a", "[1]".to_owned()));
        assert_eq!(parameters.0[1], ("@b".to_owned(), Value::Undefined));
        assert!(parameters_of(None).expect("none").0.is_empty());
        for wrong in ["{}", "[1]", r#"[{"value": 1}]"#, r#"[{"name": 1, "value": 1}]"#, "["] {
            assert!(parameters_of(Some(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_script_gets_only_errors_it_can_handle() {
        let status = |error: EngineError| script_error(&error).map(|(status, _)| status);
        assert_eq!(status(EngineError::ItemNotFound { id: String::new() }), Some(404));
        assert_eq!(status(EngineError::PreconditionFailed), Some(412));
        assert_eq!(status(EngineError::ItemTooLarge { bytes: 2, bytes_max: 1 }), Some(413));
        assert_eq!(status(EngineError::PartitionKeyMismatch), Some(400));
        assert_eq!(status(EngineError::Overloaded), None);
        assert_eq!(status(EngineError::Cancelled), None);
        assert_eq!(status(EngineError::Corrupt { what: String::new() }), None);
    }
}
