//! The work queue: decides when each key runs, with a limited number of workers (FW-1, 6, 7, 8).
//!
//! - A key runs once at a time; events during its run cause exactly one more.
//! - The first run starts immediately, later ones at least [`WorkQueueSettings::min_interval`] after the last start.
//! - A timer is an upper bound: an earlier event replaces it, and only the next run sets a new one.
//! - A failed run is retried with a backoff per key; a panic counts as a failure of its key alone.

mod retry_policy;
mod schedule;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use schedule::{Schedule, Start};
use tokio::sync::Notify;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};
use tracing::error;

pub use retry_policy::RetryPolicy;

/// How a [`WorkQueue`] paces its runs.
#[derive(Clone, Copy, Debug)]
pub struct WorkQueueSettings {
    /// Minimum time between two starts of one key.
    pub min_interval: Duration,
    /// Maximum concurrent runs over all keys; 0 counts as 1.
    pub workers: usize,
    /// Retries of failed runs.
    pub retry: RetryPolicy,
}

impl Default for WorkQueueSettings {
    fn default() -> Self {
        Self {
            min_interval: Duration::from_secs(1),
            workers: 32,
            retry: RetryPolicy::default(),
        }
    }
}

/// Position of a run in a sequence of retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Consecutive failed attempts before this run.
    pub failures: u32,
    /// Whether no retry follows if this run fails: only an event starts the next one.
    pub last: bool,
}

/// How a run ended, and when to run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunOutcome {
    /// Nothing to do until an event.
    Done,
    /// Succeeded; run again no later than after this time.
    RequeueAfter(Duration),
    /// Failed: retry after the key's backoff, or after the error's own delay (FW-28).
    Failed {
        /// The delay that the error itself requests.
        after: Option<Duration>,
        /// Time after which to run in any case. Such a run does not count as a retry.
        timer: Option<Duration>,
    },
}

impl RunOutcome {
    /// Failed, to be retried after the key's backoff.
    pub const FAILED: Self = Self::Failed {
        after: None,
        timer: None,
    };
}

/// Observes a queue. Its methods are called without a lock held.
pub trait Observer: Send + Sync {
    /// A run started, this long after it was due.
    fn started(&self, waited: Duration);
    /// The run that just started retries a failed one.
    fn retried(&self);
    /// A run panicked.
    fn panicked(&self);
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueSizes {
    /// Keys that are due and wait for a worker.
    pub ready: usize,
    /// Keys that are not due yet.
    pub waiting: usize,
    /// Keys that run.
    pub in_flight: usize,
}

/// The work queue. Clones share the same queue.
pub struct WorkQueue<K> {
    shared: Arc<Shared<K>>,
}

struct Shared<K> {
    schedule: Mutex<Schedule<K>>,
    wake: Notify,
    workers: usize,
    observer: Arc<dyn Observer>,
}

impl<K> Clone for WorkQueue<K> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<K: Ord + Hash + Clone + Send + Debug + 'static> WorkQueue<K> {
    /// An empty queue that notifies `observer`.
    #[must_use]
    pub fn with_observer(settings: WorkQueueSettings, observer: Arc<dyn Observer>) -> Self {
        Self {
            shared: Arc::new(Shared {
                schedule: Mutex::new(Schedule::new(settings.min_interval, settings.retry)),
                wake: Notify::new(),
                workers: settings.workers.max(1),
                observer,
            }),
        }
    }

    /// Enqueues `key` after an event; it runs as soon as the minimum interval allows.
    pub fn enqueue(&self, key: K) {
        self.enqueue_at(key, Instant::now());
    }

    /// Runs `key` no later than at `when`; an earlier time already planned is kept.
    pub fn enqueue_at(&self, key: K, when: Instant) {
        if self.schedule().plan(key, when) {
            self.shared.wake.notify_one();
        }
    }

    /// Starts no more runs; [`run`](Self::run) returns when the current ones have ended.
    pub fn close(&self) {
        self.schedule().close();
        self.shared.wake.notify_one();
    }

    /// Current sizes of the queue.
    #[must_use]
    pub fn sizes(&self) -> QueueSizes {
        self.schedule().sizes(Instant::now())
    }

    /// Processes keys, each run in its own task, until [`close`](Self::close). Must be called only once.
    pub async fn run<F, Fut>(&self, work: F)
    where
        F: Fn(K, Attempt) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = RunOutcome> + Send + 'static,
    {
        let work = Arc::new(work);
        let mut running = JoinSet::new();
        let mut keys = HashMap::new();
        loop {
            while running.len() < self.shared.workers
                && let Some(start) = self.start()
            {
                let work = Arc::clone(&work);
                let key = start.key.clone();
                // Call inside the task, so that a panic before the first await is caught as well.
                let task = running.spawn(async move { work(key, start.attempt).await });
                keys.insert(task.id(), start.key);
            }
            if running.is_empty() && self.schedule().is_closed() {
                return;
            }
            let free = running.len() < self.shared.workers;
            let wake = self.schedule().wake_at(free);
            tokio::select! {
                biased;
                Some(ended) = running.join_next_with_id() => self.ended(&mut keys, ended),
                () = self.shared.wake.notified() => {}
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
            }
        }
    }

    fn start(&self) -> Option<Start<K>> {
        let start = self.schedule().start(Instant::now())?;
        self.shared.observer.started(start.waited);
        if start.retry {
            self.shared.observer.retried();
        }
        Some(start)
    }

    fn ended(&self, keys: &mut HashMap<Id, K>, ended: Result<(Id, RunOutcome), JoinError>) {
        let (id, outcome) = match ended {
            Ok(ended) => ended,
            Err(failure) => (failure.id(), self.failed(keys.get(&failure.id()), failure)),
        };
        if let Some(key) = keys.remove(&id) {
            self.schedule().finish(&key, outcome, Instant::now());
        }
    }

    fn failed(&self, key: Option<&K>, failure: JoinError) -> RunOutcome {
        if let Ok(panic) = failure.try_into_panic() {
            let panic = panic_message(panic.as_ref());
            error!(?key, panic, "a reconcile panicked; its key is requeued");
            self.shared.observer.panicked();
        }
        RunOutcome::FAILED
    }

    fn schedule(&self) -> MutexGuard<'_, Schedule<K>> {
        self.shared.schedule.lock()
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
