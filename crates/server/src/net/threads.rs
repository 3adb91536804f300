//! A thread per connection, for authenticated connections, up to a limit.
//!
//! A request that waits for a disk or a lock on the thread that read it needs no other thread to be woken, neither to run
//! it nor to write its answer; with one client that is most of the time a short request takes. So an authenticated
//! connection of HTTP/1 gets a thread with a small runtime of its own. Unauthenticated connections, those of HTTP/2, whose
//! requests run concurrently, and those beyond the limit share the main runtime and the threads of the pool.

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use hyper::Version;
use tokio::runtime::{Builder, Runtime};

/// Threads cost memory and file descriptors, and more of them than this make nothing faster.
pub(crate) const THREADS_MAX: usize = 256;

thread_local! {
    /// This thread serves one connection.
    static IS_OF_CONNECTION: Cell<bool> = const { Cell::new(false) };
    /// And the connection serves one request at a time.
    static MAY_BLOCK: Cell<bool> = const { Cell::new(false) };
}

/// Counts the threads in use.
#[derive(Clone)]
pub(crate) struct Threads {
    used: Arc<AtomicUsize>,
    count_max: usize,
}

/// A thread that waits for its connection. Ends without one when dropped.
pub(crate) struct Thread<W> {
    give: mpsc::SyncSender<W>,
}

/// One of the threads that there may be, given back when dropped.
struct ThreadPermit(Arc<AtomicUsize>);

impl Threads {
    pub fn new(count_max: usize) -> Threads {
        Threads { used: Arc::default(), count_max: count_max.min(THREADS_MAX) }
    }

    fn permit(&self) -> Option<ThreadPermit> {
        let permit = ThreadPermit(Arc::clone(&self.used));
        (self.used.fetch_add(1, Ordering::Relaxed) < self.count_max).then_some(permit)
    }

    /// A thread that will run `serve` on what it is given. `None` at the limit.
    pub fn start<W: Send + 'static>(
        &self,
        serve: impl FnOnce(&Runtime, W) + Send + 'static,
    ) -> io::Result<Option<Thread<W>>> {
        let Some(permit) = self.permit() else { return Ok(None) };
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (give, take) = mpsc::sync_channel(1);
        let run = move || {
            let _permit = permit;
            IS_OF_CONNECTION.set(true);
            if let Ok(work) = take.recv() {
                serve(&runtime, work);
            }
            runtime.shutdown_background();
        };
        std::thread::Builder::new().name("quire-client".to_owned()).spawn(run)?;
        Ok(Some(Thread { give }))
    }
}

impl<W> Thread<W> {
    pub fn give(self, work: W) {
        self.give.send(work).unwrap_or_else(|_| tracing::error!("a thread ended before it began"));
    }
}

impl Drop for ThreadPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A request begins on this thread. One of HTTP/1 is the only one of its connection.
pub(crate) fn begin_request(version: Version) {
    MAY_BLOCK.set(version != Version::HTTP_2 && IS_OF_CONNECTION.get());
}

/// Whether this thread serves one request and nothing else, so that it may block.
pub(crate) fn may_block() -> bool {
    MAY_BLOCK.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_counted_and_given_back() {
        let threads = Threads::new(3);
        let permits: Vec<_> = (0..3).map(|_| threads.permit()).collect();
        assert!(permits.iter().all(Option::is_some));
        assert!(threads.permit().is_none());
        drop(permits);
        assert!(threads.permit().is_some());
    }

    #[test]
    fn a_request_may_block_on_a_thread_of_its_own() {
        begin_request(Version::HTTP_11);
        assert!(!may_block());
        let threads = Threads::new(1);
        let (sender, receiver) = mpsc::channel();
        let thread = threads.start(move |_, version| {
            begin_request(version);
            sender.send(may_block()).expect("received");
        });
        thread.expect("a thread").expect("room").give(Version::HTTP_11);
        assert!(receiver.recv().expect("sent"));
    }

    #[test]
    fn a_panic_gives_the_thread_back() {
        let threads = Threads::new(1);
        for _ in 0..3 {
            let thread = loop {
                if let Some(thread) = threads.start(|_, ()| panic!("on purpose")).expect("a thread") {
                    break thread;
                }
                std::thread::yield_now();
            };
            thread.give(());
        }
    }
}
