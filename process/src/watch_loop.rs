//! The watch loop of both programs, and the interpretation of events and errors of kube's watcher.

use std::fmt::Debug;
use std::pin::pin;
use std::time::Duration;

use asya_shared::backoff::Backoff;
use futures::StreamExt;
use kube::Api;
use kube::runtime::watcher::{self, Config, Error, Event};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep};

/// A failing watch reports an error within this time.
const FAILURE_WINDOW: Duration = Duration::from_secs(30);

/// Fraction of a delay that jitter may subtract.
const JITTER: f64 = 0.5;

/// Passes every event to `apply`, and every error to `failed` with the number of consecutive failures, forever. Retries
/// with backoff, and adds jitter so that the replicas of a program do not retry together.
pub async fn follow<K>(
    api: Api<K>,
    config: Config,
    backoff: Backoff,
    mut apply: impl FnMut(Event<K>),
    mut failed: impl FnMut(&Error, u32),
) where
    K: kube::Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let backoff = backoff.with_jitter(JITTER);
    let (mut failures, mut last) = (0, Instant::now());
    loop {
        let mut events = pin!(watcher::watcher(api.clone(), config.clone()));
        while let Some(event) = events.next().await {
            let error = match event {
                Ok(event) => {
                    if is_established(&event) {
                        failures = 0;
                    }
                    apply(event);
                    continue;
                }
                Err(error) => error,
            };
            // kube's watcher does not report a reconnect: if the last error is old, the watch has worked since.
            failures = if last.elapsed() > FAILURE_WINDOW {
                1
            } else {
                failures + 1
            };
            failed(&error, failures);
            sleep(backoff.jittered(failures.saturating_sub(1), fastrand::f64())).await;
            last = Instant::now();
            if is_undecodable(&error) {
                break; // the event is lost: list again
            }
        }
    }
}

/// Whether an event shows that the watch works. kube emits `Init` before it requests the list, and after an `InitApply`
/// the next page may still fail.
#[must_use]
pub fn is_established<K>(event: &Event<K>) -> bool {
    !matches!(event, Event::Init | Event::InitApply(_))
}

/// Whether an event could not be decoded. It is lost, so everything must be listed again. kube reports a line that it
/// cannot decode as a `Status` without code and message.
#[must_use]
pub fn is_undecodable(error: &Error) -> bool {
    match error {
        Error::WatchError(status) | Error::WatchFailed(kube::Error::Api(status)) => {
            status.code == 0
        }
        Error::WatchFailed(kube::Error::SerdeError(_)) => true,
        _ => false,
    }
}

/// Whether a watch was interrupted, which happens routinely; only repeated failures deserve a warning.
#[must_use]
pub fn is_interruption(error: &Error) -> bool {
    matches!(error, Error::WatchFailed(_) | Error::WatchError(_))
}

#[cfg(test)]
mod tests;
