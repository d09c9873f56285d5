//! How many workers all slow or hanging brokers hold together (OPS-22).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{AcquireError, Semaphore, SemaphorePermit};

/// The workers that slow brokers may hold. Several transports can reach one broker, so a limit for each is not enough.
pub struct WorkerShare {
    max: usize,
    /// Calls in flight to any broker. A hanging broker is detected only when its calls time out, and until then each of
    /// them holds a worker.
    calls: Semaphore,
    /// Further calls, one to each broker, so that hanging brokers do not keep the others from being called.
    reserve: Semaphore,
    brokers: Mutex<Vec<Weak<Usage>>>,
}

/// Permission for one call, returned on drop.
pub struct CallSlot<'a> {
    _slot: SemaphorePermit<'a>,
    _reserved: Option<SemaphorePermit<'a>>,
}

/// How one transport's broker uses the share.
#[derive(Default)]
pub struct Usage {
    /// Reconciles that hold a permit.
    active: AtomicUsize,
    is_slow: AtomicBool,
}

impl WorkerShare {
    /// Half of this many workers, and a quarter as the reserve.
    pub fn of(workers: usize) -> Arc<Self> {
        Arc::new(Self {
            max: (workers / 2).max(1),
            calls: Semaphore::new((workers / 2).max(1)),
            reserve: Semaphore::new((workers / 4).max(1)),
            brokers: Mutex::default(),
        })
    }

    /// The number of workers that slow brokers may hold together.
    pub fn max(&self) -> usize {
        self.max
    }

    /// Waits until one more call may be in flight. `reserved` is the broker's own permit for the reserve.
    ///
    /// # Errors
    /// Never: the semaphores are not closed.
    pub async fn call_slot<'a>(
        &'a self,
        reserved: &'a Semaphore,
    ) -> Result<CallSlot<'a>, AcquireError> {
        let from_reserve = async {
            let reserved = reserved.acquire().await?;
            Ok((self.reserve.acquire().await?, Some(reserved)))
        };
        let (slot, reserved) = tokio::select! {
            biased;
            slot = self.calls.acquire() => (slot?, None),
            slot = from_reserve => slot?,
        };
        Ok(CallSlot {
            _slot: slot,
            _reserved: reserved,
        })
    }

    /// Adds a broker, until the result is dropped.
    pub fn join(&self) -> Arc<Usage> {
        let usage: Arc<Usage> = Arc::default();
        let mut brokers = self.brokers.lock();
        brokers.retain(|other| other.strong_count() > 0);
        brokers.push(Arc::downgrade(&usage));
        usage
    }

    /// Lets a reconcile wait for a slow broker if that broker holds fewer than `permits`, and all slow brokers together
    /// fewer than the share.
    ///
    /// # Errors
    /// How many permits the broker gets if the slow ones share equally.
    pub fn enter_slow(&self, usage: &Usage, permits: usize) -> Result<(), usize> {
        let brokers = self.brokers.lock();
        let slow = brokers.iter().filter_map(Weak::upgrade);
        let slow: Vec<_> = slow.filter(|other| other.is_slow()).collect();
        let held: usize = slow.iter().map(|other| other.active()).sum();
        if held < self.max && usage.active() < permits {
            usage.enter();
            return Ok(());
        }
        Err((self.max / slow.len().max(1)).clamp(1, permits))
    }
}

impl Usage {
    pub fn enter(&self) {
        self.active.fetch_add(1, Ordering::Relaxed);
    }

    pub fn leave(&self) {
        self.active.fetch_sub(1, Ordering::Relaxed);
    }

    pub fn set_slow(&self, is_slow: bool) {
        self.is_slow.store(is_slow, Ordering::Relaxed);
    }

    fn active(&self) -> usize {
        self.active.load(Ordering::Relaxed)
    }

    fn is_slow(&self) -> bool {
        self.is_slow.load(Ordering::Relaxed)
    }
}
