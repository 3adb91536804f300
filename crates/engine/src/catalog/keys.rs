//! The catalog's own keys in space 0. Every number is big-endian, so a database's children are one prefix.
//!
//! | key                                                  | row                                    |
//! |------------------------------------------------------|----------------------------------------|
//! | `01`                                                 | the store: format, secret, incarnation |
//! | `02`                                                 | counters: the next number of each kind |
//! | `10 01` · database                                   | a database                             |
//! | `10 02` · database · container                       | a container, with its partitions       |
//! | `10 03` · database · user                            | a user                                 |
//! | `10 04` · database · user · permission (8 bytes)     | a permission                           |
//! | `10 05` · database · key                             | a client encryption key                |
//! | `10 06` · database · container or 0 · offer          | the offer of a container or database   |
//! | `10 07` · database · container · number (8 bytes)    | a stored procedure                     |
//! | `10 08` · database · container · number (8 bytes)    | a trigger                              |
//! | `10 09` · database · container · number (8 bytes)    | a user-defined function                |
//! | `20 01` · container                                  | job: reclaim a container               |
//! | `20 02` · database                                   | job: reclaim a database                |
//! | `20 03` · database · user                            | job: reclaim a user                    |
//! | `20 04` · container · declaration                    | job: reclaim a declaration of a model  |
//! | `30` · database                                      | the model of a database                |
//!
//! `C0` and above belong to the partitions. Bytes are on disk: never renumber.

use quire_resource::{ChildKind, ResourceId};

use super::state::{DropJob, OfferOwner};

pub(crate) const STORE: [u8; 1] = [0x01];
pub(crate) const COUNTERS: [u8; 1] = [0x02];
pub(crate) const RESOURCES: [u8; 1] = [0x10];
pub(crate) const JOBS: [u8; 1] = [0x20];
pub(crate) const MODELS: [u8; 1] = [0x30];

const DATABASE: u8 = 0x01;
pub(crate) const CONTAINER: u8 = 0x02;
const USER: u8 = 0x03;
const PERMISSION: u8 = 0x04;
const CLIENT_ENCRYPTION_KEY: u8 = 0x05;
const OFFER: u8 = 0x06;
const STORED_PROCEDURE: u8 = 0x07;
const TRIGGER: u8 = 0x08;
const USER_DEFINED_FUNCTION: u8 = 0x09;

/// What the key of a resource row says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowId {
    /// Anything but an offer.
    Resource(ResourceId),
    Offer {
        owner: OfferOwner,
        number: u32,
    },
}

impl RowId {
    pub fn rid(self) -> ResourceId {
        match self {
            RowId::Resource(rid) => rid,
            RowId::Offer { number, .. } => ResourceId::Offer(number),
        }
    }
}

/// Children of a database, by the second byte of their keys.
pub(crate) const DATABASE_CHILDREN: [u8; 8] = [
    CONTAINER,
    USER,
    PERMISSION,
    CLIENT_ENCRYPTION_KEY,
    OFFER,
    STORED_PROCEDURE,
    TRIGGER,
    USER_DEFINED_FUNCTION,
];

pub(crate) fn children_prefix(kind: u8, database: u32) -> Vec<u8> {
    key(RESOURCES[0], kind, &[database])
}

pub(crate) fn containers_prefix(database: u32) -> Vec<u8> {
    children_prefix(CONTAINER, database)
}

pub(crate) fn permissions_prefix(database: u32, user: u32) -> Vec<u8> {
    key(RESOURCES[0], PERMISSION, &[database, user])
}

pub(crate) fn row_key(id: RowId) -> Vec<u8> {
    let resources = RESOURCES[0];
    match id {
        RowId::Resource(ResourceId::Database(database)) => key(resources, DATABASE, &[database]),
        RowId::Resource(ResourceId::Container { database, container }) => {
            key(resources, CONTAINER, &[database, container])
        }
        RowId::Resource(ResourceId::User { database, user }) => key(resources, USER, &[database, user]),
        RowId::Resource(ResourceId::Permission { database, user, permission }) => {
            let mut bytes = permissions_prefix(database, user);
            bytes.extend(permission.to_be_bytes());
            bytes
        }
        RowId::Resource(ResourceId::ClientEncryptionKey { database, key: number }) => {
            key(resources, CLIENT_ENCRYPTION_KEY, &[database, number])
        }
        RowId::Offer { owner, number } => key(resources, OFFER, &[owner.database, owner.container, number]),
        RowId::Resource(ResourceId::Child { database, container, kind, child }) => {
            let mut bytes = key(resources, script_byte(kind), &[database, container]);
            bytes.extend(child.to_be_bytes());
            bytes
        }
        RowId::Resource(ResourceId::Offer(_)) => unreachable!("an offer has an owner"),
    }
}

pub(crate) fn parse_row_key(bytes: &[u8]) -> Option<RowId> {
    let (&[RESOURCE, kind], numbers) = bytes.split_first_chunk::<2>()? else { return None };
    let rid = match (kind, numbers.len()) {
        (DATABASE, 4) => ResourceId::Database(number(numbers, 0)?),
        (CONTAINER, 8) => {
            ResourceId::Container { database: number(numbers, 0)?, container: number(numbers, 4)? }
        }
        (USER, 8) => ResourceId::User { database: number(numbers, 0)?, user: number(numbers, 4)? },
        (PERMISSION, 16) => {
            let permission = u64::from_be_bytes(*numbers.last_chunk()?);
            ResourceId::Permission { database: number(numbers, 0)?, user: number(numbers, 4)?, permission }
        }
        (CLIENT_ENCRYPTION_KEY, 8) => {
            ResourceId::ClientEncryptionKey { database: number(numbers, 0)?, key: number(numbers, 4)? }
        }
        (OFFER, 12) => {
            let owner = OfferOwner { database: number(numbers, 0)?, container: number(numbers, 4)? };
            return Some(RowId::Offer { owner, number: number(numbers, 8)? });
        }
        (STORED_PROCEDURE | TRIGGER | USER_DEFINED_FUNCTION, 16) => {
            let (database, container) = (number(numbers, 0)?, number(numbers, 4)?);
            let child = u64::from_be_bytes(*numbers.last_chunk()?);
            ResourceId::Child { database, container, kind: script_kind(kind)?, child }
        }
        _ => return None,
    };
    Some(RowId::Resource(rid))
}

fn script_byte(kind: ChildKind) -> u8 {
    match kind {
        ChildKind::StoredProcedure => STORED_PROCEDURE,
        ChildKind::Trigger => TRIGGER,
        ChildKind::UserDefinedFunction => USER_DEFINED_FUNCTION,
        ChildKind::Item | ChildKind::Conflict | ChildKind::PartitionKeyRange => {
            unreachable!("no catalog row: {kind:?}")
        }
    }
}

fn script_kind(byte: u8) -> Option<ChildKind> {
    match byte {
        STORED_PROCEDURE => Some(ChildKind::StoredProcedure),
        TRIGGER => Some(ChildKind::Trigger),
        USER_DEFINED_FUNCTION => Some(ChildKind::UserDefinedFunction),
        _ => None,
    }
}

const RESOURCE: u8 = RESOURCES[0];

pub(crate) fn job_key(job: DropJob) -> Vec<u8> {
    match job {
        DropJob::Container { container } => key(JOBS[0], 0x01, &[container]),
        DropJob::Database { database } => key(JOBS[0], 0x02, &[database]),
        DropJob::User { database, user } => key(JOBS[0], 0x03, &[database, user]),
        DropJob::Declaration { container, declaration } => key(JOBS[0], 0x04, &[container, declaration]),
    }
}

pub(crate) fn parse_job_key(bytes: &[u8]) -> Option<DropJob> {
    let (&[_, kind], numbers) = bytes.split_first_chunk::<2>()?;
    match (kind, numbers.len()) {
        (0x01, 4) => Some(DropJob::Container { container: number(numbers, 0)? }),
        (0x02, 4) => Some(DropJob::Database { database: number(numbers, 0)? }),
        (0x03, 8) => Some(DropJob::User { database: number(numbers, 0)?, user: number(numbers, 4)? }),
        (0x04, 8) => {
            Some(DropJob::Declaration { container: number(numbers, 0)?, declaration: number(numbers, 4)? })
        }
        _ => None,
    }
}

pub(crate) fn model_key(database: u32) -> Vec<u8> {
    [&MODELS[..], &database.to_be_bytes()].concat()
}

/// The database in the key of a model.
pub(crate) fn parse_model_key(bytes: &[u8]) -> Option<u32> {
    let (tag, database) = bytes.split_at_checked(MODELS.len())?;
    (tag == MODELS && database.len() == 4).then(|| number(database, 0))?
}

fn key(tag: u8, kind: u8, numbers: &[u32]) -> Vec<u8> {
    let mut bytes = vec![tag, kind];
    numbers.iter().for_each(|number| bytes.extend(number.to_be_bytes()));
    bytes
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}
