//! Commits: guards, fencing, tokens, and refusals. One function per sentence of the contract.

use super::*;
use crate::{Position, RowList, SPACE_COUNT};

pub(super) fn atomic(fixture: &mut Fixture) {
    fixture.guarded(&[guard(1, 0, 0, 1)]).unwrap();
    let token = fixture.token();
    let commit = Commit {
        guards: vec![guard(2, 0, 0, 1), guard(1, 0, 7, 8)],
        token,
        ops: vec![put(0, b"half", b"x"), put(1, b"half", b"x")],
    };
    let error = fixture.storage.commit(commit).unwrap_err();
    assert!(matches!(error, CommitError::Conflict { partition: PartitionId(1), actual_lsn: 1 }), "{error:?}");
    assert_eq!(fixture.get(0, b"half"), None);
    assert_eq!(fixture.get(1, b"half"), None);
    assert_eq!(fixture.storage.position(PartitionId(2)).unwrap(), None, "the other guard did not move");
}

pub(super) fn guards(fixture: &mut Fixture) {
    let at = |epoch, lsn| Some(Position { epoch, lsn });
    fixture.guarded(&[guard(7, 0, 0, 1)]).unwrap();
    fixture.guarded(&[guard(7, 0, 1, 5)]).unwrap();
    assert_eq!(fixture.storage.position(PartitionId(7)).unwrap(), at(0, 5));
    for previous in [0, 1, 4, 6, u64::MAX] {
        let error = fixture.guarded(&[guard(7, 0, previous, u64::MAX)]).unwrap_err();
        assert!(
            matches!(error, CommitError::Conflict { partition: PartitionId(7), actual_lsn: 5 }),
            "{error:?}"
        );
    }
    fixture.guarded(&[guard(7, 0, 5, 5)]).expect("a mere assertion");
    assert_eq!(fixture.storage.position(PartitionId(7)).unwrap(), at(0, 5));
    fixture.guarded(&[guard(7, 0, 5, 6)]).unwrap();
    let error = fixture.guarded(&[guard(8, 0, 3, 4)]).unwrap_err();
    assert!(matches!(error, CommitError::Conflict { actual_lsn: 0, .. }), "{error:?}");
    assert_eq!(fixture.storage.position(PartitionId(8)).unwrap(), None);
}

pub(super) fn guards_of_several_partitions(fixture: &mut Fixture) {
    if !fixture.storage.caps().commit_spans_partitions {
        let error = fixture.guarded(&[guard(1, 0, 0, 1), guard(2, 0, 0, 1)]).unwrap_err();
        assert!(matches!(error, CommitError::Malformed { .. }), "{error:?}");
        return;
    }
    fixture.guarded(&[guard(1, 0, 0, 1), guard(2, 3, 0, 9)]).unwrap();
    assert_eq!(fixture.storage.position(PartitionId(1)).unwrap(), Some(Position { epoch: 0, lsn: 1 }));
    assert_eq!(fixture.storage.position(PartitionId(2)).unwrap(), Some(Position { epoch: 3, lsn: 9 }));
    fixture.guarded(&[guard(1, 0, 1, 2), guard(2, 3, 8, 10)]).unwrap_err();
    assert_eq!(fixture.storage.position(PartitionId(1)).unwrap(), Some(Position { epoch: 0, lsn: 1 }));
}

pub(super) fn fencing(fixture: &mut Fixture) {
    let partition = PartitionId(5);
    assert_eq!(fixture.storage.fence(partition, 2).unwrap(), Position { epoch: 2, lsn: 0 });
    let error = fixture.guarded(&[guard(5, 1, 0, 1)]).unwrap_err();
    assert!(matches!(error, CommitError::Fenced { epoch: 2, .. }), "{error:?}");
    fixture.guarded(&[guard(5, 2, 0, 1)]).unwrap();
    assert_eq!(fixture.storage.fence(partition, 1).unwrap(), Position { epoch: 2, lsn: 1 }, "never lowered");
    assert_eq!(fixture.storage.fence(partition, 2).unwrap(), Position { epoch: 2, lsn: 1 });
    fixture.guarded(&[guard(5, 4, 1, 2)]).expect("a newer epoch takes over");
    let error = fixture.guarded(&[guard(5, 2, 2, 3)]).unwrap_err();
    assert!(matches!(error, CommitError::Fenced { epoch: 4, .. }), "{error:?}");
    let error = fixture.guarded(&[guard(5, 3, 1, 3)]).unwrap_err();
    assert!(
        matches!(error, CommitError::Fenced { .. }),
        "an old epoch is fenced before its LSN is looked at"
    );
    fixture.reopen();
    assert_eq!(fixture.storage.position(partition).unwrap(), Some(Position { epoch: 4, lsn: 2 }));
    fixture.storage.fence(PartitionId(6), 8).unwrap();
    fixture.crash();
    assert_eq!(fixture.storage.position(PartitionId(6)).unwrap(), Some(Position { epoch: 8, lsn: 0 }));
}

pub(super) fn tokens(fixture: &mut Fixture) {
    let token = fixture.token();
    let commit =
        |value: &[u8]| Commit { guards: vec![guard(1, 0, 0, 1)], token, ops: vec![put(0, b"a", value)] };
    let first = fixture.storage.commit(commit(b"1")).unwrap();
    fixture.write(vec![put(0, b"a", b"2")]);
    let check = |fixture: &Fixture| {
        assert_eq!(fixture.storage.resolve(token).unwrap(), Some(first));
        assert_eq!(fixture.storage.commit(commit(b"3")).unwrap(), first);
        assert_eq!(fixture.get(0, b"a"), Some(b"2".to_vec()), "a retry is a no-op");
    };
    check(fixture);
    fixture.reopen();
    check(fixture);
    fixture.crash();
    check(fixture);
}

pub(super) fn failed_token(fixture: &mut Fixture) {
    let token = fixture.token();
    let commit = |previous| Commit { guards: vec![guard(1, 0, previous, previous + 1)], token, ops: vec![] };
    assert!(matches!(fixture.storage.commit(commit(3)), Err(CommitError::Conflict { .. })));
    assert_eq!(fixture.storage.resolve(token).unwrap(), None);
    let committed = fixture.storage.commit(commit(0)).expect("the token was not spent");
    assert_eq!(fixture.storage.resolve(token).unwrap(), Some(committed));
}

pub(super) fn sequences(fixture: &mut Fixture) {
    let mut last = 0;
    for round in 0..20u8 {
        let sequence = fixture.write(vec![put(0, &[round + 1], b"x")]).sequence;
        assert!(sequence > last);
        last = sequence;
        match round {
            7 => fixture.reopen(),
            13 => fixture.crash(),
            _ => {}
        }
    }
}

pub(super) fn too_large(fixture: &mut Fixture) {
    let caps = fixture.storage.caps().clone();
    let refuse = |fixture: &mut Fixture, ops: Vec<Op>, what: &str| {
        let token = fixture.token();
        let guards = vec![guard(1, 0, 0, 1)];
        let error = fixture.storage.commit(Commit { guards, token, ops }).unwrap_err();
        assert!(matches!(error, CommitError::TooLarge { .. }), "{what}: {error:?}");
        assert_eq!(fixture.get(0, b"a"), None, "{what}");
        assert_eq!(fixture.storage.position(PartitionId(1)).unwrap(), None, "{what}");
        assert_eq!(fixture.storage.resolve(token).unwrap(), None, "{what}");
    };
    let small = put(0, b"a", b"x");
    refuse(fixture, vec![small.clone(), put(0, &vec![1; caps.key_bytes_max + 1], b"")], "key");
    refuse(fixture, vec![small.clone(), put(0, b"b", &vec![0; caps.value_bytes_max + 1])], "value");
    let count = caps.commit_bytes_max / caps.value_bytes_max + 1;
    let values = (0..count).map(|number| put(0, &number.to_be_bytes(), &vec![0; caps.value_bytes_max]));
    refuse(fixture, values.chain([small.clone()]).collect(), "bytes");
    let added = (0..caps.commit_ops_max).map(|number| number.to_be_bytes().to_vec()).collect();
    let rows =
        Op::Rows { space: Space(3), prefix: vec![], suffix: vec![], added, removed: RowList::default() };
    refuse(fixture, vec![small.clone(), rows], "ops");
    let prefix = vec![1; caps.key_bytes_max];
    let added = vec![[2u8]].into();
    refuse(
        fixture,
        vec![small, Op::Rows { space: Space(3), prefix, suffix: vec![], added, removed: RowList::default() }],
        "row",
    );
    let value = vec![9; caps.value_bytes_max.min(caps.commit_bytes_max / 2)];
    fixture.write(vec![put(0, b"large", &value)]);
    assert!(fixture.get(0, b"large") == Some(value), "as large as allowed");
}

pub(super) fn malformed(fixture: &mut Fixture) {
    let rows = Op::Rows {
        space: Space(0),
        prefix: b"a".to_vec(),
        suffix: vec![],
        added: vec![b""].into(),
        removed: RowList::default(),
    };
    let cases = [
        vec![put(0, b"a", b"1"), put(0, b"a", b"2")],
        vec![put(0, b"a", b"1"), delete(0, b"a")],
        vec![put(0, b"a", b"1"), rows],
        vec![put(0, b"a", b"1"), put(0, b"", b"2")],
        vec![put(0, b"a", b"1"), put(SPACE_COUNT, b"b", b"2")],
    ];
    for ops in cases {
        let error = fixture.try_write(ops).unwrap_err();
        assert!(matches!(error, CommitError::Malformed { .. }), "{error:?}");
        assert_eq!(fixture.get(0, b"a"), None);
    }
    for guards in [&[guard(1, 0, 0, 1), guard(1, 0, 1, 2)][..], &[guard(1, 0, 3, 2)]] {
        let error = fixture.guarded(guards).unwrap_err();
        assert!(matches!(error, CommitError::Malformed { .. }), "{error:?}");
    }
    fixture.write(vec![put(0, b"a", b"1"), put(1, b"a", b"2")]);
}
