//! The minimum of AMQP 0-9-1 for moving messages, with blocking I/O on one connection and one channel. Independent of
//! the sidecar's client, so that the comparison cannot hide a flaw of that client.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;

use asya_tests::rabbitmq::{OPERATOR_PASSWORD, RabbitMq};
use asya_tests::{Error, Result};

const METHOD: u8 = 1;
const HEADER: u8 = 2;
const BODY: u8 = 3;
const FRAME_END: u8 = 0xCE;
/// Bytes of a frame before its payload.
const HEAD: usize = 7;
const FRAME_MAX: u32 = 131_072;
const READ: usize = 16 << 10;

/// Where to log in.
#[derive(Clone)]
pub struct Login {
    pub host: String,
    pub port: u16,
    pub user: String,
    pub password: String,
    pub vhost: String,
}

impl Login {
    /// The login of the operator's user.
    pub fn to(broker: &RabbitMq) -> Self {
        let state = broker.state();
        Self {
            host: state.host.clone(),
            port: state.port,
            user: state.user.clone(),
            password: OPERATOR_PASSWORD.to_owned(),
            vhost: state.vhost.clone(),
        }
    }

    /// The login in the environment of a sidecar.
    pub fn from_env() -> Result<Self> {
        Ok(Self {
            host: variable("ASYA_RABBITMQ_HOST")?,
            port: variable("ASYA_RABBITMQ_PORT")?
                .parse()
                .map_err(Error::other)?,
            user: variable("ASYA_RABBITMQ_USERNAME")?,
            password: variable("ASYA_RABBITMQ_PASSWORD")?,
            vhost: variable("ASYA_RABBITMQ_VHOST")?,
        })
    }

    /// The login as environment variables of a sidecar.
    pub fn env(&self) -> [(&'static str, String); 5] {
        [
            ("ASYA_RABBITMQ_HOST", self.host.clone()),
            ("ASYA_RABBITMQ_PORT", self.port.to_string()),
            ("ASYA_RABBITMQ_USERNAME", self.user.clone()),
            ("ASYA_RABBITMQ_PASSWORD", self.password.clone()),
            ("ASYA_RABBITMQ_VHOST", self.vhost.clone()),
        ]
    }
}

/// A required environment variable.
pub fn variable(name: &str) -> Result<String> {
    std::env::var(name).map_err(|error| Error::Other(format!("{name}: {error}")))
}

/// An event from the broker.
pub enum Event {
    Delivered { tag: u64, body: Vec<u8> },
    Confirmed { number: u64, multiple: bool },
}

/// Whether the broker waits for acknowledgements.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Acknowledgements {
    Expected,
    None,
}

/// A delivery whose body is still incomplete.
struct Partial {
    tag: u64,
    size: usize,
    body: Vec<u8>,
}

/// An open connection with one channel in confirm mode.
pub struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
    output: Vec<u8>,
    events: VecDeque<Event>,
    partial: Option<Partial>,
    published: u64,
    /// Of the last queue that was declared.
    consumers: usize,
}

impl Connection {
    /// Logs in and opens the channel.
    pub fn open(login: &Login) -> Result<Self> {
        let stream = TcpStream::connect((login.host.as_str(), login.port)).map_err(Error::other)?;
        stream.set_nodelay(true).map_err(Error::other)?;
        let mut this = Self {
            stream,
            input: Vec::new(),
            output: b"AMQP\x00\x00\x09\x01".to_vec(),
            events: VecDeque::new(),
            partial: None,
            published: 0,
            consumers: 0,
        };
        this.await_method((10, 10))?;
        let response = format!("\0{}\0{}", login.user, login.password);
        let mut start = long(b"");
        start.extend(short(b"PLAIN"));
        start.extend(long(response.as_bytes()));
        start.extend(short(b"en_US"));
        this.method(0, (10, 11), &start);
        this.await_method((10, 30))?;
        let mut tune = 1_u16.to_be_bytes().to_vec();
        tune.extend(FRAME_MAX.to_be_bytes());
        // No heartbeats, since runs are short.
        tune.extend(0_u16.to_be_bytes());
        this.method(0, (10, 31), &tune);
        let mut open = short(login.vhost.as_bytes());
        open.extend([0, 0]);
        this.method(0, (10, 40), &open);
        this.await_method((10, 41))?;
        this.method(1, (20, 10), &short(b""));
        this.await_method((20, 11))?;
        this.method(1, (85, 10), &[0]);
        this.await_method((85, 11))?;
        Ok(this)
    }

    /// Starts a consumer on a queue.
    pub fn consume(
        &mut self,
        queue: &str,
        prefetch: u16,
        acknowledgements: Acknowledgements,
    ) -> Result<()> {
        const NO_ACK: u8 = 2;
        let mut qos = 0_u32.to_be_bytes().to_vec();
        qos.extend(prefetch.to_be_bytes());
        qos.push(0);
        self.method(1, (60, 10), &qos);
        let mut consume = 0_u16.to_be_bytes().to_vec();
        consume.extend(short(queue.as_bytes()));
        consume.extend(short(b""));
        consume.push(if acknowledgements == Acknowledgements::None {
            NO_ACK
        } else {
            0
        });
        consume.extend(long(b""));
        self.method(1, (60, 20), &consume);
        self.await_method((60, 21))
    }

    /// How many consumers an existing queue has now.
    pub fn consumers(&mut self, queue: &str) -> Result<usize> {
        const PASSIVE: u8 = 1;
        let mut declare = 0_u16.to_be_bytes().to_vec();
        declare.extend(short(queue.as_bytes()));
        declare.push(PASSIVE);
        declare.extend(long(b""));
        self.method(1, (50, 10), &declare);
        self.await_method((50, 11))?;
        Ok(self.consumers)
    }

    /// Publishes a persistent, mandatory message; returns the delivery tag of its confirm.
    pub fn publish(&mut self, queue: &str, body: &[u8]) -> u64 {
        const MANDATORY: u8 = 1;
        const CONTENT_TYPE_AND_DELIVERY_MODE: u16 = (1 << 15) | (1 << 12);
        const PERSISTENT: u8 = 2;
        let mut publish = 0_u16.to_be_bytes().to_vec();
        publish.extend(short(b""));
        publish.extend(short(queue.as_bytes()));
        publish.push(MANDATORY);
        self.method(1, (60, 40), &publish);
        let mut header = 60_u16.to_be_bytes().to_vec();
        header.extend([0, 0]);
        header.extend((body.len() as u64).to_be_bytes());
        header.extend(CONTENT_TYPE_AND_DELIVERY_MODE.to_be_bytes());
        header.extend(short(b"application/json"));
        header.push(PERSISTENT);
        self.frame(HEADER, 1, &header);
        for part in body.chunks(FRAME_MAX as usize - HEAD - 1) {
            self.frame(BODY, 1, part);
        }
        self.published += 1;
        self.published
    }

    /// Acknowledges a delivery.
    pub fn acknowledge(&mut self, tag: u64) {
        let mut ack = tag.to_be_bytes().to_vec();
        ack.push(0);
        self.method(1, (60, 80), &ack);
    }

    /// Sends buffered frames.
    pub fn flush(&mut self) -> Result<()> {
        if !self.output.is_empty() {
            self.stream.set_nonblocking(false).map_err(Error::other)?;
            self.stream.write_all(&self.output).map_err(Error::other)?;
            self.output.clear();
        }
        Ok(())
    }

    /// The next event, if one has arrived.
    pub fn poll(&mut self) -> Result<Option<Event>> {
        if self.events.is_empty() {
            self.stream.set_nonblocking(true).map_err(Error::other)?;
            self.read()?;
        }
        Ok(self.events.pop_front())
    }

    /// Sends buffered frames, and waits for the next event.
    pub fn wait(&mut self) -> Result<Event> {
        self.flush()?;
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
            self.stream.set_nonblocking(false).map_err(Error::other)?;
            self.read()?;
        }
    }

    /// Reads once, and collects the events; returns the other methods.
    fn read(&mut self) -> Result<Vec<(u16, u16)>> {
        let before = self.input.len();
        self.input.resize(before + READ, 0);
        let count = match self.stream.read(&mut self.input[before..]) {
            Ok(0) => return Err(Error::other("the broker closed the connection")),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) => return Err(Error::other(error)),
        };
        self.input.truncate(before + count);
        let mut others = Vec::new();
        let input = std::mem::take(&mut self.input);
        let mut rest = input.as_slice();
        while let Some((kind, payload, after)) = frame_in(rest) {
            others.extend(self.take(kind, payload)?);
            rest = after;
        }
        self.input = rest.to_vec();
        Ok(others)
    }

    /// Handles a frame; returns its method if that is not an event.
    fn take(&mut self, kind: u8, payload: &[u8]) -> Result<Option<(u16, u16)>> {
        match (kind, self.partial.take()) {
            (METHOD, _) => return self.take_method(payload),
            (HEADER, Some(mut partial)) => {
                partial.size = usize::try_from(number(payload, 4)).map_err(Error::other)?;
                self.partial = Some(partial);
            }
            (BODY, Some(mut partial)) => {
                partial.body.extend_from_slice(payload);
                if partial.body.len() < partial.size {
                    self.partial = Some(partial);
                } else {
                    let (tag, body) = (partial.tag, partial.body);
                    self.events.push_back(Event::Delivered { tag, body });
                }
            }
            _ => {}
        }
        Ok(None)
    }

    fn take_method(&mut self, payload: &[u8]) -> Result<Option<(u16, u16)>> {
        const MULTIPLE: u8 = 1;
        let id = |at: usize| u16::from_be_bytes([payload[at], payload[at + 1]]);
        match (id(0), id(2)) {
            (60, 60) => {
                let tag = number(payload, 5 + usize::from(payload[4]));
                self.partial = Some(Partial {
                    tag,
                    size: 0,
                    body: Vec::new(),
                });
            }
            (60, 80) => self.events.push_back(Event::Confirmed {
                number: number(payload, 4),
                multiple: payload[12] & MULTIPLE != 0,
            }),
            (60, 50 | 120) => return Err(Error::other("a publication was refused")),
            (10 | 20, 40 | 50) => {
                let text = String::from_utf8_lossy(&payload[4..]);
                return Err(Error::Other(format!("the broker refuses: {text}")));
            }
            (50, 11) => {
                let after_name = 5 + usize::from(payload[4]);
                let messages_and_consumers = number(payload, after_name);
                self.consumers = usize::try_from(messages_and_consumers & u64::from(u32::MAX))
                    .map_err(Error::other)?;
                return Ok(Some((50, 11)));
            }
            other => return Ok(Some(other)),
        }
        Ok(None)
    }

    fn await_method(&mut self, wanted: (u16, u16)) -> Result<()> {
        self.flush()?;
        self.stream.set_nonblocking(false).map_err(Error::other)?;
        while !self.read()?.contains(&wanted) {}
        Ok(())
    }

    fn method(&mut self, channel: u16, (class, method): (u16, u16), arguments: &[u8]) {
        let mut payload = Vec::with_capacity(arguments.len() + 4);
        payload.extend(class.to_be_bytes());
        payload.extend(method.to_be_bytes());
        payload.extend_from_slice(arguments);
        self.frame(METHOD, channel, &payload);
    }

    fn frame(&mut self, kind: u8, channel: u16, payload: &[u8]) {
        self.output.push(kind);
        self.output.extend(channel.to_be_bytes());
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        self.output.extend(length.to_be_bytes());
        self.output.extend_from_slice(payload);
        self.output.push(FRAME_END);
    }
}

/// The first complete frame: its type, its payload, and what follows it.
fn frame_in(input: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let length = u32::from_be_bytes(*input.get(3..)?.first_chunk()?) as usize;
    let payload = input.get(HEAD..HEAD + length)?;
    let after = input.get(HEAD + length + 1..)?;
    Some((*input.first()?, payload, after))
}

/// The 64-bit number at an offset of a payload.
fn number(payload: &[u8], at: usize) -> u64 {
    let bytes = payload.get(at..).and_then(<[u8]>::first_chunk);
    bytes.copied().map(u64::from_be_bytes).unwrap_or_default()
}

fn short(text: &[u8]) -> Vec<u8> {
    let mut all = vec![u8::try_from(text.len()).unwrap_or(u8::MAX)];
    all.extend_from_slice(text);
    all
}

fn long(text: &[u8]) -> Vec<u8> {
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
    let mut all = length.to_be_bytes().to_vec();
    all.extend_from_slice(text);
    all
}
