//! The watch that fills the index, and when the API server last responded (VAC-5).

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use asya_process::watch_loop::{self, is_interruption};
use asya_shared::backoff::Backoff;
use futures::future::BoxFuture;
use http::{Request, Response};
use kube::runtime::watcher::{self, Error, Event};
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio::time::Instant;
use tower::{Layer, Service};
use tracing::{debug, warn};

use super::{Index, ProjectedActor};

/// The server ends a watch after this long, and we start the next. While nothing changes, only this shows that the
/// server responds, so it is less than [`LastResponse::STALE_AFTER`].
const WATCH_SECONDS: u32 = 20;
/// Only one page of a list is in memory at a time. The API server stores objects of up to 1.5 MB, so the largest page
/// has 37.5 MB, far less than the memory of a replica.
const PAGE_SIZE: u32 = 25;
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(10));

/// When the API server last responded. A layer of the client of the watch; clones share state.
#[derive(Clone, Debug, Default)]
pub struct LastResponse {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    last: Option<Instant>,
    /// Why there has been no response since.
    failure: Option<String>,
}

impl LastResponse {
    /// Without a response for this long, the index may be stale (VAC-5).
    pub const STALE_AFTER: Duration = Duration::from_secs(30);

    /// Time since the last response; `None` before the first.
    pub fn age(&self) -> Option<Duration> {
        self.state.lock().last.map(|last| last.elapsed())
    }

    /// Whether the last response is too old to rely on the index.
    pub fn is_stale(&self) -> bool {
        self.age().is_none_or(|age| age > Self::STALE_AFTER)
    }

    /// Why the watch fails, if it does.
    pub fn failure(&self) -> Option<String> {
        self.state.lock().failure.clone()
    }

    /// Records a response of the API server.
    pub fn record_response(&self) {
        *self.state.lock() = State {
            last: Some(Instant::now()),
            failure: None,
        };
    }

    fn record_failure(&self, failure: String) {
        self.state.lock().failure = Some(failure);
    }
}

impl<S> Layer<S> for LastResponse {
    type Service = RecordingService<S>;

    fn layer(&self, inner: S) -> RecordingService<S> {
        RecordingService {
            inner,
            last_response: self.clone(),
        }
    }
}

/// Records every successful response.
#[derive(Clone, Debug)]
pub struct RecordingService<S> {
    inner: S,
    last_response: LastResponse,
}

impl<S, Q, A> Service<Request<Q>> for RecordingService<S>
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
        let (response, last_response) = (self.inner.call(request), self.last_response.clone());
        Box::pin(async move {
            let response = response.await?;
            if response.status().is_success() {
                last_response.record_response();
            }
            Ok(response)
        })
    }
}

/// Keeps the index up to date, forever.
pub async fn follow(client: Client, index: Arc<Index>, last_response: LastResponse) {
    let api: Api<ProjectedActor> = Api::all(client);
    let config = watcher::Config::default()
        .timeout(WATCH_SECONDS)
        .page_size(PAGE_SIZE);
    let failed = |error: &Error, failures| {
        log_failure(error, failures);
        last_response.record_failure(error.to_string());
    };
    watch_loop::follow(api, config, BACKOFF, |event| handle(&index, event), failed).await;
}

fn handle(index: &Index, event: Event<ProjectedActor>) {
    match event {
        Event::Init => index.init(),
        Event::InitApply(projected) | Event::Apply(projected) => index.apply(&projected.actor),
        Event::InitDone => {
            index.init_done();
            debug!(count = index.len(), "AsyncActors listed");
        }
        Event::Delete(projected) => index.delete(&projected.actor.key),
    }
}

fn log_failure(error: &Error, failures: u32) {
    // Interruptions are routine; only repeated failures deserve a warning.
    if failures == 1 && is_interruption(error) {
        debug!(%error, "the watch of AsyncActors was interrupted");
    } else {
        warn!(%error, failures, "the watch of AsyncActors failed");
    }
}

#[cfg(test)]
mod tests;
