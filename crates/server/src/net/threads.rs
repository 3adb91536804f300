//! A thread per connection, for clients that are known, as long as there are not too many.
//!
//! A request that waits for a disk or a lock on the thread that read it needs no other thread to be woken, neither to run
//! it nor to write its answer; with one client that is most of the time a short request takes. So a connection of HTTP/1
//! whose client is known gets a thread with a small runtime of its own. Strangers, requests of HTTP/2, which run side by
//! side, and connections beyond the limit share the main runtime and the pool's threads.

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use hyper::Version;
use tokio::runtime::{Builder, Runtime};

/// Threads cost memory and file descriptors; beyond this a machine has enough to do anyway.
pub(crate) const THREADS_MAX: usize = 256;

thread_local! {
    static OWN: Cell<bool> = const { Cell::new(false) };
    static ALONE: Cell<bool> = const { Cell::new(false) };
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

/// A thread's place, free again when dropped.
struct Place(Arc<AtomicUsize>);

impl Threads {
    pub fn new(count_max: usize) -> Threads {
        Threads { used: Arc::default(), count_max: count_max.min(THREADS_MAX) }
    }

    fn place(&self) -> Option<Place> {
        let place = Place(Arc::clone(&self.used));
        (self.used.fetch_add(1, Ordering::Relaxed) < self.count_max).then_some(place)
    }

    /// A thread that will run `serve` on what it is given. `None` when there are enough.
    pub fn start<W: Send + 'static>(
        &self,
        serve: impl FnOnce(&Runtime, W) + Send + 'static,
    ) -> io::Result<Option<Thread<W>>> {
        let Some(place) = self.place() else { return Ok(None) };
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (give, take) = mpsc::sync_channel(1);
        let run = move || {
            let _place = place;
            OWN.set(true);
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

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A request begins on this thread. One of HTTP/1 is the only one of its connection.
pub(crate) fn begin(version: Version) {
    ALONE.set(version != Version::HTTP_2 && OWN.get());
}

/// Whether this thread serves one request and nothing else, so that it may wait.
pub(crate) fn may_wait() -> bool {
    ALONE.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_and_given_back() {
        let threads = Threads::new(3);
        let places: Vec<_> = (0..3).map(|_| threads.place()).collect();
        assert!(places.iter().all(Option::is_some));
        assert!(threads.place().is_none());
        drop(places);
        assert!(threads.place().is_some());
    }

    #[test]
    fn a_request_is_alone_on_a_thread_of_its_own() {
        begin(Version::HTTP_11);
        assert!(!may_wait());
        let threads = Threads::new(1);
        let (told, tell) = mpsc::channel();
        let thread = threads.start(move |_, version| {
            begin(version);
            told.send(may_wait()).expect("heard");
        });
        thread.expect("a thread").expect("room").give(Version::HTTP_11);
        assert!(tell.recv().expect("told"));
    }

    #[test]
    fn a_panic_gives_the_place_back() {
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
