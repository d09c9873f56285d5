//! JSON lines on stdout (SC-94, SC-95).

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::time::rfc3339_micros;

/// The same message is logged at most once within this time.
const REPEATED: Duration = Duration::from_secs(10);
/// How many messages are remembered for deduplication.
const TEXTS: usize = 256;
/// Maximum length of a field value, in bytes.
const LONGEST: usize = 2 << 10;

/// Starts logging at this level. Events of dependencies are dropped, since they quote requests.
pub fn start(level: Level, actor: &str) {
    let lines = Lines {
        level,
        actor: actor.to_owned(),
        logged: Mutex::default(),
    };
    // Fails only if initialized twice, as in tests.
    let _ = tracing_subscriber::registry().with(lines).try_init();
    std::panic::set_hook(Box::new(|panic| {
        let place = panic
            .location()
            .map(ToString::to_string)
            .unwrap_or_default();
        tracing::error!("panic at {place}");
    }));
}

struct Lines {
    level: Level,
    actor: String,
    logged: Mutex<HashMap<String, Logged>>,
}

/// When a message was last logged, and how often it has been suppressed since.
struct Logged {
    at: Instant,
    left_out: u64,
}

impl<S: Subscriber> Layer<S> for Lines {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        metadata.target().starts_with("asya_sidecar") && *metadata.level() <= self.level
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let Some(left_out) = self.may_log(&fields.message) else {
            return;
        };
        let mut line = Map::new();
        line.insert(
            "level".to_owned(),
            Value::from(event.metadata().level().as_str()),
        );
        line.insert(
            "timestamp".to_owned(),
            Value::from(rfc3339_micros(SystemTime::now())),
        );
        line.insert("message".to_owned(), Value::from(fields.message));
        line.insert("actor".to_owned(), Value::from(self.actor.as_str()));
        line.append(&mut fields.others);
        if left_out > 0 {
            line.insert("left_out".to_owned(), Value::from(left_out));
        }
        let mut text = Value::Object(line).to_string();
        text.push('\n');
        // A closed stdout cannot be reported anywhere.
        let _ = std::io::stdout().lock().write_all(text.as_bytes());
    }
}

impl Lines {
    /// `Some` if the message may be logged now, with the number of suppressed repetitions.
    fn may_log(&self, text: &str) -> Option<u64> {
        let now = Instant::now();
        let mut logged = self.logged.lock();
        if let Some(last) = logged.get_mut(text).filter(|last| now - last.at < REPEATED) {
            last.left_out += 1;
            return None;
        }
        if logged.len() >= TEXTS {
            logged.retain(|_, last| now - last.at < REPEATED);
        }
        if logged.len() >= TEXTS {
            logged.clear();
        }
        let last = logged.insert(
            text.to_owned(),
            Logged {
                at: now,
                left_out: 0,
            },
        );
        Some(last.map_or(0, |last| last.left_out))
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    others: Map<String, Value>,
}

impl Fields {
    fn add(&mut self, field: &Field, value: Value) {
        if field.name() == "message" {
            value
                .as_str()
                .unwrap_or_default()
                .clone_into(&mut self.message);
        } else {
            self.others.insert(field.name().to_owned(), value);
        }
    }
}

impl Visit for Fields {
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value[..value.floor_char_boundary(LONGEST)].into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut text = String::new();
        // writing to a String cannot fail
        let _ = write!(text, "{value:?}");
        text.truncate(text.floor_char_boundary(LONGEST));
        self.add(field, text.into());
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::{Lines, TEXTS};

    /// SC-95
    #[test]
    fn repeated_messages_are_suppressed_and_memory_is_bounded() {
        let lines = Lines {
            level: Level::INFO,
            actor: String::new(),
            logged: parking_lot::Mutex::default(),
        };
        assert_eq!(lines.may_log("a"), Some(0));
        assert_eq!((lines.may_log("a"), lines.may_log("a")), (None, None));
        assert_eq!(lines.may_log("b"), Some(0));
        assert_eq!(lines.logged.lock()["a"].left_out, 2);
        for number in 0..3 * TEXTS {
            assert_eq!(lines.may_log(&number.to_string()), Some(0));
        }
        assert!(lines.logged.lock().len() <= TEXTS);
    }
}
