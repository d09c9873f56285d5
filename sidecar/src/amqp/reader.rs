//! Reads frames, and tells what happens.

use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::mpsc::UnboundedSender;

use super::content::{Content, Envelope};
use super::encode::{Arguments, of_channel, of_connection};
use super::method::{Event, Method};
use super::table::Values;
use super::writer::Outgoing;
use super::{CHANNEL, FRAME_END, FRAME_OVERHEAD, Malformed, id, kind};

/// What is read at least at once, in bytes.
const CHUNK: usize = 16 << 10;

/// The receiving half of a connection.
pub(super) struct Reader<R> {
    pub(super) stream: R,
    pub(super) frame_max: usize,
    /// A peer that is silent for this long is lost.
    pub(super) silence: Duration,
    pub(super) events: UnboundedSender<Event>,
    pub(super) answers: UnboundedSender<Outgoing>,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    /// Reads until the connection is gone, which is the last event.
    pub(super) async fn run(mut self) {
        let why = match self.read().await {
            Ok(why) => why,
            Err(malformed) => malformed.to_string(),
        };
        // Nobody listens any more when the connection was dropped.
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
                        "the broker was silent for {} s",
                        self.silence.as_secs()
                    ));
                }
            }
        }
    }

    /// Takes a frame; `Some`: the connection is at its end, and why.
    fn take(
        &self,
        kind: u8,
        channel: u16,
        payload: BytesMut,
        content: &mut Content,
    ) -> Result<Option<String>, Malformed> {
        if channel > CHANNEL {
            return Err(Malformed("a frame of a channel that is not open"));
        }
        let event = match kind {
            kind::METHOD => return self.method(Method::decode(&payload)?, content),
            kind::HEADER => content.header(&payload)?,
            kind::BODY => content.body(payload)?,
            kind::HEARTBEAT => None,
            _ => return Err(Malformed("a frame of unknown type")),
        };
        self.tell(event);
        Ok(None)
    }

    fn method(&self, method: Method, content: &mut Content) -> Result<Option<String>, Malformed> {
        match method {
            Method::Deliver {
                consumer,
                tag,
                redelivered,
            } => {
                *content = Content::Announced(Envelope::Deliver {
                    consumer,
                    tag,
                    redelivered,
                });
            }
            Method::Return { exchange, key } => {
                *content = Content::Announced(Envelope::Return { exchange, key });
            }
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
            Method::Told(event) => {
                if let Event::ChannelClosed { .. } = event {
                    *content = Content::None;
                    self.answer(of_channel(id::CHANNEL_CLOSE_OK, &Arguments::default()));
                }
                self.tell(Some(event));
            }
            Method::Ignored => {}
            Method::Start { .. } | Method::Tune { .. } | Method::OpenOk => {
                return Err(Malformed("a method of the beginning"));
            }
        }
        Ok(None)
    }

    fn tell(&self, event: Option<Event>) {
        if let Some(event) = event {
            // Nobody listens any more when the connection was dropped.
            let _ = self.events.send(event);
        }
    }

    fn answer(&self, frame: Vec<u8>) {
        // The writer is gone when the connection is.
        let _ = self.answers.send(Outgoing::frames(frame));
    }
}

/// The next frame that has come as a whole: its type, channel and payload.
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
        return Err(Malformed("a frame larger than agreed"));
    }
    if buffer.len() < length + FRAME_OVERHEAD {
        buffer.reserve(length + FRAME_OVERHEAD - buffer.len());
        return Ok(None);
    }
    buffer.advance(FRAME_OVERHEAD - 1);
    let payload = buffer.split_to(length);
    if buffer.first() != Some(&FRAME_END) {
        return Err(Malformed("a frame without its end"));
    }
    buffer.advance(1);
    Ok(Some((kind, channel, payload)))
}
