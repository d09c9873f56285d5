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

    pub(super) fn put_back(&mut self, delivery: Delivery) {
        self.0.push_front((Instant::now(), delivery));
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

    pub(super) fn oldest(&self) -> Option<Instant> {
        self.0.iter().map(|(since, _)| *since).min()
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
