//! Byte streams to the broker: TCP, TLS, or a tunnel.

use tokio::io::{AsyncRead, AsyncWrite};

/// A stream to the broker.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}
