//! Every failure with its status, code and text.

use expect_test::{Expect, expect};
use quire_engine::ScriptFailure;
use quire_resource::{NameError, ThroughputError, TtlError};
use quire_value::ParseError;

use super::*;

fn check<'a, E: std::fmt::Debug + 'a>(errors: &'a [E], expect: Expect)
where
    Failure: From<&'a E>,
{
    let mut out = String::new();
    for error in errors {
        let failure = Failure::from(error);
        let substatus = failure.substatus.map(|substatus| format!("/{substatus}")).unwrap_or_default();
        let retry = failure.retry_after_ms.map(|ms| format!(" retry after {ms} ms")).unwrap_or_default();
        let body = String::from_utf8_lossy(&failure.body("ID")).replace(AGENT, "AGENT");
        out.push_str(&format!("{error:?}\n    {}{substatus}{retry} {body}\n", failure.status.as_u16()));
    }
    expect.assert_eq(&out);
}

#[test]
fn engine_errors() {
    let text = |text: &str| text.to_owned();
    let diagnostic =
        Diagnostic { code: "SC1001", start: 7, end: 11, message: text("incorrect syntax near 'FROM'.") };
    check(
        &[
            EngineError::ResourceNotFound { kind: "database", id: text("d") },
            EngineError::OwnerNotFound { kind: "container", id: text("c") },
            EngineError::ItemNotFound { id: text("i") },
            EngineError::AlreadyExists { kind: "database", id: text("d") },
            EngineError::ItemExists { id: text("i") },
            EngineError::UniqueKeyTaken { paths: text("/u") },
            EngineError::HashCollision,
            EngineError::PreconditionFailed,
            EngineError::ModelInvalid(ModelInvalid(vec![ModelError {
                at: text("/links/0/to"),
                problem: quire_engine::ModelProblem::Missing { member: text("container") },
            }])),
            EngineError::ModelInUse { container: text("c") },
            EngineError::RefactoringRunning { container: text("c") },
            EngineError::WhatIfRunning { database: text("d") },
            EngineError::RefactoringRefuses { id: text("r-1"), verb: "undone", why: text("it is undone") },
            EngineError::JournalTooLarge { bytes: 2_000_000_000 },
            EngineError::JobRefuses { id: text("j-3"), control: "paused", why: "it is finished" },
            EngineError::PatchConditionNotMet,
            EngineError::BatchTimeout { limit: std::time::Duration::from_secs(5) },
            EngineError::ResponseTooLarge { bytes_max: 2 },
            EngineError::BadJson(ParseError::TooDeep { depth_max: 128 }),
            EngineError::BadRequest { message: text("Say why.") },
            EngineError::MissingProperties { names: text("id") },
            EngineError::BadName(NameError::Characters { name: text("a/b") }),
            EngineError::BadContainer(ContainerError::Invalid { message: text("Say why.") }),
            EngineError::BadContainer(ContainerError::UniqueKeysChanged),
            EngineError::BadContainer(ContainerError::PartitionKey(PartitionKeyError::BadDefinition {
                message: text("Say why."),
            })),
            EngineError::BadPartitionKey(PartitionKeyError::BadHeader { text: text("[") }),
            EngineError::BadPartitionKey(PartitionKeyError::TooFew),
            EngineError::BadPartitionKey(PartitionKeyError::TooMany),
            EngineError::BadPartitionKey(PartitionKeyError::TooLong { bytes: 2049, bytes_max: 2048 }),
            EngineError::PartitionKeyMissing,
            EngineError::PartitionKeyMismatch,
            EngineError::BadTtl(TtlError { value: text("0") }),
            EngineError::BadThroughput(ThroughputError { message: text("Say why.") }),
            EngineError::ItemTooLarge { bytes: 3, bytes_max: 2 },
            EngineError::ScriptTooLarge { bytes: 3, bytes_max: 2 },
            EngineError::SessionNotAvailable,
            EngineError::PartitionGone { id: text("7") },
            EngineError::PartitionMoved,
            EngineError::ContainerReplaced,
            EngineError::CannotSplit { id: text("7"), reason: "it is whole" },
            EngineError::ContainerRidMismatch,
            EngineError::BadContinuation,
            EngineError::Sql(SqlError::Compile(vec![diagnostic.clone(), diagnostic])),
            EngineError::Sql(SqlError::Refused(text("Say \"why\"."))),
            EngineError::Sql(SqlError::NotRepresentable),
            EngineError::Sql(SqlError::Budget { what: "10 joins" }),
            EngineError::Sql(SqlError::QueryMemory { bytes_max: 128 << 20 }),
            EngineError::Sql(SqlError::ServerMemory { bytes_max: 1 << 30 }),
            EngineError::Sql(SqlError::QueryTempSpace { bytes_max: 4 << 30 }),
            EngineError::Sql(SqlError::ServerTempSpace { bytes_max: 4 << 30 }),
            EngineError::Sql(SqlError::TempFiles { files_max: 64 }),
            EngineError::Sql(SqlError::TempDiskFull),
            EngineError::Sql(SqlError::TempIo { message: "broken".to_owned() }),
            EngineError::Sql(SqlError::Cancelled),
            EngineError::RefusedByModel(ItemError::TooManyReferences { link: text("l") }),
            EngineError::RefusedByModel(ItemError::DeletionPending { id: text("a1"), job: text("j-7") }),
            EngineError::RefusedByModel(ItemError::WindowKeyTwice {
                window: text("w"),
                path: text("/c"),
                key: text("1"),
            }),
            EngineError::CrossPartitionRefused,
            EngineError::CrossPartitionAggregate,
            EngineError::Sql(SqlError::UserFunction { name: text("tax"), message: text("Say why.") }),
            EngineError::Script(Box::new(ScriptFailure {
                error: ScriptError::Thrown {
                    number: Some(4444),
                    message: text("Error: no"),
                    stack: text("Error: no\n   at f (script.js:1:26)"),
                },
                log: None,
            })),
            EngineError::Script(Box::new(ScriptFailure {
                error: ScriptError::Thrown { number: Some(-1), message: text("no"), stack: text("no") },
                log: None,
            })),
            EngineError::Script(Box::new(ScriptFailure {
                error: ScriptError::Compile { message: text("SyntaxError"), position: None },
                log: None,
            })),
            EngineError::Script(Box::new(ScriptFailure { error: ScriptError::TimedOut, log: None })),
            EngineError::ScriptBlocked { id: text("s") },
            EngineError::ScriptStuck { id: text("s") },
            EngineError::TransactionConflict,
            EngineError::NotSupported { feature: text("Flying") },
            EngineError::Forbidden { reason: text("Say why.") },
            EngineError::Cancelled,
            EngineError::Contended,
            EngineError::TransactionConflict,
            EngineError::FailedDependency,
            EngineError::TransactionTooLarge { limit: "16 MB" },
            EngineError::Overloaded,
            EngineError::UnknownLink { link: text("l"), container: text("c") },
            EngineError::LinkNotReady { link: text("l"), is_building: true },
            EngineError::FollowTooLarge,
            EngineError::Sql(SqlError::FollowNeedsItems),
            EngineError::Storage(StorageError::Closed),
            EngineError::Storage(StorageError::Poisoned { during: "sync" }),
            EngineError::Storage(StorageError::Unavailable { during: "flush" }),
            EngineError::Storage(StorageError::DiskFull { doing: text("writing the journal") }),
            EngineError::Storage(StorageError::Corrupt { what: text("secret") }),
            EngineError::Storage(StorageError::Io {
                doing: text("reading a secret"),
                source: std::io::Error::other("disk"),
            }),
            EngineError::Corrupt { what: text("secret") },
            EngineError::Unresolved,
            EngineError::NewerFormat { found: 2, supported: 1 },
            EngineError::StorageNotEmpty,
            EngineError::BackupRunning,
            EngineError::BadBackup { what: text("cut off") },
            EngineError::Io { doing: text("copying a secret"), source: std::io::Error::other("disk") },
        ],
        expect![[r#"
            ResourceNotFound { kind: "database", id: "d" }
                404 {"code":"NotFound","message":"Resource Not Found. Entity with the specified id does not exist in the system.\r\nActivityId: ID, AGENT"}
            OwnerNotFound { kind: "container", id: "c" }
                404/1003 {"code":"NotFound","message":"Resource Not Found. Owner resource does not exist\r\nActivityId: ID, AGENT"}
            ItemNotFound { id: "i" }
                404 {"code":"NotFound","message":"Resource Not Found. Entity with the specified id does not exist in the system.\r\nActivityId: ID, AGENT"}
            AlreadyExists { kind: "database", id: "d" }
                409 {"code":"Conflict","message":"Entity with the specified id already exists in the system.\r\nActivityId: ID, AGENT"}
            ItemExists { id: "i" }
                409 {"code":"Conflict","message":"Entity with the specified id already exists in the system.\r\nActivityId: ID, AGENT"}
            UniqueKeyTaken { paths: "/u" }
                409/3301 {"code":"Conflict","message":"Unique index constraint violation.\r\nActivityId: ID, AGENT"}
            HashCollision
                409/3302 {"code":"Conflict","message":"Two partition keys with the same hash hold the same id.\r\nActivityId: ID, AGENT"}
            PreconditionFailed
                412 {"code":"PreconditionFailed","message":"One of the specified pre-condition is not met. Operation cannot be performed because one of the specified precondition is not met.\r\nActivityId: ID, AGENT"}
            ModelInvalid(ModelInvalid([ModelError { at: "/links/0/to", problem: Missing { member: "container" } }]))
                400 {"code":"ModelInvalid","message":"The model has 1 error. The first: 'container' is missing.\r\nActivityId: ID, AGENT","errors":[{"code":"BadValue","at":"/links/0/to","message":"'container' is missing."}]}
            ModelInUse { container: "c" }
                409 {"code":"ModelInUse","message":"the container \"c\" is part of the model of its database\r\nActivityId: ID, AGENT"}
            RefactoringRunning { container: "c" }
                409 {"code":"RefactoringRunning","message":"the container \"c\" is being refactored: finish or undo that first.\r\nActivityId: ID, AGENT"}
            WhatIfRunning { database: "d" }
                409 {"code":"WhatIfRunning","message":"a what-if of the database \"d\" is running.\r\nActivityId: ID, AGENT"}
            RefactoringRefuses { id: "r-1", verb: "undone", why: "it is undone" }
                409 {"code":"RefactoringState","message":"the refactoring \"r-1\" cannot be undone: it is undone.\r\nActivityId: ID, AGENT"}
            JournalTooLarge { bytes: 2000000000 }
                409 {"code":"JournalTooLarge","message":"the journal would have 2000000000 bytes, and 1 GB is the most: \"journal\": false does without it, and without undo.\r\nActivityId: ID, AGENT"}
            JobRefuses { id: "j-3", control: "paused", why: "it is finished" }
                409 {"code":"JobNotCancellable","message":"the job \"j-3\" cannot be paused: it is finished\r\nActivityId: ID, AGENT"}
            PatchConditionNotMet
                412/1110 {"code":"PreconditionFailed","message":"One of the specified pre-condition is not met. Operation cannot be performed because one of the specified precondition is not met.\r\nActivityId: ID, AGENT"}
            BatchTimeout { limit: 5s }
                408 {"code":"RequestTimeout","message":"Message: {\"Errors\":[\"the batch ran longer than 5s\"]}\r\nActivityId: ID, AGENT"}
            ResponseTooLarge { bytes_max: 2 }
                413/3402 {"code":"RequestEntityTooLarge","message":"Message: {\"Errors\":[\"Response size is too large\"]}\r\nActivityId: ID, AGENT"}
            BadJson(TooDeep { depth_max: 128 })
                400 {"code":"BadRequest","message":"The request payload is invalid. Ensure to provide a valid request payload. (more than 128 levels of nesting)\r\nActivityId: ID, AGENT"}
            BadRequest { message: "Say why." }
                400 {"code":"BadRequest","message":"Say why.\r\nActivityId: ID, AGENT"}
            MissingProperties { names: "id" }
                400 {"code":"BadRequest","message":"The input content is invalid because the required properties - 'id; ' - are missing\r\nActivityId: ID, AGENT"}
            BadName(Characters { name: "a/b" })
                400 {"code":"BadRequest","message":"The input name 'a/b' is invalid. It cannot contain the characters '/', '\\', '?' or '#', or end with a space.\r\nActivityId: ID, AGENT"}
            BadContainer(Invalid { message: "Say why." })
                400 {"code":"BadRequest","message":"Say why.\r\nActivityId: ID, AGENT"}
            BadContainer(UniqueKeysChanged)
                403 {"code":"Forbidden","message":"The unique index cannot be modified. To change the unique index, remove the collection and re-create a new one.\r\nActivityId: ID, AGENT"}
            BadContainer(PartitionKey(BadDefinition { message: "Say why." }))
                400 {"code":"BadRequest","message":"Say why.\r\nActivityId: ID, AGENT"}
            BadPartitionKey(BadHeader { text: "[" })
                400 {"code":"BadRequest","message":"Partition key [ is invalid.\r\nActivityId: ID, AGENT"}
            BadPartitionKey(TooFew)
                400/1001 {"code":"BadRequest","message":"PartitionKey has fewer components than defined the collection resource.\r\nActivityId: ID, AGENT"}
            BadPartitionKey(TooMany)
                400/1001 {"code":"BadRequest","message":"PartitionKey has more components than defined the collection resource.\r\nActivityId: ID, AGENT"}
            BadPartitionKey(TooLong { bytes: 2049, bytes_max: 2048 })
                400 {"code":"BadRequest","message":"partition key value of 2049 bytes is longer than 2048\r\nActivityId: ID, AGENT"}
            PartitionKeyMissing
                400 {"code":"BadRequest","message":"PartitionKey value must be supplied for this operation.\r\nActivityId: ID, AGENT"}
            PartitionKeyMismatch
                400/1001 {"code":"BadRequest","message":"PartitionKey extracted from document doesn't match the one specified in the header.\r\nActivityId: ID, AGENT"}
            BadTtl(TtlError { value: "0" })
                400 {"code":"BadRequest","message":"The input ttl '0' is invalid. Ensure to provide a nonzero positive integer less than or equal to '2147483647', or -1.\r\nActivityId: ID, AGENT"}
            BadThroughput(ThroughputError { message: "Say why." })
                400 {"code":"BadRequest","message":"Say why.\r\nActivityId: ID, AGENT"}
            ItemTooLarge { bytes: 3, bytes_max: 2 }
                413 {"code":"RequestEntityTooLarge","message":"Message: {\"Errors\":[\"Request size is too large\"]}\r\nActivityId: ID, AGENT"}
            ScriptTooLarge { bytes: 3, bytes_max: 2 }
                413 {"code":"RequestEntityTooLarge","message":"Message: {\"Errors\":[\"Request size is too large\"]}\r\nActivityId: ID, AGENT"}
            SessionNotAvailable
                404/1002 {"code":"NotFound","message":"The read session is not available for the input session token.\r\nActivityId: ID, AGENT"}
            PartitionGone { id: "7" }
                410/1002 {"code":"Gone","message":"The requested resource is no longer available at the server.\r\nActivityId: ID, AGENT"}
            PartitionMoved
                410/1002 {"code":"Gone","message":"The requested resource is no longer available at the server.\r\nActivityId: ID, AGENT"}
            ContainerReplaced
                410/1000 {"code":"Gone","message":"The requested resource is no longer available at the server.\r\nActivityId: ID, AGENT"}
            CannotSplit { id: "7", reason: "it is whole" }
                409 {"code":"Conflict","message":"partition \"7\" cannot be split: it is whole\r\nActivityId: ID, AGENT"}
            ContainerRidMismatch
                400/1024 {"code":"BadRequest","message":"The container was recreated: its _rid differs from the one in x-ms-cosmos-intended-collection-rid.\r\nActivityId: ID, AGENT"}
            BadContinuation
                400 {"code":"BadRequest","message":"Invalid Continuation Token\r\nActivityId: ID, AGENT"}
            Sql(Compile([Diagnostic { code: "SC1001", start: 7, end: 11, message: "incorrect syntax near 'FROM'." }, Diagnostic { code: "SC1001", start: 7, end: 11, message: "incorrect syntax near 'FROM'." }]))
                400 {"code":"BadRequest","message":"Message: {\"errors\":[{\"severity\":\"Error\",\"location\":{\"start\":7,\"end\":11},\"code\":\"SC1001\",\"message\":\"incorrect syntax near 'FROM'.\"},{\"severity\":\"Error\",\"location\":{\"start\":7,\"end\":11},\"code\":\"SC1001\",\"message\":\"incorrect syntax near 'FROM'.\"}]}\r\nActivityId: ID, AGENT"}
            Sql(Refused("Say \"why\"."))
                400 {"code":"BadRequest","message":"Message: {\"Errors\":[\"Say \\\"why\\\".\"]}\r\nActivityId: ID, AGENT"}
            Sql(NotRepresentable)
                400/4001 {"code":"BadRequest","message":"Message: {\"Errors\":[\"The response content contains a numeric value that cannot be represented in JSON (e.g. Infinity and NaN).\"]}\r\nActivityId: ID, AGENT"}
            Sql(Budget { what: "10 joins" })
                400 {"code":"BadRequest","message":"Message: {\"Errors\":[\"the query needs more than 10 joins\"]}\r\nActivityId: ID, AGENT"}
            Sql(QueryMemory { bytes_max: 134217728 })
                400 {"code":"BadRequest","message":"Message: {\"Errors\":[\"the query needs more memory than the 128 MiB that one query may use\"]}\r\nActivityId: ID, AGENT"}
            Sql(ServerMemory { bytes_max: 1073741824 })
                429/3200 retry after 100 ms {"code":"TooManyRequests","message":"Message: {\"Errors\":[\"the 1024 MiB of memory that all queries may use together are in use; try again later\"]}\r\nActivityId: ID, AGENT"}
            Sql(QueryTempSpace { bytes_max: 4294967296 })
                400 {"code":"BadRequest","message":"Message: {\"Errors\":[\"the query needs more than the 4096 MiB of temporary space that all queries may use together (--query-temp-mb)\"]}\r\nActivityId: ID, AGENT"}
            Sql(ServerTempSpace { bytes_max: 4294967296 })
                429/3200 retry after 100 ms {"code":"TooManyRequests","message":"Message: {\"Errors\":[\"the 4096 MiB of temporary space that all queries may use together (--query-temp-mb) are in use; try again later\"]}\r\nActivityId: ID, AGENT"}
            Sql(TempFiles { files_max: 64 })
                429/3200 retry after 100 ms {"code":"TooManyRequests","message":"Message: {\"Errors\":[\"the 64 temporary files that all queries may use together are in use; try again later\"]}\r\nActivityId: ID, AGENT"}
            Sql(TempDiskFull)
                503 {"code":"ServiceUnavailable","message":"The server's disk is full: the query needs temporary space on it.\r\nActivityId: ID, AGENT"}
            Sql(TempIo { message: "broken" })
                503 {"code":"ServiceUnavailable","message":"The temporary files of the query could not be read or written.\r\nActivityId: ID, AGENT"}
            Sql(Cancelled)
                408 {"code":"RequestTimeout","message":"the query was cancelled\r\nActivityId: ID, AGENT"}
            RefusedByModel(TooManyReferences { link: "l" })
                400/6105 {"code":"BadRequest","message":"TooManyReferences: 'l' takes at most 1,000 references of one item.\r\nActivityId: ID, AGENT"}
            RefusedByModel(DeletionPending { id: "a1", job: "j-7" })
                449/6106 retry after 10 ms {"code":"RetryWith","message":"DeletionPending: references to 'a1' are still being removed (j-7).\r\nActivityId: ID, AGENT"}
            RefusedByModel(WindowKeyTwice { window: "w", path: "/c", key: "1" })
                400 {"code":"BadRequest","message":"WindowKeyTwice: two elements at /c have the key 1, by which 'w' tells them apart.\r\nActivityId: ID, AGENT"}
            CrossPartitionRefused
                400 {"code":"BadRequest","message":"Cross partition query is required but disabled. Please set x-ms-documentdb-query-enablecrosspartition to true, specify x-ms-documentdb-partitionkey, or revise your query to avoid this exception.\r\nActivityId: ID, AGENT"}
            CrossPartitionAggregate
                400 {"code":"BadRequest","message":"Cross partition query only supports 'VALUE <AggregateFunc>' for aggregates.\r\nActivityId: ID, AGENT"}
            Sql(UserFunction { name: "tax", message: "Say why." })
                400 {"code":"BadRequest","message":"Message: {\"Errors\":[\"the user-defined function 'udf.tax' failed: Say why.\"]}\r\nActivityId: ID, AGENT"}
            Script(ScriptFailure { error: Thrown { number: Some(4444), message: "Error: no", stack: "Error: no\n   at f (script.js:1:26)" }, log: None })
                400/4444 {"code":"BadRequest","message":"Message: {\"Errors\":[\"Encountered exception while executing function. Exception = Error: no\\r\\nStack trace: Error: no\\n   at f (script.js:1:26)\"]}\r\nActivityId: ID, AGENT"}
            Script(ScriptFailure { error: Thrown { number: Some(-1), message: "no", stack: "no" }, log: None })
                400 {"code":"BadRequest","message":"Message: {\"Errors\":[\"Encountered exception while executing function. Exception = no\\r\\nStack trace: no\"]}\r\nActivityId: ID, AGENT"}
            Script(ScriptFailure { error: Compile { message: "SyntaxError", position: None }, log: None })
                400/65535 {"code":"BadRequest","message":"Message: {\"Errors\":[\"Encountered exception while compiling Javascript. Exception = SyntaxError\"]}\r\nActivityId: ID, AGENT"}
            Script(ScriptFailure { error: TimedOut, log: None })
                408 {"code":"RequestTimeout","message":"Message: {\"Errors\":[\"The requested operation exceeded maximum alloted time.\"]}\r\nActivityId: ID, AGENT"}
            ScriptBlocked { id: "s" }
                403 {"code":"Forbidden","message":"The script with id 's' is blocked for execution because it has violated its allowed resource limit several times.\r\nActivityId: ID, AGENT"}
            ScriptStuck { id: "s" }
                403 {"code":"Forbidden","message":"The script with id 's' is blocked for execution because a call of it does not end and cannot be stopped in the process of the server. It can be executed again when it is replaced or the server is restarted; with --script-isolation process such a call is ended.\r\nActivityId: ID, AGENT"}
            TransactionConflict
                449 retry after 10 ms {"code":"RetryWith","message":"Retry the request.\r\nActivityId: ID, AGENT"}
            NotSupported { feature: "Flying" }
                400 {"code":"BadRequest","message":"Flying is not supported by this version of Quire\r\nActivityId: ID, AGENT"}
            Forbidden { reason: "Say why." }
                403 {"code":"Forbidden","message":"Say why.\r\nActivityId: ID, AGENT"}
            Cancelled
                408 {"code":"RequestTimeout","message":"the request was cancelled\r\nActivityId: ID, AGENT"}
            Contended
                449 retry after 10 ms {"code":"RetryWith","message":"Retry the request.\r\nActivityId: ID, AGENT"}
            TransactionConflict
                449 retry after 10 ms {"code":"RetryWith","message":"Retry the request.\r\nActivityId: ID, AGENT"}
            FailedDependency
                424 {"code":"FailedDependency","message":"another operation of the transaction failed\r\nActivityId: ID, AGENT"}
            TransactionTooLarge { limit: "16 MB" }
                413 {"code":"RequestEntityTooLarge","message":"Message: {\"Errors\":[\"the transaction is larger than 16 MB\"]}\r\nActivityId: ID, AGENT"}
            Overloaded
                429/3200 retry after 100 ms {"code":"TooManyRequests","message":"Message: {\"Errors\":[\"Request rate is large. More Request Units may be needed, so no changes were made. Please retry this request later.\"]}\r\nActivityId: ID, AGENT"}
            UnknownLink { link: "l", container: "c" }
                400 {"code":"UnknownLink","message":"there is no link \"l\" that can be followed from the container \"c\".\r\nActivityId: ID, AGENT"}
            LinkNotReady { link: "l", is_building: true }
                409 {"code":"LinkNotReady","message":"the link \"l\" cannot be followed: it is still being built.\r\nActivityId: ID, AGENT"}
            FollowTooLarge
                400 {"code":"FollowTooLarge","message":"more than 1,000 items or 4 MB follow from one item.\r\nActivityId: ID, AGENT"}
            Sql(FollowNeedsItems)
                400 {"code":"FollowNeedsItems","message":"links can be followed from rows that are whole items: SELECT * or SELECT VALUE with the alias of the container.\r\nActivityId: ID, AGENT"}
            Storage(Closed)
                503 {"code":"ServiceUnavailable","message":"The server is shutting down.\r\nActivityId: ID, AGENT"}
            Storage(Poisoned { during: "sync" })
                503 {"code":"ServiceUnavailable","message":"The store takes no writes until it is opened again.\r\nActivityId: ID, AGENT"}
            Storage(Unavailable { during: "flush" })
                503 {"code":"ServiceUnavailable","message":"The store takes no writes for the moment.\r\nActivityId: ID, AGENT"}
            Storage(DiskFull { doing: "writing the journal" })
                503 {"code":"ServiceUnavailable","message":"The server's disk is full: nothing is written until there is space again.\r\nActivityId: ID, AGENT"}
            Storage(Corrupt { what: "secret" })
                500 {"code":"InternalServerError","message":"An internal error occurred; the server's log has the details.\r\nActivityId: ID, AGENT"}
            Storage(Io { doing: "reading a secret", source: Custom { kind: Other, error: "disk" } })
                503 {"code":"ServiceUnavailable","message":"The store could not be read or written.\r\nActivityId: ID, AGENT"}
            Corrupt { what: "secret" }
                500 {"code":"InternalServerError","message":"An internal error occurred; the server's log has the details.\r\nActivityId: ID, AGENT"}
            Unresolved
                503 retry after 100 ms {"code":"ServiceUnavailable","message":"The outcome of a write is not known yet.\r\nActivityId: ID, AGENT"}
            NewerFormat { found: 2, supported: 1 }
                400 {"code":"BadRequest","message":"the store has format 2, this version reads up to 1\r\nActivityId: ID, AGENT"}
            StorageNotEmpty
                400 {"code":"BadRequest","message":"the storage to restore into is not empty\r\nActivityId: ID, AGENT"}
            BackupRunning
                409 {"code":"Conflict","message":"a backup is running already\r\nActivityId: ID, AGENT"}
            BadBackup { what: "cut off" }
                400 {"code":"BadRequest","message":"bad backup: cut off\r\nActivityId: ID, AGENT"}
            Io { doing: "copying a secret", source: Custom { kind: Other, error: "disk" } }
                500 {"code":"InternalServerError","message":"An internal error occurred; the server's log has the details.\r\nActivityId: ID, AGENT"}
        "#]],
    );
}

#[test]
fn request_errors() {
    let text = |text: &str| text.to_owned();
    check(
        &[
            RequestError::Route(RouteError::InvalidUrl),
            RequestError::Route(RouteError::MethodNotAllowed),
            RequestError::BadHeader { name: "x-ms-max-item-count", value: text("abc") },
            RequestError::HeaderNotUtf8 { name: hyper::header::IF_MATCH },
            RequestError::BadRequest { message: text("Say why.") },
            RequestError::BadBinary(BinaryError { offset: 1, reason: "cut off" }),
            RequestError::NothingToApply { id: text("a-1") },
            RequestError::BadPageSize { value: text("abc") },
            RequestError::ConsistencyTooStrong { requested: "Strong", account: "Session" },
            RequestError::PlanFeatures { features: vec![text("OrderBy"), text("Top")] },
            RequestError::UnknownHost { host: text("evil.example") },
            RequestError::ForeignOrigin { origin: text("https://evil.example") },
            RequestError::ContentEncoding { encoding: text("gzip") },
            RequestError::BodyTooLarge { bytes_max: 2 },
            RequestError::HeadersTooLarge { bytes_max: 2 },
            RequestError::Timeout,
            RequestError::Busy,
            RequestError::Internal { what: text("secret") },
        ],
        expect![[r#"
            Route(InvalidUrl)
                400 {"code":"BadRequest","message":"Request url is invalid.\r\nActivityId: ID, AGENT"}
            Route(MethodNotAllowed)
                405 {"code":"MethodNotAllowed","message":"The requested verb is not supported.\r\nActivityId: ID, AGENT"}
            BadHeader { name: "x-ms-max-item-count", value: "abc" }
                400 {"code":"BadRequest","message":"The value 'abc' specified for the header 'x-ms-max-item-count' is invalid.\r\nActivityId: ID, AGENT"}
            HeaderNotUtf8 { name: "if-match" }
                400 {"code":"BadRequest","message":"The value specified for the header 'if-match' is not UTF-8.\r\nActivityId: ID, AGENT"}
            BadRequest { message: "Say why." }
                400 {"code":"BadRequest","message":"Say why.\r\nActivityId: ID, AGENT"}
            BadBinary(BinaryError { offset: 1, reason: "cut off" })
                400 {"code":"BadRequest","message":"The request payload is invalid. Ensure to provide a valid request payload. (binary JSON at byte 1: cut off)\r\nActivityId: ID, AGENT"}
            NothingToApply { id: "a-1" }
                409 {"code":"NothingToApply","message":"the finding \"a-1\" has nothing that can be applied: its remedy is steps for people.\r\nActivityId: ID, AGENT"}
            BadPageSize { value: "abc" }
                400 {"code":"BadRequest","message":"The input PageSize abc is invalid. Ensure to pass a valid page size which must be a positive integer or -1 for a dynamic page size\r\nActivityId: ID, AGENT"}
            ConsistencyTooStrong { requested: "Strong", account: "Session" }
                400 {"code":"BadRequest","message":"The requested consistency level 'Strong' is stronger than the account's default consistency level 'Session'.\r\nActivityId: ID, AGENT"}
            PlanFeatures { features: ["OrderBy", "Top"] }
                400 {"code":"BadRequest","message":"Query contains 1 or more unsupported features. Upgrade your SDK to a version that does support the requested features:\nQuery contained OrderBy, which the calling client does not support.\nQuery contained Top, which the calling client does not support.\r\nActivityId: ID, AGENT"}
            UnknownHost { host: "evil.example" }
                421 {"code":"MisdirectedRequest","message":"The host 'evil.example' is not served here: use localhost, or start the server with --allow-host.\r\nActivityId: ID, AGENT"}
            ForeignOrigin { origin: "https://evil.example" }
                403 {"code":"Forbidden","message":"Requests from the origin 'https://evil.example' are refused.\r\nActivityId: ID, AGENT"}
            ContentEncoding { encoding: "gzip" }
                415 {"code":"UnsupportedMediaType","message":"The content encoding 'gzip' is not accepted.\r\nActivityId: ID, AGENT"}
            BodyTooLarge { bytes_max: 2 }
                413 {"code":"RequestEntityTooLarge","message":"Message: {\"Errors\":[\"Request size is too large\"]}\r\nActivityId: ID, AGENT"}
            HeadersTooLarge { bytes_max: 2 }
                431 {"code":"RequestHeaderFieldsTooLarge","message":"The headers are larger than 2 bytes.\r\nActivityId: ID, AGENT"}
            Timeout
                408 {"code":"RequestTimeout","message":"The request timed out.\r\nActivityId: ID, AGENT"}
            Busy
                429/3200 retry after 100 ms {"code":"TooManyRequests","message":"Message: {\"Errors\":[\"The server holds as many bytes of requests and answers as it may. Nothing was done. Please retry this request later.\"]}\r\nActivityId: ID, AGENT"}
            Internal { what: "secret" }
                500 {"code":"InternalServerError","message":"An internal error occurred; the server's log has the details.\r\nActivityId: ID, AGENT"}
        "#]],
    );
}

#[test]
fn spans_count_characters() {
    let diagnostic = Diagnostic { code: "SC1001", start: 3, end: 4, message: "near 'x'.".to_owned() };
    let error = EngineError::Sql(SqlError::Compile(vec![diagnostic]));
    expect![[r#"Message: {"errors":[{"severity":"Error","location":{"start":1,"end":2},"code":"SC1001","message":"near 'x'."}]}"#]].assert_eq(&query(&error, "日x").message);
    expect![[r#"Gateway Failed to Retrieve Query Plan: Message: {"errors":[{"severity":"Error","location":{"start":1,"end":2},"code":"SC1001","message":"near 'x'."}]}"#]].assert_eq(&plan(&error, "日x").message);
}
