//! Bounded blocking calls: the engine waits for disks and locks, async workers must not.
//!
//! Reads, writes and scripts have a lane each, with permits of its own. So writers that wait for a lock or a sync never
//! block a read, and scripts, which may run for seconds, block neither. A call without a permit waits in a queue of limited
//! length; when the queue is full it is refused at once.
//!
//! A call from a thread that serves one connection alone runs on that thread (see [`threads`]).

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
    permits: Arc<Semaphore>,
    permits_max: usize,
    waiting: AtomicUsize,
    waiting_max: usize,
}

impl Pool {
    pub fn new(limits: &Limits) -> Pool {
        let lane = |permits| Lane::new(permits, limits.waiting_max);
        Pool {
            reads: lane(limits.reads_max),
            writes: lane(limits.writes_max),
            scripts: lane(limits.scripts_max),
        }
    }

    /// Accepts no further calls and returns when the last one is done.
    pub async fn finished(&self) {
        self.reads.finished().await;
        self.writes.finished().await;
        self.scripts.finished().await;
    }

    /// Runs a call that only reads. `Overloaded` when the queue is full. A panic of `call` continues in the caller.
    pub async fn read<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, EngineError> {
        Ok(self.run(Work::Read, call).await?.0)
    }

    /// Runs a call and returns its permit with the answer. A caller that keeps the permit until the answer is written limits
    /// the memory of answers that wait to be written.
    pub async fn run<T: Send + 'static>(
        &self,
        work: Work,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<(T, PoolPermit), EngineError> {
        let lane = match work {
            Work::Read => &self.reads,
            Work::Write => &self.writes,
            Work::Script => &self.scripts,
        };
        let (answer, permit) = lane.run(call).await?;
        Ok((answer, PoolPermit { _permit: permit }))
    }
}

/// What a call does, and so which lane it runs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Read,
    Write,
    /// It runs a script, whether it reads or writes.
    Script,
}

/// A permit of a lane, given back when dropped.
pub(crate) struct PoolPermit {
    _permit: OwnedSemaphorePermit,
}

impl Lane {
    fn new(permits_max: usize, waiting_max: usize) -> Lane {
        let permits = Arc::new(Semaphore::new(permits_max));
        Lane { permits, permits_max, waiting: AtomicUsize::new(0), waiting_max }
    }

    async fn finished(&self) {
        let all = u32::try_from(self.permits_max).unwrap_or(u32::MAX);
        if let Ok(permits) = self.permits.acquire_many(all).await {
            permits.forget();
            self.permits.close();
        }
    }

    async fn run<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<(T, OwnedSemaphorePermit), EngineError> {
        let permit = self.permit().await?;
        if threads::may_block() {
            return Ok((call(), permit));
        }
        Lane::run_on_pool(permit, call).await
    }

    async fn permit(&self) -> Result<OwnedSemaphorePermit, EngineError> {
        match self.permits.clone().try_acquire_owned() {
            Ok(permit) => Ok(permit),
            Err(_) => self.wait().await,
        }
    }

    async fn run_on_pool<T: Send + 'static>(
        permit: OwnedSemaphorePermit,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<(T, OwnedSemaphorePermit), EngineError> {
        // The permit moves with the call: a client that disconnects does not free a thread that still works.
        let done = tokio::task::spawn_blocking(move || (call(), permit));
        match done.await {
            Ok(answer) => Ok(answer),
            Err(failed) if failed.is_panic() => std::panic::resume_unwind(failed.into_panic()),
            Err(_) => Err(EngineError::Overloaded), // the runtime is shutting down
        }
    }

    async fn wait(&self) -> Result<OwnedSemaphorePermit, EngineError> {
        let waiting = WaiterCount::enter(&self.waiting, self.waiting_max)?;
        let permit = self.permits.clone().acquire_owned().await.map_err(|_| EngineError::Overloaded)?;
        drop(waiting);
        Ok(permit)
    }
}

/// One caller in the queue; removed when dropped, also when its client disconnects.
struct WaiterCount<'a>(&'a AtomicUsize);

impl<'a> WaiterCount<'a> {
    fn enter(count: &'a AtomicUsize, count_max: usize) -> Result<WaiterCount<'a>, EngineError> {
        let waiting = WaiterCount(count);
        if count.fetch_add(1, Ordering::Relaxed) >= count_max {
            return Err(EngineError::Overloaded);
        }
        Ok(waiting)
    }
}

impl Drop for WaiterCount<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
