//! Readiness of the webhook to receive reviews (AVL-2).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use asya_certs::serve::Certificates;
use asya_shared::api::AsyncActor;
use k8s_openapi::jiff::Timestamp;
use kube::CustomResourceExt;

use crate::facts::Known;
use crate::index::{Contact, Index};

/// What readiness depends on. Clones share state.
#[derive(Clone)]
pub struct Readiness {
    index: Arc<Index>,
    contact: Contact,
    certificates: Certificates,
    /// `None` if the controller publishes no facts.
    facts: Option<Known>,
    stopping: Arc<AtomicBool>,
}

impl Readiness {
    /// `told` says whether the controller publishes facts.
    pub fn new(
        index: &Arc<Index>,
        contact: &Contact,
        certificates: &Certificates,
        facts: &Known,
        told: bool,
    ) -> Self {
        Self {
            index: Arc::clone(index),
            contact: contact.clone(),
            certificates: certificates.clone(),
            facts: told.then(|| facts.clone()),
            stopping: Arc::default(),
        }
    }

    /// Makes the process unready for good (AVL-3).
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Lists what is not ready and why, one line each. Actors and facts count as ready for good once they were read,
    /// since the API server or the controller may be away (AVL-6).
    pub fn pending(&self) -> Vec<String> {
        let mut pending = Vec::new();
        if self.stopping.load(Ordering::Relaxed) {
            pending.push("process: stopping".to_owned());
        }
        if !self.index.is_synced() {
            let kind = AsyncActor::crd_name();
            let why = self.contact.failure();
            let why = why.unwrap_or_else(|| "not listed yet".to_owned());
            pending.push(format!("{kind}: {why}"));
        }
        if self.facts.as_ref().is_some_and(|facts| !facts.is_told()) {
            pending.push("facts: asya-controller has not published its ConfigMap yet".to_owned());
        }
        if let Err(why) = self.certificates.ready(Timestamp::now()) {
            pending.push(format!("certificate: {why}"));
        }
        pending
    }
}

#[cfg(test)]
mod tests;
