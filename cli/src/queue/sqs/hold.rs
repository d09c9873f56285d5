//! How long SQS hides a message that this program holds.

use std::time::{Duration, Instant};

use aws_sdk_sqs::types::ChangeMessageVisibilityBatchRequestEntry as VisibilityChange;

use super::{BATCH, Receipt, Sqs, failure, refusal, seconds};
use crate::answer::Failure;

/// Visibility timeout of received messages, which bounds how long they stay hidden if this program is killed.
pub const HIDDEN: Duration = Duration::from_mins(1);
/// If a message has less time left than this, its visibility timeout is extended before anything is done with it.
const SPARE: Duration = Duration::from_secs(30);
/// Maximum visibility timeout of SQS.
const MAX_HIDDEN: Duration = Duration::from_hours(12);

/// The time for which SQS hides a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    since: Instant,
    until: Instant,
}

impl Hold {
    /// The hold on a message that is requested now.
    pub fn new(now: Instant) -> Self {
        Self {
            since: now,
            until: now + HIDDEN,
        }
    }

    /// Whether little or no time is left.
    pub fn is_short(&self, now: Instant) -> bool {
        self.until.saturating_duration_since(now) < SPARE
    }

    /// Whether SQS may have taken the message back.
    pub fn is_over(&self, now: Instant) -> bool {
        now >= self.until
    }

    /// By how much to extend the hold: more each time, so that many messages need few requests, but a killed program
    /// does not hide them for much longer than it has run.
    pub fn extension(&self, now: Instant) -> Duration {
        let held = now.saturating_duration_since(self.since);
        (HIDDEN + held).min(MAX_HIDDEN.saturating_sub(held))
    }

    /// The hold after SQS has accepted the extension requested at `now`.
    pub fn extended(self, now: Instant) -> Self {
        Self {
            until: now + self.extension(now),
            ..self
        }
    }
}

impl Sqs {
    /// Changes the visibility timeout of messages; returns for each whether this program still holds it.
    pub(super) async fn hide<'a>(
        &mut self,
        queue: &str,
        messages: impl IntoIterator<Item = (&'a Receipt, Duration)>,
    ) -> Result<Vec<bool>, Failure> {
        let invalid = |error| Failure::new(format!("SQS, queue {queue}: {error}"));
        let entries = messages
            .into_iter()
            .enumerate()
            .map(|(at, (message, time))| {
                VisibilityChange::builder()
                    .id(at.to_string())
                    .receipt_handle(&message.handle)
                    .visibility_timeout(seconds(time))
                    .build()
                    .map_err(invalid)
            });
        let entries: Vec<VisibilityChange> = entries.collect::<Result<_, _>>()?;
        let mut held = vec![true; entries.len()];
        let request = self.client.change_message_visibility_batch();
        let request = request.queue_url(self.url(queue).await?);
        let changed = request.set_entries(Some(entries)).send().await;
        for failed in changed.map_err(|error| failure(queue, &error))?.failed() {
            if !is_lapsed(failed.code()) {
                let (code, why) = (failed.code(), failed.message().unwrap_or_default());
                return Err(refusal(queue, code, why));
            }
            let entry = failed.id().parse().ok();
            if let Some(held) = entry.and_then(|at: usize| held.get_mut(at)) {
                *held = false;
            }
        }
        Ok(held)
    }

    /// Extends the holds of messages that have little time left.
    pub(super) async fn extend(
        &mut self,
        queue: &str,
        held: Vec<&mut Receipt>,
    ) -> Result<(), Failure> {
        let now = (self.clock)();
        let is_short = |it: &&mut Receipt| it.hold.is_some_and(|hold| hold.is_short(now));
        let mut short: Vec<&mut Receipt> = held.into_iter().filter(is_short).collect();
        for batch in short.chunks_mut(BATCH) {
            let now = (self.clock)();
            let times = batch
                .iter()
                .filter_map(|it| Some((&**it, it.hold?.extension(now))));
            let times: Vec<(&Receipt, Duration)> = times.collect();
            let held = self.hide(queue, times).await?;
            for (receipt, is_held) in batch.iter_mut().zip(held) {
                receipt.hold = receipt.hold.filter(|_| is_held).map(|it| it.extended(now));
            }
        }
        Ok(())
    }
}

/// Whether an error means that a receipt no longer holds its message. SQS uses several codes, with or without a prefix.
pub fn is_lapsed(code: &str) -> bool {
    let name = code.rsplit(['.', '#']).next().unwrap_or(code);
    matches!(
        name.trim_end_matches("Exception"),
        "MessageNotInflight" | "ReceiptHandleIsInvalid" | "InvalidParameterValue"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_is_hidden_for_longer_before_its_time_is_over() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut hold = Hold::new(start);
        for (now, is_short, is_over) in [
            (0, false, false),
            (30, false, false),
            (31, true, false),
            (59, true, false),
            (60, true, true),
        ] {
            let found = (hold.is_short(at(now)), hold.is_over(at(now)));
            assert_eq!(found, (is_short, is_over), "{now}");
        }
        // From 31 on for 91 s, and from 100 on for 160 s.
        for (now, over) in [(31, 122), (100, 260)] {
            hold = hold.extended(at(now));
            assert!(
                !hold.is_over(at(over - 1)) && hold.is_over(at(over)),
                "{now}"
            );
        }
        let half_a_day = 43_200;
        let last = Hold::new(start).extended(at(half_a_day - 10));
        assert!(last.is_over(at(half_a_day)));
    }
}
