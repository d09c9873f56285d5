//! Reads frames and reports events.

use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::mpsc::UnboundedSender;

use super::content::Content;
use super::encode::{Arguments, of_channel, of_connection};
use super::method::{Event, Method};
use super::protocol::{CHANNEL, FRAME_END, FRAME_OVERHEAD, Malformed, id, kind};
use super::table::Values;
use super::writer::Outgoing;

/// Minimum free buffer space per read, in bytes.
const CHUNK: usize = 16 << 10;

/// The receiving half of a connection.
pub(super) struct Reader<R> {
    pub(super) stream: R,
    pub(super) frame_max: usize,
    /// Of a larger delivery, only the beginning is kept.
    pub(super) largest: usize,
    /// The connection counts as lost after this much silence.
    pub(super) silence: Duration,
    pub(super) events: UnboundedSender<Event>,
    pub(super) answers: UnboundedSender<Outgoing>,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    /// Reads until the connection is lost, which is the last event.
    pub(super) async fn run(mut self) {
        let why = match self.read().await {
            Ok(why) => why,
            Err(malformed) => malformed.to_string(),
        };
        // The receiver is gone once the connection is dropped.
        let _ = self.events.send(Event::Lost(why));
    }

    async fn read(&mut self) -> Result<String, Malformed> {
        let mut buffer = BytesMut::new();
        let mut content = Content::default();
        loop {
            while let Some((kind, channel, payload)) = frame(&mut buffer, self.frame_max)? {
                if let Some(why) = self.take(kind, channel, payload, &mut content)? {
                    return Ok(why);
                }
            }
            buffer.reserve(CHUNK);
            match tokio::time::timeout(self.silence, self.stream.read_buf(&mut buffer)).await {
                Ok(Ok(0)) => return Ok("the broker closed the connection".to_owned()),
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return Ok(error.to_string()),
                Err(_) => {
                    return Ok(format!(
                        "missed heartbeats: the broker was silent for {} s",
                        self.silence.as_secs()
                    ));
                }
            }
        }
    }

    /// Handles a frame; if it ends the connection, returns the reason.
    fn take(
        &self,
        kind: u8,
        channel: u16,
        payload: BytesMut,
        content: &mut Content,
    ) -> Result<Option<String>, Malformed> {
        if channel > CHANNEL {
            return Err(Malformed("a frame on a channel that is not open"));
        }
        let event = match kind {
            kind::METHOD => return self.method(Method::decode(&payload)?, content),
            kind::HEADER => content.header(&payload, self.largest)?,
            kind::BODY => content.body(payload)?,
            kind::HEARTBEAT => None,
            _ => return Err(Malformed("a frame of unknown type")),
        };
        self.emit(event);
        Ok(None)
    }

    fn method(&self, method: Method, content: &mut Content) -> Result<Option<String>, Malformed> {
        match method {
            Method::Content(method) => *content = Content::Announced(method),
            Method::Flow { active } => {
                self.answer(of_channel(
                    id::FLOW_OK,
                    &Arguments::default().octet(active.into()),
                ));
            }
            Method::Close { code, text } => {
                self.answer(of_connection(id::CLOSE_OK, &Arguments::default()));
                return Ok(Some(format!(
                    "the broker closed the connection: {code} {text}"
                )));
            }
            Method::Event(event) => {
                if let Event::ChannelClosed { .. } = event {
                    *content = Content::None;
                    self.answer(of_channel(id::CHANNEL_CLOSE_OK, &Arguments::default()));
                }
                self.emit(Some(event));
            }
            Method::Ignored => {}
            Method::Start { .. } | Method::Tune { .. } | Method::OpenOk => {
                return Err(Malformed("a handshake method after the handshake"));
            }
        }
        Ok(None)
    }

    fn emit(&self, event: Option<Event>) {
        if let Some(event) = event {
            // The receiver is gone once the connection is dropped.
            let _ = self.events.send(event);
        }
    }

    fn answer(&self, frame: Vec<u8>) {
        // The writer is gone once the connection is lost.
        let _ = self.answers.send(Outgoing::frames(frame));
    }
}

/// The next complete frame: its type, channel and payload.
fn frame(
    buffer: &mut BytesMut,
    frame_max: usize,
) -> Result<Option<(u8, u16, BytesMut)>, Malformed> {
    if buffer.len() < FRAME_OVERHEAD {
        return Ok(None);
    }
    let mut head = Values::new(buffer);
    let (kind, channel) = (head.octet()?, head.short()?);
    let length = usize::try_from(head.long()?).map_err(|_| Malformed("a length"))?;
    if length + FRAME_OVERHEAD > frame_max {
        return Err(Malformed("a frame larger than negotiated"));
    }
    if buffer.len() < length + FRAME_OVERHEAD {
        buffer.reserve(length + FRAME_OVERHEAD - buffer.len());
        return Ok(None);
    }
    buffer.advance(FRAME_OVERHEAD - 1);
    let payload = buffer.split_to(length);
    if buffer.first() != Some(&FRAME_END) {
        return Err(Malformed("a frame without end octet"));
    }
    buffer.advance(1);
    Ok(Some((kind, channel, payload)))
}
