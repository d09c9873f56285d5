//! The messages of a run.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// The actor whose queue is consumed.
pub const FROM: &str = "foo";
/// The actor that receives the results.
pub const TO: &str = "bar";
/// Its queue.
pub const TO_QUEUE: &str = "asya-bar";

/// An actor's queue.
pub fn queue(actor: &str) -> String {
    format!("asya-{actor}")
}

/// The moment from which times in messages count.
static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

/// A message of about 300 bytes that contains the time at which it was sent.
pub fn message(number: usize) -> String {
    let sent = EPOCH.elapsed().as_micros();
    let text = "x".repeat(200);
    format!(
        r#"{{"id":"{number}","route":{{"actors":["{FROM}","{TO}"],"current":0}},"payload":{{"text":"{text}","sent":{sent}}}}}"#
    )
}

/// How long ago a message or its result was sent.
pub fn age(message: &[u8]) -> Option<Duration> {
    const SENT: &str = "\"sent\":";
    let text = std::str::from_utf8(message).ok()?;
    let (_, after) = text.rsplit_once(SENT)?;
    let end = after.find(|c: char| !c.is_ascii_digit())?;
    let sent = Duration::from_micros(after[..end].parse().ok()?);
    EPOCH.elapsed().checked_sub(sent)
}

/// The reply of a runtime whose handler returns its payload.
pub fn reply(request: &[u8]) -> Option<Vec<u8>> {
    const PAYLOAD: &str = "\"payload\":";
    let text = std::str::from_utf8(request).ok()?;
    let (_, payload) = text.split_once(PAYLOAD)?;
    let reply =
        format!(r#"[{{"route":{{"actors":["{FROM}","{TO}"],"current":1}},{PAYLOAD}{payload}]"#);
    Some(reply.into_bytes())
}
