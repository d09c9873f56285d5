//! Received methods.

use bytes::Bytes;

use super::properties::Properties;
use super::protocol::{Malformed, id};
use super::table::{Values, entries};

/// An event of an open connection.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// A message.
    Delivered {
        /// The consumer's name.
        consumer: String,
        /// The delivery tag.
        tag: u64,
        /// The `redelivered` flag.
        redelivered: bool,
        /// The delivery count, if the queue keeps one.
        count: Option<u64>,
        /// The message, or its beginning if it is larger than the limit of the connection.
        body: Bytes,
        /// The size of the whole message, in bytes.
        size: usize,
    },
    /// A message requested with [`super::Connection::get`].
    Got {
        /// The delivery tag.
        tag: u64,
        /// Its properties.
        properties: Properties,
        /// The message.
        body: Bytes,
    },
    /// The queue had no message for [`super::Connection::get`].
    GotNothing,
    /// The size of a queue.
    Counted {
        /// Messages ready for delivery.
        messages: u32,
        /// Consumers.
        consumers: u32,
    },
    /// A publication was returned as unroutable.
    Returned {
        /// The exchange that it was published to.
        exchange: String,
        /// Its routing key.
        key: String,
        /// Its message id.
        message_id: Option<String>,
    },
    /// Publications were confirmed.
    Confirmed {
        /// The highest delivery tag.
        number: u64,
        /// Whether all lower delivery tags are included.
        multiple: bool,
        /// Positive or negative acknowledgement.
        stored: bool,
    },
    /// The consumer was started.
    Consuming(String),
    /// The consumer was cancelled at our request.
    Cancelled(String),
    /// The broker cancelled the consumer, because its queue was deleted or moved, or, since RabbitMQ 4.3, because a
    /// delivery of a quorum queue was not settled in time.
    CancelledByBroker(String),
    /// The channel was reopened.
    ChannelOpen,
    /// The broker has closed the channel.
    ChannelClosed {
        /// The reply code.
        code: u16,
        /// The reply text.
        text: String,
    },
    /// The broker blocked publishing on this connection.
    Blocked(String),
    /// The broker unblocked publishing.
    Unblocked,
    /// The channel is closed, at our request.
    ChannelCloseOk,
    /// The connection is closed, at our request.
    CloseOk,
    /// The connection was lost, with the reason.
    Lost(String),
}

/// A received method.
#[derive(Debug)]
pub(super) enum Method {
    Start {
        /// The broker's version: major and minor.
        version: Option<(u16, u16)>,
        mechanisms: Vec<u8>,
    },
    Tune {
        frame_max: u32,
        heartbeat: u16,
    },
    OpenOk,
    Close {
        code: u16,
        text: String,
    },
    Flow {
        active: bool,
    },
    /// Followed by a header and a body.
    Content(ContentMethod),
    Event(Event),
    /// A method to ignore.
    Ignored,
}

/// A method that carries a message.
#[derive(Debug)]
pub(super) enum ContentMethod {
    Deliver {
        consumer: String,
        tag: u64,
        redelivered: bool,
    },
    Got {
        tag: u64,
    },
    Return {
        exchange: String,
        key: String,
    },
}

impl Method {
    pub(super) fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        let mut values = Values::new(payload);
        let method = (values.short()?, values.short()?);
        Ok(match method {
            id::START => {
                values.take(2)?;
                Self::Start {
                    version: version(values.long_bytes()?),
                    mechanisms: values.long_bytes()?.to_vec(),
                }
            }
            id::TUNE => {
                values.short()?;
                Self::Tune {
                    frame_max: values.long()?,
                    heartbeat: values.short()?,
                }
            }
            id::OPEN_OK => Self::OpenOk,
            id::CLOSE => Self::Close {
                code: values.short()?,
                text: values.short_text()?,
            },
            id::FLOW => Self::Flow {
                active: values.octet()? != 0,
            },
            id::DELIVER => Self::Content(ContentMethod::Deliver {
                consumer: values.short_text()?,
                tag: values.long_long()?,
                redelivered: values.octet()? != 0,
            }),
            id::GET_OK => Self::Content(ContentMethod::Got {
                tag: values.long_long()?,
            }),
            id::RETURN => {
                values.short()?;
                values.short_text()?;
                Self::Content(ContentMethod::Return {
                    exchange: values.short_text()?,
                    key: values.short_text()?,
                })
            }
            id::QOS_OK | id::SELECT_OK => Self::Ignored,
            other => Self::Event(event(other, &mut values)?),
        })
    }
}

/// The broker's version, if its properties contain it.
fn version(properties: &[u8]) -> Option<(u16, u16)> {
    let properties = entries(properties).ok()?;
    let version = properties.iter().find(|entry| entry.key == "version")?;
    let version = version.text()?;
    let mut parts = version.split('.').map(str::parse);
    Some((parts.next()?.ok()?, parts.next()?.ok()?))
}

fn event(method: (u16, u16), values: &mut Values<'_>) -> Result<Event, Malformed> {
    Ok(match method {
        id::CLOSE_OK => Event::CloseOk,
        id::GET_EMPTY => Event::GotNothing,
        id::DECLARE_OK => {
            values.short_text()?;
            Event::Counted {
                messages: values.long()?,
                consumers: values.long()?,
            }
        }
        id::BLOCKED => Event::Blocked(values.short_text()?),
        id::UNBLOCKED => Event::Unblocked,
        id::CHANNEL_OPEN_OK => Event::ChannelOpen,
        id::CHANNEL_CLOSE => Event::ChannelClosed {
            code: values.short()?,
            text: values.short_text()?,
        },
        id::CHANNEL_CLOSE_OK => Event::ChannelCloseOk,
        id::CONSUME_OK => Event::Consuming(values.short_text()?),
        id::CANCEL_OK => Event::Cancelled(values.short_text()?),
        id::CANCEL => Event::CancelledByBroker(values.short_text()?),
        id::ACK => confirmed(values, true)?,
        id::NACK => confirmed(values, false)?,
        _ => return Err(Malformed("an unknown method")),
    })
}

fn confirmed(values: &mut Values<'_>, stored: bool) -> Result<Event, Malformed> {
    const MULTIPLE: u8 = 1;
    let number = values.long_long()?;
    Ok(Event::Confirmed {
        number,
        multiple: values.octet()? & MULTIPLE != 0,
        stored,
    })
}
