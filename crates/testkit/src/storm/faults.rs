//! A server that is killed, whose syncs fail and whose answers are lost.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::client::{Client, StormState, shown};
use crate::Random;
use crate::live::LiveServer;

/// Every so many starts the disk of the server fails.
const STARTS_PER_FAILURE: u32 = 3;
/// A thread's sync that fails: not one of those that opening takes.
const FAILING_SYNC: (usize, usize) = (12, 30);
/// Of writes.
const LOST_ANSWERS: f64 = 0.02;
/// For a server under writers to meet its failing sync.
const FAILURE_WAIT: Duration = Duration::from_secs(60);

pub struct FaultyServer<'a> {
    pub shared: &'a StormState,
    pub random: Random,
    live: Option<LiveServer>,
    program: PathBuf,
    arguments: &'static [&'static str],
    /// Between two kills, on average.
    between_kills: Duration,
    data: PathBuf,
    starts: u32,
    /// One of its syncs fails.
    is_failing: bool,
}

impl<'a> FaultyServer<'a> {
    /// The program, with arguments besides those of every storm.
    pub fn start(
        (program, arguments): (&Path, &'static [&'static str]),
        data: &Path,
        between_kills: Duration,
        (shared, seed): (&'a StormState, u64),
    ) -> Result<FaultyServer<'a>> {
        let mut server = FaultyServer {
            shared,
            random: Random(seed),
            live: None,
            program: program.to_owned(),
            arguments,
            between_kills,
            data: data.to_owned(),
            starts: 0,
            is_failing: false,
        };
        server.start_again()?;
        Ok(server)
    }

    fn start_again(&mut self) -> Result<()> {
        self.starts += 1;
        // The first one sets everything up.
        self.is_failing = self.starts % STARTS_PER_FAILURE == 2 && !self.is_paused();
        let arguments = [&["--partitions", "2", "--enable-faults"][..], self.arguments].concat();
        let live = match self.is_failing {
            false => LiveServer::quire(&self.program, &self.data, &arguments)?,
            true => {
                let failing = FAILING_SYNC.0 + self.random.below(FAILING_SYNC.1);
                LiveServer::quire_with_failing_sync(&self.program, &self.data, &arguments, failing)?
            }
        };
        let own = StormState::default();
        own.port.store(live.port, Ordering::SeqCst);
        self.lose_answers(&mut Client::new(&own))?;
        self.shared.port.store(live.port, Ordering::SeqCst);
        self.live = Some(live);
        Ok(())
    }

    /// Some writes are done, and their connections closed without an answer.
    fn lose_answers(&mut self, client: &mut Client<'_>) -> Result<()> {
        let operations = ["create", "upsert", "replace", "patch", "delete", "batch"];
        let seed = self.random.below(1 << 30);
        let rule = json!({ "operations": operations, "resourceType": "docs", "rate": LOST_ANSWERS,
            "seed": seed, "after": true, "cut": true });
        let link = "_quire/faults";
        let made = client.send("POST", &format!("/{link}"), ("_quire", link), "", &rule.to_string());
        let made = made.context("no answer")?;
        ensure!(made.status < 300, "a fault rule: {}", shown(&made));
        Ok(())
    }

    /// For some time, with kills in between. `killed` gets whether a sync had failed, and says whether to go on.
    pub fn serve(&mut self, time: Duration, mut killed: impl FnMut(bool) -> bool) -> Result<()> {
        let end = Instant::now() + time;
        loop {
            let most = self.between_kills.as_millis() as usize;
            let pause = Duration::from_millis((most / 2 + self.random.below(most.max(1))) as u64);
            let left = end.saturating_duration_since(Instant::now());
            if pause >= left && !self.is_failing {
                std::thread::sleep(left);
                return Ok(());
            }
            let has_failed = self.is_failing && self.wait_for_failure();
            std::thread::sleep(pause.min(left));
            if self.is_paused() && !self.is_failing {
                continue;
            }
            self.kill()?;
            self.start_again()?;
            if !killed(has_failed) {
                return Ok(());
            }
        }
    }

    /// Somebody has asked for a server that stays.
    fn is_paused(&self) -> bool {
        self.shared.calm.load(Ordering::SeqCst) > 0
    }

    fn kill(&mut self) -> Result<()> {
        self.shared.port.store(0, Ordering::SeqCst);
        self.live.take().map_or(Ok(()), LiveServer::kill)
    }

    /// Whether the server has stopped to take writes.
    fn wait_for_failure(&self) -> bool {
        let mut client = Client::new(self.shared);
        let end = Instant::now() + FAILURE_WAIT;
        while Instant::now() < end {
            let answer = client.send("GET", "/_quire/ready", ("_quire", "_quire/ready"), "", "");
            if answer.is_some_and(|answer| answer.status == 503) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }

    /// One that can write: jobs are to end.
    pub fn stop(&mut self) -> Result<()> {
        self.live.take().map_or(Ok(()), LiveServer::stop)
    }
}
