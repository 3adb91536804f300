//! What a follower of the change feed was told, against what was written.

use std::collections::BTreeMap;

pub type Token = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Create,
    Replace,
    Delete,
    /// A delete because the time to live was over.
    Expire,
}

/// One change as a feed told it. Every write of a run has a token of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub lsn: u64,
    pub id: String,
    pub kind: Kind,
    pub token: Option<Token>,
    pub previous: Option<Token>,
}

/// What a change was, the version it made and the one before.
type Change = (Kind, Option<Token>, Option<Token>);

/// What happened to an item, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Write(Token),
    Delete,
    Expire,
}

#[derive(Clone, Debug, Default)]
pub struct Expected {
    pub events: Vec<Event>,
    /// Nobody knows whether it happened: all of it or nothing.
    pub is_unsure: bool,
}

impl Expected {
    fn last_token(&self) -> Option<Token> {
        match self.events.last() {
            Some(Event::Write(token)) => Some(*token),
            _ => None,
        }
    }

    /// As the log of all versions has to tell it.
    fn as_told(&self) -> Vec<Change> {
        let mut there = None;
        let tell = |event: &Event| match *event {
            Event::Write(token) => {
                let kind = if there.is_some() { Kind::Replace } else { Kind::Create };
                (kind, Some(token), there.replace(token))
            }
            Event::Delete => (Kind::Delete, None, there.take()),
            Event::Expire => (Kind::Expire, None, there.take()),
        };
        self.events.iter().map(tell).collect()
    }
}

/// How far a range was told: nothing at or before that LSN may come any more.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    pub told_to: u64,
}

impl Line {
    /// A page and the position of its ETag. The writes of one transaction share an LSN and come on one page.
    pub fn page(&mut self, lsns: &[u64], etag: u64) -> Result<(), String> {
        let start = self.told_to;
        let mut last = start;
        for &lsn in lsns {
            if lsn <= start || lsn < last {
                return Err(format!("LSN {lsn} is told after {last}, on a page after {start}"));
            }
            last = lsn;
        }
        if etag < last {
            return Err(format!("a page up to {last} has the etag {etag}"));
        }
        self.told_to = etag;
        Ok(())
    }
}

/// The log of all versions tells every event of every item once, in order, with the version before.
pub fn all_versions(told: &[Told], expected: &BTreeMap<String, Expected>) -> Vec<String> {
    let mut by_item: BTreeMap<&str, Vec<Change>> = BTreeMap::new();
    for change in told {
        by_item.entry(&change.id).or_default().push((change.kind, change.token, change.previous));
    }
    let mut problems = Vec::new();
    for (id, expected) in expected {
        let told = by_item.remove(id.as_str()).unwrap_or_default();
        if expected.is_unsure && told.is_empty() {
            continue;
        }
        let wanted = expected.as_told();
        if told == wanted {
            continue;
        }
        let same = told.iter().zip(&wanted).take_while(|(told, wanted)| told == wanted).count();
        problems.push(format!(
            "{id}: {} changes told, {} expected; the first {same} agree, then told {:?}, expected {:?}",
            told.len(),
            wanted.len(),
            &told[same..told.len().min(same + 3)],
            &wanted[same..wanted.len().min(same + 3)],
        ));
    }
    problems.extend(by_item.into_keys().map(|id| format!("{id} is told and was never written")));
    problems
}

/// The feed of latest versions skips versions, but tells none twice, none in the wrong order, and the last one always.
pub fn latest(told: &[Told], expected: &BTreeMap<String, Expected>) -> Vec<String> {
    let mut by_item: BTreeMap<&str, Vec<Token>> = BTreeMap::new();
    let mut problems = Vec::new();
    for change in told {
        match change.token {
            Some(token) => by_item.entry(&change.id).or_default().push(token),
            None => problems.push(format!("{}: a change without an item", change.id)),
        }
    }
    for (id, expected) in expected {
        let told = by_item.remove(id.as_str()).unwrap_or_default();
        let mut written = expected.events.iter().filter_map(|event| match event {
            Event::Write(token) => Some(*token),
            _ => None,
        });
        if let Some(odd) = told.iter().find(|token| !written.any(|written| written == **token)) {
            problems.push(format!("{id}: version {odd} is told again, out of order or was never written"));
        }
        let last = expected.last_token();
        if last.is_some() && told.last().copied() != last && !expected.is_unsure {
            problems.push(format!("{id}: is {last:?}, the feed ends with {:?}", told.last()));
        }
    }
    problems.extend(by_item.into_keys().map(|id| format!("{id} is told and was never written")));
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(kind: Kind, token: Token, previous: Token) -> Told {
        let some = |token: Token| (token > 0).then_some(token);
        Told { lsn: 0, id: "a".to_owned(), kind, token: some(token), previous: some(previous) }
    }

    fn history() -> Vec<Told> {
        vec![
            told(Kind::Create, 1, 0),
            told(Kind::Replace, 2, 1),
            told(Kind::Delete, 0, 2),
            told(Kind::Create, 3, 0),
            told(Kind::Replace, 4, 3),
        ]
    }

    fn expected(is_unsure: bool) -> BTreeMap<String, Expected> {
        use Event::*;
        let events = vec![Write(1), Write(2), Delete, Write(3), Write(4)];
        [("a".to_owned(), Expected { events, is_unsure })].into()
    }

    fn versions_with(change: impl FnOnce(&mut Vec<Told>)) -> usize {
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
            assert_eq!(versions_with(|told| drop(told.remove(at))), 1, "without {at}");
            assert_eq!(versions_with(|told| told.insert(at, told[at].clone())), 1, "{at} twice");
        }
        assert_eq!(versions_with(|told| told.swap(0, 1)), 1, "order");
        assert_eq!(versions_with(|told| told[2].kind = Kind::Expire), 1, "an expired delete");
        assert_eq!(versions_with(|told| told[3].kind = Kind::Replace), 1, "kind");
        assert_eq!(versions_with(|told| told[4].previous = Some(1)), 1, "version before");
        assert_eq!(versions_with(|told| told[4].token = Some(9)), 1, "another version");
        assert_eq!(versions_with(|told| told.push(Told { id: "b".to_owned(), ..told[0].clone() })), 1);
        assert_eq!(all_versions(&history()[..1], &expected(true)).len(), 1, "half of it");
    }

    #[test]
    fn feeds_of_latest_versions() {
        let problems = |tokens: &[Token]| {
            let told: Vec<Told> = tokens.iter().map(|token| told(Kind::Create, *token, 0)).collect();
            latest(&told, &expected(false)).len()
        };
        for good in [&[4][..], &[1, 4], &[2, 3, 4], &[1, 2, 3, 4]] {
            assert_eq!(problems(good), 0, "{good:?}");
        }
        for bad in [&[][..], &[3], &[4, 4], &[2, 1, 4], &[9, 4], &[1, 1, 4]] {
            assert!(problems(bad) > 0, "{bad:?}");
        }
        let other = Told { id: "b".to_owned(), ..told(Kind::Create, 1, 0) };
        assert_eq!(latest(&[told(Kind::Create, 4, 0), other], &expected(false)).len(), 1);
    }

    #[test]
    fn lines_go_forward() {
        let line = |lsns: &[u64], etag| Line { told_to: 5 }.page(lsns, etag).is_ok();
        assert!(line(&[6, 6, 8], 8) && line(&[], 5) && line(&[7], 9));
        assert!(!line(&[5], 8), "told before");
        assert!(!line(&[7, 6], 8), "order");
        assert!(!line(&[9], 8), "the etag would repeat it");
        assert!(!line(&[], 4), "backwards");
    }
}
