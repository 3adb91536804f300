//! Commits over several partitions, beside writers of single ones: a work is there as a whole or not at all.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use super::sequencer::{Bench, WriteOutcome, prepared};
use super::{Program, together};
use crate::api::EngineError;
use crate::partition::sequencer::{AtomicWrites, CommitQueue, CommittedWrite, WriteRefused};
use crate::sync::races::Race;

pub(super) const PROGRAM: Program =
    Program { name: "across", races: &[Race::TwoLeadersAcross, Race::DoubtAcrossNotSettled], run };

const PARTITIONS: u32 = 4;
/// Pairs of partitions, some of which share one, and how many works each writer of a pair has.
const PAIRS: [([usize; 2], usize); 3] = [([0, 1], 1), ([3, 2], 3), ([2, 1], 1)];
const FAULT_ONE_IN: u32 = 4;

struct AcrossProgram {
    bench: Arc<Bench>,
    queue: CommitQueue,
    /// Child ids of the writes of each work.
    works: Mutex<Vec<[u64; 2]>>,
    /// Works whose outcome nobody said.
    unknown: Mutex<Vec<u64>>,
    /// The same, as the store had them when a later work was committed.
    settled: Mutex<Vec<(u64, bool)>>,
}

fn run() {
    let bench = Arc::new(Bench::new(PARTITIONS));
    bench.world.storage.set_faults(FAULT_ONE_IN);
    let (queue, works, unknown, settled) = Default::default();
    let across = Arc::new(AcrossProgram { bench, queue, works, unknown, settled });
    let mut threads: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
    for (pair, works) in PAIRS {
        let across = Arc::clone(&across);
        threads.push(Box::new(move || (0..works).for_each(|_| across.write_both(pair))));
    }
    let alone = Arc::clone(&across);
    threads.push(Box::new(move || alone.write_alone(2)));
    together(threads);
    across.bench.check();
    across.check_whole();
}

impl AcrossProgram {
    fn write_both(&self, pair: [usize; 2]) {
        let rids = pair.map(|_| self.bench.begin());
        self.works.lock().expect("no thread panicked").push(rids);
        let write = |at: usize| {
            let sequencer = &self.bench.sequencers[pair[at]];
            let write = prepared(sequencer.generation(), pair[at] as u32, rids[at], 0, 0);
            (Arc::clone(sequencer), vec![write])
        };
        let work = AtomicWrites { writes: vec![write(0), write(1)], differences: None };
        let unknown = self.unknown.lock().expect("no thread panicked").clone();
        let outcomes = outcomes(self.queue.submit(&self.bench.world.shared, work).map(|done| done.written));
        rids.into_iter().zip(outcomes).for_each(|(rid, outcome)| self.bench.end(rid, outcome));
        match outcomes[0] {
            WriteOutcome::Done { .. } => self.note_settled(&unknown),
            WriteOutcome::Unknown => self.unknown.lock().expect("no thread panicked").push(rids[0]),
            _ => {}
        }
    }

    /// What became of works before one that is committed now is certain.
    fn note_settled(&self, unknown: &[u64]) {
        let stored = self.stored();
        let settled = unknown.iter().map(|rid| (*rid, stored.contains(rid)));
        self.settled.lock().expect("no thread panicked").extend(settled);
    }

    fn write_alone(&self, partition: usize) {
        let (rid, sequencer) = (self.bench.begin(), &self.bench.sequencers[partition]);
        let write = prepared(sequencer.generation(), partition as u32, rid, 0, 0);
        self.bench.end(rid, WriteOutcome::of(sequencer.submit(write)));
    }

    fn check_whole(&self) {
        let stored = self.stored();
        for [one, other] in self.works.lock().expect("no thread panicked").iter() {
            assert_eq!(stored.contains(one), stored.contains(other), "half of a work is there");
        }
        for (rid, was_stored) in self.settled.lock().expect("no thread panicked").iter() {
            assert_eq!(stored.contains(rid), *was_stored, "a work was committed after the group behind it");
        }
    }

    /// Child ids of what is committed.
    fn stored(&self) -> BTreeSet<u64> {
        let feeds = (0..PARTITIONS).flat_map(|partition| self.bench.feed(partition));
        feeds.map(|stored| stored.rid).collect()
    }
}

fn outcomes(answer: Result<Vec<CommittedWrite>, WriteRefused>) -> [WriteOutcome; 2] {
    match answer {
        Ok(written) => [0, 1].map(|at| WriteOutcome::Done { lsn: written[at].lsn }),
        Err(WriteRefused::Stale) => [WriteOutcome::Refused; 2],
        Err(WriteRefused::Failed(EngineError::Overloaded)) => [WriteOutcome::Unknown; 2],
        Err(WriteRefused::Failed(error)) => panic!("{error}"),
    }
}
