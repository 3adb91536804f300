//! Every operation: one table from path, verb and flags to the access that it needs, the lane of the pool that it
//! runs in, and the handler that runs it.
//!
//! A request is looked up once, by [`find`] or [`find_admin`]. What is authorized and what runs are columns of the same
//! row, so they cannot differ. A combination that no row names is refused: nothing is allowed by default.

use hyper::{HeaderMap, Method};
use quire_engine::JobControl;
use quire_engine::ScriptKind::StoredProcedure;

use crate::admin::AdminRoute::{self, Authority, Endpoint, Quire, StartPage};
use crate::admin::{self, AdminCall, AdminResult};
use crate::auth::Access;
use crate::handlers::{
    self, Call, HandlerResult, account, addresses, batch, catalog, changes, client_encryption_keys,
    conflicts, containers, databases, items, offers, partition_key_ranges, permissions, procedures, scripts,
    session, users,
};
use crate::net::pool::Work;
use crate::routes::RouteKind::{self, *};
use crate::routes::{self, Route, RouteError};
use crate::wire::headers::Reply;
use crate::wire::status::RequestError;

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    pub name: Name,
    pub action: Action,
    pub access: Access,
    pub lane: Lane,
}

/// Where the engine's part of an operation runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Answered from the catalog, which is in memory, on the async worker.
    Memory,
    Read,
    Write,
    Script,
    /// Reads, or runs scripts: a query that calls user-defined functions.
    ReadOrScript,
    /// Writes, or runs scripts: a write with triggers.
    WriteOrScript,
}

impl Lane {
    /// The lane of the pool for an engine call that runs no scripts.
    pub fn work(self) -> Work {
        match self {
            Lane::Memory | Lane::Read | Lane::ReadOrScript => Work::Read,
            Lane::Write | Lane::WriteOrScript => Work::Write,
            Lane::Script => Work::Script,
        }
    }
}

/// The kind of an operation in metrics and in fault rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Read,
    ReadFeed,
    ChangeFeed,
    Query,
    QueryPlan,
    Create,
    Upsert,
    Replace,
    Patch,
    Delete,
    Batch,
    Execute,
}

impl Action {
    pub const ALL: [Action; 12] = [
        Action::Create,
        Action::Upsert,
        Action::Read,
        Action::Replace,
        Action::Patch,
        Action::Delete,
        Action::Query,
        Action::QueryPlan,
        Action::ReadFeed,
        Action::ChangeFeed,
        Action::Batch,
        Action::Execute,
    ];

    /// The name in fault rules.
    pub fn name(self) -> &'static str {
        match self {
            Action::Read => "read",
            Action::ReadFeed => "readFeed",
            Action::ChangeFeed => "changeFeed",
            Action::Query => "query",
            Action::QueryPlan => "queryPlan",
            Action::Create => "create",
            Action::Upsert => "upsert",
            Action::Replace => "replace",
            Action::Patch => "patch",
            Action::Delete => "delete",
            Action::Batch => "batch",
            Action::Execute => "execute",
        }
    }
}

/// What the headers ask for beyond the verb: a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flags(u8);

impl Flags {
    const NONE: Flags = Flags(0);
    const QUERY: Flags = Flags(1);
    const PLAN: Flags = Flags(2);
    /// Some clients mark the request for a plan as a query, too.
    const QUERY_PLAN: Flags = Flags(1 | 2);
    const BATCH: Flags = Flags(4);
    const UPSERT: Flags = Flags(8);
    const FEED: Flags = Flags(16);
    const TRIGGERS: Flags = Flags(32);
    const UPSERT_TRIGGERS: Flags = Flags(8 | 32);

    /// The headers of each flag, for messages.
    const HEADERS: [(Flags, &'static str); 6] = [
        (Flags::QUERY, "x-ms-documentdb-isquery (or content type application/query+json)"),
        (Flags::PLAN, "x-ms-cosmos-is-query-plan-request"),
        (Flags::BATCH, "x-ms-cosmos-is-batch-request"),
        (Flags::UPSERT, "x-ms-documentdb-is-upsert"),
        (Flags::FEED, "a-im"),
        (Flags::TRIGGERS, "x-ms-documentdb-pre-trigger-include or x-ms-documentdb-post-trigger-include"),
    ];

    /// In one pass, because every request runs it.
    pub fn of(headers: &HeaderMap) -> Flags {
        let mut flags = Flags::NONE;
        for (name, value) in headers {
            let value = value.as_bytes().trim_ascii();
            let flag = match name.as_str() {
                "x-ms-documentdb-isquery" if is_true(value) => Flags::QUERY,
                "content-type" if is_query_type(value) => Flags::QUERY,
                "x-ms-cosmos-is-query-plan-request" if is_true(value) => Flags::PLAN,
                "x-ms-cosmos-is-batch-request" if is_true(value) => Flags::BATCH,
                "x-ms-documentdb-is-upsert" if is_true(value) => Flags::UPSERT,
                "a-im" if !value.is_empty() => Flags::FEED,
                "x-ms-documentdb-pre-trigger-include" | "x-ms-documentdb-post-trigger-include"
                    if !value.is_empty() =>
                {
                    Flags::TRIGGERS
                }
                _ => Flags::NONE,
            };
            flags.0 |= flag.0;
        }
        flags
    }

    fn has(self, flag: Flags) -> bool {
        self.0 & flag.0 != 0
    }
}

/// Clients write `True`, `true`, `False` and `false`.
fn is_true(value: &[u8]) -> bool {
    value.eq_ignore_ascii_case(b"true")
}

fn is_query_type(value: &[u8]) -> bool {
    let media_type = value.split(|&byte| byte == b';').next().unwrap_or_default();
    media_type.trim_ascii().eq_ignore_ascii_case(b"application/query+json")
}

/// The row of a request. The verb is one of the path's; see [`route`].
pub(crate) fn find(kind: &RouteKind<'_>, method: &Method, flags: Flags) -> Result<Operation, RequestError> {
    let mut operation = row(kind, as_get(method), flags).ok_or_else(|| refusal(method, flags))?;
    operation.action = match operation.action {
        Action::Create if flags.has(Flags::UPSERT) => Action::Upsert,
        Action::ReadFeed if flags.has(Flags::FEED) => Action::ChangeFeed,
        action => action,
    };
    Ok(operation)
}

/// What a path names, where it has any operation with this verb.
pub(crate) fn route<'p>(method: &Method, path: &'p str) -> Result<Route<'p>, RouteError> {
    let route = routes::parse(path)?;
    if has_verb(&route.kind, as_get(method)) { Ok(route) } else { Err(RouteError::MethodNotAllowed) }
}

/// Runs what [`find`] found. A read whose session is ahead of its partition is run once more, after a short wait.
pub(crate) async fn run(call: &Call<'_>, kind: &RouteKind<'_>) -> HandlerResult {
    let answer = handle(call.operation.name, call, kind).await;
    let is_ahead = answer.as_ref().is_ok_and(Reply::is_session_not_available);
    if !is_ahead || call.operation.access != Access::ReadItems {
        return answer;
    }
    session::wait(call, kind).await?;
    handle(call.operation.name, call, kind).await
}

/// The row of a request below `/_quire/`.
pub(crate) fn find_admin(route: AdminRoute<'_>, method: &Method) -> Result<AdminOperation, RouteError> {
    let found = admin_row(&route, as_get(method));
    let refusal = if is_admin_path(&route) { RouteError::MethodNotAllowed } else { RouteError::InvalidUrl };
    found.ok_or(refusal)
}

/// Runs what [`find_admin`] found; the names in `route` are decoded.
pub(crate) async fn run_admin(call: &AdminCall<'_>, name: AdminName, route: &AdminRoute<'_>) -> AdminResult {
    handle_admin(name, call, route).await
}

/// A HEAD is a GET; the edge drops the body of its answer.
fn as_get(method: &Method) -> &Method {
    if *method == Method::HEAD { &Method::GET } else { method }
}

fn refusal(method: &Method, flags: Flags) -> RequestError {
    if flags.has(Flags::TRIGGERS) {
        let message =
            "One of the specified inputs is invalid: triggers run with writes of single items only.";
        return RequestError::BadRequest { message: message.to_owned() };
    }
    let set = Flags::HEADERS.iter().filter(|(flag, _)| flags.has(*flag)).map(|(_, header)| *header);
    let set = set.collect::<Vec<_>>().join(", ");
    let message = match set.is_empty() {
        true => format!("{method} on this resource needs a header that says what it asks for."),
        false => format!("No operation of this resource is {method} with the headers: {set}."),
    };
    RequestError::BadRequest { message }
}

/// Makes the look-up and the dispatch from the rows. Two rows for one combination do not compile.
macro_rules! operations {
    (|$call:ident| $($name:ident: $verb:ident $path:pat, [$($flags:ident)|+], $action:ident, $access:ident, $lane:ident => $handler:expr;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Name { $($name),* }

        impl Name {
            #[cfg(test)]
            const ALL: &'static [Name] = &[$(Name::$name),*];
        }

        #[allow(unused_variables, reason = "the names in a path are for its handler")]
        #[deny(unreachable_patterns)]
        fn row(kind: &RouteKind<'_>, method: &Method, flags: Flags) -> Option<Operation> {
            match (kind, method, flags) {
                $(($path, &Method::$verb, $(Flags::$flags)|+) => Some(Operation {
                    name: Name::$name,
                    action: Action::$action,
                    access: Access::$access,
                    lane: Lane::$lane,
                }),)*
                _ => None,
            }
        }

        #[allow(unused_variables, unreachable_patterns, reason = "a path has several rows with one verb")]
        fn has_verb(kind: &RouteKind<'_>, method: &Method) -> bool {
            match (kind, method) {
                $(($path, &Method::$verb) => true,)*
                _ => false,
            }
        }

        async fn handle(name: Name, $call: &Call<'_>, kind: &RouteKind<'_>) -> HandlerResult {
            match (name, kind) {
                $((Name::$name, $path) => $handler,)*
                (name, _) => {
                    Err(RequestError::Internal { what: format!("{name:?} is not an operation of its path") }.into())
                }
            }
        }
    };
}

operations! { |call|
// name, verb and path                                                   flags                action      access              lane
ReadAccount: GET Account,                                                [NONE],              Read,       ReadAccount,        Memory => account::read(call);

ListDatabases: GET Databases,                                            [NONE],              ReadFeed,   ReadCatalog,        Memory => catalog::list(call, &databases::Databases);
QueryDatabases: POST Databases,                                          [QUERY],             Query,      ReadCatalog,        Read => catalog::query(call, &databases::Databases).await;
CreateDatabase: POST Databases,                                          [NONE],              Create,     WriteCatalog,       Write => catalog::create(call, &databases::Databases).await;
ReadDatabase: GET Database { database },                                 [NONE],              Read,       ReadCatalog,        Memory => catalog::read(call, &databases::Databases, database);
DeleteDatabase: DELETE Database { database },                            [NONE],              Delete,     WriteCatalog,       Write => catalog::delete(call, &databases::Databases, database).await;

ListContainers: GET Containers { database },                             [NONE],              ReadFeed,   ReadCatalog,        Memory => containers::list(call, database);
QueryContainers: POST Containers { database },                           [QUERY],             Query,      ReadCatalog,        Read => containers::query(call, database).await;
CreateContainer: POST Containers { database },                           [NONE],              Create,     WriteCatalog,       Write => containers::create(call, database).await;
ReadContainer: GET Container { database, container },                    [NONE],              Read,       Describe,           Memory => containers::read(call, database, container);
ReplaceContainer: PUT Container { database, container },                 [NONE],              Replace,    WriteCatalog,       Write => containers::replace(call, database, container).await;
DeleteContainer: DELETE Container { database, container },               [NONE],              Delete,     WriteCatalog,       Write => containers::delete(call, database, container).await;
ListPartitions: GET PartitionKeyRanges { database, container },          [NONE | FEED],       ReadFeed,   Describe,           Memory => partition_key_ranges::list(call, database, container);
QueryPartitions: POST PartitionKeyRanges { database, container },        [QUERY],             Query,      Describe,           Read => partition_key_ranges::query(call, database, container).await;

ListItems: GET Items { database, container },                            [NONE | TRIGGERS],           ReadFeed,   ReadItems,          Read => items::list(call, database, container).await;
ReadChanges: GET Items { database, container },                          [FEED],              ChangeFeed, ReadItems,          Read => changes::read(call, database, container).await;
QueryItems: POST Items { database, container },                          [QUERY],             Query,      ReadItems,          ReadOrScript => handlers::query_items(call, database, container).await;
PlanQuery: POST Items { database, container },                           [PLAN | QUERY_PLAN], QueryPlan,  ReadItems,          Read => handlers::query_plan(call, database, container).await;
CreateItem: POST Items { database, container },                          [NONE | TRIGGERS],   Create,     WriteItems,         WriteOrScript => items::create(call, database, container).await;
UpsertItem: POST Items { database, container },                          [UPSERT | UPSERT_TRIGGERS], Upsert, WriteItems,      WriteOrScript => items::upsert(call, database, container).await;
RunBatch: POST Items { database, container },                            [BATCH],             Batch,      WriteItems,         Write => batch::run(call, database, container).await;
ReadItem: GET Item { database, container, id },                          [NONE | TRIGGERS],           Read,       ReadItems,          Read => items::read(call, database, container, id).await;
ReplaceItem: PUT Item { database, container, id },                       [NONE | TRIGGERS],   Replace,    WriteItems,         WriteOrScript => items::replace(call, database, container, id).await;
PatchItem: PATCH Item { database, container, id },                       [NONE | TRIGGERS],   Patch,      WriteItems,         WriteOrScript => items::patch(call, database, container, id).await;
DeleteItem: DELETE Item { database, container, id },                     [NONE | TRIGGERS],   Delete,     WriteItems,         WriteOrScript => items::delete(call, database, container, id).await;
DeleteItems: POST PartitionKeyDelete { database, container },            [NONE],              Execute,    WriteItems,         Write => items::delete_all(call, database, container).await;
ListConflicts: GET Conflicts { database, container },                    [NONE],              ReadFeed,   ReadItems,          Memory => conflicts::list(call, database, container);
QueryConflicts: POST Conflicts { database, container },                  [QUERY],             Query,      ReadItems,          Read => conflicts::query(call, database, container).await;
ReadConflict: GET Conflict { database, container, id },                  [NONE],              Read,       ReadItems,          Memory => conflicts::missing(call, database, container, id);
DeleteConflict: DELETE Conflict { database, container, id },             [NONE],              Delete,     WriteItems,         Memory => conflicts::missing(call, database, container, id);

ListScripts: GET Scripts { script, database, container },                [NONE],              ReadFeed,   ReadScripts,        Memory => catalog::list(call, &scripts::Scripts { kind: *script, database, container });
QueryScripts: POST Scripts { script, database, container },              [QUERY],             Query,      ReadScripts,        Read => catalog::query(call, &scripts::Scripts { kind: *script, database, container }).await;
CreateScript: POST Scripts { script, database, container },              [NONE | UPSERT],     Create,     WriteScripts,       Write => catalog::create(call, &scripts::Scripts { kind: *script, database, container }).await;
ReadScript: GET Script { script, database, container, id },              [NONE],              Read,       ReadScripts,        Memory => catalog::read(call, &scripts::Scripts { kind: *script, database, container }, id);
ReplaceScript: PUT Script { script, database, container, id },           [NONE],              Replace,    WriteScripts,       Write => catalog::replace(call, &scripts::Scripts { kind: *script, database, container }, id).await;
DeleteScript: DELETE Script { script, database, container, id },         [NONE],              Delete,     WriteScripts,       Write => catalog::delete(call, &scripts::Scripts { kind: *script, database, container }, id).await;
ExecuteProcedure: POST Script { script: StoredProcedure, database, container, id }, [NONE],   Execute,    Execute,            Script => procedures::execute(call, database, container, id).await;

ListUsers: GET Users { database },                                       [NONE],              ReadFeed,   ReadCatalog,        Memory => catalog::list(call, &users::Users { database });
QueryUsers: POST Users { database },                                     [QUERY],             Query,      ReadCatalog,        Read => catalog::query(call, &users::Users { database }).await;
CreateUser: POST Users { database },                                     [NONE | UPSERT],     Create,     WriteCatalog,       Write => catalog::create(call, &users::Users { database }).await;
ReadUser: GET User { database, user },                                   [NONE],              Read,       ReadCatalog,        Memory => catalog::read(call, &users::Users { database }, user);
ReplaceUser: PUT User { database, user },                                [NONE],              Replace,    WriteCatalog,       Write => catalog::replace(call, &users::Users { database }, user).await;
DeleteUser: DELETE User { database, user },                              [NONE],              Delete,     WriteCatalog,       Write => catalog::delete(call, &users::Users { database }, user).await;

ListPermissions: GET Permissions { database, user },                     [NONE],              ReadFeed,   ReadPermissions,    Memory => catalog::list(call, &permissions::Permissions { database, user });
QueryPermissions: POST Permissions { database, user },                   [QUERY],             Query,      ReadPermissions,    Read => catalog::query(call, &permissions::Permissions { database, user }).await;
CreatePermission: POST Permissions { database, user },                   [NONE | UPSERT],     Create,     WritePermissions,   Write => catalog::create(call, &permissions::Permissions { database, user }).await;
ReadPermission: GET Permission { database, user, permission },           [NONE],              Read,       ReadPermissions,    Memory => catalog::read(call, &permissions::Permissions { database, user }, permission);
ReplacePermission: PUT Permission { database, user, permission },        [NONE],              Replace,    WritePermissions,   Write => catalog::replace(call, &permissions::Permissions { database, user }, permission).await;
DeletePermission: DELETE Permission { database, user, permission },      [NONE],              Delete,     WritePermissions,   Write => catalog::delete(call, &permissions::Permissions { database, user }, permission).await;

ListEncryptionKeys: GET ClientEncryptionKeys { database },               [NONE],              ReadFeed,   ReadCatalog,        Memory => catalog::list(call, &client_encryption_keys::Keys { database });
QueryEncryptionKeys: POST ClientEncryptionKeys { database },             [QUERY],             Query,      ReadCatalog,        Read => catalog::query(call, &client_encryption_keys::Keys { database }).await;
CreateEncryptionKey: POST ClientEncryptionKeys { database },             [NONE],              Create,     WriteCatalog,       Write => catalog::create(call, &client_encryption_keys::Keys { database }).await;
ReadEncryptionKey: GET ClientEncryptionKey { database, key },            [NONE],              Read,       ReadCatalog,        Memory => catalog::read(call, &client_encryption_keys::Keys { database }, key);
ReplaceEncryptionKey: PUT ClientEncryptionKey { database, key },         [NONE],              Replace,    WriteCatalog,       Write => catalog::replace(call, &client_encryption_keys::Keys { database }, key).await;

ListOffers: GET Offers,                                                  [NONE],              ReadFeed,   ReadCatalog,        Memory => offers::list(call);
QueryOffers: POST Offers,                                                [QUERY],             Query,      ReadCatalog,        Read => offers::query(call).await;
ReadOffer: GET Offer { offer },                                          [NONE],              Read,       ReadCatalog,        Memory => offers::read(call, offer);
ReplaceOffer: PUT Offer { offer },                                       [NONE],              Replace,    WriteCatalog,       Write => offers::replace(call, offer).await;

ReadAddresses: GET Addresses,                                            [NONE],              ReadFeed,   ReadCatalog,        Memory => addresses::read(call);
}

/// One row of the table of the server's own paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AdminOperation {
    pub name: AdminName,
    pub access: Access,
    pub lane: Lane,
}

/// The same for the server's own paths, which have no flags.
macro_rules! admin_operations {
    (|$call:ident| $($name:ident: $verb:ident $path:pat, $access:ident, $lane:ident => $handler:expr;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum AdminName { $($name),* }

        impl AdminName {
            #[cfg(test)]
            const ALL: &'static [AdminName] = &[$(AdminName::$name),*];
        }

        #[allow(unused_variables, reason = "the names in a path are for its handler")]
        #[deny(unreachable_patterns)]
        fn admin_row(route: &AdminRoute<'_>, method: &Method) -> Option<AdminOperation> {
            match (route, method) {
                $(($path, &Method::$verb) => Some(AdminOperation {
                    name: AdminName::$name,
                    access: Access::$access,
                    lane: Lane::$lane,
                }),)*
                _ => None,
            }
        }

        #[allow(unused_variables, unreachable_patterns, reason = "a path has several rows")]
        fn is_admin_path(route: &AdminRoute<'_>) -> bool {
            match route {
                $($path => true,)*
                _ => false,
            }
        }

        async fn handle_admin(name: AdminName, $call: &AdminCall<'_>, route: &AdminRoute<'_>) -> AdminResult {
            match (name, route) {
                $((AdminName::$name, $path) => $handler,)*
                (name, _) => {
                    Err(RequestError::Internal { what: format!("{name:?} is not an operation of its path") }.into())
                }
            }
        }
    };
}

admin_operations! { |call|
// name, verb and path behind /_quire/                                                          access       lane
Live: GET Quire(["live"]),                                                                      Open,        Memory => admin::health::live();
Ready: GET Quire(["ready"]),                                                                    Open,        Memory => admin::health::ready(call);
ReadMetrics: GET Quire(["metrics"]),                                                            ReadServer,  Read => admin::metrics::read(call.state).await;

ListFaults: GET Quire(["faults"]),                                                              ReadServer,  Memory => admin::faults::list(call);
CreateFault: POST Quire(["faults"]),                                                            WriteServer, Memory => admin::faults::create(call);
DeleteFaults: DELETE Quire(["faults"]),                                                         WriteServer, Memory => admin::faults::delete_all(call);
DeleteFault: DELETE Quire(["faults", id]),                                                      WriteServer, Memory => admin::faults::delete(call, id);

FillDemo: POST Quire(["demo"]),                                                                 WriteServer, Write => admin::demo::fill(call).await;

ListJobs: GET Quire(["jobs"]),                                                                  ReadServer,  Read => admin::jobs::list(call).await;
ReadJob: GET Quire(["jobs", id]),                                                               ReadServer,  Read => admin::jobs::read(call, id).await;
PauseJob: POST Quire(["jobs", id, "pause"]),                                                    WriteServer, Write => admin::jobs::control(call, id, JobControl::Pause).await;
ResumeJob: POST Quire(["jobs", id, "resume"]),                                                  WriteServer, Write => admin::jobs::control(call, id, JobControl::Resume).await;
CancelJob: POST Quire(["jobs", id, "cancel"]),                                                  WriteServer, Write => admin::jobs::control(call, id, JobControl::Cancel).await;
UndoJob: POST Quire(["jobs", id, "undo"]),                                                      WriteServer, Write => admin::jobs::control(call, id, JobControl::Undo).await;

RunTransaction: POST Quire(["dbs", database, "transaction"]),                                   WriteServer, Write => admin::transaction::run(call, database).await;
ReadModel: GET Quire(["dbs", database, "model"]),                                               ReadServer,  Memory => admin::model::read(call, database);
PutModel: PUT Quire(["dbs", database, "model"]),                                                WriteServer, Write => admin::model::put(call, database).await;
DeleteModel: DELETE Quire(["dbs", database, "model"]),                                          WriteServer, Write => admin::model::delete(call, database).await;
ReadModelStatus: GET Quire(["dbs", database, "model", "status"]),                               ReadServer,  Read => admin::model::status(call, database).await;
CheckModel: POST Quire(["dbs", database, "model", "check"]),                                    WriteServer, Write => admin::model::check(call, database).await;
RepairModel: POST Quire(["dbs", database, "model", "repair"]),                                  WriteServer, Write => admin::model::repair(call, database).await;
BuildProfile: POST Quire(["dbs", database, "profile"]),                                         WriteServer, Write => admin::profile::build(call, database).await;
ListProfiles: GET Quire(["dbs", database, "profile"]),                                          ReadServer,  Read => admin::profile::list(call, database).await;
ReadProfile: GET Quire(["dbs", database, "colls", container, "profile"]),                       ReadServer,  Read => admin::profile::read(call, database, container).await;
ReadWorkload: GET Quire(["dbs", database, "workload"]),                                         ReadServer,  Read => admin::profile::read_workload(call, database).await;
ForgetWorkload: DELETE Quire(["dbs", database, "workload"]),                                    WriteServer, Write => admin::profile::forget_workload(call, database).await;
EvaluateAdvice: POST Quire(["dbs", database, "advice"]),                                        WriteServer, Write => admin::advice::evaluate(call, database).await;
ReadAdvice: GET Quire(["dbs", database, "advice"]),                                             ReadServer,  Read => admin::advice::read(call, database).await;
ApplyFinding: POST Quire(["dbs", database, "advice", id, "apply"]),                             WriteServer, Write => admin::advice::apply(call, database, id).await;
DismissFinding: POST Quire(["dbs", database, "advice", id, "dismiss"]),                         WriteServer, Write => admin::advice::dismiss(call, database, id).await;
ReopenFinding: POST Quire(["dbs", database, "advice", id, "reopen"]),                           WriteServer, Write => admin::advice::reopen(call, database, id).await;
StartWhatIf: POST Quire(["dbs", database, "what-if"]),                                          WriteServer, Write => admin::what_if::start(call, database).await;
ListRefactorings: GET Quire(["dbs", database, "refactorings"]),                                 ReadServer,  Read => admin::refactorings::list(call, database).await;
StartRefactoring: POST Quire(["dbs", database, "refactorings"]),                                WriteServer, Write => admin::refactorings::start(call, database).await;
ReadRefactoring: GET Quire(["dbs", database, "refactorings", id]),                              ReadServer,  Read => admin::refactorings::read(call, database, id).await;
FinishRefactoring: POST Quire(["dbs", database, "refactorings", id, "finish"]),                 WriteServer, Write => admin::refactorings::finish(call, database, id).await;
UndoRefactoring: POST Quire(["dbs", database, "refactorings", id, "undo"]),                     WriteServer, Write => admin::refactorings::undo(call, database, id).await;
ReadView: GET Quire(["dbs", database, "colls", container, "view"]),                             ReadServer,  Read => admin::views::status(call, database, container).await;
RebuildView: POST Quire(["dbs", database, "colls", container, "view", "rebuild"]),              WriteServer, Write => admin::views::rebuild(call, database, container).await;
ListPartitions: GET Quire(["dbs", database, "colls", container, "partitions"]),                 ReadServer,  Read => admin::partitions::list(call, database, container).await;
SplitPartition: POST Quire(["dbs", database, "colls", container, "partitions", id, "split"]),   WriteServer, Write => admin::partitions::split(call, database, container, id).await;

ReadAuthority: GET Authority,                                                                   Open,        Memory => admin::authority::read(call);
ReadStartPage: GET StartPage,                                                                   Open,        Memory => admin::start_page::read(call);

ReadEndpoint: GET Endpoint(path),                                                               ReadServer,  Write => admin::endpoints::serve(call, path).await;
CallEndpoint: POST Endpoint(path),                                                              WriteServer, Write => admin::endpoints::serve(call, path).await;
ReplaceEndpoint: PUT Endpoint(path),                                                            WriteServer, Write => admin::endpoints::serve(call, path).await;
DeleteEndpoint: DELETE Endpoint(path),                                                          WriteServer, Write => admin::endpoints::serve(call, path).await;
}

#[cfg(test)]
mod tests;
