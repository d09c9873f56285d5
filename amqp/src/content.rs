//! Reassembles messages from frames.

use bytes::{Bytes, BytesMut};

use super::method::{ContentMethod, Event};
use super::properties::ReadProperties;
use super::protocol::Malformed;
use super::table::Values;

/// Size of the largest body that any broker sends.
pub(super) const LARGEST: usize = 512 << 20;
/// How much of a delivery above the connection's limit is kept.
const BEGINNING: usize = 64 << 10;
/// Smaller bodies are copied, so that they do not keep the whole read buffer alive.
const SMALL: usize = 4 << 10;

/// A partially received message.
#[derive(Debug, Default)]
pub(super) enum Content {
    /// No message in progress.
    #[default]
    None,
    /// The method frame was received.
    Announced(ContentMethod),
    /// The method and header frames were received.
    Open {
        method: ContentMethod,
        properties: ReadProperties,
        body: BytesMut,
        /// How many bytes of the body are kept.
        kept: usize,
        received: usize,
        size: usize,
    },
}

impl Content {
    /// Adds the header; returns the message if its body is empty. Of a delivery with more than `largest` bytes, only
    /// the beginning is kept.
    pub(super) fn header(
        &mut self,
        payload: &[u8],
        largest: usize,
    ) -> Result<Option<Event>, Malformed> {
        let Self::Announced(method) = std::mem::take(self) else {
            return Err(Malformed("a header without its method"));
        };
        let mut values = Values::new(payload);
        values.take(4)?;
        let size = values.long_long()?;
        let size = usize::try_from(size)
            .ok()
            .filter(|size| *size <= LARGEST)
            .ok_or(Malformed("a message of an impossible size"))?;
        let properties = match method {
            ContentMethod::Got { .. } => ReadProperties::all(values.rest())?,
            ContentMethod::Deliver { .. } | ContentMethod::Return { .. } => {
                ReadProperties::few(&mut values)?
            }
        };
        if size == 0 {
            return Ok(Some(method.with(properties, Bytes::new(), size)));
        }
        let kept = match method {
            ContentMethod::Return { .. } => 0,
            ContentMethod::Deliver { .. } if size > largest => size.min(BEGINNING),
            ContentMethod::Deliver { .. } | ContentMethod::Got { .. } => size,
        };
        *self = Self::Open {
            method,
            properties,
            body: BytesMut::new(),
            kept,
            received: 0,
            size,
        };
        Ok(None)
    }

    /// Adds a body frame; returns the message once it is complete.
    pub(super) fn body(&mut self, part: BytesMut) -> Result<Option<Event>, Malformed> {
        let Self::Open {
            method,
            properties,
            mut body,
            kept,
            received,
            size,
        } = std::mem::take(self)
        else {
            return Err(Malformed("a body without its header"));
        };
        let received = received + part.len();
        if received > size {
            return Err(Malformed("a body longer than its header says"));
        }
        if part.len() == size && kept == size {
            let part = if size < SMALL {
                Bytes::copy_from_slice(&part)
            } else {
                part.freeze()
            };
            return Ok(Some(method.with(properties, part, size)));
        }
        if body.is_empty() {
            // Reserved memory is not committed until it is written.
            body.reserve(kept);
        }
        let room = kept - body.len();
        body.extend_from_slice(part.get(..room).unwrap_or(&part));
        if received == size {
            return Ok(Some(method.with(properties, body.freeze(), size)));
        }
        *self = Self::Open {
            method,
            properties,
            body,
            kept,
            received,
            size,
        };
        Ok(None)
    }
}

impl ContentMethod {
    fn with(self, properties: ReadProperties, body: Bytes, size: usize) -> Event {
        match self {
            Self::Deliver {
                consumer,
                tag,
                redelivered,
            } => Event::Delivered {
                consumer,
                tag,
                redelivered,
                count: properties.count,
                body,
                size,
            },
            Self::Got { tag } => Event::Got {
                tag,
                properties: properties.all,
                body,
            },
            Self::Return { exchange, key } => Event::Returned {
                exchange,
                key,
                message_id: properties.message_id,
            },
        }
    }
}
