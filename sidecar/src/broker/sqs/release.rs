//! Returns messages to the queue (SC-40).

use std::time::Duration;

use aws_sdk_sqs::Client;
use tokio::time::{Instant, sleep};

use super::Shared;
use super::error::{Failure, describe, is_final};

const INITIAL_DELAY: Duration = Duration::from_millis(200);
const MAX_DELAY: Duration = Duration::from_secs(5);

/// Why a message could not be released.
struct Unreleased {
    why: String,
    /// A retry would fail, too.
    is_final: bool,
}

impl Shared {
    /// Releases a message: it becomes visible again after a delay in seconds, computed from its receive count. Retries
    /// until the visibility timeout, which may be hours, expires anyway.
    pub(super) async fn make_visible(&self, number: u64, seconds: impl FnOnce(u32) -> i32) {
        let Some(lease) = self.leases.end(number).filter(|lease| !lease.is_lost()) else {
            return;
        };
        let seconds = seconds(lease.received);
        let mut delay = INITIAL_DELAY;
        while let Err(Unreleased { why, is_final }) = self.set_visible(&lease.handle, seconds).await
        {
            if is_final || Instant::now() + delay >= lease.until() {
                tracing::warn!(
                    "SQS: cannot requeue a message, so it is redelivered only after its visibility timeout: {why}"
                );
                return;
            }
            tracing::warn!("SQS: cannot requeue a message: {why}; retrying");
            sleep(delay).await;
            delay = (delay * 2).min(MAX_DELAY);
        }
    }

    async fn set_visible(&self, handle: &str, seconds: i32) -> Result<(), Unreleased> {
        let url = self.queues.url(&self.own).await;
        let url = url.map_err(|failure| Unreleased {
            is_final: matches!(failure, Failure::Refused(_)),
            why: failure.to_string(),
        })?;
        let request = |sqs: &Client| {
            sqs.change_message_visibility()
                .queue_url(&url)
                .receipt_handle(handle)
                .visibility_timeout(seconds)
                .send()
        };
        let released = self.api.send(request).await;
        released.map(drop).map_err(|error| Unreleased {
            why: describe(&error),
            is_final: is_final(&error),
        })
    }
}
