//! Writes frames, coalescing small ones, and sends heartbeats when idle.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout};

use super::encode::{frame, head};
use super::protocol::{CHANNEL, FRAME_END, FRAME_OVERHEAD, kind};

/// Bodies up to this size are copied into the write buffer; larger ones are written from their own.
const COPIED: usize = 32 << 10;
/// Size of the write buffer, in bytes.
const BATCH: usize = 64 << 10;

pub(super) struct Outgoing {
    frames: Vec<u8>,
    body: Bytes,
}

impl Outgoing {
    /// Encoded frames.
    pub(super) fn frames(frames: Vec<u8>) -> Self {
        Self {
            frames,
            body: Bytes::new(),
        }
    }

    /// Encoded frames, and a body to be split into frames.
    pub(super) fn with_body(frames: Vec<u8>, body: Bytes) -> Self {
        Self { frames, body }
    }
}

/// When the peer last read something other than a heartbeat.
#[derive(Clone, Debug)]
pub(super) struct Progress {
    opened: Instant,
    milliseconds: Arc<AtomicU64>,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self {
            opened: Instant::now(),
            milliseconds: Arc::default(),
        }
    }

    pub(super) fn last(&self) -> Instant {
        self.opened + Duration::from_millis(self.milliseconds.load(Ordering::Relaxed))
    }

    fn made(&self) {
        let milliseconds = u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.milliseconds.store(milliseconds, Ordering::Relaxed);
    }
}

/// The sending half of a connection.
pub(super) struct Writer<W> {
    pub(super) stream: W,
    pub(super) frame_max: usize,
    /// Idle time after which a heartbeat is sent.
    pub(super) idle: Duration,
    pub(super) outgoing: UnboundedReceiver<Outgoing>,
    pub(super) progress: Progress,
}

impl<W: AsyncWrite + Unpin> Writer<W> {
    /// Writes until all senders are dropped or the stream breaks, which the reader detects as well.
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
                Err(_) => {
                    let heartbeat = frame(kind::HEARTBEAT, 0, &[]);
                    self.stream.write_all(&heartbeat).await?;
                    self.stream.flush().await?;
                    continue;
                }
            }
            // Lets all other tasks run first: the runtime gets its next message before the broker gets its last result,
            // and what those tasks send shares this write.
            yield_now().await;
            while batch.len() < BATCH {
                let Ok(next) = self.outgoing.try_recv() else {
                    break;
                };
                self.add(&mut batch, next).await?;
            }
            self.stream.write_all(&batch).await?;
            self.stream.flush().await?;
            self.progress.made();
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
                self.progress.made();
            }
            batch.push(FRAME_END);
        }
        Ok(())
    }
}
