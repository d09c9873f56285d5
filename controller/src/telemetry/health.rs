//! Readiness (OPS-6), and the listeners of probes and metrics.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use asya_process::listen::{self, BindError};
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Readiness of the process: ready as soon as every check passes, where one that is refused counts as passed if another
/// of its group passes. Clones share the same checks.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    checks: Arc<watch::Sender<Checks>>,
}

/// The checks by name.
type Checks = BTreeMap<String, CheckState>;

#[derive(Debug)]
struct CheckState {
    group: Arc<str>,
    result: CheckResult,
}

#[derive(Debug, PartialEq, Eq)]
enum CheckResult {
    Ready,
    /// Why it is not ready.
    NotReady(String),
    /// Why it may never be ready, which does not hold up the others of its group.
    Refused(String),
}

/// One check that readiness consists of. Dropping it removes it.
#[derive(Debug)]
pub struct ReadinessCheck {
    readiness: Readiness,
    group: Arc<str>,
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
        let starting = CheckState {
            group: PROCESS.into(),
            result: CheckResult::NotReady("starting".to_owned()),
        };
        readiness.checks.send_modify(|checks| {
            checks.insert(PROCESS.to_owned(), starting);
        });
        readiness
    }

    /// Registers a check that is not ready yet.
    #[must_use]
    pub fn check(&self, name: &str) -> ReadinessCheck {
        self.check_in(name, name)
    }

    /// Registers a check of a group, such as the watches of a kind in several namespaces.
    #[must_use]
    pub fn check_in(&self, group: &str, name: &str) -> ReadinessCheck {
        let check = ReadinessCheck {
            readiness: self.clone(),
            group: group.into(),
            name: name.into(),
        };
        check.not_ready("has not been ready yet");
        check
    }

    /// Checks that are not ready and why, one line each.
    #[must_use]
    pub fn pending(&self) -> Vec<String> {
        let checks = self.checks.borrow();
        pending(&checks)
            .map(|(name, reason)| format!("{name}: {reason}"))
            .collect()
    }

    /// Whether all checks are ready.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        pending(&self.checks.borrow()).next().is_none()
    }

    /// Waits until all checks are ready at the same time.
    pub async fn all_ready(&self) {
        let mut changes = self.checks.subscribe();
        // Cannot fail, because `self` keeps the sender alive.
        let _ = changes
            .wait_for(|checks| pending(checks).next().is_none())
            .await;
    }

    fn set(&self, check: &ReadinessCheck, result: CheckResult) {
        let group = Arc::clone(&check.group);
        self.checks.send_modify(|checks| {
            checks.insert(check.name.to_string(), CheckState { group, result });
        });
    }
}

/// The checks that are not ready, and why.
fn pending(checks: &Checks) -> impl Iterator<Item = (&str, &str)> {
    let passes = |group: &str| {
        let mut of_group = checks.values().filter(move |check| *check.group == *group);
        of_group.any(|check| check.result == CheckResult::Ready)
    };
    checks.iter().filter_map(move |(name, check)| {
        let reason = match &check.result {
            CheckResult::Ready => None,
            CheckResult::NotReady(reason) => Some(reason),
            CheckResult::Refused(reason) => Some(reason).filter(|_| !passes(&check.group)),
        };
        reason.map(|reason| (name.as_str(), reason.as_str()))
    })
}

impl ReadinessCheck {
    /// Passes the check.
    pub fn ready(&self) {
        self.readiness.set(self, CheckResult::Ready);
    }

    /// Waits until the check is ready for the first time.
    pub fn passed(&self) -> impl Future<Output = ()> + Send + 'static {
        let name = Arc::clone(&self.name);
        let mut changes = self.readiness.checks.subscribe();
        async move {
            // A dropped check counts as passed.
            let has_passed = |checks: &Checks| {
                let check = checks.get(&*name);
                check.is_none_or(|check| check.result == CheckResult::Ready)
            };
            let _ = changes.wait_for(has_passed).await;
        }
    }

    /// Fails the check, with the reason.
    pub fn not_ready(&self, reason: &str) {
        let result = CheckResult::NotReady(reason.to_owned());
        self.readiness.set(self, result);
    }

    /// Fails the check, with the reason, unless another of its group is ready.
    pub fn refused(&self, reason: &str) {
        let result = CheckResult::Refused(reason.to_owned());
        self.readiness.set(self, result);
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
