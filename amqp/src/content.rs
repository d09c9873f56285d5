//! Reassembles messages from frames.

use bytes::{Bytes, BytesMut};

use super::method::{ContentMethod, Event};
use super::properties::ReadProperties;
use super::protocol::Malformed;
use super::table::Values;

/// The largest body that any broker sends.
const LARGEST: u64 = 512 << 20;
/// A body below this size is copied, so that it does not keep the whole buffer that it was read with.
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
        size: usize,
    },
}

impl Content {
    /// Adds the header; `Some` if the body is empty, so that the message is complete.
    pub(super) fn header(&mut self, payload: &[u8]) -> Result<Option<Event>, Malformed> {
        let Self::Announced(method) = std::mem::take(self) else {
            return Err(Malformed("a header without its method"));
        };
        let mut values = Values::new(payload);
        values.take(4)?;
        let size = values.long_long()?;
        if size > LARGEST {
            return Err(Malformed("a message of an impossible size"));
        }
        let size =
            usize::try_from(size).map_err(|_| Malformed("a message of an impossible size"))?;
        let properties = match method {
            ContentMethod::Got { .. } => ReadProperties::all(values.rest())?,
            ContentMethod::Deliver { .. } | ContentMethod::Return { .. } => {
                ReadProperties::few(&mut values)?
            }
        };
        if size == 0 {
            return Ok(Some(method.with(properties, Bytes::new())));
        }
        *self = Self::Open {
            method,
            properties,
            body: BytesMut::new(),
            size,
        };
        Ok(None)
    }

    /// Adds a body frame; `Some` if the message is complete.
    pub(super) fn body(&mut self, part: BytesMut) -> Result<Option<Event>, Malformed> {
        let Self::Open {
            method,
            properties,
            mut body,
            size,
        } = std::mem::take(self)
        else {
            return Err(Malformed("a body without its header"));
        };
        if body.is_empty() && part.len() == size {
            let part = if size < SMALL {
                Bytes::copy_from_slice(&part)
            } else {
                part.freeze()
            };
            return Ok(Some(method.with(properties, part)));
        }
        if body.is_empty() {
            // Memory pages are committed only when they are written.
            body.reserve(size);
        }
        body.extend_from_slice(&part);
        if body.len() > size {
            return Err(Malformed("a body longer than its header says"));
        }
        if body.len() == size {
            return Ok(Some(method.with(properties, body.freeze())));
        }
        *self = Self::Open {
            method,
            properties,
            body,
            size,
        };
        Ok(None)
    }
}

impl ContentMethod {
    fn with(self, properties: ReadProperties, body: Bytes) -> Event {
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
