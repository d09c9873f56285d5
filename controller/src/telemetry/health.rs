//! Whether we are ready (OPS-6), and the server that probes and metrics run on.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use asya_process::listen::{self, BindError};
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Whether we are ready: as soon as every gate is. A clone is another handle to the same gates.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    gates: Arc<watch::Sender<Gates>>,
}

/// What each gate waits for; none when it is ready.
type Gates = BTreeMap<String, Option<String>>;

/// One thing that must be so before we are ready. Dropped, it is no longer asked for.
#[derive(Debug)]
pub struct Gate {
    readiness: Readiness,
    name: Arc<str>,
}

/// The gate of the process itself.
pub const PROCESS: &str = "process";

impl Readiness {
    /// Of a process that has still to say what it waits for: without that, an answer between the first probe and the
    /// first gate would be "ready", before the CRD is served.
    #[must_use]
    pub fn starting() -> Self {
        let readiness = Self::default();
        let starting = Some("starting".to_owned());
        readiness.gates.send_modify(|gates| {
            gates.insert(PROCESS.to_owned(), starting);
        });
        readiness
    }

    /// A gate that is not ready yet.
    #[must_use]
    pub fn gate(&self, name: &str) -> Gate {
        let gate = Gate {
            readiness: self.clone(),
            name: name.into(),
        };
        gate.not_ready("has not been ready yet");
        gate
    }

    /// What is not ready, and why, one line each.
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

    /// Waits until every gate is ready at once.
    pub async fn reached(&self) {
        let mut changes = self.gates.subscribe();
        // The sender is ours, so it outlives the wait.
        let _ = changes
            .wait_for(|gates| gates.values().all(Option::is_none))
            .await;
    }

    fn set(&self, gate: &Gate, pending: Option<String>) {
        self.gates.send_modify(|gates| {
            gates.insert(gate.name.to_string(), pending);
        });
    }
}

impl Gate {
    /// It is so.
    pub fn ready(&self) {
        self.readiness.set(self, None);
    }

    /// Waits until it is so for the first time.
    pub fn opened(&self) -> impl Future<Output = ()> + Send + 'static {
        let (name, mut changes) = (Arc::clone(&self.name), self.readiness.gates.subscribe());
        async move {
            // A gate that is dropped holds nobody up.
            let is_open = |gates: &Gates| gates.get(&*name).is_none_or(Option::is_none);
            let _ = changes.wait_for(is_open).await;
        }
    }

    /// It is not so (any more).
    pub fn not_ready(&self, reason: &str) {
        self.readiness.set(self, Some(reason.to_owned()));
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.readiness.gates.send_modify(|gates| {
            gates.remove(&*self.name);
        });
    }
}

/// Listens on an address; none for `0`, which is nowhere.
///
/// # Errors
/// As [`listen::bind`].
pub async fn bind(address: &str, flag: &'static str) -> Result<Option<TcpListener>, BindError> {
    if address == "0" {
        return Ok(None);
    }
    listen::bind(address, flag).await.map(Some)
}
