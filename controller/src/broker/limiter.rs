//! Limiter that every broker call passes: concurrency limit, circuit breaker, fence and metrics.
//!
//! Each transport has one limiter, shared by its clients. A hanging or slow broker must not hold up reconciles of
//! actors on other transports. At most [`MAX_CONCURRENT_CALLS`] reconciles, and no more than half of all workers, are
//! in a call, each bounded by the call's own timeout. Others wait for a call permit only while calls still complete,
//! and at a slow broker only [`WAITING`] of them: the rest are requeued. All slow brokers together hold no more than
//! half of the workers, and all that hang no more than three quarters (OPS-22).

mod load;
mod reachability;
mod worker_share;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{StreamExt, stream};
use load::BrokerLoad;
use parking_lot::{Mutex, MutexGuard};
use reachability::Reachability;
use tokio::pin;
use tokio::sync::{AcquireError, Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep_until};
use worker_share::{CallSlot, Usage};

use super::BrokerError;
use super::circuit::Circuit;
use crate::cluster::fence::Fence;
use crate::telemetry::metrics::Metrics;

pub use worker_share::WorkerShare;

/// Maximum concurrent calls to one broker (QUE-9).
const MAX_CONCURRENT_CALLS: usize = 10;
/// Stop waiting for a call permit when no call has started or ended for this long.
const STALL_TIMEOUT: Duration = Duration::from_millis(500);

/// Reconciles that may wait for a call permit at a slow broker: enough to start the next call as soon as one ends.
const WAITING: usize = 2;
/// Time over which those that wait for the circuit to close are spread.
const RETRY_SPREAD: Duration = Duration::from_secs(5);

/// The limiter of one client of a transport's broker. Its permits are the transport's. Whether the broker can be
/// reached depends on the client's credentials and certificate authority, so the circuit is the client's own.
pub struct BrokerLimiter {
    limits: Arc<Limits>,
    circuit: Mutex<Circuit>,
    /// Distinguishes the clients of the transport.
    client: usize,
}

/// State that all clients of a transport share.
struct Limits {
    transport: String,
    call_permits: Semaphore,
    /// The broker's permit for its one call from the reserve that all brokers share.
    reserved_call: Semaphore,
    /// How many reconciles a slow broker may hold, and how many it holds now.
    reconcile_permits: usize,
    usage: Arc<Usage>,
    share: Arc<WorkerShare>,
    load: Mutex<BrokerLoad>,
    last_progress: Mutex<Instant>,
    /// Open while the broker requests a pause.
    pause: Mutex<Circuit>,
    clients: AtomicUsize,
    reachability: Mutex<Reachability>,
    fence: Fence,
    metrics: Arc<Metrics>,
}

/// A kind of broker call.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// Metric label.
    pub name: &'static str,
    /// Whether it changes something, and so must pass the fence.
    pub writes: bool,
    /// Time after which it may no longer start.
    pub deadline: Option<Instant>,
}

impl Operation {
    /// A read-only operation.
    pub const fn read(name: &'static str) -> Self {
        Self {
            name,
            writes: false,
            deadline: None,
        }
    }

    /// An operation that changes something.
    pub const fn write(name: &'static str) -> Self {
        Self {
            name,
            writes: true,
            deadline: None,
        }
    }

    /// The deletion of a queue, confirmed until `deadline` (QUE-30).
    pub const fn deletion(deadline: Instant) -> Self {
        Self {
            name: "delete",
            writes: true,
            deadline: Some(deadline),
        }
    }
}

/// Whether this is the first broker call of a reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallStage {
    /// It may be rejected.
    Initial,
    /// It has acquired a permit before, and continues its work.
    FollowUp,
}

/// A reconcile's permit at the broker, returned on drop.
pub struct ReconcilePermit {
    limits: Arc<Limits>,
    since: Instant,
}

impl Drop for ReconcilePermit {
    fn drop(&mut self) {
        self.limits.usage.leave();
        lock(&self.limits.load).record_hold(self.since.elapsed());
    }
}

/// A result with a metric label.
pub trait Labelled {
    /// The label, which must have few distinct values.
    fn label(&self) -> String;
}

impl BrokerLimiter {
    /// Limits permits for calls and for reconciles to `share`, where that is less.
    pub fn new(
        transport: &str,
        share: &Arc<WorkerShare>,
        fence: Fence,
        metrics: Arc<Metrics>,
    ) -> Self {
        let max = share.max();
        let limits = Limits {
            transport: transport.to_owned(),
            call_permits: Semaphore::new(max.min(MAX_CONCURRENT_CALLS)),
            reserved_call: Semaphore::new(1),
            reconcile_permits: max.min(MAX_CONCURRENT_CALLS + WAITING),
            usage: share.join(),
            share: Arc::clone(share),
            load: Mutex::new(BrokerLoad::new(Instant::now())),
            last_progress: Mutex::new(Instant::now()),
            pause: Mutex::default(),
            clients: AtomicUsize::new(0),
            reachability: Mutex::default(),
            fence,
            metrics,
        };
        Self::of_client(Arc::new(limits))
    }

    /// The limiter of another client of the transport.
    pub fn with_own_circuit(&self) -> Self {
        Self::of_client(Arc::clone(&self.limits))
    }

    fn of_client(limits: Arc<Limits>) -> Self {
        let client = limits.clients.fetch_add(1, Ordering::Relaxed);
        Self {
            limits,
            circuit: Mutex::default(),
            client,
        }
    }

    /// Acquires a permit for one or more calls of a reconcile. Rejects its first call while the broker is slow and all
    /// reconcile permits are taken: the broker's own, or those of all slow brokers. Never rejects a reconcile that has
    /// already made a call, so that its work is not left half done.
    ///
    /// # Errors
    /// `TooManyWaiting`, with the delay before the retry.
    pub fn acquire(&self, stage: CallStage) -> Result<ReconcilePermit, BrokerError> {
        let now = Instant::now();
        let mut load = lock(&self.limits.load);
        if stage == CallStage::Initial && load.is_slow() {
            let entered = self
                .limits
                .share
                .enter_slow(&self.limits.usage, self.limits.reconcile_permits);
            entered.map_err(|permits| {
                BrokerError::TooManyWaiting(
                    format!(
                        "transport {:?}: the broker is slow, and the maximum number of actors is already waiting",
                        self.limits.transport
                    ),
                    load.next_retry_delay(now, permits),
                )
            })?;
        } else {
            self.limits.usage.enter();
        }
        drop(load);
        Ok(ReconcilePermit {
            limits: Arc::clone(&self.limits),
            since: now,
        })
    }

    /// Makes a call, which must have a timeout of its own.
    ///
    /// # Errors
    /// The error of the call; `CircuitOpen` or `Outage`, without a call, while the circuit is open; `TooManyCalls` when
    /// all call permits are taken and no call completes; and `Unconfirmed` after the deadline of the operation.
    pub async fn call<T: Labelled>(
        &self,
        operation: Operation,
        call: impl Future<Output = Result<T, BrokerError>>,
    ) -> Result<T, BrokerError> {
        let permit = self.call_permit().await?;
        let now = Instant::now();
        for circuit in [&self.limits.pause, &self.circuit] {
            lock(circuit).allow(now).map_err(with_jitter)?;
        }
        let started = Instant::now();
        if operation.deadline.is_some_and(|it| started >= it) {
            return Err(BrokerError::Unconfirmed(format!(
                "transport {:?}: the deletion was confirmed too long ago",
                self.limits.transport
            )));
        }
        let result = if operation.writes {
            self.limits.fence.guard(call).await
        } else {
            call.await
        };
        drop(permit);
        self.record(operation, &result, started);
        result
    }

    fn record<T: Labelled>(
        &self,
        operation: Operation,
        result: &Result<T, BrokerError>,
        started: Instant,
    ) {
        let now = Instant::now();
        *lock(&self.limits.last_progress) = now;
        let label = match result {
            Ok(response) => response.label(),
            Err(error) => error.reason().to_string(),
        };
        self.limits
            .metrics
            .broker_request(&self.limits.transport, operation.name, &label);
        match result {
            // The broker was not called.
            Err(BrokerError::Fenced(_) | BrokerError::CredentialsMissing(_)) => return,
            _ => self.record_duration(now - started),
        }
        match result {
            Err(error @ BrokerError::Unreachable(_)) => {
                lock(&self.circuit).record_failure(now, error);
            }
            Err(error @ BrokerError::RetryAfter(_, wait)) => {
                lock(&self.circuit).record_response();
                lock(&self.limits.pause).paused_until(now, *wait, error);
            }
            _ => {
                lock(&self.circuit).record_response();
                lock(&self.limits.pause).record_response();
            }
        }
        let is_answered = !matches!(result, Err(BrokerError::Unreachable(_)));
        // Locked until the metric is set, so that concurrent calls set it in order.
        let mut reachability = lock(&self.limits.reachability);
        let is_up = reachability.record(self.client, now, is_answered);
        self.limits
            .metrics
            .transport_up(&self.limits.transport, is_up);
    }

    fn record_duration(&self, duration: Duration) {
        let mut load = lock(&self.limits.load);
        load.record_call(duration);
        self.limits.usage.set_slow(load.is_slow());
    }

    /// Waits for the permit of one call, as long as calls still complete.
    async fn call_permit(&self) -> Result<(SemaphorePermit<'_>, CallSlot<'_>), BrokerError> {
        let limits = &*self.limits;
        let acquire = async {
            let permit = limits.call_permits.acquire().await?;
            Ok::<_, AcquireError>((permit, limits.share.call_slot(&limits.reserved_call).await?))
        };
        pin!(acquire);
        loop {
            let stalled_at = *lock(&self.limits.last_progress) + STALL_TIMEOUT;
            tokio::select! {
                biased;
                permit = &mut acquire => {
                    *lock(&self.limits.last_progress) = Instant::now();
                    return permit.map_err(|_| self.busy());
                }
                () = sleep_until(stalled_at) => {
                    if *lock(&self.limits.last_progress) + STALL_TIMEOUT <= Instant::now() {
                        self.record_duration(STALL_TIMEOUT);
                        return Err(self.busy());
                    }
                }
            }
        }
    }

    fn busy(&self) -> BrokerError {
        BrokerError::TooManyCalls(format!(
            "transport {:?}: the maximum number of calls is in flight",
            self.limits.transport
        ))
    }
}

/// Spreads the retries of those that wait for the circuit to close.
fn with_jitter(error: BrokerError) -> BrokerError {
    let spread = || RETRY_SPREAD.mul_f64(fastrand::f64());
    match error {
        BrokerError::CircuitOpen(last, wait) => BrokerError::CircuitOpen(last, wait + spread()),
        BrokerError::Outage { last, wait, rounds } => BrokerError::Outage {
            last,
            wait: wait + spread(),
            rounds,
        },
        error => error,
    }
}

/// Makes these calls, no more concurrently than a limiter admits. Results keep their order.
pub async fn run_limited<T>(calls: Vec<BoxFuture<'_, T>>) -> Vec<T> {
    stream::iter(calls)
        .buffered(MAX_CONCURRENT_CALLS)
        .collect()
        .await
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

#[cfg(test)]
mod tests;
