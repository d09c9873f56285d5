//! The watch that fills the index, and when the API server last responded (VAC-5).

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use asya_process::watching::{self, was_cut};
use asya_shared::backoff::Backoff;
use futures::future::BoxFuture;
use http::{Request, Response};
use kube::runtime::watcher::{self, Error, Event};
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio::time::Instant;
use tower::{Layer, Service};
use tracing::{debug, warn};

use super::{Index, Seen};

/// The server ends a watch after this long and we start the next. While nothing changes, this is how we know that the
/// server responds, so it is less than [`Contact::LOST`].
const WATCH_SECONDS: u32 = 20;
/// Only one page of a list is in memory at a time.
const PAGE: u32 = 100;
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(10));

/// When the API server last responded. A layer of the client that watches; clones share state.
#[derive(Clone, Debug, Default)]
pub struct Contact {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    last: Option<Instant>,
    /// Why there has been no response since.
    failure: Option<String>,
}

impl Contact {
    /// Without a response for this long, the index may be stale (VAC-5).
    pub const LOST: Duration = Duration::from_secs(30);

    /// Time since the last response; `None` before the first.
    pub fn age(&self) -> Option<Duration> {
        self.state.lock().last.map(|last| last.elapsed())
    }

    /// Whether the last response is too old to rely on the index.
    pub fn is_lost(&self) -> bool {
        self.age().is_none_or(|age| age > Self::LOST)
    }

    /// Why the watch fails, if it does.
    pub fn failure(&self) -> Option<String> {
        self.state.lock().failure.clone()
    }

    /// Records a response of the API server.
    pub fn heard(&self) {
        *self.state.lock() = State {
            last: Some(Instant::now()),
            failure: None,
        };
    }

    fn failed(&self, failure: String) {
        self.state.lock().failure = Some(failure);
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

/// Records every successful response.
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

/// Keeps the index up to date, forever.
pub async fn follow(client: Client, index: Arc<Index>, contact: Contact) {
    let api: Api<Seen> = Api::all(client);
    let config = watcher::Config::default()
        .timeout(WATCH_SECONDS)
        .page_size(PAGE);
    let failed = |error: &Error, failures| {
        told(error, failures);
        contact.failed(error.to_string());
    };
    watching::follow(api, config, BACKOFF, |event| take(&index, event), failed).await;
}

fn take(index: &Index, event: Event<Seen>) {
    match event {
        Event::Init => index.relisting(),
        Event::InitApply(seen) | Event::Apply(seen) => index.show(&seen.actor),
        Event::InitDone => {
            index.relisted();
            debug!(count = index.len(), "AsyncActors listed");
        }
        Event::Delete(seen) => index.removed(&seen.actor.key),
    }
}

fn told(error: &Error, failures: u32) {
    // Interruptions are routine; only repeated failures deserve a warning.
    if failures == 1 && was_cut(error) {
        debug!(%error, "the watch of AsyncActors was interrupted");
    } else {
        warn!(%error, failures, "the watch of AsyncActors failed");
    }
}

#[cfg(test)]
mod tests;
