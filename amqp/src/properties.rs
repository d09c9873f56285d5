//! Message properties: all of them for a message that is inspected or moved, a few for one that is delivered or
//! returned.

use super::protocol::Malformed;
use super::table::{Values, entries, number_in};

/// Number of earlier deliveries; if the queue also sets [`ACQUIRED_COUNT`], only of failed ones.
const DELIVERY_COUNT: &str = "x-delivery-count";
/// Number of earlier deliveries, since RabbitMQ 4.3.
const ACQUIRED_COUNT: &str = "x-acquired-count";
/// Headers by which a queue counts deliveries; in any other queue, their values are wrong.
const COUNTS: [&str; 2] = [DELIVERY_COUNT, ACQUIRED_COUNT];
const CONTENT_TYPE: u16 = 1 << 15;
const CONTENT_ENCODING: u16 = 1 << 14;
const HEADERS: u16 = 1 << 13;
const DELIVERY_MODE: u16 = 1 << 12;
const PRIORITY: u16 = 1 << 11;
const CORRELATION_ID: u16 = 1 << 10;
const REPLY_TO: u16 = 1 << 9;
const EXPIRATION: u16 = 1 << 8;
const MESSAGE_ID: u16 = 1 << 7;

/// The encoded properties of a message. Only its headers are interpreted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    flags: u16,
    before_headers: Vec<u8>,
    headers: Vec<u8>,
    after_headers: Vec<u8>,
}

impl Properties {
    pub(super) fn parse(encoded: &[u8]) -> Result<Self, Malformed> {
        let mut values = Values::new(encoded);
        let flags = values.short()?;
        let begin = values.rest();
        for bit in [CONTENT_TYPE, CONTENT_ENCODING] {
            if flags & bit != 0 {
                values.short_text()?;
            }
        }
        let before = &begin[..begin.len() - values.rest().len()];
        let headers = if flags & HEADERS == 0 {
            &[]
        } else {
            values.long_bytes()?
        };
        entries(headers)?;
        Ok(Self {
            flags,
            before_headers: before.to_vec(),
            headers: headers.to_vec(),
            after_headers: values.rest().to_vec(),
        })
    }

    /// How often the queue has delivered the message before, if it counts that.
    #[must_use]
    pub fn deliveries(&self) -> Option<u64> {
        let entries = entries(&self.headers).ok()?;
        let of_key = |key| entries.iter().find(|entry| entry.key == key);
        let count = of_key(ACQUIRED_COUNT).or_else(|| of_key(DELIVERY_COUNT))?;
        u64::try_from(count.number()?).ok()
    }

    /// The value of a header, if it is text.
    #[must_use]
    pub fn header(&self, key: &str) -> Option<String> {
        let entries = entries(&self.headers).ok()?;
        entries.iter().find(|entry| entry.key == key)?.text()
    }

    /// The encoded properties, without the headers that count deliveries.
    pub(super) fn without_deliveries(&self) -> Vec<u8> {
        let mut encoded = self.flags.to_be_bytes().to_vec();
        encoded.extend_from_slice(&self.before_headers);
        if self.flags & HEADERS != 0 {
            let entries = entries(&self.headers).unwrap_or_default();
            let kept = entries.iter().filter(|it| !COUNTS.contains(&&*it.key));
            let headers: Vec<u8> = kept.flat_map(|it| it.encoded).copied().collect();
            let length = u32::try_from(headers.len()).unwrap_or(u32::MAX);
            encoded.extend_from_slice(&length.to_be_bytes());
            encoded.extend_from_slice(&headers);
        }
        encoded.extend_from_slice(&self.after_headers);
        encoded
    }
}

/// The properties of a message that are read.
#[derive(Debug, Default)]
pub(super) struct ReadProperties {
    pub(super) count: Option<u64>,
    pub(super) message_id: Option<String>,
    /// All properties, for a message that was requested.
    pub(super) all: Properties,
}

impl ReadProperties {
    pub(super) fn all(encoded: &[u8]) -> Result<Self, Malformed> {
        Ok(Self {
            all: Properties::parse(encoded)?,
            ..Self::default()
        })
    }

    /// Reads only count and message id: skips the properties in between, and ignores those that follow.
    pub(super) fn few(values: &mut Values<'_>) -> Result<Self, Malformed> {
        let flags = values.short()?;
        let has = |flag: u16| flags & flag != 0;
        let mut properties = Self::default();
        for flag in [CONTENT_TYPE, CONTENT_ENCODING] {
            if has(flag) {
                values.short_text()?;
            }
        }
        if has(HEADERS) {
            properties.count = failures(values.long_bytes()?)?;
        }
        for flag in [DELIVERY_MODE, PRIORITY] {
            if has(flag) {
                values.octet()?;
            }
        }
        for flag in [CORRELATION_ID, REPLY_TO, EXPIRATION] {
            if has(flag) {
                values.short_text()?;
            }
        }
        if has(MESSAGE_ID) {
            properties.message_id = Some(values.short_text()?);
        }
        Ok(properties)
    }
}

/// Number of failed deliveries, or of all earlier ones if the queue does not distinguish them; `None` if it does not
/// count.
fn failures(headers: &[u8]) -> Result<Option<u64>, Malformed> {
    let number = |key| {
        let number = number_in(headers, key)?;
        Ok(number.and_then(|number| u64::try_from(number).ok()))
    };
    let count = number(DELIVERY_COUNT)?;
    match count {
        None | Some(0) => Ok(number(ACQUIRED_COUNT)?.map(|_| 0)),
        Some(_) => Ok(count),
    }
}

#[cfg(test)]
mod tests {
    use super::super::encode::Arguments;
    use super::*;

    fn encoded(headers: &Arguments) -> Vec<u8> {
        let properties = Arguments::default()
            .short(CONTENT_TYPE | HEADERS | 1 << 7)
            .short_text("application/json")
            .table(headers)
            .short_text("id-1");
        properties.into_bytes()
    }

    #[test]
    fn moved_message_keeps_its_properties_but_not_its_deliveries() {
        let first = || Arguments::default().entry_text("x-first-death-queue", "asya-embed");
        let all = first()
            .entry_number(DELIVERY_COUNT, 3)
            .entry_true("sampled");
        let properties = Properties::parse(&encoded(&all)).unwrap();
        assert_eq!(properties.deliveries(), Some(3));
        let source = properties.header("x-first-death-queue");
        assert_eq!(source.as_deref(), Some("asya-embed"));
        assert_eq!(properties.header("sampled"), None);
        let kept = encoded(&first().entry_true("sampled"));
        assert_eq!(properties.without_deliveries(), kept);
        let plain = Arguments::default().short(1 << 12).octet(2).into_bytes();
        let properties = Properties::parse(&plain).unwrap();
        assert_eq!(properties.deliveries(), None);
        assert_eq!(properties.without_deliveries(), plain);
    }

    /// SC-100: otherwise the delivery would end the connection, and do so again on each new one.
    #[test]
    fn nested_arrays_do_not_hide_the_delivery_count() {
        let array = |inner: &[u8]| {
            let length = u32::try_from(inner.len()).unwrap().to_be_bytes();
            [&b"A"[..], &length, inner].concat()
        };
        let nested = (0..100).fold(Vec::new(), |inner, _| array(&inner));
        let headers = nested
            .into_iter()
            .fold(Arguments::default().short_text("nested"), Arguments::octet);
        let all = encoded(&headers.entry_number(DELIVERY_COUNT, 3));
        let read = ReadProperties::few(&mut Values::new(&all)).unwrap();
        assert_eq!(read.count, Some(3));
        assert_eq!(Properties::parse(&all).unwrap().deliveries(), Some(3));
    }

    /// SC-34
    #[test]
    fn only_failed_deliveries_count_where_the_queue_tells_them_apart() {
        for (failed, acquired, expected) in [
            (None, None, None),
            (Some(0), None, None),
            (Some(2), None, Some(2)),
            (None, Some(3), Some(0)),
            (Some(0), Some(3), Some(0)),
            (Some(2), Some(3), Some(2)),
        ] {
            let counts = [(DELIVERY_COUNT, failed), (ACQUIRED_COUNT, acquired)];
            let headers = counts
                .into_iter()
                .filter_map(|(key, count)| Some((key, count?)))
                .fold(Arguments::default(), |headers, (key, count)| {
                    headers.entry_number(key, count)
                });
            let all = encoded(&headers);
            let read = ReadProperties::few(&mut Values::new(&all)).unwrap();
            assert_eq!(read.count, expected, "{failed:?} {acquired:?}");
            let earlier = acquired.or(failed).map(|count: i64| count.unsigned_abs());
            assert_eq!(Properties::parse(&all).unwrap().deliveries(), earlier);
        }
    }

    #[test]
    fn headers_that_break_off_are_rejected() {
        let whole = encoded(&Arguments::default().entry_number("n", 1));
        for length in [1, 5, 30] {
            assert!(Properties::parse(&whole[..length]).is_err(), "{length}");
        }
    }
}
