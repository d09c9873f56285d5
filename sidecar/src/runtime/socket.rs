//! One request and reply per connection (RUN-10, SC-47).

use std::io::{self, ErrorKind, IoSlice, Write as _};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout_at};

use super::CallError;

/// The reply buffer grows by this many bytes at a time, since the announced length is not trusted.
const CHUNK: usize = 16 << 10;
/// Delay before another attempt to connect while the backlog is full.
const BACKLOG_DELAY: Duration = Duration::from_millis(5);

/// Where the runtime listens, and its limits.
#[derive(Clone, Debug)]
pub struct Socket {
    pub path: PathBuf,
    /// Timeout of a whole call.
    pub timeout: Duration,
    /// Maximum reply size, in bytes.
    pub largest: usize,
}

impl Socket {
    /// Sends a request and waits for the reply.
    ///
    /// # Errors
    /// If there is no reply; the error says how far the runtime got.
    pub async fn call(&self, request: &[u8]) -> Result<Bytes, CallError> {
        let deadline = Instant::now() + self.timeout;
        let connection = timeout_at(deadline, connection(&self.path)).await;
        let Ok(Ok(connection)) = connection else {
            return Err(CallError::NotRead);
        };
        let Ok(Ok(mut stream)) = timeout_at(deadline, send(connection, request)).await else {
            return Err(CallError::NotRead);
        };
        let reply = timeout_at(deadline, read(&mut stream, self.largest)).await;
        reply.unwrap_or_else(|_| {
            let was_read = is_read(&stream).unwrap_or(true);
            Err(if was_read {
                CallError::TimedOut
            } else {
                CallError::NotRead
            })
        })
    }

    /// Whether the runtime accepts connections; waits until it has a free slot. A successful connect proves nothing,
    /// since the kernel accepts connections even for a process that is stuck. But the runtime closes a connection on
    /// which nothing is sent.
    pub async fn answers(&self) -> bool {
        let answer = async {
            let mut stream = UnixStream::connect(&self.path).await?;
            stream.shutdown().await?;
            stream.read(&mut [0]).await
        };
        answer.await.is_ok()
    }
}

/// Connects, waiting while the backlog is full: the runtime is busy, not gone.
async fn connection(path: &Path) -> io::Result<BlockingStream> {
    loop {
        match open(path) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => sleep(BACKLOG_DELAY).await,
            result => return result,
        }
    }
}

/// Writes length and request with vectored writes. A request that fits into the socket's buffer need not wait for
/// writability, so it reaches the runtime one turn of the event loop earlier than with [`UnixStream::connect`].
async fn send(mut stream: BlockingStream, request: &[u8]) -> io::Result<UnixStream> {
    let length = u32::try_from(request.len())
        .map_err(io::Error::other)?
        .to_be_bytes();
    let mut slices = [IoSlice::new(&length), IoSlice::new(request)];
    let mut slices = slices.as_mut_slice();
    match stream.write_vectored(slices) {
        Ok(written) => IoSlice::advance_slices(&mut slices, written),
        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
        Err(error) => return Err(error),
    }
    let mut stream = UnixStream::from_std(stream)?;
    while !slices.is_empty() {
        match stream.write_vectored(slices).await? {
            0 => return Err(ErrorKind::WriteZero.into()),
            written => IoSlice::advance_slices(&mut slices, written),
        }
    }
    Ok(stream)
}

/// A connection in nonblocking mode. If the backlog is full, fails with [`ErrorKind::WouldBlock`] instead of waiting.
fn open(path: &Path) -> io::Result<BlockingStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}

/// Whether the peer has read everything that was sent to it.
///
/// `SIOCOUTQ` would tell, but no safe function exposes it. So check whether as many more bytes can be sent as on a
/// connection without unread data. The runtime reads nothing after its request.
fn is_read(stream: &UnixStream) -> io::Result<bool> {
    let (empty, _peer) = BlockingStream::pair()?;
    let room = fill_send_buffer(&empty, usize::MAX)?;
    Ok(fill_send_buffer(stream, room)? == room)
}

/// Sends single bytes until the peer must read first, and returns their number.
fn fill_send_buffer(stream: impl AsFd, most: usize) -> io::Result<usize> {
    // The kernel rounds this up to its minimum, a few kB. Few bytes fit, since each takes up several hundred.
    set_socket_send_buffer_size(&stream, 1)?;
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let mut sent = 0;
    while sent < most {
        match rustix::net::send(&stream, b" ", flags) {
            Ok(count) => sent += count,
            Err(Errno::AGAIN) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(sent)
}

async fn read(stream: &mut UnixStream, largest: usize) -> Result<Bytes, CallError> {
    let mut buffer = BytesMut::with_capacity(CHUNK);
    fill(stream, &mut buffer)
        .await
        .map_err(|error| match error {
            Broken::Reset => CallError::NotRead,
            Broken::Ended => CallError::Ended,
        })?;
    while buffer.len() < size_of::<u32>() {
        fill(stream, &mut buffer).await?;
    }
    let length = usize::try_from(buffer.get_u32()).map_err(|_| CallError::Ended)?;
    if length > largest {
        return Err(CallError::TooLarge(length));
    }
    while buffer.len() < length {
        fill(stream, &mut buffer).await?;
    }
    buffer.truncate(length);
    Ok(buffer.freeze())
}

/// How a connection broke before the reply was complete.
enum Broken {
    /// The peer had not read the whole request.
    Reset,
    /// The peer had read the request.
    Ended,
}

impl From<Broken> for CallError {
    /// Used within a reply, whose beginning proves that the request was read.
    fn from(_: Broken) -> Self {
        Self::Ended
    }
}

/// Reads some bytes.
async fn fill(stream: &mut UnixStream, buffer: &mut BytesMut) -> Result<(), Broken> {
    if buffer.capacity() == buffer.len() {
        buffer.reserve(CHUNK);
    }
    match stream.read_buf(buffer).await {
        Ok(1..) => Ok(()),
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Err(Broken::Reset),
        Ok(0) | Err(_) => Err(Broken::Ended),
    }
}

#[cfg(test)]
mod tests;
