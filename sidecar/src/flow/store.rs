//! Publishes one message until it is stored, or for as long as that makes sense (SC-26, SC-28).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::Context;
use crate::broker::{Broker, Publication, Refusal};
use crate::decide::Kind;
use crate::runtime::Runtime;

/// All pauses of one publication together.
const PATIENCE: Duration = Duration::from_secs(10);
/// First pause where the queue does not take it now.
const NOT_NOW: Duration = Duration::from_millis(400);

/// What came of a publication, and its size.
pub(super) type Stored = (Kind, usize, Result<(), Refusal>);

/// Publishes again after pauses; `first` is the first attempt, which is on its way already.
pub(super) async fn store<B: Broker, R: Runtime>(
    context: Arc<Context<B, R>>,
    kind: Kind,
    actor: String,
    publication: Publication,
    first: impl Future<Output = Result<(), Refusal>>,
) -> Stored {
    let (began, size) = (Instant::now(), publication.body.len());
    let mut result = first.await;
    let mut pauses = Pauses::default();
    while let Err(refusal) = &result {
        let Some(pause) = pauses.next(refusal, context.queue_backoff) else {
            break;
        };
        sleep(pause).await;
        result = context.broker.publish(publication.clone()).await;
    }
    if result.is_ok() {
        context
            .metrics
            .sent(kind, &actor, &publication.queue, size, began.elapsed());
    }
    (kind, size, result)
}

/// Waits for all of them; they run at the same time.
pub(super) async fn all(
    sending: Vec<impl Future<Output = Stored> + Send + 'static>,
) -> Vec<Stored> {
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

/// Doubling pauses.
#[derive(Debug, Default)]
struct Pauses {
    spent: Duration,
    last: Option<Duration>,
}

impl Pauses {
    /// The next pause; `None`: another attempt makes no sense.
    fn next(&mut self, refusal: &Refusal, missing: Duration) -> Option<Duration> {
        let first = match refusal {
            Refusal::NoQueue | Refusal::Forbidden(_) => missing,
            Refusal::NotNow => NOT_NOW,
            Refusal::TooLarge | Refusal::Closing => return None,
        };
        let pause = self
            .last
            .map_or(first, |last| last * 2)
            .min(PATIENCE.saturating_sub(self.spent));
        if pause.is_zero() {
            return None;
        }
        self.spent += pause;
        self.last = Some(pause);
        Some(pause)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{PATIENCE, Pauses};
    use crate::broker::Refusal;

    fn pauses(refusal: &Refusal) -> Vec<u64> {
        let mut pauses = Pauses::default();
        let next = || pauses.next(refusal, Duration::from_secs(1));
        std::iter::from_fn(next)
            .map(|pause| u64::try_from(pause.as_millis()).unwrap_or(u64::MAX))
            .collect()
    }

    /// SC-26, SC-28
    #[test]
    fn a_publication_is_tried_for_ten_seconds_unless_that_makes_no_sense() {
        for (refusal, expected) in [
            (Refusal::NoQueue, &[1000, 2000, 4000, 3000][..]),
            (Refusal::NotNow, &[400, 800, 1600, 3200, 4000]),
            (Refusal::TooLarge, &[]),
            (Refusal::Closing, &[]),
        ] {
            let found = pauses(&refusal);
            assert_eq!(found, expected, "{refusal:?}");
            assert!(found.is_empty() || Duration::from_millis(found.iter().sum()) == PATIENCE);
        }
    }
}
