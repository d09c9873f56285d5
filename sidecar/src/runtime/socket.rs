//! One request and one reply on a connection of their own (RUN-10, SC-47).

use std::io::{self, ErrorKind, IoSlice};
use std::path::PathBuf;
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::CallError;

/// What the buffer for a reply grows by at least, in bytes: the announced length reserves nothing.
const CHUNK: usize = 16 << 10;

/// Where the runtime listens, and what it may take.
#[derive(Clone, Debug)]
pub struct Socket {
    /// The socket.
    pub path: PathBuf,
    /// The deadline of a call, over all of it.
    pub timeout: Duration,
    /// The largest reply, in bytes.
    pub largest: usize,
}

impl Socket {
    /// Sends a request and waits for the reply.
    ///
    /// # Errors
    /// When there is none; the error says how far the runtime came.
    pub async fn call(&self, request: &[u8]) -> Result<Bytes, CallError> {
        let exchange = async {
            let mut stream = UnixStream::connect(&self.path)
                .await
                .map_err(|_| CallError::NotRead)?;
            write(&mut stream, request)
                .await
                .map_err(|_| CallError::NotRead)?;
            read(&mut stream, self.largest).await
        };
        timeout(self.timeout, exchange)
            .await
            .unwrap_or(Err(CallError::TimedOut))
    }

    /// Whether something listens; the connection is closed without a byte, which the runtime takes as a question.
    pub async fn answers(&self) -> bool {
        UnixStream::connect(&self.path).await.is_ok()
    }
}

/// Length and request in one write, as far as the socket takes them.
async fn write(stream: &mut UnixStream, request: &[u8]) -> io::Result<()> {
    let length = u32::try_from(request.len())
        .map_err(io::Error::other)?
        .to_be_bytes();
    let mut slices = [IoSlice::new(&length), IoSlice::new(request)];
    let mut slices = slices.as_mut_slice();
    while !slices.is_empty() {
        match stream.write_vectored(slices).await? {
            0 => return Err(ErrorKind::WriteZero.into()),
            written => IoSlice::advance_slices(&mut slices, written),
        }
    }
    Ok(())
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

/// How a connection ended before the reply did.
enum Broken {
    /// The peer had not read all that was sent to it.
    Reset,
    /// It had.
    Ended,
}

impl From<Broken> for CallError {
    /// In the middle of a reply, whose beginning proves that the request was read.
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
