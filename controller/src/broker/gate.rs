//! What every call to a broker passes: the calls at once, the circuit breaker, the fence, the metrics.
//!
//! One transport has one gate, which its clients share. A broker that hangs or is slow must not hold the passes of
//! actors on other transports. No more than [`CALLS_AT_ONCE`] of them, nor half of all, are in a call, each no longer than
//! the call's own timeout. Others wait for a call to end only as long as calls end at all, and behind a slow broker only
//! [`WAITING`] of them: the rest come again later (OPS-22).

mod crowd;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{StreamExt, stream};
use tokio::pin;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep_until};

use super::BrokerError;
use super::circuit::Circuit;
use crate::cluster::fence::Fence;
use crate::telemetry::metrics::Metrics;
use crowd::Crowd;

/// Calls to one broker at once (QUE-9).
const CALLS_AT_ONCE: usize = 10;
/// When no call has begun or ended for so long, waiting for one to end is given up.
const STANDSTILL: Duration = Duration::from_millis(500);

/// Passes that may wait for a call to a slow broker: enough that the next call begins when one ends.
const WAITING: usize = 2;

/// Before a transport's broker.
pub struct Gate {
    transport: String,
    calls: Semaphore,
    /// Passes that a slow broker may hold, and those that are inside now.
    seats: usize,
    inside: AtomicUsize,
    crowd: Mutex<Crowd>,
    moved: Mutex<Instant>,
    circuit: Mutex<Circuit>,
    fence: Fence,
    metrics: Arc<Metrics>,
}

/// What is asked of a broker.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// For metrics.
    pub name: &'static str,
    /// Whether it changes something: then it passes the fence.
    pub writes: bool,
}

impl Operation {
    /// One that changes nothing.
    pub const fn read(name: &'static str) -> Self {
        Self {
            name,
            writes: false,
        }
    }

    /// One that changes something.
    pub const fn write(name: &'static str) -> Self {
        Self { name, writes: true }
    }
}

/// Whether a pass comes to the broker for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// It may be sent away.
    First,
    /// It has been let in and goes on with what it began.
    Again,
}

/// A pass inside the gate, until this is dropped.
pub struct Inside {
    gate: Arc<Gate>,
    since: Instant,
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.gate.inside.fetch_sub(1, Ordering::Relaxed);
        lock(&self.gate.crowd).left(self.since.elapsed());
    }
}

/// An answer, as the metrics name it.
pub trait Labelled {
    /// One of few texts.
    fn label(&self) -> String;
}

impl Gate {
    /// The gate of a transport.
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

    /// Keeps half of so many workers from being in its calls at once, where that is less.
    pub fn for_workers(mut self, workers: usize) -> Self {
        let half = (workers / 2).max(1);
        self.calls = Semaphore::new(half.min(CALLS_AT_ONCE));
        self.seats = half.min(CALLS_AT_ONCE + WAITING);
        self
    }

    /// Lets a pass in, to make one or several calls. The first entry of a pass is refused while the broker is slow and
    /// all seats are taken; a pass that already waited for an answer is not sent away with half of its work done.
    ///
    /// # Errors
    /// `Crowded`, with when to come again.
    pub fn enter(self: &Arc<Self>, entry: Entry) -> Result<Inside, BrokerError> {
        let now = Instant::now();
        let mut crowd = lock(&self.crowd);
        let is_full = self.inside.load(Ordering::Relaxed) >= self.seats;
        if entry == Entry::First && is_full && crowd.is_slow() {
            return Err(BrokerError::Crowded(
                format!(
                    "transport {:?}: the broker answers slowly, and as many actors as may wait for it do so",
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

    /// Makes a call, which has a timeout of its own.
    ///
    /// # Errors
    /// What the call returns; `Unreachable` without a call while the broker is left alone, and `Busy`
    /// when all calls at once stand still.
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
            // Nobody was called.
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

    /// Waits for a call to end if there are too many, as long as calls end at all.
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
            "transport {:?}: all calls that may run at once wait for their answers",
            self.transport
        ))
    }
}

/// Makes these calls, no more at once than a gate lets through; the answers are in their order.
pub async fn all<T>(calls: Vec<BoxFuture<'_, T>>) -> Vec<T> {
    stream::iter(calls).buffered(CALLS_AT_ONCE).collect().await
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
