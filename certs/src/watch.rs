//! Watches a single Secret.

use std::pin::Pin;
use std::time::Duration;

use asya_process::watch_loop::is_undecodable;
use asya_shared::backoff::Backoff;
use futures::{Stream, StreamExt};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};

use crate::secret::TlsSecret;

/// Shorter than the client's read timeout, which thus only closes dead connections.
const WATCH_SECONDS: u32 = 50;
const BACKOFF: Backoff =
    Backoff::new(Duration::from_millis(200), Duration::from_secs(15)).with_jitter(0.5);

/// An observation of the watch.
#[derive(Debug)]
pub enum Observation {
    /// The current Secret; `None` if it does not exist.
    Current(Option<Box<TlsSecret>>),
    /// The Secret cannot be observed, for this reason.
    Unavailable(String),
}

type Events = Pin<Box<dyn Stream<Item = watcher::Result<Event<TlsSecret>>> + Send>>;

/// Watches one Secret forever.
pub struct SecretWatch {
    /// Starts a watch, which lists first.
    start: Box<dyn Fn() -> Events + Send>,
    events: Events,
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
        let config = config.timeout(WATCH_SECONDS);
        Self::from_start(name, move || watcher(api.clone(), config.clone()).boxed())
    }

    fn from_start(name: &str, start: impl Fn() -> Events + Send + 'static) -> Self {
        Self {
            events: start(),
            start: Box::new(start),
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
        self.failures = self.failures.saturating_add(1);
        let delay = BACKOFF.jittered(self.failures - 1, fastrand::f64());
        self.resume = Some(Instant::now() + delay);
        if is_undecodable(error) {
            self.events = (self.start)(); // the event is lost: list again
        }
        // A single interruption is routine.
        if self.failures == 1 {
            debug!(secret = self.name, %error, "watch interrupted");
        } else {
            warn!(secret = self.name, %error, failures = self.failures, "watch failed");
        }
        Observation::Unavailable(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::stream::{iter, pending, repeat_with};
    use kube::core::Status;

    use super::*;

    fn refused() -> watcher::Error {
        let status = Status::failure("no", "Forbidden").with_code(403);
        watcher::Error::InitialListFailed(kube::Error::Api(status.boxed()))
    }

    /// CERT-3
    #[tokio::test(start_paused = true)]
    async fn forbidden_list_is_retried_with_backoff() {
        let lists = || repeat_with(|| iter([Ok(Event::Init), Err(refused())]));
        let mut watch = SecretWatch::from_start("tls", move || lists().flatten().boxed());
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

    /// CERT-3: the stream continues after an event that cannot be decoded, but the change that it reported is lost.
    #[tokio::test(start_paused = true)]
    async fn secret_is_listed_again_after_an_event_that_cannot_be_decoded() {
        let lists = AtomicUsize::new(0);
        let mut watch = SecretWatch::from_start("tls", move || {
            let listed = [Ok(Event::Init), Ok(Event::InitDone)];
            let lost = match lists.fetch_add(1, Ordering::Relaxed) {
                0 => Some(Err(watcher::Error::WatchFailed(kube::Error::Api(
                    Status::failure("expected a map", "").boxed(),
                )))),
                _ => None,
            };
            iter(listed).chain(iter(lost)).chain(pending()).boxed()
        });
        for is_known in [true, false, true] {
            let is_current = matches!(watch.next().await, Observation::Current(None));
            assert_eq!(is_current, is_known);
        }
    }
}
