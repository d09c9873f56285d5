//! One request and reply per connection (RUN-10, SC-47).

use std::io::{self, ErrorKind, IoSlice, Write as _};
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout_at};

use super::CallError;

/// Growth increment of the reply buffer, in bytes. The announced length is not trusted for allocation.
const CHUNK: usize = 16 << 10;
/// Delay before another attempt to connect if too many connections wait to be accepted.
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
        let exchange = async {
            let mut stream = send(connection, request)
                .await
                .map_err(|_| CallError::NotRead)?;
            read(&mut stream, self.largest).await
        };
        timeout_at(deadline, exchange)
            .await
            .unwrap_or(Err(CallError::TimedOut))
    }

    /// Whether the runtime is listening. The connection is closed without sending a byte, which the runtime treats as a
    /// probe.
    pub async fn answers(&self) -> bool {
        UnixStream::connect(&self.path).await.is_ok()
    }
}

/// Connects, and waits while too many connections wait to be accepted: the runtime is busy, not gone.
async fn connection(path: &Path) -> io::Result<BlockingStream> {
    loop {
        match open(path) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => sleep(BACKLOG_DELAY).await,
            result => return result,
        }
    }
}

/// Writes length and request with vectored writes. A request that fits into the socket's buffer needs no wait for
/// writability, so the runtime has it one turn of the event loop sooner than with [`UnixStream::connect`].
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

/// A connection in nonblocking mode. Never waits: if too many wait to be accepted, it fails with
/// [`ErrorKind::WouldBlock`].
fn open(path: &Path) -> io::Result<BlockingStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
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
    /// Within a reply, the beginning of which proves that the request was read.
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
