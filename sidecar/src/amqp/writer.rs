//! Writes frames, many small ones at once, and heartbeats when there is nothing else.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout;

use super::encode::{frame, head};
use super::{CHANNEL, FRAME_END, FRAME_OVERHEAD, kind};

/// A body up to this size is copied beside its frames; a larger one is written from where it is.
const COPIED: usize = 32 << 10;
/// What is collected before it is written, in bytes.
const BATCH: usize = 64 << 10;

/// What is to be written.
pub(super) struct Outgoing {
    frames: Vec<u8>,
    body: Bytes,
}

impl Outgoing {
    /// Frames as they are.
    pub(super) fn frames(frames: Vec<u8>) -> Self {
        Self {
            frames,
            body: Bytes::new(),
        }
    }

    /// Frames, and a body that is to be cut into frames.
    pub(super) fn with_body(frames: Vec<u8>, body: Bytes) -> Self {
        Self { frames, body }
    }
}

/// The sending half of a connection.
pub(super) struct Writer<W> {
    pub(super) stream: W,
    pub(super) frame_max: usize,
    /// After this time without anything to write a heartbeat is sent.
    pub(super) idle: Duration,
    pub(super) outgoing: UnboundedReceiver<Outgoing>,
}

impl<W: AsyncWrite + Unpin> Writer<W> {
    /// Writes until there is nobody left to write for, or the stream breaks, which the reader notices, too.
    pub(super) async fn run(mut self) {
        let _ = self.write().await;
        let _ = self.stream.shutdown().await;
    }

    async fn write(&mut self) -> io::Result<()> {
        let mut batch = Vec::with_capacity(4 << 10);
        loop {
            match timeout(self.idle, self.outgoing.recv()).await {
                Ok(Some(first)) => self.add(&mut batch, first).await?,
                Ok(None) => return Ok(()),
                Err(_) => batch.extend_from_slice(&frame(kind::HEARTBEAT, 0, &[])),
            }
            while batch.len() < BATCH {
                let Ok(next) = self.outgoing.try_recv() else {
                    break;
                };
                self.add(&mut batch, next).await?;
            }
            self.stream.write_all(&batch).await?;
            self.stream.flush().await?;
            batch.clear();
            batch.shrink_to(BATCH);
        }
    }

    async fn add(&mut self, batch: &mut Vec<u8>, outgoing: Outgoing) -> io::Result<()> {
        batch.extend_from_slice(&outgoing.frames);
        let is_copied = outgoing.body.len() <= COPIED;
        for part in outgoing.body.chunks(self.frame_max - FRAME_OVERHEAD) {
            batch.extend_from_slice(&head(kind::BODY, CHANNEL, part.len()));
            if is_copied {
                batch.extend_from_slice(part);
            } else {
                self.stream.write_all(batch).await?;
                batch.clear();
                self.stream.write_all(part).await?;
            }
            batch.push(FRAME_END);
        }
        Ok(())
    }
}
