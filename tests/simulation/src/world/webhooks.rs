//! The webhook replicas that the API server can reach.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use parking_lot::Mutex;

use crate::process::Process;
use crate::randomness::{Seed, pick};

/// A running replica.
pub struct Endpoint {
    /// Its process.
    pub process: Arc<Process>,
    /// The webhook.
    pub replica: asya_webhook::Replica,
    /// The routes that it serves.
    pub routes: Router,
}

/// The running replicas.
#[derive(Default)]
pub struct Webhooks {
    running: Mutex<Vec<Endpoint>>,
    failed: AtomicBool,
}

impl Webhooks {
    /// Adds a replica.
    pub fn add(&self, endpoint: Endpoint) {
        self.running.lock().push(endpoint);
    }

    /// Removes the replica of a process that has ended.
    pub fn remove(&self, process: &Arc<Process>) {
        self.running
            .lock()
            .retain(|it| !Arc::ptr_eq(&it.process, process));
    }

    /// Removes all replicas.
    pub fn clear(&self) {
        self.running.lock().clear();
    }

    /// Records that a review failed, or may have been answered from a stale cache.
    pub fn record_failure(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Whether a review has failed, or may have been answered from a stale cache.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// The routes of one of the ready replicas.
    #[must_use]
    pub fn endpoint(&self, seed: Seed, call: &str) -> Option<Router> {
        let all = self.running.lock();
        let is_ready =
            |it: &&Endpoint| !it.process.death.is_cancelled() && it.replica.pending().is_empty();
        let ready: Vec<&Endpoint> = all.iter().filter(is_ready).collect();
        let mut random = seed.rng_for(("endpoint", call));
        let endpoint = (!ready.is_empty()).then(|| *pick(&mut random, &ready))?;
        if endpoint.process.may_be_behind() {
            self.record_failure();
        }
        Some(endpoint.routes.clone())
    }
}
