//! A commit as single rows, checked against the caps.
//!
//! Every implementation calls [`rows_of_commit`] first, so a commit that is too large or malformed changes nothing.

use crate::{Caps, Commit, CommitError, Guard, Op, SPACE_COUNT, Space};

/// The change of one key: `None` deletes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub space: Space,
    pub key: Vec<u8>,
    pub value: Option<Vec<u8>>,
}

/// The rows of a commit in (space, key) order, each key once.
pub fn rows_of_commit(commit: &mut Commit, caps: &Caps) -> Result<Vec<Row>, CommitError> {
    check(commit, caps)?;
    let mut rows = Vec::with_capacity(commit.ops.len());
    for op in std::mem::take(&mut commit.ops) {
        rows_of_op(op, &mut rows);
    }
    rows.sort_unstable_by(|a, b| (a.space, &a.key).cmp(&(b.space, &b.key)));
    check_rows(&rows, caps)?;
    Ok(rows)
}

/// Checks guards and size. Returns the bytes of keys and values.
pub fn check(commit: &Commit, caps: &Caps) -> Result<usize, CommitError> {
    check_guards(&commit.guards, caps)?;
    check_size(&commit.ops, caps)
}

fn check_guards(guards: &[Guard], caps: &Caps) -> Result<(), CommitError> {
    if guards.len() > 1 && !caps.commit_spans_partitions {
        return Err(CommitError::Malformed { what: "a commit guards one partition here".to_owned() });
    }
    for (index, guard) in guards.iter().enumerate() {
        if guards[..index].iter().any(|other| other.partition == guard.partition) {
            return Err(CommitError::Malformed { what: "two guards for one partition".to_owned() });
        }
        if guard.next_lsn < guard.previous_lsn {
            return Err(CommitError::Malformed { what: "a guard that moves its partition back".to_owned() });
        }
    }
    Ok(())
}

/// Measures before unfolding, so that a huge `Op::Rows` is refused without being expanded.
fn check_size(ops: &[Op], caps: &Caps) -> Result<usize, CommitError> {
    let (mut bytes, mut count, mut within) = (0usize, 0usize, true);
    for op in ops {
        match op {
            Op::Put { key, value, .. } => {
                within &= value.len() <= caps.value_bytes_max;
                bytes += key.len() + value.len();
                count += 1;
            }
            Op::Delete { key, .. } => {
                bytes += key.len();
                count += 1;
            }
            Op::Rows { prefix, suffix, added, removed, .. } => {
                let rows = added.len() + removed.len();
                bytes += added.row_bytes() + removed.row_bytes() + rows * (prefix.len() + suffix.len());
                count += rows;
            }
        }
    }
    if within && bytes <= caps.commit_bytes_max && count <= caps.commit_ops_max {
        return Ok(bytes);
    }
    Err(CommitError::TooLarge { bytes, ops: count })
}

fn rows_of_op(op: Op, rows: &mut Vec<Row>) {
    match op {
        Op::Put { space, key, value } => rows.push(Row { space, key, value: Some(value) }),
        Op::Delete { space, key } => rows.push(Row { space, key, value: None }),
        Op::Rows { space, prefix, suffix, added, removed } => {
            let key = |middle: &[u8]| [&prefix, middle, &suffix].concat();
            rows.extend(added.iter().map(|middle| Row { space, key: key(middle), value: Some(Vec::new()) }));
            rows.extend(removed.iter().map(|middle| Row { space, key: key(middle), value: None }));
        }
    }
}

/// A commit that has two ops for one key.
pub fn two_ops(space: Space, key: &[u8]) -> CommitError {
    CommitError::Malformed { what: format!("two ops for the key {key:02x?} of {space:?}") }
}

fn check_rows(rows: &[Row], caps: &Caps) -> Result<(), CommitError> {
    if rows.last().is_some_and(|row| row.space.0 >= SPACE_COUNT) {
        return Err(CommitError::Malformed { what: "an op for a key space that does not exist".to_owned() });
    }
    if rows.iter().any(|row| row.key.is_empty()) {
        return Err(CommitError::Malformed { what: "an op with an empty key".to_owned() });
    }
    let is_twice = |pair: &&[Row]| pair[0].space == pair[1].space && pair[0].key == pair[1].key;
    if let Some(pair) = rows.windows(2).find(is_twice) {
        return Err(two_ops(pair[0].space, &pair[0].key));
    }
    if rows.iter().any(|row| row.key.len() > caps.key_bytes_max) {
        let bytes = rows.iter().map(|row| row.key.len() + row.value.as_ref().map_or(0, Vec::len)).sum();
        return Err(CommitError::TooLarge { bytes, ops: rows.len() });
    }
    Ok(())
}
