//! The `traceparent` in a message's headers (W3C Trace Context).

use asya_wire::envelope::HEADERS;

use crate::envelope::{Message, value_in};

const TRACEPARENT: &str = "traceparent";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TraceContext {
    /// 32 hexadecimal digits.
    pub(super) trace: String,
    /// 16 hexadecimal digits.
    pub(super) span: String,
    pub(super) sampled: bool,
}

impl TraceContext {
    /// Reads the trace context from a message's headers.
    pub(super) fn of(body: &[u8]) -> Option<Self> {
        let message = Message::read(body).ok()?;
        let written = value_in(message.headers?, TRACEPARENT)?;
        Self::parse(&serde_json::from_str::<String>(written).ok()?)
    }

    /// Parses `VERSION-TRACE-SPAN-FLAGS`; later versions may have more parts.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let version = parts.next()?;
        let (trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?);
        let is_hex = |text: &str, length| {
            text.len() == length
                && text
                    .bytes()
                    .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        let is_zero = |text: &str| text.bytes().all(|byte| byte == b'0');
        let is_valid = is_hex(version, 2)
            && version != "ff"
            && is_hex(trace, 32)
            && !is_zero(trace)
            && is_hex(span, 16)
            && !is_zero(span)
            && is_hex(flags, 2);
        let flags = u8::from_str_radix(flags, 16).ok()?;
        is_valid.then(|| Self {
            trace: trace.to_owned(),
            span: span.to_owned(),
            sampled: flags & 1 == 1,
        })
    }

    fn written(&self) -> String {
        format!(
            "\"00-{}-{}-{:02x}\"",
            self.trace,
            self.span,
            u8::from(self.sampled)
        )
    }

    /// The message with this context in its headers and all other bytes unchanged; `None` if it cannot carry headers.
    pub(super) fn spliced_into(&self, body: &[u8]) -> Option<Vec<u8>> {
        let text = std::str::from_utf8(body).ok()?;
        let message = Message::read(body).ok()?;
        let Some(headers) = message.headers else {
            let has_other = value_in(text, HEADERS).is_some();
            return (!has_other).then(|| {
                let member = format!("\"{HEADERS}\":{{\"{TRACEPARENT}\":{}}}", self.written());
                with_member(text, 0, &member)
            })?;
        };
        let start = offset(text, headers)?;
        match value_in(headers, TRACEPARENT) {
            Some(value) => {
                let at = offset(text, value)?;
                Some(
                    [&text[..at], &self.written(), &text[at + value.len()..]]
                        .concat()
                        .into_bytes(),
                )
            }
            None => with_member(
                text,
                start,
                &format!("\"{TRACEPARENT}\":{}", self.written()),
            ),
        }
    }
}

/// Inserts a first member into the object that begins at or after `start`.
fn with_member(text: &str, start: usize, member: &str) -> Option<Vec<u8>> {
    let open = start + text[start..].find('{')? + 1;
    let is_empty = text[open..].trim_start().starts_with('}');
    let comma = if is_empty { "" } else { "," };
    Some(
        [&text[..open], member, comma, &text[open..]]
            .concat()
            .into_bytes(),
    )
}

/// The byte offset of a slice within a text.
fn offset(text: &str, slice: &str) -> Option<usize> {
    let offset = slice.as_ptr().addr().checked_sub(text.as_ptr().addr())?;
    (offset + slice.len() <= text.len()).then_some(offset)
}

/// A random hexadecimal id that is not all zeros.
pub(super) fn random_id(digits: usize) -> String {
    let digit = || char::from_digit(fastrand::u32(0..16), 16).unwrap_or('1');
    let mut id: String = std::iter::repeat_with(digit).take(digits).collect();
    if id.bytes().all(|digit| digit == b'0') {
        id.replace_range(..1, "1");
    }
    id
}
