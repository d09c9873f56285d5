//! Connections to the API server that stop sending at the deadline.
//!
//! A call hands its request to a connection, which encodes, encrypts and sends it later, on a task of its own. A
//! process suspended in between would send the request when it resumes, so each write to the socket checks the fence
//! again.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::future::{BoxFuture, FutureExt, TryFutureExt};
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use tower::Service;

use super::Fence;
use crate::fault::Fenced;

/// Connects through `connector`; its connections send nothing once the fence has expired. Followers may send, because
/// they only read.
#[derive(Clone, Debug)]
pub struct FencedConnector<C> {
    connector: C,
    fence: Fence,
}

impl<C> FencedConnector<C> {
    pub fn new(connector: C, fence: Fence) -> Self {
        Self { connector, fence }
    }
}

impl<C> Service<Uri> for FencedConnector<C>
where
    C: Service<Uri>,
    C::Response: Send + 'static,
    C::Error: Send + 'static,
    C::Future: Send + 'static,
{
    type Response = FencedConnection<C::Response>;
    type Error = C::Error;
    type Future = BoxFuture<'static, Result<Self::Response, C::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), C::Error>> {
        self.connector.poll_ready(context)
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let fence = self.fence.clone();
        self.connector
            .call(server)
            .map_ok(|stream| FencedConnection { stream, fence })
            .boxed()
    }
}

/// A connection behind the [`Fence`].
#[derive(Debug)]
pub struct FencedConnection<T> {
    stream: T,
    fence: Fence,
}

impl<T: Unpin> FencedConnection<T> {
    fn stream(&mut self) -> Pin<&mut T> {
        Pin::new(&mut self.stream)
    }

    /// The stream, if it may still be written to.
    fn sending(&mut self) -> io::Result<Pin<&mut T>> {
        if self.fence.has_expired() {
            return Err(io::Error::other(Fenced));
        }
        Ok(self.stream())
    }
}

impl<T: Write + Unpin> Write for FencedConnection<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.sending()?.poll_write(context, data)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.sending()?.poll_write_vectored(context, data)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.sending()?.poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(context)
    }
}

impl<T: Read + Unpin> Read for FencedConnection<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream().poll_read(context, buffer)
    }
}

impl<T: Connection> Connection for FencedConnection<T> {
    fn connected(&self) -> Connected {
        self.stream.connected()
    }
}
