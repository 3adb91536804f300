//! A reader of the change feed, range by range as clients read it.

use std::time::Duration;

use serde_json::Value as Json;

use super::check::{Kind, Line, Told};
use super::client::{CONTAINER, Client, json, shown};
use crate::isolation::Random;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    Latest,
    AllVersions,
}

/// How well a follower does its work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Care {
    Correct,
    /// Now and then the latest versions are read again, and a page of all versions is dropped: the checks must object.
    Careless,
}

/// A careless follower errs once in so many pages.
const PAGES_PER_ERROR: u32 = 8;

#[derive(Clone)]
struct Range {
    id: String,
    etag: Option<String>,
    line: Line,
}

pub struct Follower<'a> {
    pub client: Client<'a>,
    mode: Mode,
    care: Care,
    random: Random,
    ranges: Vec<Range>,
    pub told: Vec<Told>,
    pub problems: Vec<String>,
    pub moves: u64,
}

impl<'a> Follower<'a> {
    /// Starts where nothing has been written yet.
    pub fn new(mut client: Client<'a>, mode: Mode, care: Care, random: Random) -> Option<Follower<'a>> {
        let ranges = client.ranges()?.into_iter();
        let ranges = ranges.map(|(id, _)| Range { id, etag: None, line: Line { told_to: 0 } }).collect();
        let (told, problems) = (Vec::new(), Vec::new());
        let mut follower = Follower { client, mode, care, random, ranges, told, problems, moves: 0 };
        if mode == Mode::AllVersions {
            for at in 0..follower.ranges.len() {
                follower.ranges[at].etag = Some("*".to_owned());
                follower.poll(at)?;
            }
        }
        Some(follower)
    }

    pub fn follow(&mut self) {
        while !self.client.is_stopped() && !self.client.has_given_up() && self.problems.is_empty() {
            self.round();
        }
    }

    /// Every range once. Whether something was told.
    pub fn round(&mut self) -> bool {
        let before = self.told.len() as u64 + self.moves;
        let mut at = 0;
        while at < self.ranges.len() {
            if self.poll(at).is_none() {
                return false;
            }
            at += 1;
        }
        let news = self.told.len() as u64 + self.moves > before;
        if !news {
            std::thread::sleep(Duration::from_millis(5));
        }
        news
    }

    fn poll(&mut self, at: usize) -> Option<()> {
        let range = &self.ranges[at];
        let a_im = if self.mode == Mode::Latest { "Incremental feed" } else { "Full-Fidelity Feed" };
        let size = [-1, 1, 3, 100][self.random.below(4) as usize];
        let etag = range.etag.as_ref().map(|etag| format!("if-none-match: {etag}\r\n")).unwrap_or_default();
        let headers = format!(
            "a-im: {a_im}\r\nx-quire-all-previous-images: true\r\nx-ms-documentdb-partitionkeyrangeid: {}\r\n\
             x-ms-max-item-count: {size}\r\n{etag}",
            range.id
        );
        let answer =
            self.client.ask("GET", &format!("/{CONTAINER}/docs"), ("docs", CONTAINER), &headers, "")?;
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
        let told: Vec<Told> = rows.map(|row| told(self.mode, row)).collect();
        let lsns: Vec<u64> = told.iter().map(|told| told.lsn).collect();
        let errs = self.care == Care::Careless && !told.is_empty() && self.random.once_in(PAGES_PER_ERROR);
        let range = &mut self.ranges[at];
        let before = range.clone();
        let checked = match position {
            Ok(position) => range.line.page(&lsns, position),
            Err(_) => Err(format!("the etag {etag} is no position")),
        };
        if let Err(problem) = checked {
            self.problems.push(format!("{:?} feed, range {}: {problem}", self.mode, range.id));
        }
        range.etag = Some(etag);
        match self.mode {
            Mode::AllVersions if errs => return Some(()),
            Mode::Latest if errs => *range = before,
            _ => {}
        }
        self.told.extend(told);
        Some(())
    }

    /// The range is gone: its children go on where it was.
    fn split(&mut self, at: usize) -> Option<()> {
        let ranges = self.client.ranges()?;
        let parent = &self.ranges[at];
        let children = ranges.into_iter().filter(|(_, parents)| parents.contains(&parent.id));
        let child = |(id, _)| Range { id, etag: parent.etag.clone(), line: parent.line };
        let children: Vec<Range> = children.map(child).collect();
        if children.len() < 2 {
            self.problems.push(format!("range {} is gone and has {} children", parent.id, children.len()));
            return Some(());
        }
        self.ranges.splice(at..=at, children);
        self.moves += 1;
        Some(())
    }
}

fn told(mode: Mode, row: &Json) -> Told {
    let id_of = |item: &Json| item["id"].as_str().unwrap_or_default().to_owned();
    if mode == Mode::Latest {
        let (lsn, token) = (row["_lsn"].as_u64().unwrap_or(0), row["v"].as_u64());
        return Told { lsn, id: id_of(row), kind: Kind::Create, token, previous: None };
    }
    let metadata = &row["metadata"];
    let kind = match (metadata["operationType"].as_str(), metadata["timeToLiveExpired"].as_bool()) {
        (Some("create"), _) => Kind::Create,
        (Some("replace"), _) => Kind::Replace,
        (_, Some(true)) => Kind::Expire,
        _ => Kind::Delete,
    };
    let has_image = matches!(kind, Kind::Create | Kind::Replace);
    let id = if has_image { id_of(&row["current"]) } else { id_of(metadata) };
    let token = row["current"]["v"].as_u64();
    let previous = row["previous"]["v"].as_u64();
    Told { lsn: metadata["lsn"].as_u64().unwrap_or(0), id, kind, token, previous }
}
