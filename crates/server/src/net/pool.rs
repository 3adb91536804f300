//! Bounded blocking calls: the engine waits for disks and locks, async workers must not.
//!
//! Reads, writes and scripts have places of their own, so that writers waiting for a lock or a sync never keep a read
//! out, and scripts, which may run for seconds and wait for their turn, keep out neither.
//! A call beyond the places waits in a queue with a cap; beyond the cap it is refused at once.
//!
//! A call on a thread that serves one connection alone stays there (see [`threads`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use quire_engine::EngineError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::config::Limits;
use crate::net::threads;

pub(crate) struct Pool {
    reads: Lane,
    writes: Lane,
    scripts: Lane,
}

struct Lane {
    places: Arc<Semaphore>,
    places_max: usize,
    waiting: AtomicUsize,
    waiting_max: usize,
}

impl Pool {
    pub fn new(limits: &Limits) -> Pool {
        let lane = |places| Lane::new(places, limits.waiting_max);
        Pool {
            reads: lane(limits.reads_max),
            writes: lane(limits.writes_max),
            scripts: lane(limits.scripts_max),
        }
    }

    /// Takes no further calls and returns when the last one is done.
    pub async fn finished(&self) {
        self.reads.finished().await;
        self.writes.finished().await;
        self.scripts.finished().await;
    }

    /// Runs a call that only reads. `Overloaded` when the queue is full; a panic of `call` goes on in the caller.
    pub async fn read<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, EngineError> {
        Ok(self.run(Work::Read, call).await?.0)
    }

    /// Runs a call and gives its place with the answer: whoever keeps it until the answer is written bounds the memory of
    /// answers that wait for their turn.
    pub async fn run<T: Send + 'static>(
        &self,
        work: Work,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<(T, Place), EngineError> {
        let lane = match work {
            Work::Read => &self.reads,
            Work::Write => &self.writes,
            Work::Script => &self.scripts,
        };
        let (answer, place) = lane.run(call).await?;
        Ok((answer, Place { _permit: place }))
    }
}

/// What a call does, and so whose places it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Read,
    Write,
    /// It runs a script, whether it reads or writes.
    Script,
}

/// A place in the pool, free again when dropped.
pub(crate) struct Place {
    _permit: OwnedSemaphorePermit,
}

impl Lane {
    fn new(places: usize, waiting_max: usize) -> Lane {
        let (places, places_max) = (Arc::new(Semaphore::new(places)), places);
        Lane { places, places_max, waiting: AtomicUsize::new(0), waiting_max }
    }

    async fn finished(&self) {
        let all = u32::try_from(self.places_max).unwrap_or(u32::MAX);
        if let Ok(permits) = self.places.acquire_many(all).await {
            permits.forget();
            self.places.close();
        }
    }

    async fn run<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<(T, OwnedSemaphorePermit), EngineError> {
        let place = self.place().await?;
        if threads::may_wait() {
            return Ok((call(), place));
        }
        Lane::run_apart(place, call).await
    }

    async fn place(&self) -> Result<OwnedSemaphorePermit, EngineError> {
        match self.places.clone().try_acquire_owned() {
            Ok(place) => Ok(place),
            Err(_) => self.wait().await,
        }
    }

    async fn run_apart<T: Send + 'static>(
        place: OwnedSemaphorePermit,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<(T, OwnedSemaphorePermit), EngineError> {
        // The place travels with the call: a client that goes away does not free a thread that is still working.
        let done = tokio::task::spawn_blocking(move || (call(), place));
        match done.await {
            Ok(answer) => Ok(answer),
            Err(failed) if failed.is_panic() => std::panic::resume_unwind(failed.into_panic()),
            Err(_) => Err(EngineError::Overloaded), // the runtime is shutting down
        }
    }

    async fn wait(&self) -> Result<OwnedSemaphorePermit, EngineError> {
        let waiting = Waiting::enter(&self.waiting, self.waiting_max)?;
        let place = self.places.clone().acquire_owned().await.map_err(|_| EngineError::Overloaded)?;
        drop(waiting);
        Ok(place)
    }
}

/// One caller in the queue; leaves it when dropped, also by a client that hangs up.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn enter(count: &'a AtomicUsize, count_max: usize) -> Result<Waiting<'a>, EngineError> {
        let waiting = Waiting(count);
        if count.fetch_add(1, Ordering::Relaxed) >= count_max {
            return Err(EngineError::Overloaded);
        }
        Ok(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
