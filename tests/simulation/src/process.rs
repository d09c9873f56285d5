//! A replica of the controller or the webhook as a process that can crash or be partitioned.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long watches may need to catch up after a partition ends.
const CATCH_UP: Duration = Duration::from_secs(30);

/// A process. Its tasks outlive it, because they cannot be aborted from outside, but their calls are never answered.
pub struct Process {
    /// Whether it is a webhook replica, which never leads and writes only Events.
    pub is_webhook: bool,
    /// Whether it is the controller of a target's owner rather than of the operator.
    pub is_target_controller: bool,
    /// Its name, the prefix of its identity in leader election.
    pub name: String,
    /// Cancelled when it crashes or exits.
    pub death: CancellationToken,
    /// Cancelled to request a graceful stop.
    pub stop: CancellationToken,
    /// The number of calls after which it crashes.
    crash_after: Mutex<Option<u64>>,
    /// End of the current network partition.
    cut_until: watch::Sender<Option<Instant>>,
}

impl Process {
    /// A controller replica.
    #[must_use]
    pub fn new(name: String) -> Self {
        Self::of(name, false)
    }

    /// A controller that owns targets.
    #[must_use]
    pub fn target_controller(name: String) -> Self {
        Self {
            is_target_controller: true,
            ..Self::of(name, false)
        }
    }

    /// A webhook replica.
    #[must_use]
    pub fn webhook(name: String) -> Self {
        Self::of(name, true)
    }

    fn of(name: String, is_webhook: bool) -> Self {
        Self {
            is_webhook,
            is_target_controller: false,
            name,
            death: CancellationToken::new(),
            stop: CancellationToken::new(),
            crash_after: Mutex::new(None),
            cut_until: watch::Sender::new(None),
        }
    }

    /// Crashes the process right after the server has carried out this many more calls.
    pub fn crash_after(&self, calls: u64) {
        *self.crash_after.lock() = Some(calls);
    }

    /// Cuts its network until `end`.
    pub fn cut(&self, end: Instant) {
        self.cut_until.send_replace(Some(end));
    }

    /// Whether its network is cut, or was so recently that its watches may be behind.
    pub fn may_be_behind(&self) -> bool {
        let cut_until = *self.cut_until.borrow();
        cut_until.is_some_and(|end| Instant::now() < end + CATCH_UP)
    }

    /// Counts a call that has taken effect. Returns whether the process crashes now.
    pub fn count_call(&self) -> bool {
        let mut left = self.crash_after.lock();
        match &mut *left {
            Some(0) => {
                *left = None;
                self.death.cancel();
                true
            }
            Some(left) => {
                *left -= 1;
                false
            }
            None => false,
        }
    }

    /// Returns at once if the process can send. Otherwise returns `false` once its network is restored, because the
    /// connection of this call is broken. Never returns in a dead process.
    pub async fn can_send(&self) -> bool {
        if self.death.is_cancelled() {
            return std::future::pending().await;
        }
        let cut_until = *self.cut_until.borrow();
        match cut_until {
            Some(end) if end > Instant::now() => {
                tokio::time::sleep_until(end).await;
                false
            }
            _ => true,
        }
    }
}
