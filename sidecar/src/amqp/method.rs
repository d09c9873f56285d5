//! Methods that are received.

use bytes::Bytes;

use super::table::Values;
use super::{Malformed, id};

/// What happens on a connection after it was opened.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// A message.
    Delivered {
        /// The consumer's name.
        consumer: String,
        /// By which it is settled.
        tag: u64,
        /// Whether it was delivered before.
        redelivered: bool,
        /// How often it was, if the queue counts.
        count: Option<u64>,
        /// The message.
        body: Bytes,
    },
    /// A publication that no queue has.
    Returned {
        /// The exchange that it was published to.
        exchange: String,
        /// Its routing key.
        key: String,
        /// Its message id.
        message_id: Option<String>,
    },
    /// Publications are settled.
    Confirmed {
        /// The number of the last of them.
        number: u64,
        /// Whether those before it are, too.
        multiple: bool,
        /// Whether they are stored.
        stored: bool,
    },
    /// The consumer is there.
    Consuming(String),
    /// The consumer is gone, at our request.
    Cancelled(String),
    /// The consumer is gone, since its queue is.
    CancelledByBroker(String),
    /// The channel is open, after it was opened again.
    ChannelOpen,
    /// The broker has closed the channel.
    ChannelClosed {
        /// The reply code.
        code: u16,
        /// The broker's words.
        text: String,
    },
    /// The broker has stopped to take publications.
    Blocked(String),
    /// It takes them again.
    Unblocked,
    /// The channel is closed, at our request.
    ChannelCloseOk,
    /// The connection is closed, at our request.
    CloseOk,
    /// The connection is gone; the text says why.
    Lost(String),
}

/// A method that is received.
#[derive(Debug)]
pub(super) enum Method {
    Start {
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
    Deliver {
        consumer: String,
        tag: u64,
        redelivered: bool,
    },
    Return {
        exchange: String,
        key: String,
    },
    Told(Event),
    /// One whose answer nobody waits for.
    Ignored,
}

impl Method {
    pub(super) fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        let mut values = Values::new(payload);
        let method = (values.short()?, values.short()?);
        Ok(match method {
            id::START => {
                values.take(2)?;
                values.long_bytes()?;
                Self::Start {
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
            id::DELIVER => Self::Deliver {
                consumer: values.short_text()?,
                tag: values.long_long()?,
                redelivered: values.octet()? != 0,
            },
            id::RETURN => {
                values.short()?;
                values.short_text()?;
                Self::Return {
                    exchange: values.short_text()?,
                    key: values.short_text()?,
                }
            }
            id::QOS_OK | id::SELECT_OK => Self::Ignored,
            other => Self::Told(told(other, &mut values)?),
        })
    }
}

fn told(method: (u16, u16), values: &mut Values<'_>) -> Result<Event, Malformed> {
    Ok(match method {
        id::CLOSE_OK => Event::CloseOk,
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
