//! A thread per connection, as long as there are not too many.
//!
//! A request that waits for a disk or a lock on the thread that read it needs no other thread to be woken, neither to run
//! it nor to write its answer; with one client that is most of the time a short request takes. So every connection gets
//! a thread with a small runtime of its own, up to [`THREADS_MAX`] of them. Further connections share the main runtime,
//! and so do the requests of an HTTP/2 connection, which run side by side: both go through the pool's threads.

use std::cell::{Cell, RefCell};
use std::io::ErrorKind;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hyper::Version;

/// Threads cost memory and file descriptors (three each); beyond this a machine has enough to do anyway.
pub(crate) const THREADS_MAX: usize = 256;

thread_local! {
    /// The socket of the connection that this thread serves, for looking whether the client is still there.
    static SOCKET: RefCell<Option<TcpStream>> = const { RefCell::new(None) };
    static ALONE: Cell<bool> = const { Cell::new(false) };
}

/// Counts the threads in use.
#[derive(Clone, Default)]
pub(crate) struct Threads(Arc<AtomicUsize>);

/// A thread's place, free again when dropped.
pub(crate) struct Place(Arc<AtomicUsize>);

impl Threads {
    pub fn place(&self) -> Option<Place> {
        let place = Place(Arc::clone(&self.0));
        (self.0.fetch_add(1, Ordering::Relaxed) < THREADS_MAX).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Serves one connection on a thread of its own. Gives the stream back where no thread can be had.
pub(crate) fn serve<F>(
    place: Place,
    stream: TcpStream,
    connection: impl FnOnce(tokio::net::TcpStream) -> F + Send + 'static,
) -> std::io::Result<()>
where
    F: Future<Output = ()>,
{
    let run = move || {
        let _place = place;
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return tracing::warn!(%error, "no runtime for a connection"),
        };
        match stream.try_clone() {
            Ok(socket) => SOCKET.with(|place| *place.borrow_mut() = Some(socket)),
            Err(error) => tracing::debug!(%error, "a client that goes away will not be noticed at once"),
        }
        runtime.block_on(async move {
            match tokio::net::TcpStream::from_std(stream) {
                Ok(stream) => connection(stream).await,
                Err(error) => tracing::warn!(%error, "cannot serve a connection"),
            }
        });
        // Calls that a client left behind end by themselves; the pool waits for them when the server stops.
        runtime.shutdown_background();
    };
    std::thread::Builder::new().name("quire-client".to_owned()).spawn(run).map(drop)
}

/// A request begins on this thread. One of HTTP/1 is the only one of its connection.
pub(crate) fn begin(version: Version) {
    ALONE.set(version != Version::HTTP_2 && SOCKET.with(|socket| socket.borrow().is_some()));
}

/// Whether this thread serves one request and nothing else, so that it may wait.
pub(crate) fn may_wait() -> bool {
    ALONE.get()
}

/// Whether the client that this thread serves has hung up.
pub(crate) fn client_is_gone() -> bool {
    SOCKET.with(|socket| {
        let socket = socket.borrow();
        let Some(socket) = socket.as_ref() else { return false };
        match socket.peek(&mut [0]) {
            Ok(0) => true,
            Ok(_) => false,
            Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_and_given_back() {
        let threads = Threads::default();
        let places: Vec<_> = (0..THREADS_MAX).map(|_| threads.place()).collect();
        assert!(places.iter().all(Option::is_some));
        assert!(threads.place().is_none());
        drop(places);
        assert!(threads.place().is_some());
    }

    #[test]
    fn a_client_that_hangs_up_is_noticed() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let client = TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
        let (stream, _) = listener.accept().expect("accepted");
        stream.set_nonblocking(true).expect("set");
        SOCKET.with(|socket| *socket.borrow_mut() = Some(stream));
        begin(Version::HTTP_11);
        assert!(may_wait());
        assert!(!client_is_gone());
        drop(client);
        while !client_is_gone() {
            std::thread::yield_now(); // loopback takes a moment
        }
        begin(Version::HTTP_2);
        assert!(!may_wait());
    }
}
