//! Publishes one message with retries (SC-26, SC-28).

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::Context;
use crate::broker::{Broker, MAX_STALLED_SIZE, Publication, Refusal};
use crate::decide::{Kind, OutgoingMessage};
use crate::intake::Stalled;
use crate::runtime::Runtime;

/// Upper bound for the total retry delay of a publication.
const RETRY_LIMIT: Duration = Duration::from_secs(10);
/// Initial retry delay after a `basic.nack` from the broker.
const NACK_DELAY: Duration = Duration::from_millis(400);

/// The result of a publication, and its size in bytes.
pub(super) type Published = (Kind, usize, Result<(), Refusal>);

/// Shared by the publications of a message. The message is stalled while any of them is retried because its destination
/// is missing.
pub(super) type Stall = Arc<OnceLock<Stalled>>;

/// Publishes with retries and backoff. `first` is the first attempt, which is already queued. Without `stall`, the
/// message is too large for others to be delivered in its place.
pub(super) async fn publish<B: Broker, R: Runtime>(
    context: Arc<Context<B, R>>,
    kind: Kind,
    actor: String,
    publication: Publication,
    first: impl Future<Output = Result<(), Refusal>>,
    stall: Option<Stall>,
) -> Published {
    let (began, size) = (Instant::now(), publication.body.len());
    let mut result = first.await;
    let mut backoff = PublishBackoff::default();
    while let Err(refusal) = &result {
        let Some(delay) = backoff.next(refusal, context.queue_backoff) else {
            break;
        };
        // A full queue must slow its senders down, so the messages that it refuses are not compensated for.
        let is_missing = matches!(refusal, Refusal::NoQueue | Refusal::Forbidden(_));
        if let Some(stall) = stall.as_ref().filter(|_| is_missing) {
            stall.get_or_init(|| context.intake.stalled());
        }
        sleep(delay).await;
        result = context.broker.publish(publication.clone()).await;
    }
    if result.is_ok() {
        context
            .metrics
            .sent(kind, &actor, &publication.queue, size, began.elapsed());
    }
    (kind, size, result)
}

/// Whether other messages may be delivered while publishing the results is retried.
pub(super) fn may_stall(body: usize, results: &[OutgoingMessage]) -> bool {
    let results: usize = results.iter().map(|message| message.body.len()).sum();
    body + results <= MAX_STALLED_SIZE
}

/// Awaits all publications concurrently.
pub(super) async fn all(
    sending: Vec<impl Future<Output = Published> + Send + 'static>,
) -> Vec<Published> {
    if sending.len() == 1 {
        let mut stored = Vec::with_capacity(1);
        for one in sending {
            stored.push(one.await);
        }
        return stored;
    }
    let mut tasks = tokio::task::JoinSet::new();
    for one in sending {
        tasks.spawn(one);
    }
    tasks.join_all().await
}

/// Exponential backoff.
#[derive(Debug, Default)]
struct PublishBackoff {
    spent: Duration,
    last: Option<Duration>,
}

impl PublishBackoff {
    /// The next delay; `None` if a retry is pointless or retries are exhausted.
    fn next(&mut self, refusal: &Refusal, missing: Duration) -> Option<Duration> {
        let first = match refusal {
            Refusal::NoQueue | Refusal::Forbidden(_) => missing,
            Refusal::Nacked => NACK_DELAY,
            Refusal::TooLarge | Refusal::Closing => return None,
        };
        let delay = self
            .last
            .map_or(first, |last| last * 2)
            .min(RETRY_LIMIT.saturating_sub(self.spent));
        if delay.is_zero() {
            return None;
        }
        self.spent += delay;
        self.last = Some(delay);
        Some(delay)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{PublishBackoff, RETRY_LIMIT};
    use crate::broker::Refusal;

    fn backoff(refusal: &Refusal) -> Vec<u64> {
        let mut backoff = PublishBackoff::default();
        let next = || backoff.next(refusal, Duration::from_secs(1));
        std::iter::from_fn(next)
            .map(|delay| u64::try_from(delay.as_millis()).unwrap_or(u64::MAX))
            .collect()
    }

    /// SC-26, SC-28
    #[test]
    fn publication_is_retried_for_ten_seconds_if_retryable() {
        for (refusal, expected) in [
            (Refusal::NoQueue, &[1000, 2000, 4000, 3000][..]),
            (Refusal::Nacked, &[400, 800, 1600, 3200, 4000]),
            (Refusal::TooLarge, &[]),
            (Refusal::Closing, &[]),
        ] {
            let found = backoff(&refusal);
            assert_eq!(found, expected, "{refusal:?}");
            assert!(found.is_empty() || Duration::from_millis(found.iter().sum()) == RETRY_LIMIT);
        }
    }
}
