//! Watches a single Secret.

use std::pin::Pin;
use std::time::Duration;

use asya_shared::backoff::Backoff;
use futures::{Stream, StreamExt};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};

use crate::secret::TlsSecret;

/// Shorter than the client's read timeout, which thus only closes dead connections.
const WATCH_SECONDS: u32 = 50;
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(15));

/// An observation of the watch.
#[derive(Debug)]
pub enum Observation {
    /// The current Secret; `None` if it does not exist.
    Current(Option<Box<TlsSecret>>),
    /// The Secret cannot be observed, for this reason.
    Unavailable(String),
}

/// Watches one Secret forever.
pub struct SecretWatch {
    events: Pin<Box<dyn Stream<Item = watcher::Result<Event<TlsSecret>>> + Send>>,
    name: String,
    /// Whether the list in progress has returned the Secret.
    listed: bool,
    failures: u32,
    /// When to retry after a failure.
    resume: Option<Instant>,
}

impl SecretWatch {
    /// Starts a watch of the Secret `name`.
    #[must_use]
    pub fn new(client: Client, namespace: &str, name: &str) -> Self {
        let api = Api::<TlsSecret>::namespaced(client, namespace);
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        Self {
            events: watcher(api, config.timeout(WATCH_SECONDS)).boxed(),
            name: name.to_owned(),
            listed: false,
            failures: 0,
            resume: None,
        }
    }

    /// Waits for the next observation. Cancel-safe.
    pub async fn next(&mut self) -> Observation {
        loop {
            if let Some(resume) = self.resume {
                sleep_until(resume).await;
            }
            let event = self.events.next().await;
            let event = event.unwrap_or(Err(watcher::Error::NoResourceVersion));
            if let Some(observation) = self.handle(event) {
                return observation;
            }
        }
    }

    fn handle(&mut self, event: watcher::Result<Event<TlsSecret>>) -> Option<Observation> {
        let observation = match event {
            Err(error) => return Some(self.failed(&error)),
            // Emitted before the list is requested, so it does not show that the API server responds.
            Ok(Event::Init) => {
                self.listed = false;
                return None;
            }
            Ok(Event::InitApply(secret) | Event::Apply(secret)) => {
                self.listed = true;
                Some(Observation::Current(Some(Box::new(secret))))
            }
            Ok(Event::InitDone) => (!self.listed).then_some(Observation::Current(None)),
            Ok(Event::Delete(_)) => Some(Observation::Current(None)),
        };
        (self.failures, self.resume) = (0, None);
        observation
    }

    fn failed(&mut self, error: &watcher::Error) -> Observation {
        self.failures += 1;
        self.resume = Some(Instant::now() + jittered(self.failures));
        // A single interruption is routine.
        if self.failures == 1 {
            debug!(secret = self.name, %error, "watch interrupted");
        } else {
            warn!(secret = self.name, %error, failures = self.failures, "watch failed");
        }
        Observation::Unavailable(error.to_string())
    }
}

fn jittered(failures: u32) -> Duration {
    let full = BACKOFF.after(failures.saturating_sub(1));
    full.mul_f64(0.5 + fastrand::f64() / 2.0)
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
    async fn forbidden_list_is_retried_with_backoff() {
        let lists = repeat_with(|| iter([Ok(Event::Init), Err(refused())]));
        let mut watch = SecretWatch {
            events: lists.flatten().boxed(),
            name: "tls".to_owned(),
            listed: false,
            failures: 0,
            resume: None,
        };
        let (end, mut failures) = (Instant::now() + Duration::from_mins(5), 0);
        while Instant::now() < end {
            assert!(matches!(watch.next().await, Observation::Unavailable(_)));
            failures += 1;
        }
        // Eight until the backoff reaches its maximum, then one every 7.5 to 15 s.
        assert!(
            (25..=48).contains(&failures),
            "{failures} lists in five minutes"
        );
    }
}
