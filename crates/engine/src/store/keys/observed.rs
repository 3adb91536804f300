//! Keys of profiles, advice and workloads of databases and containers, and of refactorings.

use super::join;

pub(super) const CATALOG_PROFILE: u8 = 0xCA;
pub(super) const CATALOG_JOURNAL: u8 = 0xCB;
pub(super) const CATALOG_SKIPPED: u8 = 0xCC;
const SKIPPED_ITEM: u8 = 0x01;
const SKIPPED_CLAIM: u8 = 0x02;
const SKIPPED_UNPLACEABLE: u8 = 0x03;
/// Of a database.
const CATALOG_ADVICE: u8 = 0xD4;
const CATALOG_WORKLOAD: u8 = 0xD5;
/// Begins the keys of all refactorings.
pub(crate) const REFACTORINGS: [u8; 1] = [0xD6];
const ADVICE_LIST: u8 = 0x01;
const ADVICE_DECISIONS: u8 = 0x02;

/// The profile of a container.
pub(crate) fn profile(container: u32) -> Vec<u8> {
    join(&[&[CATALOG_PROFILE], &container.to_be_bytes()])
}

/// Everything about the advice of a database.
pub(crate) fn advice_prefix(database: u32) -> Vec<u8> {
    join(&[&[CATALOG_ADVICE], &database.to_be_bytes()])
}

pub(crate) fn advice_list(database: u32) -> Vec<u8> {
    join(&[&[CATALOG_ADVICE], &database.to_be_bytes(), &[ADVICE_LIST]])
}

pub(crate) fn advice_decisions(database: u32) -> Vec<u8> {
    join(&[&[CATALOG_ADVICE], &database.to_be_bytes(), &[ADVICE_DECISIONS]])
}

/// All parts of the recorded workload of a database.
pub(crate) fn workload_prefix(database: u32) -> Vec<u8> {
    join(&[&[CATALOG_WORKLOAD], &database.to_be_bytes()])
}

pub(crate) fn workload(database: u32, number: u32) -> Vec<u8> {
    join(&[&[CATALOG_WORKLOAD], &database.to_be_bytes(), &number.to_be_bytes()])
}

/// All refactorings of a database.
pub(crate) fn refactorings_prefix(database: u32) -> Vec<u8> {
    join(&[&REFACTORINGS, &database.to_be_bytes()])
}

pub(crate) fn refactoring(database: u32, number: u32) -> Vec<u8> {
    join(&[&REFACTORINGS, &database.to_be_bytes(), &number.to_be_bytes()])
}

/// Database and number.
pub(crate) fn parse_refactoring(key: &[u8]) -> Option<(u32, u32)> {
    let (database, rest) = key.strip_prefix(&REFACTORINGS)?.split_first_chunk()?;
    Some((u32::from_be_bytes(*database), u32::from_be_bytes(rest.try_into().ok()?)))
}

/// Whether it is the key of a refactoring or of a journal.
pub(crate) fn is_of_refactoring(key: &[u8]) -> bool {
    key.starts_with(&REFACTORINGS) || key.starts_with(&[CATALOG_JOURNAL])
}

/// All journals of a container.
pub(crate) fn journals_prefix(container: u32) -> Vec<u8> {
    join(&[&[CATALOG_JOURNAL], &container.to_be_bytes()])
}

pub(crate) fn journal_prefix(container: u32, refactoring: u32) -> Vec<u8> {
    join(&[&[CATALOG_JOURNAL], &container.to_be_bytes(), &refactoring.to_be_bytes()])
}

/// What an item had before a refactoring.
pub(crate) fn journal(container: u32, refactoring: u32, rid: u64) -> Vec<u8> {
    join(&[&[CATALOG_JOURNAL], &container.to_be_bytes(), &refactoring.to_be_bytes(), &rid.to_be_bytes()])
}

/// The refactoring or apply job of a journal.
pub(crate) fn number_of_journal_key(key: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(key.get(5..9)?.try_into().ok()?))
}

/// Items of its source that a container with another key does not have.
pub(crate) fn skipped_items_prefix(container: u32) -> Vec<u8> {
    join(&[&[CATALOG_SKIPPED], &container.to_be_bytes(), &[SKIPPED_ITEM]])
}

pub(crate) fn skipped_item(container: u32, rid: u64) -> Vec<u8> {
    join(&[&skipped_items_prefix(container), &rid.to_be_bytes()])
}

/// Those that no item can be there as.
pub(crate) fn unplaceable_items_prefix(container: u32) -> Vec<u8> {
    join(&[&[CATALOG_SKIPPED], &container.to_be_bytes(), &[SKIPPED_UNPLACEABLE]])
}

pub(crate) fn unplaceable_item(container: u32, rid: u64) -> Vec<u8> {
    join(&[&unplaceable_items_prefix(container), &rid.to_be_bytes()])
}

/// All that a container with another key has of items that it leaves.
pub(crate) fn skipped_prefix(container: u32) -> Vec<u8> {
    join(&[&[CATALOG_SKIPPED], &container.to_be_bytes()])
}

/// Items that are left and would have this id, or these unique values: `claim` is a digest.
pub(crate) fn skipped_claims_prefix(container: u32, claim: &[u8; 16]) -> Vec<u8> {
    join(&[&[CATALOG_SKIPPED], &container.to_be_bytes(), &[SKIPPED_CLAIM], claim])
}

/// In the order of their ranks: the first one is taken where none is there.
pub(crate) fn skipped_claim(container: u32, claim: &[u8; 16], rank: &[u8; 16], rid: u64) -> Vec<u8> {
    join(&[&skipped_claims_prefix(container, claim), rank, &rid.to_be_bytes()])
}

/// The item of the source in the key of one that is left.
pub(crate) fn rid_of_skipped_key(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(*key.last_chunk()?))
}

pub(crate) fn rid_of_journal_key(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.get(9..)?.try_into().ok()?))
}
