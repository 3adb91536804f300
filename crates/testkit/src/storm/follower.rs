//! A reader of the change feed, range by range as clients read it.

use std::time::Duration;

use serde_json::Value as Json;

use super::check::{ChangeKind, FeedChange, FeedPosition};
use super::client::{CONTAINER, Client, json, shown};
use crate::Random;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FeedMode {
    Latest,
    AllVersions,
}

/// Whether a follower works correctly, or loses changes so that a test sees the loss detected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FollowerBehaviour {
    Correct,
    /// Now and then the latest versions are read again, and a page of all versions is dropped: the checks must object.
    LosesChanges,
}

/// A follower that loses changes loses some once in so many pages.
const PAGES_PER_ERROR: u32 = 8;

#[derive(Clone)]
struct FeedRange {
    id: String,
    etag: Option<String>,
    position: FeedPosition,
}

pub struct Follower<'a> {
    pub client: Client<'a>,
    mode: FeedMode,
    behaviour: FollowerBehaviour,
    random: Random,
    ranges: Vec<FeedRange>,
    pub changes: Vec<FeedChange>,
    pub problems: Vec<String>,
    pub moves: u64,
}

impl<'a> Follower<'a> {
    /// Starts where nothing has been written yet.
    pub fn new(
        mut client: Client<'a>,
        mode: FeedMode,
        behaviour: FollowerBehaviour,
        random: Random,
    ) -> Option<Follower<'a>> {
        let ranges = client.ranges()?.into_iter();
        let ranges = ranges
            .map(|(id, _)| FeedRange { id, etag: None, position: FeedPosition { read_to: 0 } })
            .collect();
        let (changes, problems) = (Vec::new(), Vec::new());
        let mut follower = Follower { client, mode, behaviour, random, ranges, changes, problems, moves: 0 };
        if mode == FeedMode::AllVersions {
            for at in 0..follower.ranges.len() {
                follower.ranges[at].etag = Some("*".to_owned());
                follower.poll(at)?;
            }
        }
        Some(follower)
    }

    pub fn follow(&mut self) {
        while !self.client.is_stopped() && !self.client.has_stopped_retrying() && self.problems.is_empty() {
            self.round();
        }
    }

    /// Every range once. True: a range had changes.
    pub fn round(&mut self) -> bool {
        let before = self.changes.len() as u64 + self.moves;
        let mut at = 0;
        while at < self.ranges.len() {
            if self.poll(at).is_none() {
                return false;
            }
            at += 1;
        }
        let news = self.changes.len() as u64 + self.moves > before;
        if !news {
            std::thread::sleep(Duration::from_millis(5));
        }
        news
    }

    fn poll(&mut self, at: usize) -> Option<()> {
        let range = &self.ranges[at];
        let a_im = if self.mode == FeedMode::Latest { "Incremental feed" } else { "Full-Fidelity Feed" };
        let size = [-1, 1, 3, 100][self.random.below(4) as usize];
        let etag = range.etag.as_ref().map(|etag| format!("if-none-match: {etag}\r\n")).unwrap_or_default();
        let headers = format!(
            "a-im: {a_im}\r\nx-quire-all-previous-images: true\r\nx-ms-documentdb-partitionkeyrangeid: {}\r\n\
             x-ms-max-item-count: {size}\r\n{etag}",
            range.id
        );
        let answer = self.client.send_until_answered(
            "GET",
            &format!("/{CONTAINER}/docs"),
            ("docs", CONTAINER),
            &headers,
            "",
        )?;
        match (answer.status, answer.header("x-ms-substatus")) {
            (200 | 304, _) => {}
            (410, Some("1002")) => return self.split(at),
            (429 | 449 | 503, _) => return Some(()),
            _ => {
                self.problems.push(format!("{:?} feed of range {}: {}", self.mode, range.id, shown(&answer)));
                return Some(());
            }
        }
        let etag = answer.header("etag").unwrap_or_default().to_owned();
        let position = etag.trim_matches('"').parse();
        let body = if answer.status == 200 { json(&answer) } else { Json::Null };
        let rows = body["Documents"].as_array().into_iter().flatten();
        let changes: Vec<FeedChange> = rows.map(|row| change_of(self.mode, row)).collect();
        let lsns: Vec<u64> = changes.iter().map(|change| change.lsn).collect();
        let errs = self.behaviour == FollowerBehaviour::LosesChanges
            && !changes.is_empty()
            && self.random.one_in(PAGES_PER_ERROR);
        let range = &mut self.ranges[at];
        let before = range.clone();
        let checked = match position {
            Ok(position) => range.position.page(&lsns, position),
            Err(_) => Err(format!("the etag {etag} is no position")),
        };
        if let Err(problem) = checked {
            self.problems.push(format!("{:?} feed, range {}: {problem}", self.mode, range.id));
        }
        range.etag = Some(etag);
        match self.mode {
            FeedMode::AllVersions if errs => return Some(()),
            FeedMode::Latest if errs => *range = before,
            _ => {}
        }
        self.changes.extend(changes);
        Some(())
    }

    /// The range is gone: its children go on where it was.
    fn split(&mut self, at: usize) -> Option<()> {
        let ranges = self.client.ranges()?;
        let parent = &self.ranges[at];
        let children = ranges.into_iter().filter(|(_, parents)| parents.contains(&parent.id));
        let child = |(id, _)| FeedRange { id, etag: parent.etag.clone(), position: parent.position };
        let children: Vec<FeedRange> = children.map(child).collect();
        if children.len() < 2 {
            self.problems.push(format!("range {} is gone and has {} children", parent.id, children.len()));
            return Some(());
        }
        self.ranges.splice(at..=at, children);
        self.moves += 1;
        Some(())
    }
}

fn change_of(mode: FeedMode, row: &Json) -> FeedChange {
    let id_of = |item: &Json| item["id"].as_str().unwrap_or_default().to_owned();
    if mode == FeedMode::Latest {
        let (lsn, token) = (row["_lsn"].as_u64().unwrap_or(0), row["v"].as_u64());
        return FeedChange { lsn, id: id_of(row), kind: ChangeKind::Create, token, previous: None };
    }
    let metadata = &row["metadata"];
    let kind = match (metadata["operationType"].as_str(), metadata["timeToLiveExpired"].as_bool()) {
        (Some("create"), _) => ChangeKind::Create,
        (Some("replace"), _) => ChangeKind::Replace,
        (_, Some(true)) => ChangeKind::Expire,
        _ => ChangeKind::Delete,
    };
    let has_image = matches!(kind, ChangeKind::Create | ChangeKind::Replace);
    let id = if has_image { id_of(&row["current"]) } else { id_of(metadata) };
    let token = row["current"]["v"].as_u64();
    let previous = row["previous"]["v"].as_u64();
    FeedChange { lsn: metadata["lsn"].as_u64().unwrap_or(0), id, kind, token, previous }
}
