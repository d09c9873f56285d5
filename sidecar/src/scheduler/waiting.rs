//! Prefetched messages that wait for a slot, in delivery order (SC-46).

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::broker::Delivery;

/// Messages, and when they were queued.
#[derive(Default)]
pub(super) struct Waiting(VecDeque<(Instant, Delivery)>);

impl Waiting {
    pub(super) fn push(&mut self, delivery: Delivery) {
        self.0.push_back((Instant::now(), delivery));
    }

    /// Puts back what [`Self::pop`] has returned.
    pub(super) fn put_back(&mut self, since: Instant, delivery: Delivery) {
        self.0.push_front((since, delivery));
    }

    /// The next message whose delivery is not lost, and when it was queued.
    pub(super) fn pop(&mut self) -> Option<(Instant, Delivery)> {
        while let Some((since, delivery)) = self.0.pop_front() {
            if !delivery.receipt.is_lost() {
                return Some((since, delivery));
            }
        }
        None
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// When the one that has waited longest was queued.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.0.iter().map(|(since, _)| *since).min()
    }

    /// When each of them was delivered.
    pub(super) fn delivered(&self) -> impl Iterator<Item = Instant> {
        self.0.iter().map(|(_, delivery)| delivery.since)
    }

    pub(super) fn take_older_than(&mut self, age: Duration) -> Vec<Delivery> {
        let now = Instant::now();
        self.take(|since, _| now - since >= age)
    }

    pub(super) fn take_matching(
        &mut self,
        mut which: impl FnMut(&Delivery) -> bool,
    ) -> Vec<Delivery> {
        self.take(|_, delivery| which(delivery))
    }

    fn take(&mut self, mut which: impl FnMut(Instant, &Delivery) -> bool) -> Vec<Delivery> {
        let (taken, left) = std::mem::take(&mut self.0)
            .into_iter()
            .partition::<Vec<_>, _>(|(since, delivery)| which(*since, delivery));
        self.0 = left.into();
        taken.into_iter().map(|(_, delivery)| delivery).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{Instant, sleep};
    use tokio_util::sync::CancellationToken;

    use super::Waiting;
    use crate::broker::{Delivery, Origin, Receipt};
    use crate::decide::Deliveries;

    /// SC-13: it is held for 10 s, however often it is looked at meanwhile.
    #[tokio::test(start_paused = true)]
    async fn message_that_is_put_back_has_waited_since_it_was_queued() {
        let mut waiting = Waiting::default();
        let since = Instant::now();
        waiting.push(Delivery {
            receipt: Receipt::new(1, 1, CancellationToken::new()),
            body: "{}".into(),
            size: 2,
            deliveries: Deliveries::First,
            origin: Origin::default(),
            since,
        });
        sleep(Duration::from_secs(9)).await;
        let (queued, delivery) = waiting.pop().expect("a message");
        waiting.put_back(queued, delivery);
        assert_eq!(waiting.oldest(), Some(since));
    }
}
