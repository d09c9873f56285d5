//! The fence: nothing is written once the lease may be somebody else's.
//!
//! Every call that changes something passes it: those to the API server by [`FenceLayer`], those to a
//! broker by [`Fence::guard`]. It compares our monotonic clock with the lease's deadline each time
//! before the call makes progress, so that a process that stood still past the deadline sends nothing
//! when it goes on. What a connection to the API server has been given and has not sent yet is held back
//! by [`FencedExecutor`].

#[cfg(test)]
mod tests;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::{BoxFuture, FutureExt};
use http::{Method, Request};
use hyper::rt::Executor;
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
    /// We have not led yet.
    NotYet,
    Until(Instant),
    /// Given up: no late renewal opens it again.
    NoMore,
}

impl Allowed {
    fn now(self) -> bool {
        match self {
            Self::Always => true,
            Self::Until(deadline) => Instant::now() < deadline,
            Self::NotYet | Self::NoMore => false,
        }
    }
}

/// Lets writes through while we lead; a clone is another handle to the same one.
#[derive(Clone, Debug)]
pub struct Fence {
    allowed: Arc<watch::Sender<Allowed>>,
}

impl Fence {
    /// A fence without leader election: lets everything through until it is closed.
    #[must_use]
    pub fn open() -> Self {
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
        }
    }

    /// Lets writes through until `deadline`; an earlier deadline than the present one changes nothing.
    pub fn extend_until(&self, deadline: Instant) {
        self.allowed.send_if_modified(|allowed| match allowed {
            Allowed::Until(present) if *present >= deadline => false,
            Allowed::NotYet | Allowed::Until(_) => {
                *allowed = Allowed::Until(deadline);
                true
            }
            Allowed::Always | Allowed::NoMore => false,
        });
    }

    /// Lets nothing through any more, for good; calls under way are given up.
    pub fn close(&self) {
        self.allowed.send_replace(Allowed::NoMore);
    }

    /// Whether writes are allowed at this moment.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.allowed.borrow().now()
    }

    /// Whether writes were allowed once, and are no more.
    fn is_past(&self) -> bool {
        match *self.allowed.borrow() {
            Allowed::Always | Allowed::NotYet => false,
            Allowed::Until(deadline) => Instant::now() >= deadline,
            Allowed::NoMore => true,
        }
    }

    /// Makes a call that changes something, as long as that is allowed.
    ///
    /// # Errors
    /// [`Fenced`] when the deadline has passed, before or during the call; else what the call returns.
    pub async fn guard<T, E: From<Fenced>>(
        &self,
        call: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let mut allowed = self.allowed.subscribe();
        // The clock is read at each poll: a timer may fire late, after the call would have made progress.
        let mut call = pin!(call);
        let mut fenced_call = pin!(poll_fn(|context| {
            if self.is_open() {
                call.as_mut().poll(context)
            } else {
                Poll::Ready(Err(Fenced.into()))
            }
        }));
        loop {
            let deadline = match *allowed.borrow_and_update() {
                Allowed::Until(deadline) => Some(deadline),
                Allowed::Always | Allowed::NotYet | Allowed::NoMore => None,
            };
            tokio::select! {
                biased;
                result = &mut fenced_call => return result,
                // A renewal moves the deadline, and closing ends the call: look again.
                _ = allowed.changed() => {}
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {}
            }
        }
    }
}

/// Runs the connections of a client of the API server. They live on tasks of their own, and a call that
/// is given up leaves there what was not sent yet: once we led and do no more, they end where they stand.
#[derive(Clone, Debug)]
pub struct FencedExecutor(pub Fence);

impl<F> Executor<F> for FencedExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, connection: F) {
        let fence = self.0.clone();
        tokio::spawn(async move {
            let mut connection = pin!(connection);
            poll_fn(|context| {
                if fence.is_past() {
                    Poll::Ready(())
                } else {
                    connection.as_mut().poll(context)
                }
            })
            .await;
        });
    }
}

/// Puts the [`Fence`] around a client of the API server and counts what goes through it to write.
#[derive(Clone, Debug)]
pub struct FenceLayer {
    fence: Fence,
    writes: Counter,
}

impl FenceLayer {
    /// `writes` counts the requests that passed to change something.
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
        let reads = [Method::GET, Method::HEAD].contains(request.method());
        if !reads && !self.layer.fence.is_open() {
            return std::future::ready(Err(Fenced.into())).boxed();
        }
        let answer = self
            .inner
            .call(request)
            .map(|answer| answer.map_err(Into::into));
        if reads {
            return answer.boxed();
        }
        self.layer.writes.inc();
        let fence = self.layer.fence.clone();
        async move { fence.guard(answer).await }.boxed()
    }
}
