//! A watch of one Secret.

use std::pin::Pin;
use std::time::Duration;

use futures::{Stream, StreamExt};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};

use crate::secret::TlsSecret;

/// Shorter than the read timeout of a client: a connection that died unnoticed is found by that.
const WATCH_SECONDS: u32 = 50;
const BACKOFF_FIRST: Duration = Duration::from_millis(200);
const BACKOFF_MAX: Duration = Duration::from_secs(15);

/// What a watch of the Secret tells.
#[derive(Debug)]
pub enum Seen {
    /// It is so now; none if it is not there.
    Now(Option<Box<TlsSecret>>),
    /// It cannot be seen, and this is why.
    Blind(String),
}

/// Watches one Secret for ever.
pub struct SecretWatch {
    events: Pin<Box<dyn Stream<Item = watcher::Result<Event<TlsSecret>>> + Send>>,
    name: String,
    /// Whether a list that is under way has shown it.
    listed: bool,
    failures: u32,
    /// After a failure: not before this.
    resume: Option<Instant>,
}

impl SecretWatch {
    /// Begins to watch the Secret of this name.
    #[must_use]
    pub fn new(client: Client, namespace: &str, name: &str) -> Self {
        let api = Api::<TlsSecret>::namespaced(client, namespace);
        let one = watcher::Config::default().fields(&format!("metadata.name={name}"));
        Self {
            events: watcher(api, one.timeout(WATCH_SECONDS)).boxed(),
            name: name.to_owned(),
            listed: false,
            failures: 0,
            resume: None,
        }
    }

    /// What is seen next. May be dropped and called again.
    pub async fn next(&mut self) -> Seen {
        loop {
            if let Some(resume) = self.resume {
                sleep_until(resume).await;
            }
            let event = self.events.next().await;
            let event = event.unwrap_or(Err(watcher::Error::NoResourceVersion));
            if let Some(seen) = self.take(event) {
                return seen;
            }
        }
    }

    fn take(&mut self, event: watcher::Result<Event<TlsSecret>>) -> Option<Seen> {
        let seen = match event {
            Err(error) => return Some(self.failed(&error)),
            // Told before the server was asked: no sign that it answers.
            Ok(Event::Init) => {
                self.listed = false;
                return None;
            }
            Ok(Event::InitApply(secret) | Event::Apply(secret)) => {
                self.listed = true;
                Some(Seen::Now(Some(Box::new(secret))))
            }
            Ok(Event::InitDone) => (!self.listed).then_some(Seen::Now(None)),
            Ok(Event::Delete(_)) => Some(Seen::Now(None)),
        };
        (self.failures, self.resume) = (0, None);
        seen
    }

    fn failed(&mut self, error: &watcher::Error) -> Seen {
        self.failures += 1;
        self.resume = Some(Instant::now() + backoff(self.failures));
        // A watch is cut now and then.
        if self.failures == 1 {
            debug!(secret = self.name, %error, "watch was cut");
        } else {
            warn!(secret = self.name, %error, failures = self.failures, "watch fails");
        }
        Seen::Blind(error.to_string())
    }
}

fn backoff(failures: u32) -> Duration {
    let full = BACKOFF_FIRST.saturating_mul(1 << failures.saturating_sub(1).min(16));
    full.min(BACKOFF_MAX).mul_f64(0.5 + fastrand::f64() / 2.0)
}

#[cfg(test)]
mod tests {
    use futures::stream::{iter, repeat_with};

    use super::*;

    fn refused() -> watcher::Error {
        let status = kube::core::Status::failure("no", "Forbidden").with_code(403);
        watcher::Error::InitialListFailed(kube::Error::Api(status.boxed()))
    }

    /// CERT-3
    #[tokio::test(start_paused = true)]
    async fn a_secret_that_may_not_be_listed_is_asked_for_less_and_less_often() {
        let lists = repeat_with(|| iter([Ok(Event::Init), Err(refused())]));
        let mut watch = SecretWatch {
            events: lists.flatten().boxed(),
            name: "tls".to_owned(),
            listed: false,
            failures: 0,
            resume: None,
        };
        let (end, mut blind) = (Instant::now() + Duration::from_mins(5), 0);
        while Instant::now() < end {
            assert!(matches!(watch.next().await, Seen::Blind(_)));
            blind += 1;
        }
        // Eight until the delay is the longest, and then one in 7.5 to 15 s.
        assert!((25..=48).contains(&blind), "{blind} lists in five minutes");
    }
}
