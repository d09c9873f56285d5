//! Where a replica is on its way to leading.

use std::sync::Arc;

use tokio::sync::watch;

/// A replica's phase. The election moves it from `Standby` to `Preparing`, and back through `GivingBack` and
/// `GivenBack`; the work moves it to `Leading`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Another process may hold the lease.
    Standby,
    /// Holds the lease, and waits until it is ready.
    Preparing,
    /// Has not become ready in time: starts no more writes.
    GivingBack,
    /// Has released the lease; its tasks must end before it competes again.
    GivenBack,
    /// Reconciles, until the process ends.
    Leading,
}

/// The phase, shared by the election and the work. Clones refer to the same one.
#[derive(Clone, Debug)]
pub struct LeadershipPhase(Arc<watch::Sender<Phase>>);

impl Default for LeadershipPhase {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(Phase::Standby)))
    }
}

impl LeadershipPhase {
    /// Returns the current phase.
    #[must_use]
    pub fn phase(&self) -> Phase {
        *self.0.borrow()
    }

    /// Moves from one phase to another. Returns false if the current phase is not `from`: the election may give the
    /// lease back at the moment when the replica becomes ready.
    pub fn advance(&self, from: Phase, to: Phase) -> bool {
        self.0.send_if_modified(|phase| {
            let is_in = *phase == from;
            if is_in {
                *phase = to;
            }
            is_in
        })
    }

    pub async fn reaches(&self, phase: Phase) {
        // Cannot fail, because `self` keeps the sender alive.
        let _ = self
            .0
            .subscribe()
            .wait_for(|current| *current == phase)
            .await;
    }
}
