//! A replica of the controller or the webhook as a process, which may crash or be cut off.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long watches may take to continue after the network is restored.
const CATCH_UP: Duration = Duration::from_secs(30);

/// A process. Its tasks outlive it, as they cannot be ended from outside, but none of its calls is ever answered again.
pub struct Process {
    /// Whether it is a replica of the webhook, which never leads and writes only Events.
    pub is_webhook: bool,
    /// Whether it is the controller of an owner of targets, which is not the operator's.
    pub is_target_controller: bool,
    /// Its name, which begins the identity with which it competes for the lease.
    pub name: String,
    /// Cancelled when it crashes or exits.
    pub death: CancellationToken,
    /// Cancelled when it is asked to stop.
    pub stop: CancellationToken,
    /// The number of calls after which it crashes.
    crash_after: Mutex<Option<u64>>,
    /// Until when the network is cut.
    cut_until: watch::Sender<Option<Instant>>,
}

impl Process {
    /// A replica of the controller.
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

    /// A replica of the webhook.
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

    /// Makes it crash right after the server has acted upon this many further calls.
    pub fn crash_after(&self, calls: u64) {
        *self.crash_after.lock() = Some(calls);
    }

    /// Cuts its network until `end`.
    pub fn cut(&self, end: Instant) {
        self.cut_until.send_replace(Some(end));
    }

    /// Whether its network is cut, or was until a moment ago, so that its watches may be behind.
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

    /// Returns at once if the process can send. Otherwise returns `false` once its network is restored; the connection
    /// of this call is broken. Never returns in a dead process.
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
