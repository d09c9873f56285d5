//! The watch that fills the index, and when the API server was last heard of (VAC-5).

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use asya_process::watching::{is_undecodable, was_cut, works};
use futures::StreamExt;
use futures::future::BoxFuture;
use http::{Request, Response};
use kube::runtime::watcher::{self, Error, Event};
use kube::{Api, Client};
use tokio::time::Instant;
use tower::{Layer, Service};
use tracing::{debug, warn};

use super::{Index, Seen};

/// The server ends a watch after this long and we ask for the next: while nothing happens, this is how we hear
/// of it, so it is less than [`Contact::LOST`].
const WATCH_SECONDS: u32 = 20;
/// One page of a list in memory at a time.
const PAGE: u32 = 100;
/// A watch that fails says so within this time.
const QUIET: Duration = Duration::from_secs(30);
const BACKOFF_FIRST: Duration = Duration::from_millis(250);
const BACKOFF_MAX: Duration = Duration::from_secs(10);

/// When the API server last answered. It is a layer of the client that watches, and a clone tells the same.
#[derive(Clone, Debug, Default)]
pub struct Contact {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    last: Option<Instant>,
    /// Why there was no answer since.
    failure: Option<String>,
}

impl Contact {
    /// Without an answer for so long, what the index says may be old (VAC-5).
    pub const LOST: Duration = Duration::from_secs(30);

    /// How long ago that was; `None` before the first answer.
    pub fn age(&self) -> Option<Duration> {
        self.lock().last.map(|last| last.elapsed())
    }

    /// Whether it was too long ago to rely on the index.
    pub fn is_lost(&self) -> bool {
        self.age().is_none_or(|age| age > Self::LOST)
    }

    /// Why the watch does not work, if it does not.
    pub fn failure(&self) -> Option<String> {
        self.lock().failure.clone()
    }

    /// The API server has answered.
    pub fn heard(&self) {
        *self.lock() = State {
            last: Some(Instant::now()),
            failure: None,
        };
    }

    fn failed(&self, failure: String) {
        self.lock().failure = Some(failure);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S> Layer<S> for Contact {
    type Service = Listening<S>;

    fn layer(&self, inner: S) -> Listening<S> {
        Listening {
            inner,
            contact: self.clone(),
        }
    }
}

/// Notes every answer that is no failure.
#[derive(Clone, Debug)]
pub struct Listening<S> {
    inner: S,
    contact: Contact,
}

impl<S, Q, A> Service<Request<Q>> for Listening<S>
where
    S: Service<Request<Q>, Response = Response<A>>,
    S::Future: Send + 'static,
{
    type Response = Response<A>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<A>, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let (answer, contact) = (self.inner.call(request), self.contact.clone());
        Box::pin(async move {
            let answer = answer.await?;
            if answer.status().is_success() {
                contact.heard();
            }
            Ok(answer)
        })
    }
}

/// Keeps the index true, for ever.
pub async fn follow(client: Client, index: Arc<Index>, contact: Contact) {
    let api: Api<Seen> = Api::all(client);
    let (mut failures, mut failed) = (0, Instant::now());
    loop {
        let config = watcher::Config::default()
            .timeout(WATCH_SECONDS)
            .page_size(PAGE);
        let mut events = pin!(watcher::watcher(api.clone(), config));
        while let Some(event) = events.next().await {
            let error = match event {
                Ok(event) => {
                    if works(&event) {
                        failures = 0;
                    }
                    take(&index, event);
                    continue;
                }
                Err(error) => error,
            };
            // kube's watcher does not tell that it is connected again: who is quiet for long enough was.
            failures = if failed.elapsed() > QUIET {
                1
            } else {
                failures + 1
            };
            told(&error, failures);
            contact.failed(error.to_string());
            tokio::time::sleep(backoff(failures)).await;
            failed = Instant::now();
            if is_undecodable(&error) {
                break; // the event is lost: list again
            }
        }
    }
}

fn take(index: &Index, event: Event<Seen>) {
    match event {
        Event::Init => index.relisting(),
        Event::InitApply(seen) | Event::Apply(seen) => index.show(&seen.actor),
        Event::InitDone => {
            index.relisted();
            debug!(count = index.len(), "AsyncActors were listed");
        }
        Event::Delete(seen) => index.removed(&seen.actor.key),
    }
}

fn told(error: &Error, failures: u32) {
    // A watch is cut now and then; only what lasts is worth a look.
    if failures == 1 && was_cut(error) {
        debug!(%error, "the watch of AsyncActors was cut");
    } else {
        warn!(%error, failures, "the watch of AsyncActors fails");
    }
}

fn backoff(failures: u32) -> Duration {
    let doubled = BACKOFF_FIRST.saturating_mul(1 << failures.saturating_sub(1).min(16));
    doubled.min(BACKOFF_MAX)
}

#[cfg(test)]
mod tests;
