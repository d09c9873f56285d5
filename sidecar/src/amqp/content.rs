//! Messages that arrive in several frames.

use bytes::{Bytes, BytesMut};

use super::Malformed;
use super::method::Event;
use super::table::{Values, number_in};

/// The largest body that any broker sends.
const LARGEST: u64 = 512 << 20;
/// A body below this size is copied, so that it does not keep the whole buffer that it was read with.
const SMALL: usize = 4 << 10;
const DELIVERY_COUNT: &str = "x-delivery-count";

/// A message of which not all frames have come.
#[derive(Debug, Default)]
pub(super) enum Content {
    /// There is none.
    #[default]
    None,
    /// The method has come.
    Announced(Envelope),
    /// The header has come, too.
    Open {
        event: Envelope,
        properties: Properties,
        body: BytesMut,
        size: usize,
    },
}

/// What the method said.
#[derive(Debug)]
pub(super) enum Envelope {
    Deliver {
        consumer: String,
        tag: u64,
        redelivered: bool,
    },
    Return {
        exchange: String,
        key: String,
    },
}

#[derive(Debug, Default)]
pub(super) struct Properties {
    count: Option<u64>,
    message_id: Option<String>,
}

impl Content {
    /// Takes the header; `Some`: the body is empty, so that is all.
    pub(super) fn header(&mut self, payload: &[u8]) -> Result<Option<Event>, Malformed> {
        let Self::Announced(event) = std::mem::take(self) else {
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
        let properties = Properties::read(&mut values)?;
        if size == 0 {
            return Ok(Some(event.with(properties, Bytes::new())));
        }
        *self = Self::Open {
            event,
            properties,
            body: BytesMut::new(),
            size,
        };
        Ok(None)
    }

    /// Takes a part of the body; `Some`: that was the last one.
    pub(super) fn body(&mut self, part: BytesMut) -> Result<Option<Event>, Malformed> {
        let Self::Open {
            event,
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
            return Ok(Some(event.with(properties, part)));
        }
        if body.is_empty() {
            // The pages are only taken as they are written to.
            body.reserve(size);
        }
        body.extend_from_slice(&part);
        if body.len() > size {
            return Err(Malformed("a body longer than its header says"));
        }
        if body.len() == size {
            return Ok(Some(event.with(properties, body.freeze())));
        }
        *self = Self::Open {
            event,
            properties,
            body,
            size,
        };
        Ok(None)
    }
}

impl Envelope {
    fn with(self, properties: Properties, body: Bytes) -> Event {
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
            Self::Return { exchange, key } => Event::Returned {
                exchange,
                key,
                message_id: properties.message_id,
            },
        }
    }
}

impl Properties {
    /// The properties in front of the message id are skipped, those behind it are not read.
    fn read(values: &mut Values<'_>) -> Result<Self, Malformed> {
        const CONTENT_TYPE: u16 = 15;
        const CONTENT_ENCODING: u16 = 14;
        const HEADERS: u16 = 13;
        const DELIVERY_MODE: u16 = 12;
        const PRIORITY: u16 = 11;
        const CORRELATION_ID: u16 = 10;
        const REPLY_TO: u16 = 9;
        const EXPIRATION: u16 = 8;
        const MESSAGE_ID: u16 = 7;
        let flags = values.short()?;
        let has = |bit: u16| flags & (1 << bit) != 0;
        let mut properties = Self::default();
        for bit in [CONTENT_TYPE, CONTENT_ENCODING] {
            if has(bit) {
                values.short_text()?;
            }
        }
        if has(HEADERS) {
            let count = number_in(values.long_bytes()?, DELIVERY_COUNT)?;
            properties.count = count.and_then(|count| u64::try_from(count).ok());
        }
        for bit in [DELIVERY_MODE, PRIORITY] {
            if has(bit) {
                values.octet()?;
            }
        }
        for bit in [CORRELATION_ID, REPLY_TO, EXPIRATION] {
            if has(bit) {
                values.short_text()?;
            }
        }
        if has(MESSAGE_ID) {
            properties.message_id = Some(values.short_text()?);
        }
        Ok(properties)
    }
}
