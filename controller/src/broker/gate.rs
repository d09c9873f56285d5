//! The gate that every broker call passes: concurrency limit, circuit breaker, fence and metrics.
//!
//! Each transport has one gate, shared by its clients. A hanging or slow broker must not hold up reconciles of actors
//! on other transports. At most [`CALLS_AT_ONCE`] reconciles, and no more than half of all workers, are in a call, each
//! bounded by the call's own timeout. Others wait for a slot only while calls still complete, and behind a slow broker
//! only [`WAITING`] of them: the rest are requeued (OPS-22).

mod crowd;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crowd::Crowd;
use futures::future::BoxFuture;
use futures::{StreamExt, stream};
use parking_lot::{Mutex, MutexGuard};
use tokio::pin;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep_until};

use super::BrokerError;
use super::circuit::Circuit;
use crate::cluster::fence::Fence;
use crate::telemetry::metrics::Metrics;

/// Maximum concurrent calls to one broker (QUE-9).
const CALLS_AT_ONCE: usize = 10;
/// Stop waiting for a slot when no call has started or ended for this long.
const STANDSTILL: Duration = Duration::from_millis(500);

/// Reconciles that may wait for a slot at a slow broker: enough to start the next call as soon as one ends.
const WAITING: usize = 2;

/// The gate of one transport's broker.
pub struct BrokerLimiter {
    transport: String,
    calls: Semaphore,
    /// How many reconciles a slow broker may hold, and how many are inside now.
    seats: usize,
    inside: AtomicUsize,
    crowd: Mutex<Crowd>,
    moved: Mutex<Instant>,
    circuit: Mutex<Circuit>,
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
}

impl Operation {
    /// A read-only operation.
    pub const fn read(name: &'static str) -> Self {
        Self {
            name,
            writes: false,
        }
    }

    /// An operation that changes something.
    pub const fn write(name: &'static str) -> Self {
        Self { name, writes: true }
    }
}

/// Whether a reconcile enters the gate for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// It may be turned away.
    First,
    /// It was admitted before and continues its work.
    Again,
}

/// A reconcile's seat inside the gate, released on drop.
pub struct Inside {
    gate: Arc<BrokerLimiter>,
    since: Instant,
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.gate.inside.fetch_sub(1, Ordering::Relaxed);
        lock(&self.gate.crowd).left(self.since.elapsed());
    }
}

/// A result with a metric label.
pub trait Labelled {
    /// Has few distinct values.
    fn label(&self) -> String;
}

impl BrokerLimiter {
    pub fn new(transport: &str, fence: Fence, metrics: Arc<Metrics>) -> Self {
        Self {
            transport: transport.to_owned(),
            calls: Semaphore::new(CALLS_AT_ONCE),
            seats: CALLS_AT_ONCE + WAITING,
            inside: AtomicUsize::new(0),
            crowd: Mutex::new(Crowd::new(Instant::now())),
            moved: Mutex::new(Instant::now()),
            circuit: Mutex::default(),
            fence,
            metrics,
        }
    }

    /// Limits calls and seats to half of `workers`, where that is less.
    pub fn for_workers(mut self, workers: usize) -> Self {
        let half = (workers / 2).max(1);
        self.calls = Semaphore::new(half.min(CALLS_AT_ONCE));
        self.seats = half.min(CALLS_AT_ONCE + WAITING);
        self
    }

    /// Admits a reconcile for one or more calls. A first entry is refused while the broker is slow and all seats are
    /// taken. A reconcile that already waited for an answer is always admitted, so that its work is not left half done.
    ///
    /// # Errors
    /// `Crowded`, with the delay before the retry.
    pub fn enter(self: &Arc<Self>, entry: Entry) -> Result<Inside, BrokerError> {
        let now = Instant::now();
        let mut crowd = lock(&self.crowd);
        let is_full = self.inside.load(Ordering::Relaxed) >= self.seats;
        if entry == Entry::First && is_full && crowd.is_slow() {
            return Err(BrokerError::Crowded(
                format!(
                    "transport {:?}: the broker is slow, and the maximum number of actors is already waiting for it",
                    self.transport
                ),
                crowd.refused(now, self.seats),
            ));
        }
        self.inside.fetch_add(1, Ordering::Relaxed);
        Ok(Inside {
            gate: Arc::clone(self),
            since: now,
        })
    }

    /// Makes a call, which must have a timeout of its own.
    ///
    /// # Errors
    /// The error of the call; the last error, without a call, while the circuit is open; and `Busy` when all slots are
    /// taken and no call completes.
    pub async fn call<T: Labelled>(
        &self,
        operation: Operation,
        call: impl Future<Output = Result<T, BrokerError>>,
    ) -> Result<T, BrokerError> {
        let permit = self.permit().await?;
        lock(&self.circuit).admit(Instant::now())?;
        let began = Instant::now();
        let answer = if operation.writes {
            self.fence.guard(call).await
        } else {
            call.await
        };
        drop(permit);
        self.note(operation, &answer, began);
        answer
    }

    fn note<T: Labelled>(
        &self,
        operation: Operation,
        answer: &Result<T, BrokerError>,
        began: Instant,
    ) {
        let now = Instant::now();
        *lock(&self.moved) = now;
        let label = match answer {
            Ok(answer) => answer.label(),
            Err(error) => error.reason().to_string(),
        };
        self.metrics
            .broker_request(&self.transport, operation.name, &label);
        match answer {
            // The broker was not called.
            Err(BrokerError::Fenced(_) | BrokerError::CredentialsMissing(_)) => return,
            _ => lock(&self.crowd).answered(now - began),
        }
        let is_up = !matches!(answer, Err(BrokerError::Unreachable(_)));
        let mut circuit = lock(&self.circuit);
        if is_up {
            circuit.answered();
        }
        match answer {
            Err(error @ BrokerError::Unreachable(_)) => circuit.unanswered(now, error),
            Err(error @ BrokerError::Resting(_, wait)) => circuit.asked(now, *wait, error),
            _ => {}
        }
        drop(circuit);
        self.metrics.transport_up(&self.transport, is_up);
    }

    /// Waits for a free slot, as long as calls still complete.
    async fn permit(&self) -> Result<SemaphorePermit<'_>, BrokerError> {
        let waiting = self.calls.acquire();
        pin!(waiting);
        loop {
            let standstill = *lock(&self.moved) + STANDSTILL;
            tokio::select! {
                biased;
                permit = &mut waiting => {
                    *lock(&self.moved) = Instant::now();
                    return permit.map_err(|_| self.busy());
                }
                () = sleep_until(standstill) => {
                    if *lock(&self.moved) + STANDSTILL <= Instant::now() {
                        lock(&self.crowd).answered(STANDSTILL);
                        return Err(self.busy());
                    }
                }
            }
        }
    }

    fn busy(&self) -> BrokerError {
        BrokerError::Busy(format!(
            "transport {:?}: the maximum number of calls is in flight",
            self.transport
        ))
    }
}

/// Makes these calls, no more at once than a gate admits. Results keep their order.
pub async fn all<T>(calls: Vec<BoxFuture<'_, T>>) -> Vec<T> {
    stream::iter(calls).buffered(CALLS_AT_ONCE).collect().await
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

#[cfg(test)]
mod tests;
