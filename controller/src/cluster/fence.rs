//! The fence: blocks writes once another process may hold the lease.
//!
//! Every write passes it: to the API server through [`FenceLayer`], to a broker through [`Fence::guard`]. It compares
//! the local monotonic clock with the lease's deadline before each step of the call, so that a process suspended past
//! the deadline sends nothing when it resumes. [`FencedConnector`] holds back what a connection to the API server has
//! buffered but not sent.

mod connection;
#[cfg(test)]
mod tests;

pub use connection::FencedConnector;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::{BoxFuture, FutureExt};
use http::{Method, Request};
use kube::client::Body;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tower::{BoxError, Layer, Service};

use crate::fault::Fenced;

/// How long writes are allowed.
#[derive(Clone, Copy, Debug)]
enum Allowed {
    /// Without leader election.
    Always,
    /// Not leading.
    NotYet,
    Until(Instant),
    /// Only for writes in flight, until the deadline if there is one. A late renewal does not reopen it.
    Draining(Option<Instant>),
    /// Closed for good.
    Closed,
}

impl Allowed {
    /// Whether a write may start.
    fn admits(self) -> bool {
        matches!(self, Self::Always | Self::Until(_)) && self.continues()
    }

    /// Whether a write in flight may go on.
    fn continues(self) -> bool {
        match self {
            Self::Always => true,
            Self::Until(_) | Self::Draining(_) => {
                self.deadline().is_none_or(|it| Instant::now() < it)
            }
            Self::NotYet | Self::Closed => false,
        }
    }

    fn deadline(self) -> Option<Instant> {
        match self {
            Self::Until(deadline) => Some(deadline),
            Self::Draining(deadline) => deadline,
            Self::Always | Self::NotYet | Self::Closed => None,
        }
    }
}

/// Lets writes through while this process leads. Clones share its state.
#[derive(Clone, Debug)]
pub struct Fence {
    allowed: Arc<watch::Sender<Allowed>>,
    in_flight: Arc<watch::Sender<usize>>,
}

/// A write in flight.
struct InFlight(Arc<watch::Sender<usize>>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl Fence {
    /// A fence without leader election: lets everything through until it is closed.
    #[must_use]
    pub fn unrestricted() -> Self {
        Self::new(Allowed::Always)
    }

    /// A fence that lets nothing through until it is extended.
    #[must_use]
    pub fn closed() -> Self {
        Self::new(Allowed::NotYet)
    }

    fn new(allowed: Allowed) -> Self {
        Self {
            allowed: Arc::new(watch::Sender::new(allowed)),
            in_flight: Arc::new(watch::Sender::new(0)),
        }
    }

    /// Allows writes until `deadline`, unless the current deadline is later.
    pub fn extend_until(&self, deadline: Instant) {
        self.allowed.send_if_modified(|allowed| match allowed {
            Allowed::Until(current) if *current >= deadline => false,
            Allowed::NotYet | Allowed::Until(_) => {
                *allowed = Allowed::Until(deadline);
                true
            }
            Allowed::Always | Allowed::Draining(_) | Allowed::Closed => false,
        });
    }

    /// Blocks new writes, and waits until those in flight have ended: one that arrived after the lease was
    /// released might undo what the next leader wrote.
    pub async fn drain(&self) {
        self.allowed.send_modify(|allowed| {
            *allowed = match *allowed {
                Allowed::Always => Allowed::Draining(None),
                Allowed::Until(deadline) => Allowed::Draining(Some(deadline)),
                Allowed::NotYet => Allowed::Closed,
                other => other,
            };
        });
        // The sender lives as long as `self`.
        let _ = self
            .in_flight
            .subscribe()
            .wait_for(|count| *count == 0)
            .await;
    }

    /// After [`Fence::drain`]: lets the fence be extended again, because nothing is in flight that could arrive later.
    /// Returns false if the deadline passed first, so that calls were aborted, which may still arrive.
    #[must_use]
    pub fn reset(&self) -> bool {
        self.allowed.send_if_modified(|allowed| {
            let is_drained = matches!(allowed, Allowed::Draining(_)) && allowed.continues();
            if is_drained {
                *allowed = Allowed::NotYet;
            }
            is_drained
        })
    }

    /// Blocks writes for good, and aborts calls in flight.
    pub fn close(&self) {
        self.allowed.send_replace(Allowed::Closed);
    }

    /// Whether a write may start now.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.allowed.borrow().admits()
    }

    /// Starts a write, unless none may start. Counts it first, so that [`Fence::drain`] misses none.
    fn enter(&self) -> Result<InFlight, Fenced> {
        self.in_flight.send_modify(|count| *count += 1);
        let in_flight = InFlight(Arc::clone(&self.in_flight));
        if self.is_open() {
            Ok(in_flight)
        } else {
            Err(Fenced)
        }
    }

    /// Whether writes were allowed once, but no longer are.
    fn has_expired(&self) -> bool {
        match *self.allowed.borrow() {
            Allowed::NotYet => false,
            allowed => !allowed.continues(),
        }
    }

    /// Runs a write for as long as writes are allowed.
    ///
    /// # Errors
    /// [`Fenced`] if the deadline passes before or during the call; otherwise the error of the call.
    pub async fn guard<T, E: From<Fenced>>(
        &self,
        call: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let in_flight = self.enter()?;
        self.guard_in_flight(in_flight, call).await
    }

    async fn guard_in_flight<T, E: From<Fenced>>(
        &self,
        _in_flight: InFlight,
        call: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let mut allowed = self.allowed.subscribe();
        // Read the clock on each poll: a timer may fire late, after the call has made progress.
        let mut call = pin!(call);
        let mut fenced_call = pin!(poll_fn(|context| {
            if self.allowed.borrow().continues() {
                call.as_mut().poll(context)
            } else {
                Poll::Ready(Err(Fenced.into()))
            }
        }));
        loop {
            let deadline = allowed.borrow_and_update().deadline();
            tokio::select! {
                biased;
                result = &mut fenced_call => return result,
                // A renewal moves the deadline and closing ends the call: check again.
                _ = allowed.changed() => {}
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {}
            }
        }
    }
}

/// Puts a client of the API server behind the [`Fence`] and counts its writes.
#[derive(Clone, Debug)]
pub struct FenceLayer {
    fence: Fence,
    writes: Counter,
}

impl FenceLayer {
    /// `writes` counts the writes that passed the fence.
    #[must_use]
    pub fn new(fence: Fence, writes: Counter) -> Self {
        Self { fence, writes }
    }
}

impl<S> Layer<S> for FenceLayer {
    type Service = FencedService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        FencedService {
            inner,
            layer: self.clone(),
        }
    }
}

/// A client's service behind the [`Fence`].
#[derive(Clone, Debug)]
pub struct FencedService<S> {
    inner: S,
    layer: FenceLayer,
}

impl<S> Service<Request<Body>> for FencedService<S>
where
    S: Service<Request<Body>>,
    S::Response: Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let is_read = [Method::GET, Method::HEAD].contains(request.method());
        let fence = self.layer.fence.clone();
        let in_flight = match (!is_read).then(|| fence.enter()).transpose() {
            Ok(in_flight) => in_flight,
            Err(fenced) => return std::future::ready(Err(fenced.into())).boxed(),
        };
        let response = self
            .inner
            .call(request)
            .map(|result| result.map_err(Into::into));
        let Some(in_flight) = in_flight else {
            return response.boxed();
        };
        self.layer.writes.inc();
        async move { fence.guard_in_flight(in_flight, response).await }.boxed()
    }
}
