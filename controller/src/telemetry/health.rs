//! Readiness (OPS-6), and the listeners of probes and metrics.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use asya_process::listen::{self, BindError};
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Readiness of the process: ready as soon as every gate is. Clones share the same gates.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    gates: Arc<watch::Sender<Gates>>,
}

/// Why each gate is not ready; `None` once it is.
type Gates = BTreeMap<String, Option<String>>;

/// A condition for readiness. Dropping the gate removes the condition.
#[derive(Debug)]
pub struct ReadinessGate {
    readiness: Readiness,
    name: Arc<str>,
}

/// Name of the gate of the process itself.
pub const PROCESS: &str = "process";

impl Readiness {
    /// Readiness of a process that has not registered its gates yet. Without the gate [`PROCESS`], a probe before the
    /// first registration would report ready.
    #[must_use]
    pub fn starting() -> Self {
        let readiness = Self::default();
        let starting = Some("starting".to_owned());
        readiness.gates.send_modify(|gates| {
            gates.insert(PROCESS.to_owned(), starting);
        });
        readiness
    }

    /// Registers a gate that is not ready yet.
    #[must_use]
    pub fn gate(&self, name: &str) -> ReadinessGate {
        let gate = ReadinessGate {
            readiness: self.clone(),
            name: name.into(),
        };
        gate.not_ready("has not been ready yet");
        gate
    }

    /// Gates that are not ready and why, one line each.
    #[must_use]
    pub fn pending(&self) -> Vec<String> {
        let gates = self.gates.borrow();
        let pending = gates
            .iter()
            .filter_map(|(name, reason)| reason.as_ref().map(|r| (name, r)));
        pending
            .map(|(name, reason)| format!("{name}: {reason}"))
            .collect()
    }

    /// Waits until all gates are ready at the same time.
    pub async fn all_ready(&self) {
        let mut changes = self.gates.subscribe();
        // Cannot fail, because `self` keeps the sender alive.
        let _ = changes
            .wait_for(|gates| gates.values().all(Option::is_none))
            .await;
    }

    fn set(&self, gate: &ReadinessGate, pending: Option<String>) {
        self.gates.send_modify(|gates| {
            gates.insert(gate.name.to_string(), pending);
        });
    }
}

impl ReadinessGate {
    /// Opens the gate.
    pub fn ready(&self) {
        self.readiness.set(self, None);
    }

    /// Waits until the gate is ready for the first time.
    pub fn opened(&self) -> impl Future<Output = ()> + Send + 'static {
        let (name, mut changes) = (Arc::clone(&self.name), self.readiness.gates.subscribe());
        async move {
            // A dropped gate counts as open.
            let is_open = |gates: &Gates| gates.get(&*name).is_none_or(Option::is_none);
            let _ = changes.wait_for(is_open).await;
        }
    }

    /// Closes the gate, with the reason.
    pub fn not_ready(&self, reason: &str) {
        self.readiness.set(self, Some(reason.to_owned()));
    }
}

impl Drop for ReadinessGate {
    fn drop(&mut self) {
        self.readiness.gates.send_modify(|gates| {
            gates.remove(&*self.name);
        });
    }
}

/// Listens on an address. Returns `None` for `0`, which disables the server.
///
/// # Errors
/// As [`listen::bind`].
pub async fn bind(address: &str, flag: &'static str) -> Result<Option<TcpListener>, BindError> {
    if address == "0" {
        return Ok(None);
    }
    listen::bind(address, flag).await.map(Some)
}
