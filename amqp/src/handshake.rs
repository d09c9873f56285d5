//! From a byte stream to an open channel.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::encode::{Arguments, of_channel, of_connection};
use super::method::{Event, Method};
use super::protocol::{FRAME_END, FRAME_MAX, FRAME_OVERHEAD, Malformed, id, kind};
use super::stream::Stream;

/// Timeout of the handshake. RabbitMQ delays its response to a failed login.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum heartbeat interval, in seconds.
const HEARTBEAT: u16 = 30;

/// Credentials, virtual host and connection name.
pub struct Login<'a> {
    /// The user.
    pub user: &'a str,
    /// The user's password.
    pub password: &'a str,
    /// The virtual host.
    pub vhost: &'a str,
    /// The program's name, as shown to administrators.
    pub product: &'a str,
    /// The connection's name, as shown to administrators.
    pub name: &'a str,
}

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Deliveries and acknowledgements.
    Consume,
    /// Publications with publisher confirms.
    Publish,
}

/// Why a connection could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The broker refused the connection because of the login, the virtual host or a limit.
    #[error("the broker refused the connection: {code} {text}")]
    Refused {
        /// The reply code.
        code: u16,
        /// The reply text.
        text: String,
    },
    /// The stream broke.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The peer does not speak AMQP.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The handshake timed out.
    #[error("the broker did not respond within {} s", HANDSHAKE_TIMEOUT.as_secs())]
    Silent,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Agreed {
    /// The broker's version, if known: major and minor.
    pub(super) version: Option<(u16, u16)>,
    /// Maximum frame size, in bytes.
    pub(super) frame_max: usize,
    /// Maximum heartbeat interval, in seconds.
    pub(super) heartbeat: Duration,
}

pub(super) async fn shake_hands(
    stream: &mut dyn Stream,
    login: &Login<'_>,
    purpose: Purpose,
) -> Result<Agreed, OpenError> {
    tokio::time::timeout(HANDSHAKE_TIMEOUT, introduce(stream, login, purpose))
        .await
        .map_err(|_| OpenError::Silent)?
}

async fn introduce(
    stream: &mut dyn Stream,
    login: &Login<'_>,
    purpose: Purpose,
) -> Result<Agreed, OpenError> {
    stream.write_all(b"AMQP\x00\x00\x09\x01").await?;
    let Method::Start {
        version,
        mechanisms,
    } = receive(stream).await?
    else {
        return Err(Malformed("no connection.start").into());
    };
    if !mechanisms
        .split(|byte| *byte == b' ')
        .any(|name| name == b"PLAIN")
    {
        return Err(Malformed("PLAIN authentication is not offered").into());
    }
    stream.write_all(&start_ok(login)).await?;
    let Method::Tune {
        frame_max,
        heartbeat,
    } = receive(stream).await?
    else {
        return Err(Malformed("no connection.tune").into());
    };
    let frame_max = if frame_max == 0 {
        FRAME_MAX
    } else {
        frame_max.clamp(4096, FRAME_MAX)
    };
    let heartbeat = if heartbeat == 0 {
        HEARTBEAT
    } else {
        heartbeat.min(HEARTBEAT)
    };
    let tune = Arguments::default()
        .short(1)
        .long(frame_max)
        .short(heartbeat);
    let open = Arguments::default()
        .short_text(login.vhost)
        .short_text("")
        .octet(0);
    stream.write_all(&of_connection(id::TUNE_OK, &tune)).await?;
    stream.write_all(&of_connection(id::OPEN, &open)).await?;
    let Method::OpenOk = receive(stream).await? else {
        return Err(Malformed("no connection.open-ok").into());
    };
    stream.write_all(&channel_open(purpose)).await?;
    let Method::Event(Event::ChannelOpen) = receive(stream).await? else {
        return Err(Malformed("no channel.open-ok").into());
    };
    let frame_max = usize::try_from(frame_max).unwrap_or(FRAME_OVERHEAD + 1);
    Ok(Agreed {
        version,
        frame_max,
        heartbeat: Duration::from_secs(heartbeat.into()),
    })
}

/// The frames that open the channel.
pub(super) fn channel_open(purpose: Purpose) -> Vec<u8> {
    let mut frames = of_channel(id::CHANNEL_OPEN, &Arguments::default().short_text(""));
    if purpose == Purpose::Publish {
        frames.extend_from_slice(&of_channel(id::SELECT, &Arguments::default().octet(0)));
    }
    frames
}

fn start_ok(login: &Login<'_>) -> Vec<u8> {
    let capabilities = [
        "consumer_cancel_notify",
        "connection.blocked",
        "authentication_failure_close",
        "basic.nack",
        "per_consumer_qos",
        "publisher_confirms",
    ];
    let capabilities = capabilities
        .into_iter()
        .fold(Arguments::default(), Arguments::entry_true);
    let properties = Arguments::default()
        .entry_text("product", login.product)
        .entry_text("version", env!("CARGO_PKG_VERSION"))
        .entry_text("platform", "Rust")
        .entry_text("connection_name", login.name)
        .entry_table("capabilities", &capabilities);
    let response = format!("\0{}\0{}", login.user, login.password);
    let arguments = Arguments::default()
        .table(&properties)
        .short_text("PLAIN")
        .long_text(response.as_bytes())
        .short_text("en_US");
    of_connection(id::START_OK, &arguments)
}

/// The next method; a refusal by the broker is an error.
async fn receive(stream: &mut dyn Stream) -> Result<Method, OpenError> {
    loop {
        let kind = stream.read_u8().await?;
        stream.read_u16().await?;
        let length = stream.read_u32().await?;
        if length > FRAME_MAX {
            // RabbitMQ answers an unsupported protocol version with its own protocol header, which reads as a frame of
            // such a length.
            return Err(Malformed("no frame").into());
        }
        let mut payload = vec![0; usize::try_from(length).unwrap_or_default()];
        stream.read_exact(&mut payload).await?;
        if stream.read_u8().await? != FRAME_END {
            return Err(Malformed("a frame without its end").into());
        }
        if kind != kind::METHOD {
            continue;
        }
        match Method::decode(&payload)? {
            Method::Close { code, text } => {
                let _ = stream
                    .write_all(&of_connection(id::CLOSE_OK, &Arguments::default()))
                    .await;
                return Err(OpenError::Refused { code, text });
            }
            Method::Ignored => {}
            method => return Ok(method),
        }
    }
}
