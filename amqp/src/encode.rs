//! Encodes frames.

use super::protocol::{CHANNEL, FRAME_END, FRAME_OVERHEAD, id, kind};

/// Encoder for method arguments.
#[derive(Default)]
pub(super) struct Arguments(Vec<u8>);

impl Arguments {
    pub(super) fn octet(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    pub(super) fn short(mut self, value: u16) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(super) fn long(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(super) fn long_long(mut self, value: u64) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// A short string: at most 255 bytes. Longer text is cut, but no caller passes a longer name.
    pub(super) fn short_text(mut self, text: &str) -> Self {
        let text = &text[..text.floor_char_boundary(255)];
        self.0.push(u8::try_from(text.len()).unwrap_or(u8::MAX));
        self.0.extend_from_slice(text.as_bytes());
        self
    }

    pub(super) fn long_text(self, text: &[u8]) -> Self {
        let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
        let mut this = self.long(length);
        this.0.extend_from_slice(text);
        this
    }

    /// A table with these entries.
    pub(super) fn table(self, entries: &Arguments) -> Self {
        self.long_text(&entries.0)
    }

    #[cfg(test)]
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// A table entry: text.
    pub(super) fn entry_text(self, key: &str, value: &str) -> Self {
        self.short_text(key).octet(b'S').long_text(value.as_bytes())
    }

    /// A table entry: true.
    pub(super) fn entry_true(self, key: &str) -> Self {
        self.short_text(key).octet(b't').octet(1)
    }

    /// A table entry: a 64-bit number.
    pub(super) fn entry_number(self, key: &str, value: i64) -> Self {
        self.short_text(key)
            .octet(b'l')
            .long_long(value.cast_unsigned())
    }

    /// A table entry: a table.
    pub(super) fn entry_table(self, key: &str, entries: &Arguments) -> Self {
        self.short_text(key).octet(b'F').table(entries)
    }
}

/// A frame with a payload.
pub(super) fn frame(kind: u8, channel: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(payload.len() + FRAME_OVERHEAD);
    frame.extend_from_slice(&head(kind, channel, payload.len()));
    frame.extend_from_slice(payload);
    frame.push(FRAME_END);
    frame
}

/// The frame header.
pub(super) fn head(kind: u8, channel: u16, length: usize) -> [u8; 7] {
    let mut head = [kind; 7];
    head[1..3].copy_from_slice(&channel.to_be_bytes());
    // Payloads are limited to the size of a frame, far below this bound.
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    head[3..].copy_from_slice(&length.to_be_bytes());
    head
}

/// A method frame of the connection.
pub(super) fn of_connection(id: (u16, u16), arguments: &Arguments) -> Vec<u8> {
    method(0, id, arguments)
}

/// A method frame of the channel.
pub(super) fn of_channel(id: (u16, u16), arguments: &Arguments) -> Vec<u8> {
    method(CHANNEL, id, arguments)
}

fn method(channel: u16, (class, method): (u16, u16), arguments: &Arguments) -> Vec<u8> {
    let mut payload = Vec::with_capacity(arguments.0.len() + 4);
    payload.extend_from_slice(&class.to_be_bytes());
    payload.extend_from_slice(&method.to_be_bytes());
    payload.extend_from_slice(&arguments.0);
    frame(kind::METHOD, channel, &payload)
}

/// Arguments of `connection.close` and `channel.close`: a normal close, without an error.
pub(super) fn goodbye() -> Arguments {
    Arguments::default()
        .short(200)
        .short_text("")
        .short(0)
        .short(0)
}

/// The frames of a publication before its body: persistent, mandatory, with the properties of SC-23.
pub(super) fn publication(
    exchange: &str,
    key: &str,
    message_id: &str,
    timestamp: u64,
    size: usize,
) -> Vec<u8> {
    const CONTENT_TYPE: u16 = 1 << 15;
    const DELIVERY_MODE: u16 = 1 << 12;
    const MESSAGE_ID: u16 = 1 << 7;
    const TIMESTAMP: u16 = 1 << 6;
    let mut frames = publish(exchange, key);
    let has_id = message_id.len() <= 255;
    let flags = CONTENT_TYPE | DELIVERY_MODE | TIMESTAMP | if has_id { MESSAGE_ID } else { 0 };
    let header = content_header(size)
        .short(flags)
        .short_text("application/json")
        .octet(2);
    let header = if has_id {
        header.short_text(message_id)
    } else {
        header
    };
    frames.extend_from_slice(&frame(
        kind::HEADER,
        CHANNEL,
        &header.long_long(timestamp).0,
    ));
    frames
}

/// The frames of a publication to a queue before its body: mandatory, with these encoded properties.
pub(super) fn republication(queue: &str, properties: &[u8], size: usize) -> Vec<u8> {
    let mut frames = publish("", queue);
    let mut header = content_header(size);
    header.0.extend_from_slice(properties);
    frames.extend_from_slice(&frame(kind::HEADER, CHANNEL, &header.0));
    frames
}

fn publish(exchange: &str, key: &str) -> Vec<u8> {
    const MANDATORY: u8 = 1;
    let publish = Arguments::default()
        .short(0)
        .short_text(exchange)
        .short_text(key)
        .octet(MANDATORY);
    of_channel(id::PUBLISH, &publish)
}

/// The content header up to its properties.
fn content_header(size: usize) -> Arguments {
    const BASIC: u16 = 60;
    Arguments::default()
        .short(BASIC)
        .short(0)
        .long_long(size as u64)
}
