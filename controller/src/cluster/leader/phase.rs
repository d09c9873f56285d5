//! Where a replica is on its way to leading.

use std::sync::Arc;

use tokio::sync::watch;

/// A replica's phase. The election changes it from the first to the second, and back by way of the next two; the work
/// begins the last.
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

    /// Moves on from one phase to another. Returns false in any other phase: the election may give the lease back at
    /// the moment when the replica becomes ready.
    pub fn advance(&self, from: Phase, to: Phase) -> bool {
        self.0.send_if_modified(|phase| {
            let is_in = *phase == from;
            if is_in {
                *phase = to;
            }
            is_in
        })
    }

    /// Waits for a phase.
    pub async fn reaches(&self, phase: Phase) {
        // Cannot fail, because `self` keeps the sender alive.
        let _ = self
            .0
            .subscribe()
            .wait_for(|current| *current == phase)
            .await;
    }
}
