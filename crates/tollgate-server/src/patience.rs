//! Patience with a slow client has an end: a body that stops arriving and an answer that nobody takes are errors.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::HttpBody;
use hyper::body::{Frame, Incoming, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// A timer that runs while something waits.
struct Patience {
    limit: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Patience {
    fn new(limit: Duration) -> Self {
        Self { limit, timer: None }
    }

    /// Something has happened.
    fn reset(&mut self) {
        self.timer = None;
    }

    /// Still waiting. Ready when that has taken too long.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(self.limit)));
        timer.as_mut().poll(context)
    }
}

/// The body of a request.
pub(crate) struct PatientBody {
    body: Incoming,
    patience: Patience,
}

impl PatientBody {
    pub(crate) fn new(body: Incoming, limit: Duration) -> Self {
        Self { body, patience: Patience::new(limit) }
    }
}

impl HttpBody for PatientBody {
    type Data = <Incoming as HttpBody>::Data;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(frame) => {
                self.patience.reset();
                Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
            }
            Poll::Pending => {
                ready!(self.patience.poll(context));
                Poll::Ready(Some(Err(io::Error::from(io::ErrorKind::TimedOut).into())))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A connection. A client that does not take an answer loses it. A client that sends nothing is not this file's business:
/// it may be waiting for an answer.
pub(crate) struct PatientStream {
    stream: TcpStream,
    patience: Patience,
}

impl PatientStream {
    pub(crate) fn new(stream: TcpStream, limit: Duration) -> Self {
        Self { stream, patience: Patience::new(limit) }
    }

    fn written<T>(&mut self, written: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.patience.reset();
            return written;
        }
        ready!(self.patience.poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for PatientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for PatientStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(written, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.written(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
