//! The changes that a follower read from the change feed, against what was written.

use std::collections::BTreeMap;

pub type Token = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    Create,
    Replace,
    Delete,
    /// A delete because the time to live was over.
    Expire,
}

/// One change as a feed has it. Every write of a run has a token of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedChange {
    pub lsn: u64,
    pub id: String,
    pub kind: ChangeKind,
    pub token: Option<Token>,
    pub previous: Option<Token>,
}

/// What a change was, the version it made and the one before.
type ChangeTokens = (ChangeKind, Option<Token>, Option<Token>);

/// What happened to an item, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemEvent {
    Write(Token),
    Delete,
    Expire,
}

#[derive(Clone, Debug, Default)]
pub struct ExpectedEvents {
    pub events: Vec<ItemEvent>,
    /// Nobody knows whether it happened: all of it or nothing.
    pub is_unsure: bool,
}

impl ExpectedEvents {
    fn last_token(&self) -> Option<Token> {
        match self.events.last() {
            Some(ItemEvent::Write(token)) => Some(*token),
            _ => None,
        }
    }

    /// As the log of all versions has to have it.
    fn as_changes(&self) -> Vec<ChangeTokens> {
        let mut there = None;
        let tell = |event: &ItemEvent| match *event {
            ItemEvent::Write(token) => {
                let kind = if there.is_some() { ChangeKind::Replace } else { ChangeKind::Create };
                (kind, Some(token), there.replace(token))
            }
            ItemEvent::Delete => (ChangeKind::Delete, None, there.take()),
            ItemEvent::Expire => (ChangeKind::Expire, None, there.take()),
        };
        self.events.iter().map(tell).collect()
    }
}

/// The position in a range: nothing at or before that LSN may come any more.
#[derive(Clone, Copy, Debug)]
pub struct FeedPosition {
    pub read_to: u64,
}

impl FeedPosition {
    /// A page and the position of its ETag. The writes of one transaction share an LSN and come on one page.
    pub fn page(&mut self, lsns: &[u64], etag: u64) -> Result<(), String> {
        let start = self.read_to;
        let mut last = start;
        for &lsn in lsns {
            if lsn <= start || lsn < last {
                return Err(format!("LSN {lsn} comes after {last}, on a page after {start}"));
            }
            last = lsn;
        }
        if etag < last {
            return Err(format!("a page up to {last} has the etag {etag}"));
        }
        self.read_to = etag;
        Ok(())
    }
}

/// The log of all versions has every event of every item once, in order, with the version before.
pub fn all_versions(changes: &[FeedChange], expected: &BTreeMap<String, ExpectedEvents>) -> Vec<String> {
    let mut by_item: BTreeMap<&str, Vec<ChangeTokens>> = BTreeMap::new();
    for change in changes {
        by_item.entry(&change.id).or_default().push((change.kind, change.token, change.previous));
    }
    let mut problems = Vec::new();
    for (id, expected) in expected {
        let found = by_item.remove(id.as_str()).unwrap_or_default();
        if expected.is_unsure && found.is_empty() {
            continue;
        }
        let wanted = expected.as_changes();
        if found == wanted {
            continue;
        }
        let same = found.iter().zip(&wanted).take_while(|(found, wanted)| found == wanted).count();
        problems.push(format!(
            "{id}: {} changes found, {} expected; the first {same} agree, then found {:?}, expected {:?}",
            found.len(),
            wanted.len(),
            &found[same..found.len().min(same + 3)],
            &wanted[same..wanted.len().min(same + 3)],
        ));
    }
    problems.extend(by_item.into_keys().map(|id| format!("{id} is found and was never written")));
    problems
}

/// The feed of latest versions skips versions, but has none twice, none in the wrong order, and the last one always.
pub fn latest(changes: &[FeedChange], expected: &BTreeMap<String, ExpectedEvents>) -> Vec<String> {
    let mut by_item: BTreeMap<&str, Vec<Token>> = BTreeMap::new();
    let mut problems = Vec::new();
    for change in changes {
        match change.token {
            Some(token) => by_item.entry(&change.id).or_default().push(token),
            None => problems.push(format!("{}: a change without an item", change.id)),
        }
    }
    for (id, expected) in expected {
        let found = by_item.remove(id.as_str()).unwrap_or_default();
        let mut written = expected.events.iter().filter_map(|event| match event {
            ItemEvent::Write(token) => Some(*token),
            _ => None,
        });
        if let Some(odd) = found.iter().find(|token| !written.any(|written| written == **token)) {
            problems.push(format!("{id}: version {odd} is found again, out of order or was never written"));
        }
        let last = expected.last_token();
        if last.is_some() && found.last().copied() != last && !expected.is_unsure {
            problems.push(format!("{id}: is {last:?}, the feed ends with {:?}", found.last()));
        }
    }
    problems.extend(by_item.into_keys().map(|id| format!("{id} is found and was never written")));
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(kind: ChangeKind, token: Token, previous: Token) -> FeedChange {
        let some = |token: Token| (token > 0).then_some(token);
        FeedChange { lsn: 0, id: "a".to_owned(), kind, token: some(token), previous: some(previous) }
    }

    fn history() -> Vec<FeedChange> {
        vec![
            found(ChangeKind::Create, 1, 0),
            found(ChangeKind::Replace, 2, 1),
            found(ChangeKind::Delete, 0, 2),
            found(ChangeKind::Create, 3, 0),
            found(ChangeKind::Replace, 4, 3),
        ]
    }

    fn expected(is_unsure: bool) -> BTreeMap<String, ExpectedEvents> {
        use ItemEvent::*;
        let events = vec![Write(1), Write(2), Delete, Write(3), Write(4)];
        [("a".to_owned(), ExpectedEvents { events, is_unsure })].into()
    }

    fn versions_with(change: impl FnOnce(&mut Vec<FeedChange>)) -> usize {
        let mut history = history();
        change(&mut history);
        all_versions(&history, &expected(false)).len()
    }

    #[test]
    fn all_versions_as_they_were_written() {
        assert_eq!(versions_with(|_| ()), 0);
        assert_eq!(all_versions(&[], &expected(true)).len(), 0);
    }

    #[test]
    fn bad_logs_of_versions() {
        for at in 0..5 {
            assert_eq!(versions_with(|found| drop(found.remove(at))), 1, "without {at}");
            assert_eq!(versions_with(|found| found.insert(at, found[at].clone())), 1, "{at} twice");
        }
        assert_eq!(versions_with(|found| found.swap(0, 1)), 1, "order");
        assert_eq!(versions_with(|found| found[2].kind = ChangeKind::Expire), 1, "an expired delete");
        assert_eq!(versions_with(|found| found[3].kind = ChangeKind::Replace), 1, "kind");
        assert_eq!(versions_with(|found| found[4].previous = Some(1)), 1, "version before");
        assert_eq!(versions_with(|found| found[4].token = Some(9)), 1, "another version");
        assert_eq!(
            versions_with(|found| found.push(FeedChange { id: "b".to_owned(), ..found[0].clone() })),
            1
        );
        assert_eq!(all_versions(&history()[..1], &expected(true)).len(), 1, "half of it");
    }

    #[test]
    fn feeds_of_latest_versions() {
        let problems = |tokens: &[Token]| {
            let found: Vec<FeedChange> =
                tokens.iter().map(|token| found(ChangeKind::Create, *token, 0)).collect();
            latest(&found, &expected(false)).len()
        };
        for good in [&[4][..], &[1, 4], &[2, 3, 4], &[1, 2, 3, 4]] {
            assert_eq!(problems(good), 0, "{good:?}");
        }
        for bad in [&[][..], &[3], &[4, 4], &[2, 1, 4], &[9, 4], &[1, 1, 4]] {
            assert!(problems(bad) > 0, "{bad:?}");
        }
        let other = FeedChange { id: "b".to_owned(), ..found(ChangeKind::Create, 1, 0) };
        assert_eq!(latest(&[found(ChangeKind::Create, 4, 0), other], &expected(false)).len(), 1);
    }

    #[test]
    fn lines_go_forward() {
        let line = |lsns: &[u64], etag| FeedPosition { read_to: 5 }.page(lsns, etag).is_ok();
        assert!(line(&[6, 6, 8], 8) && line(&[], 5) && line(&[7], 9));
        assert!(!line(&[5], 8), "found before");
        assert!(!line(&[7, 6], 8), "order");
        assert!(!line(&[9], 8), "the etag would repeat it");
        assert!(!line(&[], 4), "backwards");
    }
}
