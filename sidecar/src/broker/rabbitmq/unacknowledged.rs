//! Deliveries that the broker still considers unacknowledged: unsettled ones, and those whose acknowledgements wait to
//! share a frame and a write. A separate acknowledgement each would cost the sidecar and the broker a system call and,
//! on a quorum queue, the broker a log entry (SC-102).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

/// How long an acknowledgement waits for others.
const DELAY: Duration = Duration::from_millis(1);
/// At most the prefetch divided by this may wait to be acknowledged, so that the broker can always deliver more.
const PENDING_DIVISOR: usize = 4;

/// Delivery tags, by what they wait for.
#[derive(Debug, Default)]
pub(super) struct Unacknowledged {
    unsettled: BTreeMap<u64, Unsettled>,
    /// To be acknowledged.
    done: BTreeSet<u64>,
    since: Option<Instant>,
}

#[derive(Debug)]
struct Unsettled {
    consumer: String,
    since: Instant,
}

/// An acknowledgement frame: of one delivery, or of all up to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Acknowledgement {
    One(u64),
    UpTo(u64),
}

impl Unacknowledged {
    pub(super) fn delivered(&mut self, tag: u64, consumer: String) {
        let since = Instant::now();
        self.unsettled.insert(tag, Unsettled { consumer, since });
    }

    /// Settles a delivery; false if it was settled before. The caller rejects those that are not acknowledged.
    pub(super) fn settle(&mut self, tag: u64, acknowledged: bool) -> bool {
        let was_unsettled = self.unsettled.remove(&tag).is_some();
        if was_unsettled && acknowledged {
            self.done.insert(tag);
            self.since.get_or_insert_with(Instant::now);
        }
        was_unsettled
    }

    /// Unsettled deliveries, with their consumers.
    pub(super) fn unsettled(&self) -> impl Iterator<Item = (u64, &String)> {
        let unsettled = self.unsettled.iter();
        unsettled.map(|(tag, delivery)| (*tag, &delivery.consumer))
    }

    /// The age of the oldest unsettled delivery.
    pub(super) fn age(&self) -> Option<Duration> {
        let (_, oldest) = self.unsettled.first_key_value()?;
        Some(oldest.since.elapsed())
    }

    /// Whether enough acknowledgements are pending to be sent at once. `prefetch` is the total of all consumers.
    pub(super) fn is_batch_due(&self, prefetch: usize) -> bool {
        !self.done.is_empty() && self.done.len() >= prefetch / PENDING_DIVISOR
    }

    /// When the pending acknowledgements must be sent; `None` if there are none.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.since.map(|since| since + DELAY)
    }

    /// Takes the pending acknowledgements, in as few frames as possible: only those below all unsettled deliveries can
    /// share one.
    pub(super) fn take_acknowledgements(&mut self) -> Vec<Acknowledgement> {
        self.since = None;
        let mut first = std::mem::take(&mut self.done);
        let others = match self.unsettled.first_key_value() {
            Some((unsettled, _)) => first.split_off(unsettled),
            None => BTreeSet::new(),
        };
        let merged = first.last().map(|last| match first.len() {
            1 => Acknowledgement::One(*last),
            _ => Acknowledgement::UpTo(*last),
        });
        let others = others.into_iter().map(Acknowledgement::One);
        merged.into_iter().chain(others).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Acknowledgement::{One, UpTo};
    use super::{DELAY, Unacknowledged};

    /// Deliveries with the tags from 1 to `last`.
    fn delivered(last: u64) -> Unacknowledged {
        let mut all = Unacknowledged::default();
        for tag in 1..=last {
            all.delivered(tag, "consumer".to_owned());
        }
        all
    }

    /// SC-72, SC-102: an unsettled delivery is never acknowledged with others, and a rejected one holds none up.
    #[tokio::test]
    async fn only_deliveries_below_all_unsettled_ones_share_an_acknowledgement() {
        for (last, done, nacked, expected) in [
            (1, &[] as &[u64], &[] as &[u64], &[] as &[_]),
            (1, &[1], &[], &[One(1)]),
            (3, &[3, 1, 2], &[], &[UpTo(3)]),
            (4, &[1, 2, 4], &[], &[UpTo(2), One(4)]),
            (4, &[1, 3, 4], &[], &[One(1), One(3), One(4)]),
            (3, &[2, 3], &[], &[One(2), One(3)]),
            (8, &[1, 3], &[2], &[UpTo(3)]),
            (3, &[2, 3], &[1], &[UpTo(3)]),
        ] {
            let mut all = delivered(last);
            for tag in done {
                assert!(all.settle(*tag, true));
                assert!(!all.settle(*tag, true), "each once");
            }
            for tag in nacked {
                assert!(all.settle(*tag, false));
            }
            assert_eq!(
                all.take_acknowledgements(),
                expected,
                "{last} {done:?} {nacked:?}"
            );
            assert_eq!(all.take_acknowledgements(), [], "each once");
            assert_eq!(
                all.unsettled().count() + done.len() + nacked.len(),
                usize::try_from(last).expect("few")
            );
        }
    }

    /// SC-102
    #[tokio::test(start_paused = true)]
    async fn acknowledgement_waits_for_a_quarter_of_the_prefetch_and_no_longer_than_a_millisecond()
    {
        let mut all = delivered(5);
        assert!(!all.is_batch_due(1) && all.deadline().is_none());
        all.settle(1, true);
        assert!(
            all.is_batch_due(1),
            "with one message in flight nothing is gained"
        );
        assert!(!all.is_batch_due(17));
        let deadline = all.deadline().expect("one waits");
        assert_eq!(deadline, tokio::time::Instant::now() + DELAY);
        tokio::time::advance(DELAY / 2).await;
        for tag in 2..=4 {
            all.settle(tag, true);
        }
        assert!(all.is_batch_due(17));
        assert_eq!(all.deadline(), Some(deadline));
        all.take_acknowledgements();
        assert_eq!(all.deadline(), None);
        assert_eq!(all.unsettled().count(), 1);
    }
}
