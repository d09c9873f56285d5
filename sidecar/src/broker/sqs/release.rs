//! Returns messages to the queue (SC-40).

use std::time::Duration;

use aws_sdk_sqs::Client;
use tokio::time::{Instant, sleep};

use super::Shared;
use super::error::{Failure, describe, is_final, may_be_done};

const INITIAL_DELAY: Duration = Duration::from_millis(200);
const MAX_DELAY: Duration = Duration::from_secs(5);

/// Why a message could not be released.
struct Unreleased {
    why: String,
    /// A retry would fail, too.
    is_final: bool,
    /// When SQS may have released it at the earliest, since there is no answer that says otherwise.
    may_be_visible: Option<Instant>,
}

impl Shared {
    /// Releases a message: it becomes visible again after a delay in seconds, computed from its receive count. Retries
    /// until its visibility timeout, which may be hours, makes it visible anyway. Once that may be the case, no request
    /// is sent: another consumer may have the message, and SQS may accept the former receipt handle.
    pub(super) async fn make_visible(&self, number: u64, seconds: impl FnOnce(u32) -> i32) {
        if let Some(is_new) = self.leases.end_expired(number, Instant::now()) {
            self.metrics.leases_lost.inc_by(is_new.into());
            return;
        }
        let Some(lease) = self.leases.end(number).filter(|lease| !lease.is_lost()) else {
            return;
        };
        let seconds = seconds(lease.received);
        let (mut until, mut delay) = (lease.until(), INITIAL_DELAY);
        while let Err(failure) = self.set_visible(&lease.handle, seconds, until).await {
            let why = failure.why;
            until = failure.may_be_visible.unwrap_or(until).min(until);
            if failure.is_final || Instant::now() + delay >= until {
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

    /// `until`: when the message may become visible without this.
    async fn set_visible(
        &self,
        handle: &str,
        seconds: i32,
        until: Instant,
    ) -> Result<(), Unreleased> {
        let url = self.queues.url(&self.own).await;
        let url = url.map_err(|failure| Unreleased {
            is_final: matches!(failure, Failure::Refused(_)),
            why: failure.to_string(),
            may_be_visible: None,
        })?;
        // By the clock and at the last moment, since this process may have been suspended meanwhile.
        let asked = Instant::now();
        if asked >= until {
            return Err(Unreleased {
                is_final: true,
                why: "it may have expired already".to_owned(),
                may_be_visible: None,
            });
        }
        let request = |sqs: &Client| {
            sqs.change_message_visibility()
                .queue_url(&url)
                .receipt_handle(handle)
                .visibility_timeout(seconds)
                .send()
        };
        let delay = Duration::from_secs(seconds.unsigned_abs().into());
        let released = self.api.send(request).await;
        released.map(drop).map_err(|error| Unreleased {
            why: describe(&error),
            is_final: is_final(&error),
            may_be_visible: may_be_done(&error).then_some(asked + delay),
        })
    }
}
