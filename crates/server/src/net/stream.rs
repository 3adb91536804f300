//! The stream of one connection: plain or TLS, on a socket that may change its runtime, with the times of its bytes recorded.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::config::Limits;
use crate::net::connection_state::ConnectionState;

/// How long, and for how many bytes, a closing connection goes on reading from a client that is still sending, so that the
/// reset that follows does not take the answer from it.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES_MAX: usize = 64 << 20;

const TLS_HANDSHAKE: u8 = 0x16;

/// The first byte distinguishes TLS from plain HTTP. `None` when the client closed the connection or sent nothing.
pub(crate) async fn accept_tls(
    stream: TcpStream,
    tls: Option<&tokio_rustls::TlsAcceptor>,
    limits: &Limits,
) -> Option<Stream> {
    let Some(tls) = tls else { return Some(Stream::Plain(Socket(Some(stream)))) };
    let accepted = tokio::time::timeout(limits.head_timeout, async {
        let mut first = [0];
        let read = stream.peek(&mut first).await?;
        let socket = Socket(Some(stream));
        match read {
            1 if first[0] == TLS_HANDSHAKE => Ok(Stream::Tls(Box::new(tls.accept(socket).await?))),
            1 => Ok(Stream::Plain(socket)),
            _ => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
        }
    });
    match accepted.await {
        Ok(Ok(stream)) => Some(stream),
        Ok(Err(error)) => {
            tracing::debug!(%error, "connection ended before its first request");
            None
        }
        Err(_) => None,
    }
}

/// A socket that can be moved from one runtime to another. Empty only during the move.
pub(crate) struct Socket(Option<TcpStream>);

pub(crate) enum Stream {
    Plain(Socket),
    Tls(Box<TlsStream<Socket>>),
}

impl Stream {
    pub(super) fn socket(&mut self) -> &mut Socket {
        match self {
            Stream::Plain(socket) => socket,
            Stream::Tls(stream) => stream.get_mut().0,
        }
    }
}

impl Socket {
    pub(super) fn take(&mut self) -> Option<TcpStream> {
        self.0.take()
    }

    pub(super) fn give(&mut self, socket: TcpStream) {
        self.0 = Some(socket);
    }

    pub(super) fn is_closed_by_client(&self) -> bool {
        self.0.as_ref().is_some_and(is_closed_by_client)
    }

    fn get(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        self.0.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.get()?.poll_read(context, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get()?.poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get()?.poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get()?.poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get()?.poll_shutdown(context)
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Stream::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Stream::Tls(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(context),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

/// A stream that records in its [`ConnectionState`] when bytes move. The lock is contended only while another thread looks
/// whether the client has closed the connection.
pub(super) struct MonitoredStream {
    stream: Arc<Mutex<Stream>>,
    state: Arc<ConnectionState>,
    linger: Option<Linger>,
}

struct Linger {
    until: Pin<Box<tokio::time::Sleep>>,
    bytes_left: usize,
}

impl AsyncRead for MonitoredStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut *self.stream.lock()).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.state.received();
        }
        read
    }
}

impl AsyncWrite for MonitoredStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut *self.stream.lock()).poll_write(context, bytes);
        self.record(written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut *self.stream.lock()).poll_write_vectored(context, slices);
        self.record(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.lock().is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut *self.stream.lock()).poll_flush(context);
        if flushed.is_pending() {
            self.state.blocked();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.linger.is_none() {
            ready!(Pin::new(&mut *self.stream.lock()).poll_shutdown(context))?;
            if !self.state.is_lingering() {
                return Poll::Ready(Ok(()));
            }
            let until = Box::pin(tokio::time::sleep(LINGER));
            self.linger = Some(Linger { until, bytes_left: LINGER_BYTES_MAX });
        }
        self.poll_linger(context).map(Ok)
    }
}

impl MonitoredStream {
    pub fn new(stream: Arc<Mutex<Stream>>, state: Arc<ConnectionState>) -> MonitoredStream {
        MonitoredStream { stream, state, linger: None }
    }

    fn record(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Ok(_)) => self.state.sent(),
            Poll::Ready(Err(_)) => {}
            Poll::Pending => self.state.blocked(),
        }
        written
    }

    /// Reads and drops bytes until the client closes the connection, or time or bytes run out.
    fn poll_linger(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(linger) = &mut self.linger else { return Poll::Ready(()) };
        let mut scratch = [0; 16 << 10];
        loop {
            let mut buffer = ReadBuf::new(&mut scratch);
            match Pin::new(&mut *self.stream.lock()).poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    linger.bytes_left = linger.bytes_left.saturating_sub(buffer.filled().len());
                    if linger.bytes_left == 0 {
                        return Poll::Ready(());
                    }
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return linger.until.as_mut().poll(context),
            }
        }
    }
}

/// Also when there are bytes before its end that were not read, such as the closing message of TLS.
fn is_closed_by_client(socket: &TcpStream) -> bool {
    use rustix::event::{PollFd, PollFlags, poll};
    #[cfg(target_os = "linux")]
    const GONE: PollFlags = PollFlags::RDHUP.union(PollFlags::HUP).union(PollFlags::ERR);
    #[cfg(not(target_os = "linux"))]
    const GONE: PollFlags = PollFlags::HUP.union(PollFlags::ERR);
    let mut descriptors = [PollFd::new(socket, GONE)];
    let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    let ready = poll(&mut descriptors, Some(&at_once));
    ready.is_ok_and(|count| count > 0 && descriptors[0].revents().intersects(GONE))
}
