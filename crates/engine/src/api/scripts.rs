//! Runs of stored procedures, and how scripts fail.

use bytes::Bytes;
use quire_resource::PartitionKey;
use quire_script::ScriptError;

use super::Cancel;

/// One run of a stored procedure, in one logical partition.
pub struct ExecuteProcedure {
    /// Id or rid of the procedure.
    pub id: String,
    pub partition_key: PartitionKey,
    /// JSON text; empty for no parameters.
    pub parameters: Bytes,
    /// Whether `console.log` writes.
    pub logging: bool,
    /// Headers of the request that the script may read.
    pub headers: Vec<(String, String)>,
    /// What there is to spend: from there on the procedure is asked to finish, its operations are not accepted.
    pub charge_max: Option<f64>,
    pub cancel: Cancel,
}

/// One run of a procedure that every container has.
pub struct ExecuteSystemProcedure {
    pub id: String,
    pub address: SystemAddress,
    /// JSON text: a list.
    pub parameters: Bytes,
    pub cancel: Cancel,
}

/// What such a procedure works on.
#[derive(Clone, Debug)]
pub enum SystemAddress {
    PartitionKey(PartitionKey),
    /// The id of a partition.
    Partition(String),
}

#[derive(Debug)]
pub struct ProcedureDone {
    /// JSON text.
    pub body: String,
    /// Plain text; `None` without logging.
    pub log: Option<String>,
}

/// A script that failed, and with it all that it did.
#[derive(Debug)]
pub struct ScriptFailure {
    pub error: ScriptError,
    /// What it logged until then; `None` without logging.
    pub log: Option<String>,
}
