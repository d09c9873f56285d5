//! Readiness of the webhook to receive reviews (AVL-2).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use asya_certs::serve::Certificates;
use asya_process::clock;
use asya_shared::api::AsyncActor;
use kube::CustomResourceExt;

use crate::facts::SharedFacts;
use crate::index::{Index, LastResponse};

/// Readiness of the process. Clones share state.
#[derive(Clone)]
pub struct Readiness {
    index: Arc<Index>,
    last_response: LastResponse,
    certificates: Certificates,
    /// `None` if the controller publishes no facts.
    facts: Option<SharedFacts>,
    stopping: Arc<AtomicBool>,
}

impl Readiness {
    /// `facts_published`: whether the controller publishes facts.
    pub fn new(
        index: &Arc<Index>,
        last_response: &LastResponse,
        certificates: &Certificates,
        facts: &SharedFacts,
        facts_published: bool,
    ) -> Self {
        Self {
            index: Arc::clone(index),
            last_response: last_response.clone(),
            certificates: certificates.clone(),
            facts: facts_published.then(|| facts.clone()),
            stopping: Arc::default(),
        }
    }

    /// Makes the process unready permanently (AVL-3).
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Lists what is not ready and why, one line each. Actors and facts stay ready once they were read, so that an
    /// outage of the API server or the controller does not make the webhook unready (AVL-6).
    pub fn pending(&self) -> Vec<String> {
        let mut pending = Vec::new();
        if self.stopping.load(Ordering::Relaxed) {
            pending.push("process: stopping".to_owned());
        }
        if !self.index.is_synced() {
            let kind = AsyncActor::crd_name();
            let reason = self.last_response.failure();
            let reason = reason.unwrap_or_else(|| "not listed yet".to_owned());
            pending.push(format!("{kind}: {reason}"));
        }
        if self.facts.as_ref().is_some_and(|facts| !facts.is_synced()) {
            pending.push("facts: asya-controller has not published its ConfigMap yet".to_owned());
        }
        if let Err(reason) = self.certificates.ready(clock::now()) {
            pending.push(format!("certificate: {reason}"));
        }
        pending
    }
}

#[cfg(test)]
mod tests;
