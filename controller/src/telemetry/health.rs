//! Readiness (OPS-6), and the listeners of probes and metrics.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use asya_process::listen::{self, BindError};
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Readiness of the process: ready as soon as every check passes. Clones share the same checks.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    checks: Arc<watch::Sender<Checks>>,
}

/// Why each check is not ready; `None` once it is.
type Checks = BTreeMap<String, Option<String>>;

/// One check that readiness consists of. Dropping it removes it.
#[derive(Debug)]
pub struct ReadinessCheck {
    readiness: Readiness,
    name: Arc<str>,
}

/// Name of the check of the process itself.
pub const PROCESS: &str = "process";

impl Readiness {
    /// Readiness of a process that has not registered its checks yet. Without the check [`PROCESS`], a probe before the
    /// first registration would report ready.
    #[must_use]
    pub fn starting() -> Self {
        let readiness = Self::default();
        let starting = Some("starting".to_owned());
        readiness.checks.send_modify(|checks| {
            checks.insert(PROCESS.to_owned(), starting);
        });
        readiness
    }

    /// Registers a check that is not ready yet.
    #[must_use]
    pub fn check(&self, name: &str) -> ReadinessCheck {
        let check = ReadinessCheck {
            readiness: self.clone(),
            name: name.into(),
        };
        check.not_ready("has not been ready yet");
        check
    }

    /// Checks that are not ready and why, one line each.
    #[must_use]
    pub fn pending(&self) -> Vec<String> {
        let checks = self.checks.borrow();
        let pending = checks
            .iter()
            .filter_map(|(name, reason)| reason.as_ref().map(|r| (name, r)));
        pending
            .map(|(name, reason)| format!("{name}: {reason}"))
            .collect()
    }

    /// Waits until all checks are ready at the same time.
    pub async fn all_ready(&self) {
        let mut changes = self.checks.subscribe();
        // Cannot fail, because `self` keeps the sender alive.
        let _ = changes
            .wait_for(|checks| checks.values().all(Option::is_none))
            .await;
    }

    fn set(&self, check: &ReadinessCheck, pending: Option<String>) {
        self.checks.send_modify(|checks| {
            checks.insert(check.name.to_string(), pending);
        });
    }
}

impl ReadinessCheck {
    /// Passes the check.
    pub fn ready(&self) {
        self.readiness.set(self, None);
    }

    /// Waits until the check is ready for the first time.
    pub fn passed(&self) -> impl Future<Output = ()> + Send + 'static {
        let (name, mut changes) = (Arc::clone(&self.name), self.readiness.checks.subscribe());
        async move {
            // A dropped check counts as passed.
            let has_passed = |checks: &Checks| checks.get(&*name).is_none_or(Option::is_none);
            let _ = changes.wait_for(has_passed).await;
        }
    }

    /// Fails the check, with the reason.
    pub fn not_ready(&self, reason: &str) {
        self.readiness.set(self, Some(reason.to_owned()));
    }
}

impl Drop for ReadinessCheck {
    fn drop(&mut self) {
        self.readiness.checks.send_modify(|checks| {
            checks.remove(&*self.name);
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
