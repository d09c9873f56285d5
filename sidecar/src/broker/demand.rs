//! Consumer demand, and the channel that carries it to the consumer.

use tokio::sync::watch;

/// How many messages the consumer should keep in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Messages that can be processed concurrently; 0 stops consuming.
    pub slots: usize,
    /// Messages that may be prefetched in addition.
    pub lookahead: usize,
}

impl Demand {
    /// Upper bound of messages in flight.
    #[must_use]
    pub fn in_flight(self) -> usize {
        if self.slots == 0 {
            0
        } else {
            self.slots + self.lookahead
        }
    }
}

#[derive(Clone)]
pub(super) struct DemandSender(watch::Sender<Demand>);

/// A channel with zero initial demand.
pub(super) fn channel() -> (DemandSender, watch::Receiver<Demand>) {
    let (sender, receiver) = watch::channel(Demand::default());
    (DemandSender(sender), receiver)
}

impl DemandSender {
    /// Wakes the consumer only if the demand has changed.
    pub(super) fn set(&self, demand: Demand) {
        self.0
            .send_if_modified(|now| std::mem::replace(now, demand) != demand);
    }

    /// Makes the consumer re-evaluate its prefetch, although the demand itself has not changed.
    pub(super) fn wake(&self) {
        self.0.send_modify(|_| {});
    }
}
